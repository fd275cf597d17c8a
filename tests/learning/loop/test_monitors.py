"""Monitors fire on the collapse they are made for, and are quiet on a healthy run."""

import math
import random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.learning.loop.alarms import found_again
from palaestra.learning.loop.monitors import (
    MONITORS,
    alarms,
    clip_fraction,
    discard_rate,
    echo_trap,
    engine_gap,
    entropy_collapse,
    gradient_spike,
    variance_cliff,
)
from scripts.alarm_study import KINDS, recorded, study

HEALTHY = {
    "group_std": 0.4,
    "gradient_norm": 0.5,
    "entropy": 0.6,
    "clipped": 0.02,
    "discarded": 0.4,
    "gap": 0.02,
}


def run(steps=20, **changes):
    """A healthy run; each change lists the figure's values at the last steps."""
    history = [dict(HEALTHY) for _ in range(steps)]
    for name, values in changes.items():
        for metrics, value in zip(history[-len(values) :], values, strict=True):
            metrics[name] = value
    return history


CASES = [
    (variance_cliff, {"group_std": [0.15, 0.1, 0.1, 0.1]}, ["0.113", "0.5", "0.4", "starpo"]),
    (gradient_spike, {"gradient_norm": [2.6] * 3}, ["2.6", "5 times", "0.5", "learning rate"]),
    (gradient_spike, {"gradient_norm": [math.nan]}, ["nan", "learning rate"]),
    (gradient_spike, {"gradient_norm": [math.inf]}, ["inf", "learning rate"]),
    (entropy_collapse, {"entropy": [0.1, 0.1, 0.1]}, ["0.1", "0.2", "0.6", "clip bound"]),
    (clip_fraction, {"clipped": [0.4, 0.4, 0.4]}, ["0.4", "0.3", "learning rate"]),
    (discard_rate, {"discarded": [0.9] * 5}, ["0.9", "0.8", "too hard"]),
    (engine_gap, {"gap": [0.06, 0.06, 0.06]}, ["0.06", "0.05", "importance"]),
]


@pytest.mark.parametrize(("monitor", "changes", "parts"), CASES)
def test_an_alarm_names_value_threshold_and_remedy_in_one_sentence(monitor, changes, parts):
    alarm = monitor(run(**changes))
    assert alarm.name == monitor.__name__
    assert alarm.step == 20
    assert all(part in alarm.message for part in parts)
    assert alarm.message.startswith("Step 20: ")
    assert alarm.message.endswith(".")
    assert ". " not in alarm.message


@pytest.mark.parametrize(
    ("monitor", "changes"),
    [
        (variance_cliff, {"group_std": [0.21, 0.21, 0.21, 0.21]}),
        (variance_cliff, {"group_std": [0.0]}),  # one bad step is no cliff
        (gradient_spike, {"gradient_norm": [2.4] * 3}),
        (gradient_spike, {"gradient_norm": [99.0, 0.5, 0.5]}),  # one leap is usual
        (gradient_spike, {"gradient_norm": [0.5, 0.5, 99.0]}),
        (entropy_collapse, {"entropy": [0.125, 0.125, 0.125]}),
        (clip_fraction, {"clipped": [0.29, 0.29, 0.29]}),
        (discard_rate, {"discarded": [2 / 3] * 5}),
        (discard_rate, {"discarded": [1.0]}),
        (engine_gap, {"gap": [0.049, 0.049, 0.049]}),
    ],
)
def test_within_the_threshold_there_is_no_alarm(monitor, changes):
    assert monitor(run(**changes)) is None


@pytest.mark.parametrize(("monitor", "changes", "parts"), CASES)
def test_a_figure_that_the_latest_step_lacks_raises_no_alarm(monitor, changes, parts):
    assert monitor([*run(**changes), {"success": 1.0}]) is None


@pytest.mark.parametrize("monitor", MONITORS)
def test_an_empty_history_raises_no_alarm(monitor):
    assert monitor([]) is None


@given(
    st.integers(1, 60),
    st.fixed_dictionaries(
        {
            "group_std": st.floats(0, 10),
            "gradient_norm": st.floats(0, 1e6),
            "entropy": st.floats(0, 10),
            "clipped": st.floats(0, 0.3),
            "discarded": st.floats(0, 0.8),
            "gap": st.floats(0, 0.05),
        }
    ),
)
def test_a_constant_healthy_history_raises_no_alarm(steps, metrics):
    # a mean of equal numbers may be an ulp above them, and 0.3 is a threshold
    metrics = {name: value * 0.999 for name, value in metrics.items()}
    assert alarms([metrics] * steps) == []


def test_ordinary_noise_raises_no_alarm():
    rng = random.Random(0)
    history = []
    for _ in range(300):
        history.append({name: value * rng.uniform(0.6, 1.4) for name, value in HEALTHY.items()})
        assert alarms(history) == []


def test_the_step_of_an_alarm_is_the_one_that_the_metrics_name():
    history = run(gradient_norm=[9.0] * 3)
    history[-1]["step"] = 120.0
    assert gradient_spike(history).step == 120
    assert "Step 120" in gradient_spike(history).message


def test_gradients_are_watched_on_after_a_step_that_was_not_finite():
    history = run(gradient_norm=[math.inf, 9.0, 0.5, 9.0])
    assert gradient_spike(history) is not None
    assert gradient_spike(history[:-1]) is None


