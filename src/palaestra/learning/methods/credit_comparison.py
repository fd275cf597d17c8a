"""Comparisons of several credit rules on the same recorded rollouts.

Pure: trajectories and rules in, numbers out. A rule's advantage of a turn is the mean
over its tokens; statistics are over turns, each counting once, so a rule is judged
by its credit of decisions, not by their length in tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from palaestra.core.episode import Key
from palaestra.learning.credit.rule import CreditRule, groups
from palaestra.learning.data.trajectory import Trajectory
from palaestra.learning.methods.checks import check_credit

ZERO = 1e-8  # an advantage below this changes no weight
CLEAR = 2.0  # a true advantage this many standard errors from zero has a clear sign


@dataclass(frozen=True, slots=True)
class Estimate:
    """A turn's true contribution to the return: `V(state after) - V(state before)`, measured."""

    mean: float
    error: float  # standard error of the mean


Truth = Mapping[tuple[Key, int], Estimate]
"""By rollout and position of the turn in it; turns that were not measured are missing."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of two numbers per turn."""

    turns: int  # compared
    pearson: float | None  # correlation; None where one of the two is constant
    spearman: float | None  # correlation of ranks
    signed: int  # turns where both have a sign
    opposite: float | None  # share of those where the signs differ; None without any


@dataclass(frozen=True, slots=True)
class RuleFigures:
    """Statistics of one rule on the rollouts."""

    name: str
    advantages: tuple[tuple[float, ...], ...]  # per rollout and turn
    mean: float
    variance: float  # over turns, n - 1; 0 for a single turn
    within: float | None  # share of the variance inside rollouts: 0 where all turns get the same
    zero_turns: float  # share of turns none of whose tokens has an advantage
    zero_tokens: float
    silent_groups: float  # share of groups without any gradient
    truth: Agreement | None  # with the measured advantages; None where nothing was measured


@dataclass(frozen=True, slots=True)
class Dispute:
    """A turn that rules credit differently."""

    rollout: int  # position in the batch
    turn: int  # position in the rollout
    spread: float  # largest minus smallest advantage, each in its rule's root mean square


@dataclass(frozen=True, slots=True)
class Comparison:
    """The results of several rules on one batch."""

    batch: tuple[Trajectory, ...]
    rules: tuple[RuleFigures, ...]
    pairs: Mapping[tuple[str, str], Agreement]  # every two rules, in the order of `rules`
    truth: tuple[tuple[Estimate | None, ...], ...]  # per rollout and turn; empty without any
    reliability: float | None  # share of the measured variance that is not noise, in [0, 1]

    @property
    def turns(self) -> int:
        return sum(len(t.turns) for t in self.batch)


def compare(
    batch: Sequence[Trajectory], rules: Mapping[str, CreditRule], truth: Truth | None = None
) -> Comparison:
    """Run each rule once over the whole batch and compare the results, turn by turn.

    Args:
        batch: at least one trajectory; a rule sees all of them, as in a step of training.
        rules: by the name that they are shown under.
        truth: measured advantages; any subset of the turns.

    Raises:
        InputError: a rule does not return one finite advantage per sampled token.
        GroupTooSmall: see the rules.
    """
    if not batch:
        raise ValueError("nothing to compare: the batch has no trajectory")
    measured = _measured(batch, truth or {})
    true = [found for turns in measured for found in turns if found is not None]
    tokens = {name: _checked(name, rule, batch) for name, rule in rules.items()}
    turns = {name: per_turn(batch, found) for name, found in tokens.items()}
    figures = [_figures(name, batch, tokens[name], turns[name], measured) for name in rules]
    flat = {name: torch.cat(found) for name, found in turns.items()}
    pairs = {(a, b): agreement(flat[a], flat[b]) for a, b in combinations(rules, 2)}
    return Comparison(
        tuple(batch), tuple(figures), pairs, measured if true else (), _reliability(true)
    )


def per_turn(batch: Sequence[Trajectory], advantages: Sequence[Tensor]) -> list[Tensor]:
    """Return means over the tokens of each turn: [T_i] each -> [K_i] each."""
    return [
        torch.stack([part.mean() for part in found.split([turn.tokens for turn in t.turns])])
        for t, found in zip(batch, advantages, strict=True)
    ]


def agreement(a: Tensor, b: Tensor, clear: Tensor | None = None) -> Agreement:
    """Return how two numbers per turn, both [N], agree.

    Args:
        a: of one rule.
        b: of another rule, or the truth.
        clear: [N] of bool, which signs of `b` are reliable; all by default.
    """
    signed = (a.abs() > ZERO) & (b.abs() > ZERO)
    if clear is not None:
        signed &= clear
    count = int(signed.sum())
    opposite = float(((a > 0) != (b > 0))[signed].double().mean()) if count else None
    return Agreement(len(a), correlation(a, b), correlation(ranks(a), ranks(b)), count, opposite)


def correlation(a: Tensor, b: Tensor) -> float | None:
    """Return Pearson's correlation of two [N]; None below two, or where one is constant."""
    if len(a) < 2 or any(float(x.max() - x.min()) <= ZERO for x in (a, b)):
        return None
    x, y = a - a.mean(), b - b.mean()
    return max(-1.0, min(1.0, float(x @ y / (x.norm() * y.norm()))))


