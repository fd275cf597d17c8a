"""Probe worlds: three small decision problems, each of which isolates one difficulty.

`probe/umbrella-N`  delayed credit: the forecast on day 1 says whether an umbrella will be
                    needed on day N; on all days between, whatever is chosen wins or loses a
                    little by chance.
`probe/memory-N`    partial information: a word is shown once, asked for N turns later.
`probe/sea-N`       exploration: of two actions one leads deeper, another one in each place;
                    only who never errs in N dives finds the treasure (2^-N by chance).

Source: umbrella_length, memory_len and deep_sea of bsuite (Osband et al. 2020), told in
words; made anew from their descriptions. What is easy in one of them says nothing about
the others: that is their use.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

from palaestra.core.environment import Action, Capability, Environment, Observation, Transition
from palaestra.core.task import Task, TaskSet
from palaestra.environments.snapshots import opened, sealed

SIZES = {"umbrella": (4, 8, 16, 32), "memory": (4, 8, 16, 32), "sea": (3, 4, 5, 6, 8)}
WORDS = {
    "umbrella": ("take", "leave"),
    "memory": ("red", "blue"),
    "sea": ("ping", "pong"),
}
VERSION = "1"  # of these worlds and of what their snapshots hold
CHANCE = 0.2  # what a day's luck is worth in the umbrella world


class Probe(Environment):
    """Bsuite's umbrella, memory and deep sea, told in words."""

    capabilities = frozenset(
        {
            Capability.STATE_KEY,
            Capability.SNAPSHOT,
            Capability.ORACLE,
            Capability.ADMISSIBLE,
            Capability.PROGRESS,
        }
    )

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._kind, _, size = name.partition("-")
        self._size = int(size)
        self._seed = self._turn = self._depth = 0
        self._chosen = ""  # what matters of what was chosen
        self._over = self._solved = False

    @classmethod
    def names(cls) -> list[str]:
        return [f"{kind}-{size}" for kind, sizes in SIZES.items() for size in sizes]

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    @property
    def instructions(self) -> str:
        return f"Reply with one word: {', '.join(WORDS[self._kind])}."

    @property
    def typical_turns(self) -> int:
        return self._size + 2  # and room for two words that are not understood

    def reset(self, task: Task) -> Observation:
        self._seed, self._turn, self._depth, self._chosen = task.seed, 0, 0, ""
        self._over = self._solved = False
        return Observation(self._said())

    def step(self, action: Action) -> Transition:
        word = action.text.strip().strip(".\"'").lower()
        if self._over:
            return Transition(Observation("It is over."), terminated=True, valid=False)
        if word not in WORDS[self._kind]:
            return Transition(Observation(self.instructions), valid=False)
        decides = self._decides
        if decides:
            self._chosen = word
        if self._kind == "sea":
            self._depth += word == self._deeper()
        self._turn += 1
        self._over = self._turn >= self._size
        self._solved = self._over and self._right()
        reward = float(self._solved)
        if self._kind == "umbrella" and not decides and not self._over:
            reward = CHANCE * self._luck()
        return Transition(
            Observation("The end." if self._over else self._said()),
            reward,
            terminated=self._over,
            success=self._solved,
        )

    def state_key(self) -> str:
        known = self._seed if self._kind != "sea" else 0  # one sea for all tasks
        return f"{known}/{self._turn}/{self._depth}/{self._chosen}/{self._over}"

    def snapshot(self) -> bytes:
        state = (self._seed, self._turn, self._depth, self._chosen, self._over, self._solved)
        return sealed(f"probe/{self.name}", VERSION, json.dumps(state).encode())

    def restore(self, snapshot: bytes) -> None:
        state = json.loads(opened(snapshot, f"probe/{self.name}", VERSION))
        self._seed, self._turn, self._depth, self._chosen, self._over, self._solved = state

    def progress(self) -> float:
        """Turns lived without a mistake that matters; 1 only if solved."""
        if self._over:
            return float(self._solved)
        return self._turn / self._size if self._hopeful() else 0.0

    def oracle(self) -> Sequence[Action]:
        """The way from here to the end; right as long as nothing went wrong before."""
        if self._over:
            return []
        left = range(self._turn, self._size)
        if self._kind == "sea":
            return [Action(self._deeper(turn, turn)) for turn in left]
        return [Action(self._wanted() if self._decides_at(t) else self._words[0]) for t in left]

    def admissible(self) -> Sequence[str]:
        return [] if self._over else list(self._words)

    @property
    def _words(self) -> tuple[str, ...]:
        return WORDS[self._kind]

    @property
    def _decides(self) -> bool:
        return self._decides_at(self._turn)

    def _decides_at(self, turn: int) -> bool:
        """Whether what is chosen at a turn matters for success."""
        return turn == 0 if self._kind == "umbrella" else turn == self._size - 1

    def _said(self) -> str:
        if self._kind == "umbrella":
            if self._turn == 0:
                return "forecast rain" if self._wanted() == "take" else "forecast sun"
            return "a coin"
        if self._kind == "memory":
            if self._turn == 0:
                return f"remember {self._wanted()}"
            return "which" if self._turn == self._size - 1 else "wait"
        return f"depth {self._depth} of {self._turn}"

    def _wanted(self) -> str:
        return random.Random(f"wanted {self._seed}").choice(self._words)

    def _deeper(self, turn: int | None = None, depth: int | None = None) -> str:
        """The word that leads deeper in a place; the same in every task."""
        place = (self._turn if turn is None else turn, self._depth if depth is None else depth)
        return random.Random(f"sea {place}").choice(self._words)

    def _luck(self) -> int:
        return random.Random(f"luck {self._seed} {self._turn}").choice((-1, 1))

    def _hopeful(self) -> bool:
        if self._kind == "sea":
            return self._depth == self._turn
        return not self._chosen or self._chosen == self._wanted()

    def _right(self) -> bool:
        return self._depth == self._size if self._kind == "sea" else self._hopeful()
