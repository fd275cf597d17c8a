"""ArCHer: the published numbers, and a critic that finds the turn that mattered."""

import random

import pytest
import torch

from palaestra.core.errors import InputError
from palaestra.learning.critics.archer import (
    Archer,
    ArcherPlan,
    q_targets,
    turn_advantages,
)
from palaestra.learning.critics.optimiser import polyak
from palaestra.learning.critics.replay_buffer import Replay, transitions
from palaestra.learning.data.trajectory import with_turns_filled
from palaestra.store.checkpoint import load, save
from tests.learning.critics.rollouts import equal_states, rollouts, small

FIRST, THEN, GOOD, BAD = 0, 1, 2, 3  # what the world says, and what can be replied


def delayed(*, truncated=False):
    """Two turns; the reward comes after the second, but is for the first."""
    return rollouts(
        [
            [([FIRST], [reply], 0.0), ([THEN], [other], float(reply == GOOD))]
            for reply in (GOOD, BAD)
            for other in (GOOD, BAD)
        ],
        truncated=truncated,
    )


def always_good(histories, seed):
    return [(GOOD,) for _ in histories]


def archer(*, seed=0, network=0, propose=always_good, **plan):
    defaults = {"updates": 2, "learning_rate": 3e-3, "warmup": 1}
    return Archer(small(seed=network), propose, ArcherPlan(**{**defaults, **plan}), seed=seed)


# ── targets ──────────────────────────────────────────────────────────────────


def test_q_bootstraps_from_the_slow_value_of_the_next_history():
    rewards, values = torch.tensor([0.0, 0.0]), torch.tensor([[0.6, 0.6], [0.4, 0.4]])
    targets = q_targets(rewards, torch.tensor([False, True]), values, gamma=0.95)
    assert torch.allclose(targets, torch.tensor([[0.57, 0.0], [0.38, 0.0]]))


def test_the_reward_of_the_last_turn_is_its_whole_target():
    targets = q_targets(torch.tensor([1.0]), torch.tensor([True]), torch.tensor([7.0]))
    assert targets.tolist() == [1.0]


def test_the_advantage_is_the_lesser_q_minus_the_lesser_v():
    q, v = torch.tensor([[0.50], [0.52]]), torch.tensor([[0.45], [0.48]])
    assert turn_advantages(q, v).item() == pytest.approx(0.05)
    assert turn_advantages(q.flip(0), v.flip(0)).item() == pytest.approx(0.05)


def test_the_slow_copy_moves_by_a_tenth():
    slow, fast = torch.zeros(2), torch.ones(2)
    polyak([slow], [fast], 0.1)
    assert slow.tolist() == pytest.approx([0.1, 0.1])
    assert fast.tolist() == [1.0, 1.0]


# ── memory ───────────────────────────────────────────────────────────────────


def test_a_turn_is_remembered_with_the_history_that_followed_it():
    made = rollouts([[([5, 6], [GOOD], 0.25), ([THEN], [BAD, BAD], 1.0)]])
    first, last = transitions(made.trajectories, made.rows)
    assert (first.reply.history, first.reply.tokens, first.reward) == ((5, 6), (GOOD,), 0.25)
    assert first.following is not None and first.following.history == (5, 6, GOOD, THEN)
    assert (last.reply.tokens, last.reward, last.following) == ((BAD, BAD), 1.0, None)


def test_a_rollout_that_was_cut_off_did_not_end_there():
    made = delayed(truncated=True)
    assert [t.following is None for t in transitions(made.trajectories, made.rows)] == [False] * 4


def test_the_oldest_turns_are_forgotten_first():
    made = delayed()
    items, memory = transitions(made.trajectories, made.rows), Replay(3)
    memory.extend(items[:2])
    memory.extend(items[2:])
    assert memory.items == items[-3:]


def test_the_memory_survives_as_tensors():
    made, memory, other = delayed(), Replay(100), Replay(100)
    memory.extend(transitions(made.trajectories, made.rows))
    state = memory.state()
    assert len(state["lengths"]) == 4  # a row that two turns share is written once
    other.restore(state)
    assert other.items == memory.items
    other.restore(Replay(100).state())
    assert other.items == []


