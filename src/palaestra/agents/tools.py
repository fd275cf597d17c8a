"""Function calling: tools told as JSON schemas, replies that call them in `<tool_call>` tags.

The convention is that of Hermes 2 Pro (Nous Research, 2024), which Qwen's models are trained on:

    <tool_call>
    {"name": "swap", "arguments": {"place": 2}}
    </tool_call>

Results come back in `<tool_response>` tags as the user's message: what Qwen's own chat template
makes of a message of role `tool`, and what other templates accept. All calls of a reply are made
in their order. A reply without a call is an action of words, and so is a call that does not fit
the schema: the world answers what is wrong with it. A world without tools has one here, `act`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.message import Message, ToolCall, assistant, system, user
from palaestra.core.session import Session
from palaestra.core.tool import ACT, NotACall, Tool, parse_call

FORMAT = (
    "To call a tool, reply with its name and arguments as JSON between tags:\n"
    '<tool_call>\n{"name": "…", "arguments": {…}}\n</tool_call>\n'
    "You will read what it returned between <tool_response> tags."
)
_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|$)", re.DOTALL)


class ToolsAgent(Agent):
    """Function calling: tools are told as JSON schemas, and called in `<tool_call>` tags."""

    name = "tools"

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        offered = session.tools
        first = f"{session.instructions}\n\n{listing(offered or (ACT,))}\n\n{FORMAT}"
        talk = [system(first), user(session.observation.text)]
        while not session.over:
            reply = await session.generate(talk)
            results = []
            for action in actions_of(reply.text, session.tools):
                transition = await session.act(action, by=reply)
                results.append(transition.observation.text)
            talk += [assistant(reply.text), user(_responses(results, reply.text))]
            if session.tools != offered:
                offered = session.tools
                talk[-1] = user(f"{talk[-1].content}\n\nTools now:\n{listing(offered)}")

    def phrase(self, action: Action) -> str:
        call = action.call or ToolCall(ACT.name, {"action": action.text})
        return f"<tool_call>\n{_json(call.name, dict(call.arguments))}\n</tool_call>"

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        has_act = f'"name": "{ACT.name}"' in messages[0].content
        if actions[0].call is None and not has_act:
            return actions[0].text  # words, in a world of tools that takes words as well
        return self.phrase(actions[0])


def listing(tools: Sequence[Tool]) -> str:
    """The tools as JSON schemas, one a line, in tags."""
    lines = [
        json.dumps(
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": dict(tool.parameters),
                },
            },
            ensure_ascii=False,
        )
        for tool in tools
    ]
    return "\n".join(["<tools>", *lines, "</tools>"])


def actions_of(reply: str, tools: Sequence[Tool]) -> list[Action]:
    """What a reply does: its calls in order, each of one of `tools` or of `act`; else its words."""
    written = _CALL.findall(reply)
    return [_action(part.strip(), tools) for part in written] or [Action(reply.strip())]


def _action(written: str, tools: Sequence[Tool]) -> Action:
    try:
        call = parse_call(written, (*tools, ACT))
    except NotACall:
        return Action(written)
    if call.name == ACT.name and not any(tool.name == ACT.name for tool in tools):
        return Action(str(call.arguments["action"]).strip())
    return Action(str(call), call)


def _responses(results: Sequence[str], reply: str) -> str:
    """The results in tags; as they are where the reply made no call."""
    if not _CALL.search(reply):
        return "\n".join(results)
    return "\n".join(f"<tool_response>\n{result}\n</tool_response>" for result in results)


def _json(name: str, arguments: dict[str, object]) -> str:
    return json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
