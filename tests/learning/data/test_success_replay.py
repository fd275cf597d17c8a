"""Replay of successes and cross-policy sampling: published numbers, and nothing recomputed."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.episode import Key
from palaestra.learning.credit.rule import normalised
from palaestra.learning.data.success_replay import SuccessBuffer, repair
from palaestra.learning.data.trajectory import Trajectory, Turn

TASK = "babyai/GoToLocal train/3"


def group(*outcomes, step=2):
    return [
        Trajectory(Key(f"rl/{step}", 0, m), f"rl/{step}/0", (Turn(3),), float(r), success=r > 0)
        for m, r in enumerate(outcomes)
    ]


def holding(*successes, capacity=8):
    return SuccessBuffer(capacity).pushed(TASK, successes)


SUCCESS = Trajectory(Key("rl/1", 4, 2), "rl/1/4", (Turn(7),), 1.0, success=True)


def test_a_group_of_failures_gets_a_stored_success_and_the_published_advantages():
    fresh = group(0, 0, 0, 0)
    key = holding(SUCCESS).replacement(TASK, fresh, seed=0)
    assert key == SUCCESS.key
    repaired = repair(fresh, SUCCESS)
    outcomes = torch.tensor([t.outcome for t in repaired], dtype=torch.float64)
    assert outcomes.tolist() == [1, 0, 0, 0]
    assert normalised(outcomes).tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)


def test_the_stored_success_is_judged_in_the_group_but_found_by_its_own_key():
    first, *others = repair(group(0, 0, 0), SUCCESS)
    assert first.group == others[0].group == "rl/2/0"
    assert (first.key, first.turns) == (SUCCESS.key, SUCCESS.turns)
    assert others == group(0, 0, 0)[1:]


@pytest.mark.parametrize(
    "outcomes",
    [
        (0, 0, 0, 1),  # mean 0.25
        (0, 0, 0, 0.15),  # mean 0.04, but it varies by 0.065
        (0.2, 0.2, 0.2, 0.2),  # does not vary, but is not low
        (1, 1, 1, 1),
        (),
    ],
)
def test_other_groups_are_not_repaired(outcomes):
    assert holding(SUCCESS).replacement(TASK, group(*outcomes), seed=0) is None


def test_a_group_that_hardly_varies_counts_as_failed():
    assert holding(SUCCESS).replacement(TASK, group(0, 0, 0, 0.1), seed=0) == SUCCESS.key


def test_a_task_that_was_never_solved_cannot_be_repaired():
    buffer = holding(SUCCESS)
    assert buffer.replacement("another task", group(0, 0, 0, 0), seed=0) is None
    assert SuccessBuffer().replacement(TASK, group(0, 0), seed=0) is None


def test_only_results_above_a_tenth_are_stored():
    rollouts = group(0, 0.1, 0.11, 1)
    assert holding(*rollouts).keys == {TASK: (rollouts[2].key, rollouts[3].key)}
    assert holding(*group(0, 0)).keys == {}


@given(st.lists(st.integers(0, 30), max_size=40), st.integers(1, 8))
def test_the_buffer_holds_the_latest_successes_and_no_more(members, capacity):
    buffer, expected = SuccessBuffer(capacity), []
    for member in members:
        rollout = Trajectory(Key("rl/1", 0, member), "g", (Turn(1),), 1.0)
        if rollout.key not in expected:
            expected = [*expected, rollout.key][-capacity:]
        buffer = buffer.pushed(TASK, [rollout])
    assert list(buffer.keys.get(TASK, ())) == expected


def test_storing_leaves_the_old_buffer_as_it_was():
    before = holding(SUCCESS)
    before.pushed(TASK, group(1, 1))
    assert before.keys == {TASK: (SUCCESS.key,)}


def test_every_stored_success_is_sampled_alike_and_the_seed_decides():
    buffer = holding(*group(*[1] * 8, step=1))
    failed = group(0, 0)
    sampled = [buffer.replacement(TASK, failed, seed=seed) for seed in range(4000)]
    assert sampled == [buffer.replacement(TASK, failed, seed=seed) for seed in range(4000)]
    counts = Counter(sampled)
    assert len(counts) == 8
    assert all(400 < count < 600 for count in counts.values())  # 500 expected, sd 21
