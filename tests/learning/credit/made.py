"""Made-up rollouts for tests of credit: small enough to see, or drawn with every slot filled.

`rollout` and `batch` build what a numeric example states; `trajectories` draws batches for
laws that hold for all of them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from palaestra.core.episode import Key
from palaestra.learning.credit.rule import Credit
from palaestra.learning.data.trajectory import Trajectory, Turn

ROLES = ("agent", "feedback")
FAMILIES = ("maze", "shop")
QUARTERS = st.integers(-4, 4).map(lambda n: n / 4)  # sums of them are exact


def close(a: Tensor, b: Any, tolerance: float = 5.1e-5) -> bool:
    """Equal to the printed figures (four digits by default), NaN where NaN is expected."""
    expected = torch.as_tensor(b, dtype=torch.float64)
    return a.shape == expected.shape and torch.allclose(
        a, expected, rtol=0, atol=tolerance, equal_nan=True
    )


def scalars(credit: Credit) -> Tensor:
    """One advantage per rollout, of a rule that gives all tokens of a rollout the same."""
    for advantages in credit.advantages:
        assert bool((advantages == advantages[0]).all()), "the tokens of a rollout differ"
    return torch.stack([advantages[0] for advantages in credit.advantages])


def rollout(
    rewards: Sequence[float] = (0.0,),
    *,
    outcome: float = 0.0,
    tokens: int | Sequence[int] = 1,
    values: Sequence[float] | None = None,
    group: int = 0,
    member: int = 0,
    slots: dict[str, Any] | None = None,
    **per_turn: Sequence[Any],
) -> Trajectory:
    """One rollout.

    Args:
        rewards: per turn; their number is the number of turns.
        outcome: added to the last turn's reward by rules.
        tokens: of each turn, or of every turn.
        values: the critic's, one per token of the whole rollout.
        group: position of its task in the phase.
        member: which rollout of that task.
        slots: other fields of the trajectory, such as `{"greedy": 0.5}`.
        **per_turn: other fields of the turns, one entry per turn, such as `anchor=["a", "b"]`.
    """
    counts = [tokens] * len(rewards) if isinstance(tokens, int) else list(tokens)
    turns, start = [], 0
    for k, (reward, count) in enumerate(zip(rewards, counts, strict=True)):
        fields = {name: entries[k] for name, entries in per_turn.items()}
        if values is not None:
            fields["values"] = tuple(values[start : start + count])
        turns.append(Turn(**{"tokens": count, "reward": reward, "call": k, "step": k, **fields}))
        start += count
    key = Key("rl/1", group, member)
    return Trajectory(key, f"rl/1/{group}", tuple(turns), outcome, **(slots or {}))


def batch(
    returns: Sequence[float],
    *,
    turns: int | Sequence[int] = 1,
    tokens: int = 1,
    group: int = 0,
    **slots: Any,
) -> list[Trajectory]:
    """One group with these returns, earned by how the rollouts ended.

    Args:
        returns: one per rollout.
        turns: of each rollout, or of every rollout.
        tokens: of every turn.
        group: position of the task in the phase.
        **slots: other fields of every trajectory, such as `task="maze"`.
    """
    counts = [turns] * len(returns) if isinstance(turns, int) else list(turns)
    return [
        rollout(
            [0.0] * count, outcome=value, tokens=tokens, group=group, member=member, slots=slots
        )
        for member, (value, count) in enumerate(zip(returns, counts, strict=True))
    ]


@st.composite
def trajectories(
    draw: st.DrawFn, *, groups: tuple[int, int] = (1, 3), members: tuple[int, int] = (2, 5)
) -> list[Trajectory]:
    """A batch in any order: every optional slot filled, rollouts of 1-5 turns of 1-4 tokens.

    Rollouts of a group may share their first turns, as leaves of a tree of samples; the last
    turn of each is its own. Two roles speak in turn, both within one environment step; which
    begins depends on the member, so that both are heard in every batch.
    """
    rng = random.Random(draw(st.integers(0, 2**32 - 1)))
    found: list[Trajectory] = []
    for group in range(draw(st.integers(*groups))):
        nodes: dict[str, Turn] = {}
        family = draw(st.sampled_from(FAMILIES))
        belief, greedy = rng.random(), draw(QUARTERS)
        for member in range(draw(st.integers(*members))):
            path = _path(draw, group, member)
            for depth, node in enumerate(path):
                if node not in nodes:
                    nodes[node] = _turn(draw, rng, depth, ROLES[(depth + member) % 2])
            outcome = draw(QUARTERS)
            truncated = draw(st.booleans())
            found.append(
                Trajectory(
                    key=Key("rl/1", group, member),
                    group=f"rl/1/{group}",
                    turns=tuple(nodes[node] for node in path),
                    outcome=outcome,
                    task=family,
                    success=outcome > 0,
                    truncated=truncated,
                    bootstrap=rng.random() if truncated else 0.0,
                    belief=belief,
                    greedy=greedy,
                    outcomes={ROLES[0]: outcome, ROLES[1]: draw(QUARTERS)},
                    parents=tuple(path),
                )
            )
    return draw(st.permutations(found))


def _path(draw: st.DrawFn, group: int, member: int) -> list[str]:
    """Ids of a rollout's nodes; each names the path to it, the last also the rollout."""
    path = [f"{group}.{ROLES[member % 2]}"]
    for choice in draw(st.lists(st.integers(0, 2), max_size=4)):
        path.append(f"{path[-1]}.{choice}")
    return [*path[1:], f"{path[-1]}.leaf{member}"]


def _turn(draw: st.DrawFn, rng: random.Random, depth: int, role: str) -> Turn:
    tokens = draw(st.integers(1, 4))
    return Turn(
        tokens=tokens,
        reward=draw(QUARTERS),
        call=depth,
        role=role,
        step=depth // 2,
        segment=draw(st.integers(0, 2)),
        valid=draw(st.booleans()),
        anchor=draw(st.sampled_from("abcd")),
        values=tuple(rng.uniform(-1, 1) for _ in range(tokens)),
        progress=rng.random(),
        belief=rng.random(),
        contribution=rng.uniform(-1, 1),
        advantage=rng.uniform(-1, 1),
        seconds=rng.uniform(0.1, 10.0),
    )