def collapse():
    """Variance of returns falls first, twelve steps later gradients leap."""
    return run(40, group_std=[0.05] * 15, gradient_norm=[6.0] * 3)


def test_an_echo_trap_is_a_cliff_in_variance_and_then_a_leap_of_the_gradient():
    alarm = echo_trap(collapse())
    assert alarm.step == 40
    assert "gradient_spike followed a cliff" in alarm.message
    assert "step 28" in alarm.message  # the first with three of its last four below half
    assert [a.name for a in alarms(collapse())] == ["gradient_spike", "echo_trap"]


# The reward


def learned(steps, **changes):
    """A run with rewards; each change lists a figure's values at the last steps."""
    rewards = [0.4] * steps
    if "reward" in changes:
        rewards[-len(changes["reward"]) :] = changes["reward"]
    history = run(steps, **{**changes, "reward": rewards})
    return [{"success": metrics["reward"], **metrics} for metrics in history]


def ramp(start, end, steps):
    return [start + (end - start) * n / (steps - 1) for n in range(steps)]


RISE = {
    "reward": ramp(0.4, 0.85, 20),
    "group_std": ramp(0.4, 0.1, 10),
    "entropy": ramp(0.6, 0.05, 20),
    "gradient_norm": [5.0] * 3,
}


def raised(history):
    """The names of all alarms of a run, at whatever step."""
    return {alarm.name for end in range(len(history) + 1) for alarm in alarms(history[:end])}


def test_spread_and_entropy_that_fall_while_the_reward_rises_are_success():
    assert raised(learned(40, **RISE)) == set()


def test_the_same_without_a_rise_is_an_echo_trap():
    history = learned(40, **{**RISE, "reward": [0.4] * 20})
    assert raised(history) >= {"variance_cliff", "entropy_collapse", "echo_trap"}


def test_the_same_with_a_fall_is_an_echo_trap():
    history = learned(40, **{**RISE, "reward": ramp(0.4, 0.1, 10)})
    assert raised(history) >= {"variance_cliff", "entropy_collapse", "gradient_spike", "echo_trap"}


def test_a_rise_that_is_lost_again_is_an_echo_trap():
    lost = {"reward": [*ramp(0.4, 0.8, 20), *ramp(0.8, 0.2, 12)], "group_std": [0.05] * 12}
    history = learned(60, **lost, entropy=[0.05] * 12)
    early = raised(history[:-12])
    assert early == set()
    assert raised(history) >= {"variance_cliff", "entropy_collapse", "echo_trap"}


def test_where_nearly_all_tasks_are_solved_there_is_nothing_to_collapse():
    solved = {"group_std": [0.001] * 3, "entropy": [0.01] * 3, "gradient_norm": [5.0] * 3}
    assert raised(learned(40, reward=[0.92] * 40, **solved)) == set()
    assert len(raised(learned(40, reward=[0.5] * 40, **solved))) > 1


def test_a_leap_of_the_gradient_that_harms_nothing_is_none():
    leaps = {"gradient_norm": [5.0] * 6}
    assert raised(learned(40, **leaps)) == set()
    assert raised(learned(40, **leaps, reward=[0.1] * 6)) == {"gradient_spike"}
    assert raised(learned(40, gradient_norm=[math.nan])) == {"gradient_spike"}


@pytest.mark.parametrize("name", sorted(recorded()))
def test_recorded_healthy_runs_raise_no_alarm(name):
    history = recorded()[name]
    success = [metrics["success"] for metrics in history]
    assert fmean(success[-5:]) > fmean(success[:5]) - 0.05  # it has lost nothing
    assert found_again(list(enumerate(history, 1))) == {}


def test_a_small_game_that_is_learned_at_once_has_converged_and_not_collapsed():
    """Luck decides what is left: returns are alike within groups, and the mean return scatters."""
    alike = {"group_std": [0.3, *[0.01] * 37], "entropy": [0.3] * 5 + [0.02] * 33}
    rewards = [0.2, 0.3, *[0.5, 0.7] * 18]
    assert raised(learned(38, **alike, reward=rewards)) == set()
    lost = [0.2, 0.3, *[0.5, 0.7] * 12, *[0.1] * 12]  # a policy that loses what it had learned
    assert raised(learned(38, **alike, reward=lost)) >= {"entropy_collapse"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_at_most_one_healthy_run_in_a_hundred_raises_an_alarm(kind):
    counts, runs = study(kind, 200, seed=2), 200
    if kind.startswith("healthy"):
        assert counts["any"] <= runs * 2 / 100  # one in a hundred, and what chance adds to it
        assert counts["echo_trap"] == 0
    else:
        assert counts["echo_trap"] >= runs * 9 / 10


@pytest.mark.parametrize("missing", ["group_std", "gradient_norm"])
def test_either_sign_alone_is_no_echo_trap(missing):
    history = [{**metrics, missing: HEALTHY[missing]} for metrics in collapse()]
    assert all(echo_trap(history[:end]) is None for end in range(len(history) + 1))


def test_a_cliff_long_ago_is_no_echo_trap():
    history = run(80, group_std=[0.05] * 50, gradient_norm=[6.0])
    assert echo_trap(history) is None
