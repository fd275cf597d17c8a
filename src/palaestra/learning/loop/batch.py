"""From finished episodes to the learner's rows, one pure step after the other."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError
from palaestra.core.model import free, is_of
from palaestra.learning.compute.packing import Trained, spread
from palaestra.learning.credit.rule import Credit, groups
from palaestra.learning.data.advised import AdvicePlan, AdvisedReply
from palaestra.learning.data.rewards import Shaping
from palaestra.learning.data.rows import Row
from palaestra.learning.data.trajectory import Trajectory, Turn
from palaestra.learning.losses.aggregation import Aggregation, token_weights
from palaestra.learning.losses.trained_tokens import Tokens
from palaestra.learning.methods.algorithms import Method
from palaestra.learning.methods.checks import (
    check_finite,
    check_tokens,
    check_trajectories,
    check_verdicts,
)
from palaestra.learning.methods.component import Kind, Need

PerCall = Mapping[tuple[Key, int], Sequence[float]]
"""One number per sampled token, by rollout and model call."""

PrivilegedNumbers = Mapping[tuple[Hashable, int], Sequence[float]]
"""Of the state before a reply, by rollout and model call."""

Replies = Mapping[tuple[Hashable, int], AdvisedReply]
"""What is known of the turns with advice, by rollout and model call."""

PerEnd = Mapping[tuple[Key, int], float]
"""One number per row, by rollout and the last call that the row trains."""


def trajectories(episodes: Sequence[Episode], shaping: Shaping, policy: str) -> list[Trajectory]:
    """Return the rollouts with a reply of the policy, without those that have no valid result.

    Raises:
        InputError: all its replies were constrained to choices or a grammar, or a reward is not
            finite.
    """
    found = [
        shaping.trajectory(episode, policy)
        for episode in episodes
        if episode.outcome.scored and any(is_of(call.policy, policy) for call in episode.calls)
    ]
    held = any(
        not is_of(call.policy, policy) and is_of(free(call.policy), policy)
        for episode in episodes
        for call in episode.calls
    )
    if held and not found:
        raise InputError(
            f"Every reply of '{policy}' was constrained to choices or a grammar, and such replies "
            "are not learned from; train with an agent that lets it reply freely, such as direct."
        )
    check_trajectories(found)  # before filters and figures read them
    return found


def filtered(batch: Sequence[Trajectory], method: Method) -> list[Trajectory]:
    """Drop the groups that the method's filter rejects, or that have no others to compare with."""
    together = [[batch[i] for i in members] for members in groups([t.group for t in batch])]
    if Need.GROUP in method.needs:
        together = [group for group in together if len(group) > 1]
    verdicts = method.keep(together) if together else []
    check_verdicts(method.algorithm.filter, verdicts, len(together))
    return [t for group, keep in zip(together, verdicts, strict=True) if keep for t in group]


def with_values(batch: Sequence[Trajectory], values: PerCall) -> list[Trajectory]:
    """Return the trajectories with the critic's value before each sampled token."""
    return [
        replace(t, turns=tuple(replace(n, values=tuple(values[t.key, n.call])) for n in t.turns))
        for t in batch
    ]


def with_ends(trajectory: Trajectory, ends: PerEnd) -> Trajectory:
    """Return the trajectory with the critic's value of the last state, also per player.

    A player's is read at the end of that player's own conversation.
    """

    def last(turns: Sequence[Turn]) -> float:
        calls = [turn.call for turn in turns if (trajectory.key, turn.call) in ends]
        return ends[trajectory.key, calls[-1]] if calls else 0.0

    turns, places = trajectory.turns, trajectory.turns_by_player
    players = {p: last([turns[k] for k in places.get(p, ())]) for p in trajectory.outcomes}
    return replace(trajectory, bootstrap=last(trajectory.turns), bootstraps=players)


def per_call(
    batch: Sequence[Trajectory], tokens: Sequence[Tensor]
) -> dict[tuple[Key, int], list[float]]:
    """Cut numbers per sampled token ([T_i] each) at the ends of turns."""
    found: dict[tuple[Key, int], list[float]] = {}
    for trajectory, numbers in zip(batch, tokens, strict=True):
        parts = numbers.split([turn.tokens for turn in trajectory.turns])
        for turn, part in zip(trajectory.turns, parts, strict=True):
            found[trajectory.key, turn.call] = part.tolist()
    return found


