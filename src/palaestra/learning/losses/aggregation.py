"""How the losses of a batch's tokens add up: one weight per token, fixed for the whole batch.

The weights are made before anything is split or rejected, so that neither micro-batches
nor rejected tokens change the weights of the others. They belong to the rollout: splitting
it into more rows changes none of them (`ROW_ROLLOUT_MEAN` excepted).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

from palaestra.core.episode import Key
from palaestra.core.errors import RecipeError
from palaestra.learning.data.rows import Row


class Aggregation(StrEnum):
    """How the tokens of a batch add up to one loss; "sequences" elsewhere are rollouts here."""

    TOKEN_MEAN = "token-mean"  # every trained token weighs the same (DAPO, CISPO)
    ROLLOUT_TOKEN_MEAN = "rollout-token-mean"  # mean over tokens, then rollouts (GRPO, GSPO, LOOP)
    ROLLOUT_TOKEN_SUM = "rollout-token-sum"  # sum over tokens, mean over rollouts (RLOO)
    ROLLOUT_TOKEN_NORM = "rollout-token-norm"  # as before, over a constant length (Dr.GRPO)
    TURN_MEAN = "turn-mean"  # mean over tokens, then turns, then rollouts (LOOP per turn)
    ROW_ROLLOUT_MEAN = "row-rollout-mean"  # mean over a rollout's tokens, over the number of rows


def token_weights(
    rows: Sequence[Row], aggregation: Aggregation, *, length: int | None = None
) -> list[list[float]]:
    """Return the weight of each token's loss in the sum over the batch.

    Source: verl and TRL (token-mean, seq-mean-token-mean, -sum and -sum-norm); Agent
    Lightning 1.0 (row-rollout-mean: its mean is over rows, so that a rollout split into
    more rows makes the whole batch weigh less); turn-mean is known from a digest only.

    Args:
        rows: the whole batch of one optimiser step, before any rejection.
        length: the constant L of `ROLLOUT_TOKEN_NORM`, in tokens of the policy.

    Returns:
        one list per row, as long as the row; zero where its mask is false. Rollouts without
        trained tokens do not count.

    Raises:
        RecipeError: a length is missing, not positive, or given where nothing reads it.
    """
    if aggregation != Aggregation.ROLLOUT_TOKEN_NORM and length is not None:
        raise RecipeError(
            f"The aggregation '{aggregation}' reads no length, but length = {length} was given; "
            f"leave it out or choose '{Aggregation.ROLLOUT_TOKEN_NORM}'."
        )
    weights = _turn_weights(rows, aggregation, length)
    return [
        [
            weights[row.key, call] if on else 0.0
            for on, call in zip(row.mask, row.calls, strict=True)
        ]
        for row in rows
    ]


def _turn_weights(
    rows: Sequence[Row], aggregation: Aggregation, length: int | None
) -> dict[tuple[Key, int], float]:
    """Return the weight of each token of a turn (the tokens of a turn always weigh the same)."""
    sizes: Counter[tuple[Key, int]] = Counter()
    for row in rows:
        sizes.update((row.key, call) for on, call in zip(row.mask, row.calls, strict=True) if on)
    tokens: Counter[Key] = Counter()
    turns: Counter[Key] = Counter()
    for (key, _), size in sizes.items():
        tokens[key] += size
        turns[key] += 1
    rollouts = len(tokens)
    match aggregation:
        case Aggregation.TOKEN_MEAN:
            return dict.fromkeys(sizes, 1 / max(tokens.total(), 1))
        case Aggregation.ROLLOUT_TOKEN_MEAN:
            return {(key, call): 1 / (rollouts * tokens[key]) for key, call in sizes}
        case Aggregation.ROLLOUT_TOKEN_SUM:
            return dict.fromkeys(sizes, 1 / max(rollouts, 1))
        case Aggregation.ROLLOUT_TOKEN_NORM:
            if length is None or length < 1:
                raise RecipeError(
                    f"The aggregation '{aggregation}' divides by a constant length, but got "
                    f"{length}; set it to the most tokens that the policy may sample in a rollout."
                )
            return dict.fromkeys(sizes, 1 / (max(rollouts, 1) * length))
        case Aggregation.TURN_MEAN:
            return {
                (key, call): 1 / (rollouts * turns[key] * size)
                for (key, call), size in sizes.items()
            }
        case Aggregation.ROW_ROLLOUT_MEAN:
            trained = sum(row.trained > 0 for row in rows)
            return {(key, call): 1 / (trained * tokens[key]) for key, call in sizes}
