"""The scripted model: replies known beforehand, for tests and baselines.

Its replies depend only on the conversation, so any number of sessions can share one, in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from palaestra.core.errors import InfrastructureFault
from palaestra.core.message import Message, assistant
from palaestra.core.model import Finish, Generation, Model, Prompt, Renderer, Reply
from palaestra.models.renderers.model_families import ReplyFormat
from palaestra.models.renderers.tool_conventions import identified, read_reply

Script = Sequence[str | Message] | Callable[[Sequence[Message]], str | Message]
"""Replies as text, or as messages with calls and reasoning; given as a list or a function."""


class ScriptedModel(Model):
    """A model that replies from a list (its n-th reply in a conversation) or from a function."""

    def __init__(
        self,
        script: Script,
        *,
        renderer: Renderer | None = None,
        name: str = "scripted",
        native_tools: bool | None = None,
    ) -> None:
        """Reply as `script` says.

        Args:
            script: its replies, or a function of the messages that returns them.
            renderer: turns replies into tokens; None means the model exposes no tokens.
            name: its name in records.
            native_tools: whether it takes tools; None: as its renderer does, or, without one,
                if a list of replies holds messages.
        """
        self.name = name
        self.renderer = renderer
        if native_tools is None and renderer is not None:
            native_tools = renderer.native_tools
        elif native_tools is None:
            native_tools = not callable(script) and any(isinstance(one, Message) for one in script)
        self.native_tools = native_tools
        self._script = script

    async def generate(self, prompt: Prompt) -> Generation:
        """Return the scripted reply.

        Raises:
            InfrastructureFault: the list has no reply left.
        """
        reply = self._reply(prompt.messages)
        generation = given_generation(reply, prompt, self)
        if isinstance(reply, Message):
            return replace(generation, signature=reply.signature)
        return generation

    def _reply(self, messages: Sequence[Message]) -> str | Message:
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


def given_generation(given: str | Message, prompt: Prompt, model: Model) -> Generation:
    """Return a reply that was given, not sampled: every log-probability is 0.0.

    A reply is a text or a message. If the prompt offers tools, `<tool_call>` tags in a text are
    calls. With a renderer, the tokens are those that the model would have to sample, cut at the
    prompt's `max_tokens`. Without a renderer there are no tokens.
    """
    reply = _reply(given, prompt)
    if model.renderer is None:
        return _given(reply, (), Finish.STOP, prompt, model)
    tokens = given_tokens(given, prompt, model.renderer)
    limit = model.limited(prompt.sampling).max_tokens
    if limit is None or len(tokens) <= limit:
        return _given(reply, tokens, Finish.STOP, prompt, model)
    tokens = tokens[:limit]
    reply = read_reply(model.renderer, prompt, model.renderer.text(tokens))
    return _given(reply, tokens, Finish.LENGTH, prompt, model)


def given_tokens(given: str | Message, prompt: Prompt, renderer: Renderer) -> tuple[int, ...]:
    """Return the tokens that the model would have to sample for a reply, the end token included."""
    if isinstance(given, str) and (calls := _reply(given, prompt)).tool_calls:
        given = assistant(calls.text, tool_calls=calls.tool_calls)
    return tuple(renderer.reply(given))


def _reply(given: str | Message, prompt: Prompt) -> Reply:
    """Return the parts of a scripted reply; calls within a text are in Hermes tags."""
    if isinstance(given, Message):
        return Reply(given.text, given.reasoning, given.tool_calls)
    if "<" not in given:  # neither reasoning nor a call begins
        return Reply(given)
    found = ReplyFormat().parse(given, calls=bool(prompt.tools))
    return found._replace(tool_calls=identified(found.tool_calls, prompt.seed))


def _given(
    reply: Reply, tokens: tuple[int, ...], finish: Finish, prompt: Prompt, model: Model
) -> Generation:
    return Generation(
        text=reply.text,
        reasoning=reply.reasoning,
        tool_calls=reply.tool_calls,
        tokens=tokens,
        logprobs=(0.0,) * len(tokens),
        finish=finish,
        policy=model.name,
        version=0,
        prompt_tokens=len(prompt.tokens or ()),
    )
