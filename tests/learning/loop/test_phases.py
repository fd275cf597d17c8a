"""Phases: what the next step is follows from the plan and the history, and nothing else."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.episode import Key
from palaestra.core.errors import RecipeError
from palaestra.learning.loop.phases import (
    Falls,
    Phase,
    PhaseKind,
    Plateau,
    Position,
    Schedule,
    Success,
    demonstrations,
    entropulse,
)

RL, SFT = PhaseKind


def kinds(schedule, history):
    """What each step was, of a run whose metrics turned out as in `history`."""
    found = []
    for done in range(len(history) + 1):
        position = schedule.after(history[:done])
        if position is None:
            break
        found.append(position.kind)
    return found


def metrics(name, *values):
    return [{name: value} for value in values]


def test_fixed_phases_follow_each_other():
    schedule = entropulse(rl_steps=3, sft_steps=2)
    assert kinds(schedule, [{}] * 10) == [RL] * 3 + [SFT] * 2 + [RL] * 3


def test_a_schedule_ends():
    schedule = Schedule((Phase(RL, 2), Phase(SFT, 1)))
    assert schedule.after([{}] * 2) == Position(1, SFT, 1)
    assert schedule.after([{}] * 3) is None
    assert Schedule(()).after([]) is None


def test_entropulse_imitates_when_entropy_has_collapsed():
    schedule = entropulse(rl_steps=100, sft_steps=2, entropy=0.2)
    history = metrics("entropy", 0.5, 0.4, 0.3, 0.1, 0.1, 0.4, 0.5, 0.5)
    # the mean of the last three falls below 0.2 after the fifth step
    assert kinds(schedule, history) == [RL] * 5 + [SFT] * 2 + [RL] * 2


def test_entropulse_imitates_when_success_no_longer_rises():
    schedule = entropulse(rl_steps=100, sft_steps=1, plateau=2)
    history = metrics("success", 0.1, 0.2, 0.3, 0.4, 0.4, 0.4, 0.4, 0.5)
    assert kinds(schedule, history) == [RL] * 7 + [SFT] + [RL]


def test_entropulse_goes_round_as_often_as_asked():
    schedule = entropulse(rl_steps=1, sft_steps=1, cycles=3)
    assert [phase.kind for phase in schedule.phases] == [RL, SFT] * 3 + [RL]


def test_a_phase_does_not_end_before_its_least_steps():
    phase = Phase(RL, most=10, least=5, until=(Falls("entropy", 1.0, recent=1),))
    assert kinds(Schedule((phase,)), metrics("entropy", *[0.0] * 9)) == [RL] * 5


def test_a_condition_looks_at_its_own_phase_only():
    falls = Falls("entropy", 0.2, recent=3)
    schedule = Schedule((Phase(SFT, 2), Phase(RL, 9, until=(falls,))))
    assert kinds(schedule, metrics("entropy", *[0.1] * 9)) == [SFT] * 2 + [RL] * 3


def test_a_condition_does_not_hold_while_its_figure_is_missing():
    falls = Falls("entropy", 0.2, recent=2)
    schedule = Schedule((Phase(RL, 6, until=(falls,)),))
    history = [{"entropy": 0.1}, {}, {"entropy": 0.1}, {"entropy": 0.1}, {}, {}]
    assert kinds(schedule, history) == [RL] * 4


@pytest.mark.parametrize(("most", "least"), [(0, 1), (3, 4), (3, 0)])
def test_a_phase_needs_steps(most, least):
    with pytest.raises(RecipeError, match="1 <= least <= most"):
        Phase(RL, most, least)


conditions = st.one_of(
    st.builds(Falls, st.just("entropy"), st.floats(0, 1), st.integers(1, 4)),
    st.builds(Plateau, st.just("success"), st.floats(-0.1, 0.3), st.integers(1, 3)),
)
phases = st.builds(
    lambda kind, least, more, until: Phase(kind, least + more, least, tuple(until)),
    st.sampled_from(PhaseKind),
    st.integers(1, 4),
    st.integers(0, 8),
    st.lists(conditions, max_size=2),
)
schedules = st.lists(phases, max_size=4).map(lambda found: Schedule(tuple(found)))
histories = st.lists(
    st.fixed_dictionaries({"entropy": st.floats(0, 1)}, optional={"success": st.floats(0, 1)}),
    max_size=40,
)


@given(schedules, histories)
def test_steps_follow_each_other_and_phases_only_move_on(schedule, history):
    before = schedule.after([])
    assert before is None or (before.phase, before.step) == (0, 1)
    for done in range(1, len(history) + 1):
        now = schedule.after(history[:done])
        if before is None:
            assert now is None
        elif now is not None:
            following = (before.phase, before.step + 1), (before.phase + 1, 1)
            assert (now.phase, now.step) in following
            assert now.kind is schedule.phases[now.phase].kind
        before = now


@given(schedules, histories, st.data())
def test_a_run_resumed_at_any_step_goes_on_the_same(schedule, history, data):
    killed = data.draw(st.integers(0, len(history)))
    stored = json.loads(json.dumps(history[:killed]))  # what a run folder holds
    resumed = Schedule(tuple(schedule.phases))
    for metrics_of_step in history[killed:]:
        assert resumed.after(stored) == schedule.after(history[: len(stored)])
        stored.append(metrics_of_step)


@given(schedules, histories)
def test_no_phase_is_shorter_or_longer_than_planned(schedule, history):
    recorded: dict[int, int] = {}
    for done in range(len(history) + 1):
        position = schedule.after(history[:done])
        if position is None:
            break
        recorded[position.phase] = position.step
    for number, steps in recorded.items():
        assert steps <= schedule.phases[number].most
        if number + 1 in recorded:
            assert steps >= schedule.phases[number].least


STORE = [
    *[Success("A", Key(f"rl/{i}", 0, 0), version=i) for i in range(5)],
    Success("B", Key("rl/9", 1, 3), version=9),
]


def test_imitation_takes_one_success_per_task_from_any_policy():
    chosen = demonstrations(STORE, per_task=1)
    assert [s.task for s in chosen] == ["A", "B"]  # C was never solved
    versions = {s.version for seed in range(40) for s in demonstrations(STORE, seed=seed)}
    assert versions == {0, 1, 2, 3, 4, 9}


@given(st.permutations(STORE), st.integers(1, 7), st.integers(0, 99))
def test_the_cap_holds_for_every_task_and_order_decides_nothing(store, per_task, seed):
    chosen = demonstrations(store, per_task=per_task, seed=seed)
    assert chosen == demonstrations(STORE, per_task=per_task, seed=seed)
    assert len(set(chosen)) == len(chosen) == min(per_task, 5) + 1
