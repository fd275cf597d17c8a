"""Needs: a rule runs if the batch holds what it reads; otherwise one sentence says why not."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.errors import InputError
from palaestra.learning.credit.anchors import anchor
from palaestra.learning.credit.rule import Credit
from palaestra.learning.credit.turn_rewards import igpo
from palaestra.learning.data.trajectory import Trajectory
from palaestra.learning.methods.component import Kind, Need, components
from palaestra.learning.methods.needs import LACKS, lacking, unmet_needs_reason
from tests.learning.credit import made

NEVER = {  # no trajectory can hold these
    *(Need.REFERENCE, Need.SNAPSHOT, Need.ERROR, Need.SKILL, Need.PREFERENCE),
    *(Need.ATTEMPT, Need.HINT, Need.COMMAND, Need.GOAL, Need.ACTION_VALUE),
}


def test_plain_rollouts_have_groups_and_nothing_else() -> None:
    assert lacking(Need, made.batch([1.0, 0.0], turns=2)) == [
        need for need in Need if need not in (Need.GROUP, Need.OTHERS)
    ]
    assert Need.GROUP in lacking(Need, made.batch([1.0]) + made.batch([1.0, 0.0], group=1))


@given(made.trajectories())
def test_rollouts_with_every_slot_filled_feed_every_rule(batch: list[Trajectory]) -> None:
    rewarded = [replace(t, turns=(replace(t.turns[0], reward=0.5), *t.turns[1:])) for t in batch]
    assert set(lacking(Need, rewarded)) == NEVER
    for part in components(Kind.CREDIT).values():
        assert unmet_needs_reason(part.name, part.needs, rewarded) is None or part.needs & NEVER


def test_values_are_needed_for_every_token() -> None:
    whole = made.rollout([0.0, 0.0], tokens=2, values=[0.1, 0.2, 0.3, 0.4])
    assert Need.VALUE not in lacking(Need, [whole])
    short = replace(whole, turns=(replace(whole.turns[0], values=(0.1,)), whole.turns[1]))
    assert Need.VALUE in lacking(Need, [whole, short])


def test_states_that_some_turns_lack_are_enough_to_compare_the_others() -> None:
    known = made.rollout([0.0, 0.0], anchor=["here", None])
    assert Need.ANCHOR not in lacking(Need, [known])


@given(made.trajectories(), st.data())
def test_beliefs_and_states_are_asked_for_where_the_rules_fail_without_them(
    batch: list[Trajectory], data: st.DataObject
) -> None:
    share = data.draw(st.sampled_from([0.1, 0.5, 1.0]))
    rng = random.Random(data.draw(st.integers(0, 2**32 - 1)))

    def some(value: Any) -> Any:
        return None if rng.random() < share else value

    thinned = [
        replace(
            t,
            belief=some(t.belief),
            turns=tuple(replace(k, belief=some(k.belief), anchor=some(k.anchor)) for k in t.turns),
        )
        for t in batch
    ]
    lacks = lacking([Need.BELIEF, Need.ANCHOR], thinned)
    assert (Need.BELIEF in lacks) == fails(igpo, thinned)
    assert (Need.ANCHOR in lacks) == fails(anchor, thinned)


def fails(rule: Callable[[Sequence[Trajectory]], Credit], batch: list[Trajectory]) -> bool:
    try:
        rule(batch)
    except InputError:
        return True
    return False


@pytest.mark.parametrize("need", list(Need))
def test_a_refusal_names_rule_need_and_remedy(need: Need) -> None:
    reason = unmet_needs_reason("some_rule", {need}, made.batch([1.0], turns=2))
    assert reason is not None
    assert reason.startswith(f"'some_rule' needs {need}, but ")
    assert reason.endswith(LACKS[need][1] + ", or leave the rule out.")
