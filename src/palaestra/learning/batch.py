"""From credited episodes to what the learner trains on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch

from palaestra.core.episode import Episode, Key
from palaestra.learning.algorithms import Algorithm
from palaestra.learning.losses import Aggregation, token_weights
from palaestra.learning.packing import Trained
from palaestra.learning.rewards import Shaping
from palaestra.learning.rows import Row

NEGLIGIBLE = 1e-3  # advantages below this teach nothing but cost a pass (LOOP drops < 0.01)


def advantages(
    episodes: Sequence[Episode], algorithm: Algorithm, shaping: Shaping
) -> dict[Key, float]:
    """The advantage of each rollout that says something.

    Episodes without a valid result are left out before the group is judged; groups
    of which fewer than two remain, and negligible advantages, are left out too.
    """
    groups: dict[int, list[Episode]] = {}
    for episode in episodes:
        if episode.outcome.scored and episode.calls:
            groups.setdefault(episode.key.group, []).append(episode)
    found: dict[Key, float] = {}
    for group in groups.values():
        if len(group) < 2:
            continue
        returns = torch.tensor([shaping.episode_return(e) for e in group], dtype=torch.float64)
        for episode, advantage in zip(group, algorithm.credit(returns).tolist(), strict=True):
            if abs(advantage) > NEGLIGIBLE:
                found[episode.key] = advantage
    return found


def trained_rows(
    rows: Sequence[Row], advantage: Mapping[Key, float], aggregation: Aggregation
) -> list[Trained]:
    """Rows with an advantage and a loss weight on each trained token, zero elsewhere.

    `rows` must be the whole batch of one optimiser step: the weights add up over it.
    """
    weights = token_weights(rows, aggregation)
    return [
        Trained(
            tokens=row.tokens,
            mask=row.mask,
            lp_old=row.logprobs,
            advantage=[advantage[row.key] if on else 0.0 for on in row.mask],
            weight=[weights[row.key] if on else 0.0 for on in row.mask],
        )
        for row in rows
    ]


def split_by_rollout(rows: Sequence[Row], parts: int, order: Sequence[Key]) -> list[list[Row]]:
    """Minibatches of nearly equally many rollouts; all rows of a rollout stay together."""
    members: dict[Key, list[Row]] = {key: [] for key in order}
    for row in rows:
        members[row.key].append(row)
    keys = [key for key in order if members[key]]
    parts = max(1, min(parts, len(keys)))
    bounds = [round(i * len(keys) / parts) for i in range(parts + 1)]
    return [[row for key in keys[a:b] for row in members[key]] for a, b in pairwise(bounds)]