def test_turns_of_one_rollout_are_read_together_also_after_a_restart():
    made, memory, other = delayed(), Replay(100), Replay(100)
    memory.extend(transitions(made.trajectories, made.rows))
    other.restore(memory.state())
    for each in (memory, other):
        assert [len(rollout) for rollout in each.rollouts()] == [2, 2, 2, 2]
        assert [t for rollout in each.rollouts() for t in rollout] == memory.items


def test_nothing_to_remember_is_an_error():
    made = rollouts([[([FIRST], [GOOD], 0.0)]], truncated=True)
    with pytest.raises(InputError, match="no transition"):
        archer().learn(made.trajectories, made.rows)


# ── learning ─────────────────────────────────────────────────────────────────


def test_advantages_find_the_turn_that_earned_the_delayed_reward():
    def chance(histories, seed):
        draw = random.Random(seed)
        return [(draw.choice((GOOD, BAD)),) for _ in histories]

    made, critic = delayed(), archer(updates=200, propose=chance)
    critic.learn(made.trajectories, made.rows)
    found = critic.advantages(made.trajectories, made.rows)
    # V of the first history is 0.95 / 2: half of all replies are good
    for turns, first in zip(found, (0.475, 0.475, -0.475, -0.475), strict=True):
        assert turns == pytest.approx([first, 0.0], abs=0.15)
    # returns-to-go: 0.95 or 0, then 1 or 0; only the second turn's chance cannot be foreseen
    assert critic.explained(made.trajectories, made.rows) > 0.9
    assert archer().explained(made.trajectories, made.rows) < 0.1
    filled = with_turns_filled(made.trajectories, "advantage", found)
    assert [[turn.advantage for turn in t.turns] for t in filled] == found


def test_values_are_those_of_the_present_policy_and_not_of_the_past_one():
    made, critic = delayed(), archer(updates=200)
    critic.learn(made.trajectories, made.rows)
    good, _, bad, _ = (turns[0] for turns in critic.advantages(made.trajectories, made.rows))
    assert good == pytest.approx(0.0, abs=0.1)  # what the policy would have said anyway
    assert bad == pytest.approx(-0.95, abs=0.15)


def test_the_policy_waits_until_the_critic_is_warm():
    made, critic = delayed(), archer(warmup=2)
    for warming in (True, True, False):
        assert critic.warming is warming
        critic.learn(made.trajectories, made.rows)


def test_fresh_replies_are_other_ones_at_each_update_and_the_same_after_a_restart():
    seeds = []

    def noted(histories, seed):
        seeds.append(seed)
        return always_good(histories, seed)

    made, critic, other = delayed(), archer(propose=noted), archer(propose=noted)
    critic.learn(made.trajectories, made.rows)
    other.restore(critic.state())
    for each in (critic, other):
        each.learn(made.trajectories, made.rows)
    assert len(set(seeds[:4])) == 4 and seeds[2:4] == seeds[4:6]


def test_transitions_per_pass_change_no_gradient():
    made, moments = delayed(), []
    for at_once in (1, 3, 100):
        critic = archer(updates=1, at_once=at_once)
        critic.learn(made.trajectories, made.rows)
        moments.append(critic.state()["exp_avg"])
    for other in moments[1:]:
        assert all(torch.allclose(other[n], moments[0][n], atol=1e-6) for n in other)


def test_equal_seeds_give_equal_critics_and_others_do_not():
    made, states = delayed(), []
    for seed in (1, 1, 2):
        critic = archer(seed=seed, batch=3)
        critic.learn(made.trajectories, made.rows)
        states.append(critic.state())
    assert equal_states(states[0], states[1])
    assert not equal_states(states[0], states[2])


def test_a_critic_goes_on_exactly_from_a_checkpoint(tmp_path):
    made, critic, other = delayed(), archer(batch=3), archer(batch=3, network=1)
    critic.learn(made.trajectories, made.rows)
    save(tmp_path, "critic", critic.state(), {})
    other.restore(load(tmp_path, "critic").tensors)
    assert equal_states(critic.state(), other.state())
    later = delayed()
    for each in (critic, other):
        each.learn(later.trajectories, later.rows)
    assert equal_states(critic.state(), other.state())
