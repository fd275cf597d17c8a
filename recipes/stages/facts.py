"""Facts to know or to look up: some hold in every task, so that a policy can learn them.

The environment of needed_tools.toml and all_tools.toml, as SMART (Qian et al. 2025) tests agents:
half of the questions need the tool, half do not once they are known. A needless look costs a turn
and nothing else.
"""

from __future__ import annotations

import random

import palaestra as pa

CONSTANT = ("ann", "bob", "cid", "dan", "eve", "fay", "gus", "hal")  # the same in all tasks
CHANGING = ("ivy", "jon", "kim", "lee", "max", "ned", "ota", "pam")  # another in each task


class Facts(pa.ToolWorld, capabilities={"oracle"}, typical_turns=3):
    """Answer the question. You may look first."""

    def begin(self, task: pa.Task) -> str:
        rng = random.Random(task.seed)
        name = rng.choice(CONSTANT + CHANGING)
        number = CONSTANT.index(name) if name in CONSTANT else rng.randrange(10)
        self.state = {"number": number, "looked": False, "answer": None}
        return f"What is the number of {name}?"

    @pa.tool
    def look(self) -> str:
        """Look the number up."""
        self.state["looked"] = True
        return f"It is {self.state['number']}."

    @pa.tool
    def answer(self, number: int) -> str:
        """Answer the question."""
        self.state["answer"] = number
        return "Thanks."

    def verdict(self) -> bool | None:
        given = self.state["answer"]
        return None if given is None else given == self.state["number"]

    def oracle(self) -> list[pa.Action]:
        """Look first, as one who knows nothing."""
        looking = [] if self.state["looked"] else [self.call("look")]
        return [*looking, self.call("answer", number=self.state["number"])]
