"""Acting by native tool calls: the model gets tools as schemas, and its calls come back parsed.

For agents whose model has `native_tools`. Each result refers to its call by id. A reply without a
call is a text action. In an environment without tools, the model acts by the tool `act`, whose
argument is a text action.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from palaestra.agents.history import CUT, Keep
from palaestra.core.chain import Chain
from palaestra.core.environment import Action, Observation, Transition
from palaestra.core.message import Message, ToolCall, system, tool_result, user
from palaestra.core.model import Generation
from palaestra.core.session import Session
from palaestra.core.tool import ACT, Tool

BY_ACT = f"Act by calling the tool '{ACT.name}'."
"""The instruction for environments without tools, whose actions are text."""


class NativeHistory:
    """A conversation with tool calls that keeps all exchanges or only the last ones.

    As in `History`, it always keeps the instructions and the first observation.
    """

    def __init__(self, instructions: str, first: Observation, last: Keep = None) -> None:
        """Begin with the instructions and the first observation; `last=None` keeps all."""
        self._instructions, self._first, self._last = instructions, first, last
        self._exchanges: list[tuple[Message, ...]] = []
        self._whole = Chain([system(instructions), user(first.text, *first.images)])

    def add(self, reply: Generation, answers: Sequence[Message]) -> None:
        """Append a reply and the messages that answer it."""
        exchange = (reply.message, *answers)
        self._exchanges.append(exchange)
        self._whole = self._whole.extended(exchange)

    @property
    def messages(self) -> Sequence[Message]:
        """Return the prompt, which ends with the current observation."""
        cut = 0 if self._last is None else max(0, len(self._exchanges) - self._last)
        if not cut:
            return self._whole
        answers = self._exchanges[cut - 1][1:]  # the observation before the first kept exchange
        before = "\n".join(message.text for message in answers)
        images = [image for message in answers for image in message.images]
        opening = user(f"{self._first.text}{CUT}{before}", *self._first.images, *images)
        kept = [message for exchange in self._exchanges[cut:] for message in exchange]
        return [system(self._instructions), opening, *kept]


async def act_natively(
    session: Session, history: NativeHistory, text_action: Callable[[str], str] = str.strip
) -> None:
    """Generate and act until the episode is over.

    Args:
        session: the episode; its agent's model has `native_tools`.
        history: the prompt.
        text_action: parses the action of a reply without a call.
    """
    while not session.over:
        tools = session.tools
        reply = await session.generate(history.messages, tools=tools or (ACT,))
        if reply.tool_calls:
            done = await _call(session, reply, tools)
            answers = [_result(*pair) for pair in zip(reply.tool_calls, done, strict=False)]
        else:
            seen = (await session.act(text_action(reply.text), by=reply)).observation
            answers = [user(seen.text, *seen.images)]
        history.add(reply, answers)


async def _call(session: Session, reply: Generation, tools: Sequence[Tool]) -> list[Transition]:
    """Execute the calls of a reply in order, until the episode is over."""
    if tools:
        return await session.act(reply.tool_calls, by=reply)
    done: list[Transition] = []
    for call in reply.tool_calls:
        done.append(await session.act(_as_action(call), by=reply))
        if session.over:
            break
    return done


def in_tags(call: ToolCall) -> str:
    """Return a call as text in tags, as models without native tools write it."""
    inner = {"name": call.name, "arguments": dict(call.arguments)}
    return f"<tool_call>\n{json.dumps(inner, ensure_ascii=False)}\n</tool_call>"


def _as_action(call: ToolCall) -> Action:
    """Return the text action of a call of `act`; the environment refuses any other call."""
    text_action = call.arguments.get("action")
    if call.name == ACT.name and isinstance(text_action, str):
        return Action(text_action.strip())
    return Action(str(call), call)


def _result(call: ToolCall, done: Transition) -> Message:
    seen = done.observation
    return tool_result(
        seen.text, id=call.id, error=not done.valid, name=call.name, images=seen.images
    )
