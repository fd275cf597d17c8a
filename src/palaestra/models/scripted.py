"""The scripted model: replies known beforehand, for tests and baselines.

Its replies depend on the conversation alone, so any number of sessions can share one, in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from palaestra.core.errors import InfrastructureFault
from palaestra.core.message import Message
from palaestra.core.model import Finish, Generation, Model, Prompt, Renderer

Script = Sequence[str] | Callable[[Sequence[Message]], str]


class ScriptedModel(Model):
    """Answers from a list (its n-th reply in a conversation) or from a function of the messages."""

    def __init__(
        self, script: Script, *, renderer: Renderer | None = None, name: str = "scripted"
    ) -> None:
        self.name = name
        self.renderer = renderer
        self._script = script

    async def generate(self, prompt: Prompt) -> Generation:
        """The scripted reply.

        Raises:
            InfrastructureFault: the list has no reply left.
        """
        return certain(self._reply(prompt.messages), prompt, self)

    def _reply(self, messages: Sequence[Message]) -> str:
        if callable(self._script):
            return self._script(messages)
        turn = [message.role for message in messages].count("assistant")
        if turn >= len(self._script):
            raise InfrastructureFault(
                "script",
                f"{self.name} was asked for reply {turn + 1} and has {len(self._script)}; "
                "add replies or end the episode earlier",
            )
        return self._script[turn]


def certain(text: str, prompt: Prompt, model: Model) -> Generation:
    """A reply that was not sampled but given: every log-probability is 0.0.

    With a renderer its tokens are those that the model would have to sample, cut at the prompt's
    `max_tokens` as a sampled reply would be. Without one it has no tokens.
    """
    tokens = tuple(model.renderer.reply(text)) if model.renderer else ()
    finish = Finish.STOP
    limit = prompt.sampling.max_tokens
    if model.renderer and len(tokens) > limit:
        tokens, finish = tokens[:limit], Finish.LENGTH
        text = model.renderer.text(tokens)
    return Generation(
        text=text,
        tokens=tokens,
        logprobs=(0.0,) * len(tokens),
        finish=finish,
        policy=model.name,
        version=0,
        prompt_tokens=len(prompt.tokens or ()),
    )
