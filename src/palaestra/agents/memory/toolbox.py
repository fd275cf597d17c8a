"""Toolbox: of many tools only some are told, and the model changes which.

Source: Lumer et al. 2025 (MemTool), its autonomous mode. Two tools of the agent's own stand beside
those of the world: `find_tools` puts the tools that fit some words into the told set, `drop_tools`
takes some out. At most `limit` are told at once, so the prompt's share of the tools stays bounded,
whatever the world offers. What it takes back leaves the told set, and what it offers anew enters it
while there is room. Such calls take no action; after `PATIENCE` of them in a row the reply
goes to the world as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from palaestra.agents.history import History, Keep
from palaestra.agents.memory.agent import RememberingAgent
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
    """A chat whose instructions list the tools at hand, and no others."""

    def __init__(self, told: str, first: str, last: Keep, limit: int, tools: Sequence[Tool]):
        super().__init__("", first, last)
        names = "|".join(re.escape(tool.name) for tool in tools) or "(?!)"
        self._told = re.sub(rf"(?m)^\W*(?:{names})\(.*\n?", "", told).rstrip()
        self._limit, self._loaded = limit, list(tools[:limit])
        self._offered = tuple(tools)
        self.free = 0  # calls in a row that took no action
        self._tell()

    def offer(self, tools: Sequence[Tool]) -> None:
        """Keep to what the world offers now."""
        if (*tools,) == self._offered:
            return
        kept = [tool for tool in self._loaded if tool in tools]
        new = [tool for tool in tools if tool not in self._offered]
        self._loaded, self._offered = [*kept, *new][: self._limit], tuple(tools)
        self._tell()

    def handle(self, reply: str, tools: Sequence[Tool]) -> str | None:
        """What `find_tools` or `drop_tools` says; None where the reply is for the world."""
        try:
            call = parse_call(action_of(reply), (FIND, DROP))
        except NotACall:
            call = None
        if call is None or self.free >= PATIENCE:
            self.free = 0
            return None
        self.free += 1
        said = self._find(call, tools) if call.name == FIND.name else self._drop(call)
        self._tell()
        return said

    def _find(self, call: ToolCall, tools: Sequence[Tool]) -> str:
        room = self._limit - len(self._loaded)
        if not room:
            return f"{self._limit} tools are at hand, and no more may be; drop some first."
        having = {tool.name for tool in self._loaded}
        others = [tool for tool in tools if tool.name not in having]
        texts = [f"{tool.name} {tool.name.replace('_', ' ')} {tool.description}" for tool in others]
        found = [others[i] for i in best(call.arguments["words"], texts, room)]
        self._loaded += found
        return "Now at hand: " + (", ".join(tool.name for tool in found) or "nothing new") + "."

    def _drop(self, call: ToolCall) -> str:
        self._loaded = [t for t in self._loaded if t.name not in call.arguments["names"]]
        return f"{len(self._loaded)} tools are at hand."

    def _tell(self) -> None:
        lines = [tool.signature for tool in (FIND, DROP, *self._loaded)]
        self.instructions = "\n".join([self._told, HEAD, *lines])


class ToolboxAgent(RememberingAgent):
    """Keeps a few of many tools at hand, and changes them itself (MemTool, Lumer et al. 2025)."""

    name = "toolbox"

    def __init__(
        self,
        *,
        limit: Annotated[int, Field(ge=1)] = 8,
        history: Keep = None,
        thoughts: bool = False,
    ) -> None:
        """At most `limit` tools at hand. With `history`, only so many exchanges are told."""
        self.limit, self.history, self.thoughts = limit, history, thoughts

    def memory(self, session: Session) -> Toolbox:
        assert session.observation is not None
        told, first = self.told(session), session.observation.text
        return Toolbox(told, first, self.history, self.limit, session.tools)

    async def run(self, session: Session) -> None:
        past = self.memory(session)
        while not session.over:
            past.offer(session.tools)
            reply = await session.generate(past.messages)
            said = past.handle(reply.text, session.tools)
            past.add(reply.text, await self.act(session, reply) if said is None else said)

    def answer(self, messages: Sequence[Message], actions: Sequence[Action]) -> str:
        call, told = actions[0].call, messages[0].content.partition(HEAD)[2]
        hand = re.findall(r"(?m)^(\w+)\(", told)[2:]
        if call is None or call.name in hand:
            return self.phrase(actions[0])
        full = len(hand) >= self.limit
        own = ToolCall("drop_tools", {"names": hand[:1]})
        own = own if full else ToolCall("find_tools", {"words": call.name.replace("_", " ")})
        return self.phrase(Action(str(own), own))
