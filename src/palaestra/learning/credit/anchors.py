"""Anchor credit: steps that a group took in equal states are compared with each other.

Rollouts of one task keep returning to the same states. There the comparison that a tree of
rollouts would pay for is free: what followed one visit against what followed the others. The
state is the environment's (`state_key`), not the prompt, which never repeats.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from difflib import SequenceMatcher
from functools import partial
from itertools import groupby
from typing import Literal

from palaestra.core.errors import InputError
from palaestra.learning.credit.returns import by_votes
from palaestra.learning.credit.rule import (
    Credit,
    centred,
    check_choice,
    check_groups,
    discounted,
    groups,
    normalised,
    per_token,
    within,
)
from palaestra.learning.data.trajectory import Trajectory
from palaestra.learning.methods.component import Kind, Need, Status, component
from palaestra.learning.methods.options import NotNegative, Positive, Share

SOURCE = "Feng et al. 2025 (GiGPO); the author's core_gigpo.py in DrMAS"


@component(
    Kind.CREDIT,
    "anchor",
    source=SOURCE,
    status=Status.RELEASE,
    needs=[Need.GROUP, Need.ANCHOR],
)
def anchor(
    batch: Sequence[Trajectory],
    *,
    gamma: Share = 0.95,
    normalise: bool = False,
    eps: Positive = 1e-6,
    similarity: Share | None = None,
) -> Credit:
    """Return-to-go of a step minus the mean over steps that its group took in the same state.

    The step part of GiGPO: `U_k = sum_{j >= k} gamma^(j-k) r_j`, `A = U - mean` over the
    steps of one group and one anchor, on all tokens of the step. Every visit counts, so a
    rollout that loops is compared with itself too. A step whose state no other step of the
    group has, or whose state is unknown, gets 0. Turns of one environment step (a planner and
    an actor, say) are one step, counted once; the release counts each of their rows.

    Args:
        batch: rollouts whose turns have anchors.
        gamma: discount per step.
        normalise: divide by the standard deviation (n - 1) plus eps; the release calls the
            two forms mean_norm (its default) and mean_std_norm.
        eps: added to the standard deviation, in units of reward.
        similarity: put anchors together whose texts are at least this similar (difflib's ratio,
            0 to 1), instead of equal ones only; the release uses 0.95. Each text joins the
            first representative that it resembles. They are taken in alphabetical order; in
            the release in that of the batch, on which its result depends.

    Raises:
        GroupTooSmall: a group of one rollout.
        InputError: no turn has an anchor.
    """
    check_groups(batch, "anchor")
    _check_anchors(batch)
    clusters = _clusters(batch, similarity)
    returns: list[float] = []
    keys: list[Hashable] = []
    lengths: list[list[int]] = []  # per rollout: number of turns of each of its steps
    for number, trajectory in enumerate(batch):
        steps = _steps(trajectory)
        rewards = trajectory.rewards
        returns += discounted([sum(rewards[k] for k in step) for step in steps], gamma)
        for step in steps:
            name = trajectory.turns[step[0]].anchor
            if name is None:
                keys.append((number, step[0]))
            else:
                keys.append((trajectory.group, clusters[trajectory.group, name]))
        lengths.append([len(step) for step in steps])
    reduce = partial(normalised, eps=eps) if normalise else centred
    per_step = within(returns, keys, reduce).split([len(counts) for counts in lengths])
    advantages = []
    for trajectory, values, counts in zip(batch, per_step, lengths, strict=True):
        per_turn = [v for v, n in zip(values.tolist(), counts, strict=True) for _ in range(n)]
        advantages.append(per_token(trajectory, per_turn))
    return Credit(advantages)


@component(
    Kind.CREDIT,
    "gigpo",
    source=SOURCE,
    status=Status.RELEASE,
    needs=[Need.GROUP, Need.ANCHOR],
)
def gigpo(
    batch: Sequence[Trajectory],
    *,
    omega: NotNegative = 1.0,
    gamma: Share = 0.95,
    normalise: bool = False,
    eps: Positive = 1e-6,
    similarity: Share | None = None,
    mean_over: Literal["rollouts", "steps"] = "rollouts",
) -> Credit:
    """Return minus the group's mean, plus `omega` times `anchor`: credit on two scales.

    `A = A^E + omega * A^S`: the episode part compares the returns of a group, the step part
    is `anchor`. Where no state repeats, only the first is left. The release returns the
    return of a group of one unchanged; here that is an error.

    Args:
        batch: rollouts whose turns have anchors.
        omega: weight of the step part.
        gamma: discount per step, in the step part only.
        normalise: divide both parts by their standard deviation (n - 1) plus eps.
        eps: added to the standard deviations, in units of reward.
        similarity: as in `anchor`.
        mean_over: what counts once in the episode part's mean and deviation. "rollouts" is the
            paper's equation 3 and the release's `compute_mean_std_cross_steps = False`: the part
            is `drgrpo` (`grpo` when normalised). "steps" is the release's default: a rollout
            counts once for each of its steps, so that long rollouts weigh more in the mean.

    Raises:
        GroupTooSmall: a group of one rollout.
        InputError: no turn has an anchor, or an unknown `mean_over`.
    """
    check_choice("gigpo", "mean_over", mean_over, ("rollouts", "steps"))
    check_groups(batch, "gigpo")
    votes = [len(_steps(t)) if mean_over == "steps" else 1 for t in batch]
    episode = by_votes(batch, votes, partial(normalised, eps=eps) if normalise else centred)
    steps = anchor(batch, gamma=gamma, normalise=normalise, eps=eps, similarity=similarity)
    pairs = zip(episode.advantages, steps.advantages, strict=True)
    return Credit([of_episode + omega * of_step for of_episode, of_step in pairs])


def _check_anchors(batch: Sequence[Trajectory]) -> None:
    if batch and all(turn.anchor is None for t in batch for turn in t.turns):
        raise InputError(
            "Steps cannot be compared by state: no turn has an anchor, because the environment "
            "declares no state keys; choose one that does, or a rule without anchors (drgrpo)."
        )


def _steps(trajectory: Trajectory) -> list[list[int]]:
    """Return the indices of the turns of each environment step; turns of one step are adjacent."""
    turns = trajectory.turns
    together = groupby(range(len(turns)), key=lambda k: (turns[k].step, turns[k].anchor))
    return [list(members) for _, members in together]


def _clusters(batch: Sequence[Trajectory], similarity: float | None) -> dict[tuple[str, str], str]:
    """Map (group, anchor) to the anchor that represents it."""
    found: dict[tuple[str, str], str] = {}
    for members in groups([trajectory.group for trajectory in batch]):
        anchors = {turn.anchor for i in members for turn in batch[i].turns}
        texts = {name for name in anchors if name is not None}
        alike = {text: text for text in texts} if similarity is None else _alike(texts, similarity)
        for text, representative in alike.items():
            found[batch[members[0]].group, text] = representative
    return found


def _alike(texts: Iterable[str], similarity: float) -> dict[str, str]:
    """Map each text to the first representative that it resembles, in alphabetical order."""
    found: dict[str, str] = {}
    matchers: dict[str, SequenceMatcher[str]] = {}
    for text in sorted(texts):
        for representative, matcher in matchers.items():
            matcher.set_seq1(text)
            # the first two are cheap upper bounds of the third
            if (
                matcher.real_quick_ratio() >= similarity
                and matcher.quick_ratio() >= similarity
                and matcher.ratio() >= similarity
            ):
                found[text] = representative
                break
        else:
            found[text] = text
            # without `autojunk`, which would ignore frequent letters of long texts
            matchers[text] = SequenceMatcher(None, "", text, autojunk=False)
    return found
