"""Drift over turns: planted drift is found, noise is not taken for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.episode import Episode
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.graph import Call
from palaestra.core.message import assistant
from palaestra.core.model import Finish
from palaestra.evaluation.statistics.drift import TURN_VALUES, Drift, drift
from tests.evaluation.made import CRASH, FAILURE, episode


def erring(group: int, marks: list[bool]) -> Episode:
    """An episode whose actions are invalid where marked."""
    wrong = [place for place, mark in enumerate(marks) if mark]
    return episode("eval/test", group, FAILURE, [str(i) for i in range(len(marks))], invalid=wrong)


def drifts(found: Drift) -> bool:
    """Return whether the change is significant."""
    return found.change is not None and (found.change.above_zero or found.change.below_zero)


def test_planted_drift_is_found_with_its_size() -> None:
    rng = np.random.default_rng(0)
    chances = np.linspace(0.1, 0.5, 20)
    episodes = [erring(i, list(rng.random(20) < chances)) for i in range(150)]
    found = drift(episodes, "invalid")
    assert drifts(found)
    assert found.change is not None
    assert found.change.low < 0.4 * 20 / 38 < found.change.high  # between means of the halves
    assert found.counts == (300,) * 10
    assert found.parts[0] == pytest.approx(0.11, abs=0.06)
    assert found.parts[-1] == pytest.approx(0.49, abs=0.09)


def test_chance_is_taken_for_drift_about_as_rarely_as_it_claims() -> None:
    rng = np.random.default_rng(1)
    alarms = 0
    for _ in range(100):
        episodes = [erring(i, list(rng.random(8) < 0.3)) for i in range(30)]
        alarms += drifts(drift(episodes, "invalid"))
    assert alarms <= 14  # 5 expected; a small bootstrap gives a few more


@settings(max_examples=40)
@given(st.lists(st.lists(st.booleans(), max_size=23), min_size=2, max_size=6))
def test_every_turn_is_in_one_part_and_turning_time_round_turns_the_sign(
    marks: list[list[bool]],
) -> None:
    forth = drift([erring(i, of) for i, of in enumerate(marks)], "invalid")
    back = drift([erring(i, of[::-1]) for i, of in enumerate(marks)], "invalid")
    assert sum(forth.counts) == sum(len(of) for of in marks)
    if forth.change is not None and back.change is not None:
        assert forth.change.mean == pytest.approx(-back.change.mean)


def test_long_episodes_alone_are_no_drift() -> None:
    # Those that fail are long and always err; those that succeed are short and never do.
    episodes = [erring(i, [i % 2 == 0] * (20 if i % 2 == 0 else 2)) for i in range(20)]
    found = drift(episodes, "invalid")
    assert found.change is not None
    assert (found.change.mean, drifts(found)) == (0, False)


def with_logprobs(group: int, values: list[float | None]) -> Episode:
    recorded = episode("eval/test", group, FAILURE, [str(i) for i in range(len(values))])
    calls, steps = [], []
    for step, value in zip(recorded.steps, values, strict=True):
        if value is not None:
            calls.append(
                Call(
                    index=len(calls),
                    parent=None,
                    role="agent",
                    messages=(),
                    prompt=(1,),
                    reply=assistant("go"),
                    completion=(7, 8),
                    logprobs=(value - 0.1, value + 0.1),
                    finish=Finish.STOP,
                    policy="tiny",
                    version=0,
                )
            )
        steps.append(replace(step, call=None if value is None else len(calls) - 1))
    return replace(recorded, calls=tuple(calls), steps=tuple(steps))


def test_log_probabilities_are_those_of_the_call_that_chose_the_action() -> None:
    episodes = [with_logprobs(i, [-0.5, None, -1.5, -2.5]) for i in range(2)]
    found = drift(episodes, "logprob", parts=4)
    assert found.parts == pytest.approx((-0.5, None, -1.5, -2.5))
    assert found.change is not None
    assert found.change.mean == pytest.approx(-1.5)
    assert drift(episodes, "reply_tokens", parts=2).parts == (2, 2)


def test_broken_episodes_and_single_turns_do_not_count() -> None:
    episodes = [erring(0, [True]), replace(erring(1, [False, True]), outcome=CRASH)]
    found = drift(episodes, "invalid", parts=2)
    assert found.change is None
    assert found.counts == (0, 1)
    assert not drifts(found)


def test_every_named_value_has_one_number_per_step() -> None:
    recorded = with_logprobs(0, [-0.5, -1.0, None])
    assert all(len(of(recorded)) == 3 for of in TURN_VALUES.values())
    assert drift([recorded], "loop").counts == (0,) * 10  # no state key is declared


def test_an_unknown_value_or_a_single_part_is_refused() -> None:
    with pytest.raises(UnknownName, match="logprob"):
        drift([], "logprobs")
    with pytest.raises(InputError, match="needs at least two"):
        drift([], "invalid", parts=1)
