"""Inspect AI: a process that runs an evaluation, or resumes a killed one.

    python -P inspect_evaluation.py FOLDER SAMPLES CONCURRENCY [KILL]

An evaluation set in FOLDER, as Inspect's documentation recommends for what may be interrupted:
called again, it recovers the finished samples of the killed process and runs the rest.
Each sample calls a tool twice and then answers; the answer is scored. With KILL, the process kills
itself at that model call. Prints one JSON object: the time of the first model call (seconds since
the epoch), the number of calls, the number of samples in the set and of correct ones.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

from inspect_ai import Task, eval_set
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import read_eval_log
from inspect_ai.model import GenerateConfig, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import exact
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import Tool, tool

TICKS = 2  # calls of the tool before the answer


@tool
def tick() -> Tool:
    async def execute() -> str:
        """Let time pass."""
        return "ok"

    return execute


class Mock:
    """The model: instant, and deadly at a call of that number."""

    def __init__(self, kill: int) -> None:
        self.kill, self.calls, self.first = kill, 0, 0.0

    def reply(self, messages: list[Any], *rest: object) -> ModelOutput:
        self.calls += 1
        self.first = self.first or time.time()
        if self.calls == self.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        if sum(message.role == "tool" for message in messages) < TICKS:
            output = ModelOutput.for_tool_call("mockllm", "tick", {})
        else:
            output = ModelOutput.from_content("mockllm", "done")
        output.usage = ModelUsage()  # else the tokens are counted, which takes a download
        return output


def main(folder: str, samples: int, concurrency: int, kill: int = 0) -> None:
    mock = Mock(kill)
    task = Task(
        name="ticks",
        dataset=MemoryDataset([Sample("Go on.", target="done", id=n) for n in range(samples)]),
        solver=[use_tools(tick()), generate()],
        scorer=exact(),
        config=GenerateConfig(max_connections=concurrency),
    )
    model = get_model("mockllm/model", custom_outputs=mock.reply, memoize=False)
    success, (log,) = eval_set(
        task, log_dir=folder, model=model, max_samples=concurrency, display="none"
    )
    assert success, log.error
    # the set returns headers; the figures below are in them, the samples in the file
    assert log.results is not None
    (score,) = log.results.scores
    found = {
        "first": mock.first,
        "calls": mock.calls,
        "samples": log.results.completed_samples,
        "solved": round(score.metrics["mean"].value * log.results.completed_samples),
    }
    assert read_eval_log(log.location, header_only=True).status == "success"
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
