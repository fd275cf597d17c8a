"""Questions: a hidden thing has to be named, and its properties can be asked for first.

`questions/things-N`: a thing has N properties of two values each. Naming a property is answered
with its value; naming a thing by all of its values, in order, ends the task. A guess is right one
time in 2^N, and no question is needed twice. What a question is worth shows in the probability of
the right answer, which is known from the start (`answer`).

Source: the game of twenty questions, in the form in which agents search before they answer (IGPO,
Wang et al. 2025).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from palaestra.core.environment import Action, Observation, Spec, Transition
from palaestra.core.task import Task
from palaestra.environments.base import Replayed, hashed, refused, without_parameters

PROPERTIES = {
    "colour": ("red", "blue"),
    "size": ("big", "small"),
    "shape": ("round", "square"),
    "age": ("old", "new"),
}
SIZES = (2, 3, 4)


class Questions(
    Replayed,
    id="questions",
    capabilities={"state_key", "snapshot", "oracle", "admissible", "progress", "answer"},
):
    """One thing to find out."""

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._properties = dict(list(PROPERTIES.items())[: int(name.partition("-")[2])])
        self._thing: dict[str, str] = {}  # value by property
        self._asked: set[str] = set()
        self._solved = False

    @classmethod
    def names(cls) -> list[str]:
        return [f"things-{size}" for size in SIZES]

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        """Set `typical_turns` to every question, the answer, and room for two more actions."""
        spec = super().spec_of(name)
        return replace(spec, typical_turns=int(name.partition("-")[2]) + 3)

    @property
    def instructions(self) -> str:
        first = " ".join(values[0] for values in self._properties.values())
        return (
            f"Which thing is it? Ask for one of its properties by its name: "
            f"{', '.join(self._properties)}. Or name the thing by all of them, such as {first}, "
            "which ends the task."
        )

    def _begin(self, task: Task) -> Observation:
        """Hide a thing.

        Raises:
            InputError: the task has parameters.
        """
        without_parameters(task)
        rng = random.Random(f"thing {task.seed}")
        self._thing = {name: rng.choice(values) for name, values in self._properties.items()}
        self._asked, self._solved = set(), False
        return Observation("Which thing is it?")

    def _act(self, action: Action) -> Transition:
        said = " ".join(action.text.lower().replace(",", " ").strip(" .?!\"'\n").split())
        if said in self._properties:
            self._asked.add(said)
            return Transition(Observation(self._thing[said]))
        if said not in self._things():
            return refused(self.instructions)
        self._over, self._solved = True, said == self._right
        return Transition(
            Observation("Right." if self._solved else "Wrong."),
            reward=float(self._solved),
            terminated=True,
            success=self._solved,
        )

    def state_key(self) -> str:
        return hashed(self._current().seed, sorted(self._asked), self._over, self._solved)

    def progress(self) -> float:
        """Return the share of the questions that were asked and of the answer; 1 only if solved."""
        self._current()
        if self._over:
            return float(self._solved)
        return len(self._asked) / (len(self._properties) + 1)

    def oracle(self) -> Sequence[Action]:
        """Return the questions that were not asked yet, then the answer."""
        self._current()
        if self._over:
            return []
        asked = [Action(name) for name in self._properties if name not in self._asked]
        return [*asked, self.answer()]

    def answer(self) -> Action:
        """Return the name of the thing."""
        self._current()
        return Action(self._right)

    def admissible(self) -> Sequence[str]:
        return [] if self._over else [*self._properties, *self._things()]

    @property
    def _right(self) -> str:
        return " ".join(self._thing.values())

    def _things(self) -> list[str]:
        return [" ".join(values) for values in product(*self._properties.values())]
