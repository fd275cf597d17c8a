"""smolagents: tool-calling agents, in threads (in memory)."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

from smolagents import Model, Tool, ToolCallingAgent
from smolagents.models import (
    ChatMessage,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    MessageRole,
)
from smolagents.monitoring import LogLevel


class Tick(Tool):
    name = "tick"
    description = "Let time pass."
    inputs: ClassVar[dict[str, Any]] = {}
    output_type = "string"

    def forward(self) -> str:
        return "ok"


class Scripted(Model):
    """Calls `tick` so many times, and then gives its final answer."""

    def __init__(self, turns: int) -> None:
        super().__init__(model_id="scripted")
        self.left = turns

    def generate(self, messages: list[ChatMessage], **options: Any) -> ChatMessage:
        self.left -= 1
        name, arguments = ("tick", {}) if self.left >= 0 else ("final_answer", {"answer": "done"})
        function = ChatMessageToolCallFunction(name=name, arguments=arguments)
        call = ChatMessageToolCall(function=function, id=str(self.left), type="function")
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=[call])


def live(turns: int) -> str:
    agent = ToolCallingAgent(
        tools=[Tick()],
        model=Scripted(turns),
        max_steps=turns + 1,
        verbosity_level=LogLevel.OFF,
    )
    return str(agent.run("Go on."))


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Run `sessions` of `turns` turns in ten threads; the seconds, and those in one thread."""
    sessions, turns = request["sessions"], request["turns"]
    seconds = {}
    for threads in (10, 1):
        with ThreadPoolExecutor(threads) as pool:
            started = time.perf_counter()
            lived = list(pool.map(live, [turns] * sessions))
            seconds[threads] = time.perf_counter() - started
        assert lived == ["done"] * sessions, lived
    return {"seconds": seconds[10], "one_by_one": seconds[1]}
