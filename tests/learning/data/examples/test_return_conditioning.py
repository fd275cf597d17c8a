"""Commands: what an episode achieved, in the policy's prompt as its goal."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.episode import Key
from palaestra.core.errors import InputError
from palaestra.core.message import system, user
from palaestra.core.outcome import Outcome
from palaestra.learning.data.examples.return_conditioning import (
    Command,
    commanded,
    hindsight,
    sample_command,
    with_command,
)
from palaestra.learning.data.rewards import Shaping
from palaestra.learning.data.rows import rows_of
from palaestra.learning.data.trajectory import Trajectory
from palaestra.learning.data.trajectory import Turn as Earned
from tests.learning.data.examples.stories import BROKEN, RENDERER, Turn, story, trained_words, words

PLAIN = Shaping(10, {"outcome": 1.0, "invalid": -1.0}, {"outcome": {"turn_cost": 0.0}})


def test_the_command_that_a_segment_obeyed():
    command = hindsight([0, 0, 1], 1, 3)
    assert command == Command(1, 2)
    assert command.after(0) == Command(1, 1)
    assert command.after(0).after(0) == Command(1, 1)  # there is always one more turn


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=8), st.data())
def test_following_the_rewards_keeps_the_command_true(rewards, data):
    start = data.draw(st.integers(0, len(rewards) - 1))
    command = hindsight(rewards, start, len(rewards))
    for turn in range(start, len(rewards) - 1):
        command = command.after(rewards[turn])
        later = hindsight(rewards, turn + 1, len(rewards))
        assert command.horizon == later.horizon
        assert command.wanted == pytest.approx(later.wanted, abs=1e-9)


@pytest.mark.parametrize(("start", "end"), [(-1, 2), (2, 2), (1, 4)])
def test_segments_outside_the_episode_are_refused(start, end):
    with pytest.raises(InputError, match="not part"):
        hindsight([0, 0, 1], start, end)


def trajectory(total, turns):
    return Trajectory(Key("rl/1", 0), "rl/1/0", (Earned(1),) * turns, total)


def test_commands_are_drawn_a_little_above_the_best_returns():
    made = [trajectory(total, turns) for total, turns in [(1, 4), (3, 6), (0, 90), (-5, 2)]]
    found = [sample_command(made, top=2, seed=seed) for seed in range(50)]
    assert {command.horizon for command in found} == {5}
    wanted = [command.wanted for command in found]
    assert 2 <= min(wanted) < 2.2
    assert 2.8 < max(wanted) <= 3
    assert sample_command(made, top=2, seed=3) == found[3]
    with pytest.raises(InputError, match="roll out first"):
        sample_command([])


def test_a_command_replaces_the_one_before_it():
    asked = (system("task"), user("s0"))
    first = with_command(asked, Command(1, 3))
    assert first == (system("task"), user("s0\nCommand: earn 1 more within 3 turns."))
    assert with_command(first, Command(-0.001, 2))[-1].text == (
        "s0\nCommand: earn 0 more within 2 turns."
    )
    alone = with_command([user("")], Command(1, 1))
    assert with_command(alone, Command(1, 1)) == alone


def test_each_turn_stands_under_the_command_that_the_rest_obeyed():
    made = story([("s0", "a0"), ("s1", "a1"), ("s2", "a2")])
    (example,) = commanded([made], "policy", RENDERER, PLAIN)
    assert words(example.row) == (
        "s0 Command: earn 1 more within 3 turns. a0 "
        "s1 Command: earn 1 more within 2 turns. a1 "
        "s2 Command: earn 1 more within 1 turns. a2"
    )
    assert trained_words(example.row) == "a0 a1 a2"
    assert example.weight == 1


def test_the_replies_stay_the_recorded_tokens():
    unusual = story([("s0", "a0"), ("s1", "a1")])
    recorded = unusual.calls[0].completion[:-1]  # cut off by a limit: no end token
    cut = replace(unusual.calls[0], completion=recorded, logprobs=(-0.5,))
    made = replace(unusual, calls=(cut, unusual.calls[1]))
    (example,) = commanded([made], "policy", RENDERER, PLAIN)
    trained = [t for t, on in zip(example.row.tokens, example.row.mask, strict=True) if on]
    assert trained == [*recorded, *unusual.calls[1].completion]
    assert words(example.row).endswith("s1 Command: earn 1 more within 1 turns. a1")
    logprobs = [lp for lp, on in zip(example.row.logprobs, example.row.mask, strict=True) if on]
    assert logprobs == [-0.5, -0.5, -1.5]


def test_failures_are_studied_as_obeying_a_lower_command():
    made = story([Turn("s0", "a0", valid=False)], outcome=Outcome.failure())
    (example,) = commanded([made], "policy", RENDERER, PLAIN)
    assert "earn <unknown> more" in words(example.row)  # -1
    assert commanded([story([("s0", "a0")], outcome=BROKEN)], "policy", RENDERER, PLAIN) == []


def test_rollouts_under_a_command_are_relabelled_with_what_they_did():
    asked = with_command([user("s0")], Command(4, 4))
    made = story([Turn("s0", "a0", prompt=asked)])
    (example,) = commanded([made], "policy", RENDERER, PLAIN)
    assert words(example.row) == "s0 Command: earn 1 more within 1 turns. a0"


def test_every_reply_is_trained_once_in_every_branch():
    made = story([("s0", "a0"), ("s1", "a1")], rooted=True)
    found = commanded([made], "policy", RENDERER, PLAIN)
    assert [trained_words(example.row) for example in found] == ["a0", "a1"]
    assert sum(e.row.trained for e in found) == sum(r.trained for r in rows_of(made, "policy"))


def test_other_speakers_are_no_ones_to_command():
    made = story([("s0", "a0")], policy="other")
    assert commanded([made], "policy", RENDERER, PLAIN) == []
