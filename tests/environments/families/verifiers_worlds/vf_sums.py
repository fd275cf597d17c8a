"""Sums, answered in one go: rows in the published splits of a data set, two weighted rewards."""

import re
from typing import Literal

import verifiers.v1 as vf

__all__ = ["SumsTaskset"]


class SumData(vf.TaskData):
    """A row."""

    answer: str


class SumTask(vf.Task[SumData]):
    """One sum."""

    @vf.reward(weight=1.0)
    async def correct(self, trace: vf.Trace) -> float:
        """Whether the last number is right."""
        numbers = re.findall(r"-?\d+", trace.last_reply)
        return float(bool(numbers) and numbers[-1] == self.data.answer)

    @vf.reward(weight=0.25)
    async def polite(self, trace: vf.Trace) -> float:
        """Whether the reply is polite."""
        return float("please" in trace.last_reply.lower())

    @vf.metric
    async def length(self, trace: vf.Trace) -> float:
        """Of the reply, in characters."""
        return float(len(trace.last_reply))


class SumsConfig(vf.TasksetConfig):
    """Which rows."""

    split: Literal["train", "test"] = "test"


class SumsTaskset(vf.Taskset[SumTask, SumsConfig]):
    """Twelve sums to learn from, and five to be tested by."""

    def load(self) -> list[SumTask]:
        first = 0 if self.config.split == "train" else 100
        count = 12 if self.config.split == "train" else 5
        return [
            SumTask(
                SumData(
                    prompt=f"What is {number} + {number + 3}?",
                    system_prompt="You are a pupil." if number % 2 else None,
                    answer=str(2 * number + 3),
                ),
                self.config.task,
            )
            for number in range(first, first + count)
        ]
