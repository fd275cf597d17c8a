"""Wrong trajectories, made of right ones: labels without a person and without an environment.

Distant supervision, as in MAG-V (Sengupta et al. 2024): one thing of a right trajectory is changed.
Some changes do no harm, such as a search less, so the labels have some noise.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from palaestra.core.message import ToolCall
from palaestra.evaluation.judges.trajectory_features import Trajectory

Others = Sequence[Trajectory]
Corruption = Callable[[Trajectory, Others, random.Random], Trajectory | None]
TRIES = 20  # at finding another trajectory that has what is needed


def corrupted(trajectory: Trajectory, others: Others, rng: random.Random) -> list[Trajectory]:
    """Return wrong trajectories for a request: one of each corruption that it allows.

    Args:
        trajectory: a right one.
        others: right ones, of which calls and values are taken.
        rng: decides what is changed.
    """
    made = (corruption(trajectory, others, rng) for corruption in CORRUPTIONS)
    return [one for one in made if one is not None and one.calls != trajectory.calls]


def _left_out(one: Trajectory, others: Others, rng: random.Random) -> Trajectory | None:
    """Leave out a call before the last one."""
    if len(one.calls) < 2:
        return None
    at = rng.randrange(len(one.calls) - 1)
    return replace(
        one, calls=one.calls[:at] + one.calls[at + 1 :], seen=one.seen[:at] + one.seen[at + 1 :]
    )


def _one_more(one: Trajectory, others: Others, rng: random.Random) -> Trajectory | None:
    """Insert a call of another trajectory."""
    if not one.calls or (found := _call_of_another(one, others, rng)) is None:
        return None
    at = rng.randrange(len(one.calls))
    call, seen = found
    return replace(
        one,
        calls=(*one.calls[:at], call, *one.calls[at:]),
        seen=(*one.seen[:at], seen, *one.seen[at:]),
    )


def _another_tool(one: Trajectory, others: Others, rng: random.Random) -> Trajectory | None:
    """Put a call of another trajectory in the place of one before the last."""
    if len(one.calls) < 2 or (found := _call_of_another(one, others, rng)) is None:
        return None
    at = rng.randrange(len(one.calls) - 1)
    call, seen = found
    return _with_call(one, at, call, seen)


def _another_value(one: Trajectory, others: Others, rng: random.Random) -> Trajectory | None:
    """Give an argument of a call before the last one another value."""
    places = [(at, name) for at, call in enumerate(one.calls[:-1]) for name in call.arguments]
    return _with_value(one, *rng.choice(places), others, rng) if places else None


def _another_answer(one: Trajectory, others: Others, rng: random.Random) -> Trajectory | None:
    """Give an argument of the last call another value."""
    if not one.calls or not one.calls[-1].arguments:
        return None
    name = rng.choice(list(one.calls[-1].arguments))
    return _with_value(one, len(one.calls) - 1, name, others, rng)


def _ended_early(one: Trajectory, others: Others, rng: random.Random) -> Trajectory | None:
    """Make the last call after the first third of the others."""
    if len(one.calls) < 3:
        return None
    kept = (len(one.calls) - 1) // 3
    return replace(
        one, calls=(*one.calls[:kept], one.calls[-1]), seen=(*one.seen[:kept], one.seen[-1])
    )


CORRUPTIONS: tuple[Corruption, ...] = (
    _left_out,
    _one_more,
    _another_tool,
    _another_value,
    _another_answer,
    _ended_early,
)


def _with_call(one: Trajectory, at: int, call: ToolCall, seen: str) -> Trajectory:
    calls = (*one.calls[:at], call, *one.calls[at + 1 :])
    return replace(one, calls=calls, seen=(*one.seen[:at], seen, *one.seen[at + 1 :]))


def _call_of_another(
    one: Trajectory, others: Others, rng: random.Random
) -> tuple[ToolCall, str] | None:
    """Draw a call that the trajectory has not, with what it showed; none that ends an episode."""
    for _ in range(TRIES):
        other = rng.choice(others)
        if len(other.calls) > 1:
            at = rng.randrange(len(other.calls) - 1)
            if other.calls[at] not in one.calls:
                return other.calls[at], other.seen[at]
    return None


def _with_value(
    one: Trajectory, at: int, name: str, others: Others, rng: random.Random
) -> Trajectory:
    """Return the trajectory with another value, which another one has there, or which is near."""
    call = one.calls[at]
    value = call.arguments[name]
    known = [
        made.arguments[name]
        for made in (
            made for other in rng.sample(others, min(TRIES, len(others))) for made in other.calls
        )
        if made.name == call.name and name in made.arguments and made.arguments[name] != value
    ]
    wrong = rng.choice(known) if known and rng.random() < 0.5 else _near(value, rng)
    made = ToolCall(call.name, {**call.arguments, name: wrong})
    return _with_call(one, at, made, one.seen[at])


def _near(value: Any, rng: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + rng.choice((1, 2, 10))
    return f"{value} 2"
