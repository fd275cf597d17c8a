"""Probe environments: three small decision problems, each of which isolates one difficulty.

`probe/umbrella-N`  delayed credit: the forecast on day 1 tells whether an umbrella is needed on
                    day N; on the days between, every choice wins or loses a little at random.
`probe/memory-N`    partial information: a word is shown once and asked for N turns later.
`probe/sea-N`       exploration: one of two actions leads deeper, and it differs by place; only
                    N right actions in a row reach the treasure (2^-N for a random agent).

Source: umbrella_length, memory_len and deep_sea of bsuite (Osband et al. 2020), reimplemented as
text from their descriptions. Success in one of them is independent of success in the others.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from palaestra.core.environment import Action, Observation, Spec, Transition
from palaestra.core.task import Task
from palaestra.environments.base import Replayed, refused

SIZES = {"umbrella": (4, 8, 16, 32), "memory": (4, 8, 16, 32), "sea": (3, 4, 5, 6, 8)}
WORDS = {
    "umbrella": ("take", "leave"),
    "memory": ("red", "blue"),
    "sea": ("ping", "pong"),
}
CHANCE = 0.2  # size of a day's random reward in umbrella


class Probe(
    Replayed,
    id="probe",
    capabilities={"state_key", "snapshot", "oracle", "admissible", "progress"},
):
    """Bsuite's umbrella, memory and deep sea as text."""

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._kind, _, size = name.partition("-")
        self._size = int(size)
        self._seed = self._turn = self._depth = 0
        self._chosen = ""  # the choice that decides on success
        self._solved = False

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        """Set `typical_turns` with room for two invalid actions."""
        spec = super().spec_of(name)
        return replace(spec, typical_turns=int(name.partition("-")[2]) + 2)

    @classmethod
    def names(cls) -> list[str]:
        return [f"{kind}-{size}" for kind, sizes in SIZES.items() for size in sizes]

    @property
    def instructions(self) -> str:
        return f"Reply with one word: {', '.join(WORDS[self._kind])}."

    def _begin(self, task: Task) -> Observation:
        self._seed, self._turn, self._depth, self._chosen = task.seed, 0, 0, ""
        self._solved = False
        return Observation(self._render())

    def _act(self, action: Action) -> Transition:
        word = action.text.strip().strip(".\"'").lower()
        if word not in WORDS[self._kind]:
            return refused(self.instructions)
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
            Observation("The end." if self._over else self._render()),
            reward,
            terminated=self._over,
            success=self._solved,
        )

    def state_key(self) -> str:
        seed = self._seed if self._kind != "sea" else 0  # all tasks share one sea
        return f"{seed}/{self._turn}/{self._depth}/{self._chosen}/{self._over}"

    def progress(self) -> float:
        """Return the share of turns done without a decisive mistake; 1 only if solved."""
        if self._over:
            return float(self._solved)
        return self._turn / self._size if self._hopeful() else 0.0

    def oracle(self) -> Sequence[Action]:
        """Return the plan from here to the end; it wins unless a mistake was made before."""
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
        """Return whether the choice at a turn decides on success."""
        return turn == 0 if self._kind == "umbrella" else turn == self._size - 1

    def _render(self) -> str:
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
        """Return the word that leads deeper in a place; it is the same in every task."""
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
