"""A model in this process: load it once, talk to it, evaluate it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from palaestra.api.waiting import wait
from palaestra.core.message import Message, user
from palaestra.core.model import Prompt, Sampling

if TYPE_CHECKING:
    from palaestra.models.resident import ResidentModel

CONTEXT = 2048  # tokens of a conversation
SLOTS = 66  # conversations at once


class Policy:
    """What `load` returns; `evaluate(…, model=policy)` lets it act."""

    def __init__(self, name: str, model: ResidentModel) -> None:
        self.name, self.model = name, model

    def reply(
        self,
        said: str | Sequence[Message],
        *,
        max_tokens: int = 128,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> str:
        """Its answer to a text, or to a conversation.

        Raises:
            ContextTooLong: the conversation leaves no room to answer.
        """
        return wait(
            lambda: self.areply(said, max_tokens=max_tokens, temperature=temperature, seed=seed)
        )

    async def areply(
        self,
        said: str | Sequence[Message],
        *,
        max_tokens: int = 128,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> str:
        """`reply`, to be awaited."""
        messages = [user(said)] if isinstance(said, str) else list(said)
        tokens = tuple(self.model.renderer.start(messages))
        sampling = Sampling(temperature, max_tokens)
        return (await self.model.generate(Prompt(messages, tokens, sampling, seed))).text

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        parameters = sum(p.numel() for p in self.model.network.parameters())
        return f"<Policy {self.name}: {parameters / 1e6:.1f} million parameters>"


def load(name: str | Path, *, context: int = CONTEXT, progress: bool = True) -> Policy:
    """A policy that is ready to act, in this process.

    Args:
        name: the folder of a run (its trained policy) or of a Hugging Face checkpoint, or a local
            model of `palaestra list models`.
        context: its longest conversation, in tokens.
        progress: whether to say on standard error what takes time.

    Raises:
        UnknownName: no such model, and no such folder.
        InputError: the run has no trained policy yet, or the checkpoint cannot be read.
    """
    from palaestra.api.telling import reporter
    from palaestra.models.registry import checkpoint, load_resident

    folder = checkpoint(str(name), reporter(progress).say)
    return Policy(str(name), load_resident(str(name), folder, slots=SLOTS, context=context))