def ranks(values: Tensor) -> Tensor:
    """Return ranks from 1, [N] -> [N]; equal values (up to rounding) share their mean rank."""
    grain = max(float(values.abs().max()) * 1e-10, 1e-300) if len(values) else 1.0
    _, where, counts = torch.unique(
        (values / grain).round(), return_inverse=True, return_counts=True
    )
    last = counts.cumsum(0)
    return ((2 * last - counts + 1).double() / 2)[where]


def disputes(comparison: Comparison) -> list[Dispute]:
    """Return the most disputed turn of each rollout, the most disputed first.

    Rules have their own units: each is measured in its root mean square over the batch. With
    a single rule, these are the turns that it credits or blames most.
    """
    if not comparison.rules:
        return []
    numbers = torch.tensor(
        [sum(rule.advantages, ()) for rule in comparison.rules], dtype=torch.float64
    )
    sizes = numbers.square().mean(1, keepdim=True).sqrt()
    scaled = numbers / sizes.clamp(min=ZERO)
    spread = scaled.max(0).values - scaled.min(0).values if len(scaled) > 1 else scaled[0].abs()
    found: list[Dispute] = []
    for index, part in enumerate(spread.split([len(t.turns) for t in comparison.batch])):
        if float(part.max()) > ZERO:
            found.append(Dispute(index, int(part.argmax()), float(part.max())))
    return sorted(found, key=lambda dispute: -dispute.spread)


def as_json(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as one JSON object."""
    batch = comparison.batch
    measured = [found for turns in comparison.truth for found in turns if found is not None]
    return {
        "groups": len({t.group for t in batch}),
        "rollouts": len(batch),
        "turns": comparison.turns,
        "tokens": sum(t.tokens for t in batch),
        "rules": [
            {**asdict(rule), "advantages": [list(turns) for turns in rule.advantages]}
            for rule in comparison.rules
        ],
        "pairs": [{"rules": list(pair), **asdict(a)} for pair, a in comparison.pairs.items()],
        "truth": {
            "turns": len(measured),
            "reliability": comparison.reliability,
            "advantages": [
                [asdict(found) if found else None for found in turns] for turns in comparison.truth
            ],
        }
        if measured
        else None,
        "disputes": [asdict(dispute) for dispute in disputes(comparison)],
        "trajectories": [
            {
                "key": str(t.key),
                "group": t.group,
                "return": t.total,
                "success": t.success,
                "turns": [
                    {"reward": reward, "tokens": turn.tokens, "valid": turn.valid}
                    for reward, turn in zip(t.rewards, t.turns, strict=True)
                ],
            }
            for t in batch
        ],
    }


# ── details ──────────────────────────────────────────────────────────────────


def _checked(name: str, rule: CreditRule, batch: Sequence[Trajectory]) -> list[Tensor]:
    """Return the rule's advantages: [T_i] in fp64 for each trajectory."""
    credit = check_credit(name, rule(batch), batch)
    return [found.detach().double() for found in credit.advantages]


def _figures(
    name: str,
    batch: Sequence[Trajectory],
    tokens: Sequence[Tensor],
    turns: Sequence[Tensor],
    measured: Sequence[Sequence[Estimate | None]],
) -> RuleFigures:
    flat, every = torch.cat(list(turns)), torch.cat(list(tokens))
    spread = (flat - flat.mean()).square().sum()
    inside = sum(float((found - found.mean()).square().sum()) for found in turns)
    loudest = [
        [float(part.abs().max()) for part in found.split([turn.tokens for turn in t.turns])]
        for t, found in zip(batch, tokens, strict=True)
    ]
    still = [max(numbers) <= ZERO for numbers in loudest]
    together = groups([t.group for t in batch])
    return RuleFigures(
        name=name,
        advantages=tuple(tuple(found.tolist()) for found in turns),
        mean=float(flat.mean()),
        variance=float(flat.var()) if len(flat) > 1 else 0.0,
        within=inside / float(spread) if float(spread) > ZERO**2 * len(flat) else None,
        zero_turns=sum(size <= ZERO for numbers in loudest for size in numbers) / len(flat),
        zero_tokens=float((every.abs() <= ZERO).double().mean()),
        silent_groups=sum(all(still[i] for i in members) for members in together) / len(together),
        truth=_with_truth(turns, measured),
    )


def _with_truth(
    turns: Sequence[Tensor], measured: Sequence[Sequence[Estimate | None]]
) -> Agreement | None:
    both = [
        (predicted, found)
        for numbers, row in zip(turns, measured, strict=True)
        for predicted, found in zip(numbers.tolist(), row, strict=True)
        if found is not None
    ]
    if not both:
        return None
    predicted = torch.tensor([value for value, _ in both], dtype=torch.float64)
    true = torch.tensor([found.mean for _, found in both], dtype=torch.float64)
    clear = torch.tensor([abs(found.mean) > CLEAR * found.error for _, found in both])
    return agreement(predicted, true, clear)


def _measured(batch: Sequence[Trajectory], truth: Truth) -> tuple[tuple[Estimate | None, ...], ...]:
    return tuple(tuple(truth.get((t.key, k)) for k in range(len(t.turns))) for t in batch)


def _reliability(measured: Sequence[Estimate]) -> float | None:
    """Return how much of the variance of the measured advantages is not sampling noise."""
    if len(measured) < 2:
        return None
    variance = float(torch.tensor([e.mean for e in measured], dtype=torch.float64).var())
    noise = sum(e.error**2 for e in measured) / len(measured)
    return max(0.0, 1 - noise / variance) if variance > ZERO**2 else None
