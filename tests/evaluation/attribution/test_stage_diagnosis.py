"""Each planted defect shows in its own stage, while the outcome is blind to it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from palaestra.core.environment import Action, Observation, Signals, Transition
from palaestra.core.episode import Episode, Step
from palaestra.core.message import ToolCall
from palaestra.evaluation.attribution.adherence import Procedure
from palaestra.evaluation.attribution.stage_diagnosis import Stages, stages
from palaestra.evaluation.statistics.drift import drift
from palaestra.evaluation.statistics.episode_metrics import METRICS
from tests.evaluation.made import SUCCESS, episode

POLICY = Procedure(
    starts=frozenset({"identify"}),
    follows={"identify": frozenset({"order"}), "order": frozenset({"refund"})},
    ends=frozenset({"refund"}),
)
FIRST = "A customer says: I am Ada Park. My lamp arrived broken."
GOOD = (
    (ToolCall("identify", {"name": "Ada Park"}), "customer c-417"),
    (ToolCall("order", {"customer": "c-417"}), "order o-88: lamp, 30 dollars"),
    (ToolCall("refund", {"order": "o-88"}), "refunded"),
    ("Your 30 dollars for order o-88 are on their way.", "Thank you, goodbye."),
)
Turn = tuple[ToolCall | str, str]


def served(turns: tuple[Turn, ...], invalid: int | None = None) -> Episode:
    """A service desk's episode; solved, whatever was done."""
    steps = []
    for index, (action, seen) in enumerate(turns):
        call = action if isinstance(action, ToolCall) else None
        last = index == len(turns) - 1
        then = Transition(Observation(seen), terminated=last, success=last, valid=index != invalid)
        steps.append(Step(index, None, Action(str(action), call), then, Signals()))
    made = episode("test", 0, SUCCESS)
    return replace(made, observation=Observation(FIRST), steps=tuple(steps))


def judged(turns: tuple[Turn, ...], invalid: int | None = None) -> Stages:
    return stages(served(turns, invalid), procedure=POLICY)


def test_nothing_is_wrong_with_good_service() -> None:
    assert judged(GOOD) == Stages(1.0, 1.0, 1.0, 1.0)
    assert judged(GOOD).weakest is None


PLANTED: dict[str, tuple[tuple[Turn, ...], int | None]] = {
    "tracking": ((*GOOD[:2], (ToolCall("refund", {"order": "o-99"}), "refunded"), GOOD[3]), None),
    "action": ((GOOD[0], (ToolCall("look", {"name": "Ada Park"}), "What?"), *GOOD[1:]), 1),
    "adherence": ((GOOD[0], (ToolCall("refund", {"order": "Ada Park"}), "refunded")), None),
    "response": ((*GOOD[:3], ("Your 45 dollars are on their way.", "Thank you.")), None),
}  # fmt: skip


@pytest.mark.parametrize("stage", PLANTED)
def test_a_planted_defect_is_found_in_its_stage(stage: str) -> None:
    turns, invalid = PLANTED[stage]
    made = served(turns, invalid)
    assert made.outcome.solved  # the outcome is blind to it
    found = stages(made, procedure=POLICY)
    assert found.weakest == stage
    others = {name for name in PLANTED if name != stage}
    assert all(getattr(found, name) in (1.0, None) for name in others)


def test_what_cannot_be_judged_is_none_and_no_zero() -> None:
    words = episode("test", 0, SUCCESS, ("go to the red ball",))
    found = stages(words)
    assert (found.adherence, found.response, found.tracking) == (None, None, 1.0)
    empty = stages(replace(words, steps=()))
    assert empty == Stages(None, None, None, None)
    assert empty.weakest is None


def test_grounding_is_a_metric_and_invention_may_drift() -> None:
    turns = (*GOOD[:3], ("The parcel 12345 of Zoe is lost.", "What?"))
    made = served(turns)
    assert METRICS["grounding"](made) == 0.75
    repeats = [replace(made, key=replace(made.key, group=n)) for n in range(3)]
    late = drift(repeats, "invented", parts=2)
    assert late.parts == (0.0, 0.5)
    near = drift(repeats, "goal", parts=2)
    assert near.parts[0] == 0.5  # of its two turns, the first one speaks of the task
