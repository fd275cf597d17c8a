"""Only some kinds of gestures (`gestures=click,type,back`), as AgentOccam trims the actions.

Source: Yang et al. 2024, "AgentOccam: A Simple Yet Strong Baseline for LLM-Based Web Agents".
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Sequence

from palaestra.core.environment import (
    Action,
    Capability,
    Environment,
    Observation,
    Spec,
    Transition,
)
from palaestra.core.errors import InputError
from palaestra.core.gesture import USES
from palaestra.core.gestures.gesture_tools import gesture_in
from palaestra.core.rare_capabilities import sample_action
from palaestra.core.tool import Tool
from palaestra.environments.wrappers.wrapper import Wrapper, require_capability

ENDINGS = ("answer", "give up")  # always taken, so that each task can be ended
KINDS = tuple(kind for kind in USES if kind not in ENDINGS)
TRIES = 20  # samples of an action that is taken
_CLAUSES = re.compile(r"(;[ ]|\.[ ]|\n)")  # what stands between the forms in instructions


class SelectedGestures(Wrapper):
    """An environment of gestures that takes only some kinds of them, and the ends of a task.

    Instructions and tools leave the others out. A plan of the oracle that needs one of them is
    none.
    """

    def __init__(self, inner: Environment, value: str) -> None:
        super().__init__(inner, value)
        self._taken = {*_kinds(value), *ENDINGS}

    @classmethod
    def adapt_spec(cls, spec: Spec, value: str) -> Spec:
        require_capability(spec, Capability.ELEMENTS, f"gestures={value}")
        return spec

    @property
    def tools(self) -> tuple[Tool, ...]:  # type: ignore[override]
        left_out = {kind.replace(" ", "_") for kind in USES if kind not in self._taken}
        return tuple(tool for tool in self.inner.tools if tool.name not in left_out)

    @property
    def instructions(self) -> str:
        return without_forms(self.inner.instructions, USES.keys() - self._taken)

    def step(self, action: Action) -> Transition:
        try:
            kind = gesture_in(action).kind
        except InputError as wrong:
            return Transition(Observation(str(wrong)), valid=False)
        if kind not in self._taken:
            known = ", ".join(one for one in USES if one in self._taken)
            return Transition(
                Observation(f"'{kind}' is not taken here; use: {known}."), valid=False
            )
        return super().step(action)

    def oracle(self) -> Sequence[Action]:
        """Return the inner plan; empty if it needs a gesture that is not taken."""
        plan = self.inner.oracle()
        return plan if all(gesture_in(action).kind in self._taken for action in plan) else []

    def admissible(self) -> Sequence[str]:
        lines = self.inner.admissible()
        return [line for line in lines if gesture_in(Action(line)).kind in self._taken]

    def sample_action(self, rng: random.Random) -> Action:
        """Return a random action that is taken, or the last sample if none of some was."""
        for _ in range(TRIES):
            action = sample_action(self.inner, rng)
            if gesture_in(action).kind in self._taken:
                break
        return action


def is_selection(value: str) -> bool:
    """Return whether a value of the knob names kinds of gestures, each once."""
    kinds = _kinds(value)
    return set(kinds) <= set(KINDS) and len(set(kinds)) == len(kinds)


def without_forms(instructions: str, kinds: Collection[str]) -> str:
    """Return instructions without the lines and clauses that begin with one of some gestures."""
    clauses = _CLAUSES.split(instructions)
    kept: list[str] = []
    for clause, end in zip(clauses[::2], [*clauses[1::2], ""], strict=True):
        if re.match(r"[a-z]+", clause) and clause.split()[0].strip(",.;") in kinds:
            if end != "; " and kept:  # the sentence or the list ends before it
                kept[-1] = end if end else "."
            continue
        kept += [clause, end]
    return "".join(kept)


def _kinds(value: str) -> list[str]:
    return value.replace("_", " ").split(",")
