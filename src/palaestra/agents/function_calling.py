"""Function calling: tools as JSON schemas, and replies that call them in `<tool_call>` tags.

The convention is that of Hermes 2 Pro (Nous Research, 2024), on which Qwen's models are trained:

    <tool_call>
    {"name": "swap", "arguments": {"place": 2}}
    </tool_call>

Results come back in `<tool_response>` tags in a user message. Qwen's own chat template renders a
message of role `tool` like this, and other templates accept it. All calls of a reply are executed
in order. A reply without a call is a text action, and so is a call that does not fit the schema:
the environment replies what is wrong with it. An environment without tools gets one, `act`.

This is the fallback for models without native tools. A model with `native_tools` receives the
tools as schemas, through its chat template or its server, and each result by the id of its call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from palaestra.agents.tool_calling import BY_ACT, NativeHistory, act_natively, in_tags
from palaestra.core.agent import Agent
from palaestra.core.environment import Action
from palaestra.core.message import Message, ToolCall, system, user
from palaestra.core.session import Session
from palaestra.core.tool import ACT, NotACall, Tool, parse_call

FORMAT = (
    "To call a tool, reply with its name and arguments as JSON between tags:\n"
    '<tool_call>\n{"name": "…", "arguments": {…}}\n</tool_call>\n'
    "You will read what it returned between <tool_response> tags."
)
_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|$)", re.DOTALL)
_OBJECT = re.compile(r"\A\s*(?:```(?:json)?\s*)?(\{.*\})\s*(?:```)?\s*\Z", re.DOTALL)


class ToolsAgent(Agent):
    """Function calling: native where the model supports it, else in `<tool_call>` tags."""

    name = "tools"

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        if session.can_call_tools():
            instructions = session.instructions + ("" if session.tools else f"\n\n{BY_ACT}")
            await act_natively(session, NativeHistory(instructions, session.observation))
            return
        offered = session.tools
        first = f"{session.instructions}\n\n{listing(offered or (ACT,))}\n\n{FORMAT}"
        messages = [system(first), user(session.observation.text)]
        while not session.over:
            reply = await session.generate(messages)
            results = []
            for action in actions_of(reply.text, session.tools):
                transition = await session.act(action, by=reply)
                results.append(transition.observation.text)
            messages += [reply.message, user(_responses(results, reply.text))]
            if session.tools != offered:
                offered = session.tools
                messages[-1] = user(f"{messages[-1].text}\n\nTools now:\n{listing(offered)}")

    def phrase(self, action: Action) -> str:
        call = action.call or ToolCall(ACT.name, {"action": action.text})
        return in_tags(call)

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        instructions = messages[0].text
        has_act = f'"name": "{ACT.name}"' in instructions or instructions.endswith(BY_ACT)
        if actions[0].call is None and not has_act:
            return actions[0].text  # the environment takes text as well as tool calls
        return self.phrase(actions[0])


def listing(tools: Sequence[Tool]) -> str:
    """Return the tools as JSON schemas, one per line, in tags."""
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
    """Return the actions of a reply: its calls of `tools` or `act` in order, else its text.

    A reply that is the JSON of a call, without the tags, is that call: small models forget them.
    """
    written = _CALL.findall(reply) or _OBJECT.findall(reply)
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
    """Return the results in tags, or as plain text if the reply made no call."""
    if not _CALL.search(reply):
        return "\n".join(results)
    return "\n".join(f"<tool_response>\n{result}\n</tool_response>" for result in results)
