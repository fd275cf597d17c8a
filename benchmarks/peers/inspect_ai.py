"""Inspect AI: an evaluation whose samples call a tool several times (mockllm, log written)."""

from __future__ import annotations

import tempfile
import time
from typing import Any

from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import GenerateConfig, ModelOutput, ModelUsage, get_model
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import Tool, tool


@tool
def tick() -> Tool:
    async def execute() -> str:
        """Let time pass."""
        return "ok"

    return execute


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Run `sessions` samples of `turns` tool calls; the seconds that this took."""
    sessions, turns = request["sessions"], request["turns"]

    def reply(messages: list[Any], *rest: object) -> ModelOutput:
        if len(messages) > 2 * turns:  # the question, and two messages per turn
            output = ModelOutput.from_content("mockllm", "done")
        else:
            output = ModelOutput.for_tool_call("mockllm", "tick", {})
        output.usage = ModelUsage()  # else the tokens are counted, which takes a download
        return output

    samples = [Sample(input="Go on.", target="done") for _ in range(sessions)]
    task = Task(
        dataset=MemoryDataset(samples),
        solver=[use_tools(tick()), generate()],
        config=GenerateConfig(max_connections=sessions),
    )
    model = get_model("mockllm/model", custom_outputs=reply, memoize=False)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        (log,) = eval(task, model=model, max_samples=sessions, log_dir=folder, display="none")
        seconds = time.perf_counter() - started
        assert log.status == "success" and log.samples is not None
        lived = [sum(m.role == "tool" for m in sample.messages) for sample in log.samples]
    assert lived == [turns] * sessions, lived
    return {"seconds": seconds}
