"""A model in this process: load it once, generate replies, evaluate it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from palaestra.api.waiting import wait
from palaestra.core.errors import InputError
from palaestra.core.message import Message, user
from palaestra.core.model import Prompt, Sampling

if TYPE_CHECKING:
    from palaestra.core.model import Model

CONTEXT = 2048  # tokens of a conversation, by default
SLOTS = 66  # concurrent conversations


class Policy:
    """A loaded model, returned by `load`; `evaluate(…, model=policy)` lets it act."""

    def __init__(self, name: str, model: Model) -> None:
        self.name, self.model = name, model

    def reply(
        self,
        prompt: str | Sequence[Message],
        *,
        max_tokens: int = 128,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> str:
        """Return its reply to a text or a conversation.

        Raises:
            ContextTooLong: the conversation leaves no room for a reply.
            InputError: `prompt` holds something else than messages, images for a model that reads
                text only, or an image that cannot be read.
        """
        return wait(
            lambda: self.areply(prompt, max_tokens=max_tokens, temperature=temperature, seed=seed)
        )

    async def areply(
        self,
        prompt: str | Sequence[Message],
        *,
        max_tokens: int = 128,
        temperature: float = 0.0,
        seed: int = 0,
    ) -> str:
        """Reply like `reply`, to be awaited."""
        messages = [user(prompt)] if isinstance(prompt, str) else list(prompt)
        for message in messages:
            if not isinstance(message, Message):
                raise InputError(
                    f"A conversation holds messages, not {message!r:.60}; write "
                    "[palaestra.user('…')]."
                )
        renderer = self.model.renderer
        assert renderer is not None  # of `load`
        if not renderer.sees and any(message.images for message in messages):
            raise InputError(
                f"The model '{self.name}' reads text only; leave the images out, or load a model "
                "that sees."
            )
        tokens = tuple(renderer.start(messages))
        sampling = Sampling(temperature, max_tokens)
        images = renderer.images(messages, tokens)
        asked = Prompt(messages, tokens, sampling, seed, images=images)
        return (await self.model.generate(asked)).text

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        from palaestra.models.local.packed_weights import parameters_of
        from palaestra.models.local.resident import ResidentModel

        assert isinstance(self.model.host, ResidentModel)  # of `load`
        parameters = parameters_of(self.model.host.network)
        return f"<Policy {self.name}: {parameters / 1e6:.1f} million parameters>"


def load(
    name: str | Path,
    *,
    context: int | None = None,
    keep_thoughts: bool = False,
    progress: bool = True,
) -> Policy:
    """Load a policy into this process.

    Args:
        name: the folder of a run (its trained policy) or of a Hugging Face checkpoint, a GGUF file,
            an id of the Hugging Face hub, or a local model of `palaestra list models`.
        context: its longest conversation, in tokens; by default 2048, or the model's own if that
            is shorter.
        keep_thoughts: whether a conversation goes on with its earlier thoughts where the chat
            template would drop them.
        progress: whether to show progress on standard error.

    Raises:
        UnknownName: no such model, and no such folder.
        InputError: the run has no trained policy yet, the checkpoint cannot be had or read, or its
            context is shorter than `context`.
    """
    from palaestra.api.reporting import reporter
    from palaestra.models.local.bases import LoadedBases
    from palaestra.models.registry import check_context, checkpoint

    found = checkpoint(str(name), reporter(progress).say)
    if context is not None:
        check_context(str(name), found.folder, context, "context")
    longest = CONTEXT if context is None else context
    model = LoadedBases().load(
        str(name), found, slots=SLOTS, context=longest, keep_thoughts=keep_thoughts
    )
    return Policy(str(name), model)