def instructive(batch: Sequence[Trajectory], credit: Credit, least: float = 0.0) -> set[Key]:
    """Return the rollouts with some advantage above `least` in size."""
    return {
        t.key
        for t, advantage in zip(batch, credit.advantages, strict=True)
        if float(advantage.abs().max()) > least
    }


def trained_rows(
    rows: Sequence[Row],
    advantage: PerCall,
    aggregation: Aggregation,
    *,
    length: int | None = None,
    targets: PerCall | None = None,
) -> list[Trained]:
    """Return rows with an advantage, a weight and maybe a critic's target per trained token.

    `rows` must be the whole batch of one optimiser step: the weights add up over it.
    `length` is the constant of `Aggregation.ROLLOUT_TOKEN_NORM`, in tokens.
    """
    constant = length if aggregation is Aggregation.ROLLOUT_TOKEN_NORM else None
    weights = token_weights(rows, aggregation, length=constant)
    return [
        Trained(
            tokens=row.tokens,
            mask=row.mask,
            lp_old=row.logprobs,
            advantage=_by_call(row, advantage, 0.0),
            weight=weight,
            lp_beh=row.logprobs,
            version=row.versions,
            turn=row.calls,
            rollout=row.key,
            roles=row.roles,
            images=tuple(row.images),
            value_target=None if targets is None else _by_call(row, targets, math.nan),
        )
        for row, weight in zip(rows, weights, strict=True)
    ]


def imitated_rows(rows: Sequence[Row], aggregation: Aggregation) -> list[Trained]:
    """Return rows whose every trained token is to become more likely; a whole batch, as above.

    Imitation compares with no sampler: log-probabilities that are unknown count as 0.
    """
    weights = token_weights(rows, aggregation)
    return [
        Trained(
            row.tokens,
            row.mask,
            lp_old=[0.0 if math.isnan(lp) else lp for lp in row.logprobs],
            weight=weight,
            turn=row.calls,
            rollout=row.key,
            roles=row.roles,
            images=tuple(row.images),
        )
        for row, weight in zip(rows, weights, strict=True)
    ]


def gathered(rows: Sequence[Row], numbers: Sequence[Sequence[float]]) -> PerCall:
    """Do the reverse: return the numbers of each row's trained tokens by rollout and call."""
    found: dict[tuple[Key, int], list[float]] = {}
    for row, values in zip(rows, numbers, strict=True):
        calls = [call for on, call in zip(row.mask, row.calls, strict=True) if on]
        for call, value in zip(calls, values, strict=True):
            found.setdefault((row.key, call), []).append(value)
    return found


def with_proximal(rows: Sequence[Trained], logprobs: Sequence[Sequence[float]]) -> list[Trained]:
    """Return the rows with recomputed log-probabilities as those at the start of the update.

    Where the sampler's are unknown (an import, a loop of one's own), they replace these too:
    the sampler counts as the present policy, and corrections change nothing.
    """
    found = []
    for row, values in zip(rows, logprobs, strict=True):
        old = spread(row.mask, values)
        pairs = zip(row.lp_beh, old, strict=True)
        known = [other if math.isnan(lp) else lp for lp, other in pairs]
        found.append(replace(row, lp_old=old, lp_beh=known))
    return found


def with_reference(rows: Sequence[Trained], logprobs: Sequence[Sequence[float]]) -> list[Trained]:
    """Return the rows with the reference policy's log-probabilities."""
    return [
        replace(row, lp_ref=spread(row.mask, values))
        for row, values in zip(rows, logprobs, strict=True)
    ]


def privileged_numbers(
    batch: Sequence[Trajectory], episodes: Mapping[Key, Episode]
) -> PrivilegedNumbers:
    """Return the privileged numbers of the states in which the turns' replies were given."""
    found: dict[tuple[Hashable, int], Sequence[float]] = {}
    for trajectory in batch:
        steps = episodes[trajectory.key].steps
        for turn in trajectory.turns:
            if turn.step < len(steps) and (numbers := steps[turn.step].before.privileged):
                found[trajectory.key, turn.call] = numbers
    return found


def with_privileged(rows: Sequence[Trained], states: PrivilegedNumbers) -> list[Trained]:
    """Return the rows with the privileged numbers of the turns that they train."""
    found = []
    for row in rows:
        turns = {turn for turn, on in zip(row.turn, row.mask, strict=True) if on}
        own = {t: states[row.rollout, t] for t in sorted(turns) if (row.rollout, t) in states}
        found.append(replace(row, privileged=own))
    return found


