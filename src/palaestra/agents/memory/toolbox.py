"""Toolbox: the prompt lists only some of many tools, and the model changes which.

Source: Lumer et al. 2025 (MemTool), its autonomous mode. The agent adds two tools to those of the
environment: `find_tools` loads the tools that match some words, `drop_tools` unloads some. At most
`limit` tools are loaded, so their share of the prompt is bounded. A tool that the environment
withdraws is unloaded, and a new one is loaded while the limit allows. These calls take no action.
After `PATIENCE` of them in a row, the reply goes to the environment as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from palaestra.agents.history import History, Keep
from palaestra.agents.memory.memory_agent import RememberingAgent
from palaestra.agents.memory.retrieval import best
from palaestra.agents.react import action_of
from palaestra.core.environment import Action
from palaestra.core.message import Message, ToolCall
from palaestra.core.session import Session
from palaestra.core.tool import NotACall, Tool, parse_call

PATIENCE = 4
HEAD = "Tools at hand:"
FIND = Tool(
    "find_tools",
    "put the tools that fit these words at hand",
    {"type": "object", "properties": {"words": {"type": "string"}}, "required": ["words"]},
)
DROP = Tool(
    "drop_tools",
    "take tools away that are not needed now",
    {
        "type": "object",
        "properties": {"names": {"type": "array", "items": {"type": "string"}}},
        "required": ["names"],
    },
)


class Toolbox(History):
    """A chat whose instructions list the loaded tools only."""

    def __init__(
        self, instructions: str, first: str, last: Keep, limit: int, tools: Sequence[Tool]
    ) -> None:
        super().__init__("", first, last)
        names = "|".join(re.escape(tool.name) for tool in tools) or "(?!)"
        self._without_tools = re.sub(rf"(?m)^\W*(?:{names})\(.*\n?", "", instructions).rstrip()
        self._limit, self._loaded = limit, list(tools[:limit])
        self._offered = tuple(tools)
        self.free = 0  # calls in a row that took no action
        self._rewrite()

    def offer(self, tools: Sequence[Tool]) -> None:
        """Update the loaded tools to those that the environment offers now."""
        if (*tools,) == self._offered:
            return
        kept = [tool for tool in self._loaded if tool in tools]
        new = [tool for tool in tools if tool not in self._offered]
        self._loaded, self._offered = [*kept, *new][: self._limit], tuple(tools)
        self._rewrite()

    def handle(self, reply: str, tools: Sequence[Tool]) -> str | None:
        """Return the result of `find_tools` or `drop_tools`; None: the reply is an action."""
        try:
            call = parse_call(action_of(reply), (FIND, DROP))
        except NotACall:
            call = None
        if call is None or self.free >= PATIENCE:
            self.free = 0
            return None
        self.free += 1
        result = self._find(call, tools) if call.name == FIND.name else self._drop(call)
        self._rewrite()
        return result

    def _find(self, call: ToolCall, tools: Sequence[Tool]) -> str:
        room = self._limit - len(self._loaded)
        if not room:
            return f"{self._limit} tools are at hand, and no more may be; drop some first."
        loaded = {tool.name for tool in self._loaded}
        others = [tool for tool in tools if tool.name not in loaded]
        texts = [f"{tool.name} {tool.name.replace('_', ' ')} {tool.description}" for tool in others]
        found = [others[i] for i in best(call.arguments["words"], texts, room)]
        self._loaded += found
        return "Now at hand: " + (", ".join(tool.name for tool in found) or "nothing new") + "."

    def _drop(self, call: ToolCall) -> str:
        self._loaded = [t for t in self._loaded if t.name not in call.arguments["names"]]
        return f"{len(self._loaded)} tools are at hand."

    def _rewrite(self) -> None:
        lines = [tool.signature for tool in (FIND, DROP, *self._loaded)]
        self.instructions = "\n".join([self._without_tools, HEAD, *lines])


class ToolboxAgent(RememberingAgent):
    """Loads a few of many tools, and changes them by itself (MemTool, Lumer et al. 2025)."""

    name = "toolbox"

    def __init__(
        self,
        *,
        limit: Annotated[int, Field(ge=1)] = 8,
        history: Keep = None,
        thoughts: bool = False,
    ) -> None:
        """Load at most `limit` tools; show the model all exchanges, or only the last `history`."""
        self.limit, self.history, self.thoughts = limit, history, thoughts

    def memory(self, session: Session) -> Toolbox:
        assert session.observation is not None
        instructions, first = self.instructions(session), session.observation.text
        return Toolbox(instructions, first, self.history, self.limit, session.tools)

    async def run(self, session: Session) -> None:
        past = self.memory(session)
        while not session.over:
            past.offer(session.tools)
            reply = await session.generate(past.messages)
            result = past.handle(reply.text, session.tools)
            past.add(reply.text, await self.act(session, reply) if result is None else result)

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        call, instructions = actions[0].call, messages[0].text.partition(HEAD)[2]
        loaded = re.findall(r"(?m)^(\w+)\(", instructions)[2:]
        if call is None or call.name in loaded:
            return self.phrase(actions[0])
        full = len(loaded) >= self.limit
        own = ToolCall("drop_tools", {"names": loaded[:1]})
        own = own if full else ToolCall("find_tools", {"words": call.name.replace("_", " ")})
        return self.phrase(Action(str(own), own))