def weighed(
    rows: Sequence[Trained], replies: Replies, plan: AdvicePlan, step: int
) -> tuple[list[Trained], list[float]]:
    """Return the rows with advantages times the importance weights of advised turns.

    Args:
        rows: whole rollouts, with the log-probabilities of the present policy as `lp_old`.
        replies: what is known of the turns with advice; all others have the weight 1.
        plan: of the advice.
        step: of the run, 1-based.

    Returns:
        the rows, and the weights of the turns with advice.
    """
    logprobs: dict[tuple[Hashable, int], float] = {}
    for row in rows:
        for lp, turn, on in zip(row.lp_old, row.turn, row.mask, strict=True):
            if on:
                logprobs[row.rollout, turn] = logprobs.get((row.rollout, turn), 0.0) + lp
    weights = {
        turn: plan.weight(step, logprob, replies[turn])
        for turn, logprob in logprobs.items()
        if turn in replies
    }
    found = dict(weights)
    if plan.whole:
        products: dict[Hashable, float] = {}
        for (rollout, _), weight in weights.items():
            products[rollout] = products.get(rollout, 1.0) * weight
        found = {turn: products.get(turn[0], 1.0) for turn in logprobs}
    weighed = [
        replace(
            row,
            advantage=[
                advantage * found.get((row.rollout, turn), 1.0)
                for advantage, turn in zip(row.advantage, row.turn, strict=True)
            ],
        )
        for row in rows
    ]
    return weighed, list(weights.values())


def corrected(rows: Sequence[Trained], method: Method) -> list[Trained]:
    """Return the rows with each token's advantage times the method's off-policy correction.

    Policy losses are linear in the size of the advantage, so this weighs their part of the
    loss; KL and entropy terms stay as they are. So do the weights' denominators: rejected
    tokens do not inflate the rest.

    Raises:
        InputError: the correction returns anything but one finite weight per token.
    """
    if method.correction is None or not rows:
        return list(rows)
    flat, name = flat_tokens(rows), str(method.algorithm.correction)
    weights = check_tokens(Kind.CORRECTION, name, method.correction(flat), flat.lp)
    check_finite(Kind.CORRECTION, name, weights)
    factors = iter(weights.tolist())
    return [
        replace(
            row,
            advantage=[
                advantage * next(factors) if on else 0.0
                for advantage, on in zip(row.advantage, row.mask, strict=True)
            ],
        )
        for row in rows
    ]


def flat_tokens(rows: Sequence[Trained]) -> Tokens:
    """Return the trained tokens of a whole batch before its first update, where lp is lp_old."""
    rollouts: dict[Hashable, int] = {}
    turns: dict[tuple[Hashable, int], int] = {}
    columns: list[tuple[float, float, float, int, int, int]] = []
    for row in rows:
        rollout = rollouts.setdefault(row.rollout, len(rollouts))
        for position, on in enumerate(row.mask):
            if on:
                turn = turns.setdefault((row.rollout, row.turn[position]), len(turns))
                numbers = (row.lp_old[position], row.lp_beh[position], row.advantage[position])
                columns.append((*numbers, turn, rollout, row.version[position]))
    lp_old, lp_beh, advantage, turn_ids, rollout_ids, version = zip(*columns, strict=True)
    old = torch.tensor(lp_old, dtype=torch.float64)
    return Tokens(
        lp=old,
        lp_old=old,
        advantage=torch.tensor(advantage, dtype=torch.float64),
        turn=torch.tensor(turn_ids),
        rollout=torch.tensor(rollout_ids),
        lp_beh=torch.tensor(lp_beh, dtype=torch.float64),
        version=torch.tensor(version),
    )


def _by_call(row: Row, numbers: PerCall, elsewhere: float) -> list[float]:
    """Return numbers per sampled token at their positions in the row."""
    sources = {call: iter(numbers[row.key, call]) for call in set(row.calls) if call >= 0}
    return [
        next(sources[call]) if on else elsewhere
        for on, call in zip(row.mask, row.calls, strict=True)
    ]


def split_by_rollout(rows: Sequence[Row], parts: int, order: Sequence[Key]) -> list[list[Row]]:
    """Return minibatches of nearly equally many rollouts; all rows of a rollout stay together."""
    members: dict[Key, list[Row]] = {key: [] for key in order}
    for row in rows:
        members[row.key].append(row)
    keys = [key for key in order if members[key]]
    parts = max(1, min(parts, len(keys)))
    bounds = [round(i * len(keys) / parts) for i in range(parts + 1)]
    return [[row for key in keys[a:b] for row in members[key]] for a, b in pairwise(bounds)]
