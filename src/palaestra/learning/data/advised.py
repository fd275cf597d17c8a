"""Advised episodes as the policy's own: what an advisor did counts by its importance weight.

In an advised turn the behaviour policy is a mixture: with probability p the advisor's reply `a`
acts, else the policy samples one. Given `a`, a reply y has the probability

    b(y) = (1 - p) pi(y) + p [y = a]

so that y, whoever it came from, teaches the policy with the weight pi(y) / b(y), between 0 and
1 / (1 - p). Over turns, the product of the weights makes the estimate of the policy's own gradient
unbiased; one weight per turn leaves out how advice changes which states are met, and varies less.
Within a takeover p is 1: there the advisor's reply teaches with the weight pi(y), and nothing is
learned of what the policy would have done.

Source: mixtures of behaviour as in VARL (2025); weights as in Precup et al. 2000, per decision.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from palaestra.core.episode import ADVISOR, Episode
from palaestra.core.graph import Call
from palaestra.core.model import is_of


@dataclass(frozen=True, slots=True)
class AdvicePlan:
    """How often an advisor acts, and how what it did is weighed."""

    probability: float | None  # of each turn, at the first step; None: it takes over instead
    anneal: int | None = None  # steps over which the probability falls to 0; None: it stays
    whole: bool = False  # weigh by the product over the rollout; False: turn by turn

    def at(self, step: int) -> float | None:
        """Return the probability at a step (1-based); None: it takes over instead."""
        if self.probability is None or self.anneal is None:
            return self.probability
        return self.probability * max(0.0, 1 - (step - 1) / self.anneal)

    def weight(self, step: int, logprob: float, reply: AdvisedReply) -> float:
        """Return pi(y) / b(y) of a reply that acted at a step; `logprob` is that of pi(y)."""
        probability = self.at(step)
        if probability is None:
            probability = float(reply.advised)
        return importance_weight(logprob, probability, proposed=reply.proposed)


@dataclass(frozen=True, slots=True)
class AdvisedReply:
    """What is known of a reply that acted in a turn with advice."""

    advised: bool  # the advisor gave it
    proposed: bool  # it is the advisor's, token for token, whoever gave it


@dataclass(frozen=True, slots=True)
class Executed:
    """An advised episode without the advice that was not taken, in which all replies are learned.

    Calls are numbered anew. The advisor's have the policy's name and no log-probabilities; their
    role remains.
    """

    episode: Episode
    replies: Mapping[int, AdvisedReply]  # by call, where there was advice


def executed(episode: Episode, policy: str) -> Executed:
    """Return an episode with the advisor's replies that acted as replies of the policy."""
    acted = {step.call for step in episode.steps}
    kept: list[Call] = []
    numbers: dict[int, int] = {}  # present to new
    replies: dict[int, AdvisedReply] = {}
    advice: Call | None = None  # to the turn of the next call
    for call in episode.calls:
        if call.role == ADVISOR:
            advice = call
            if call.index not in acted:
                continue
        number = numbers[call.index] = len(kept)
        parent = None if call.parent is None else numbers[call.parent]
        if advice is not None and (call is advice or is_of(call.policy, policy)):
            same = call.completion == advice.completion
            replies[number] = AdvisedReply(call is advice, same)
        if call is advice:
            call = replace(call, policy=policy, logprobs=())
        advice = None
        kept.append(replace(call, index=number, parent=parent))
    before = _counts(episode, numbers)
    steps = tuple(
        replace(
            step,
            call=None if step.call is None else numbers[step.call],
            calls_made=before[step.calls_before],
        )
        for step in episode.steps
    )
    return Executed(replace(episode, calls=tuple(kept), steps=steps), replies)


def _counts(episode: Episode, numbers: Mapping[int, int]) -> list[int]:
    """Return how many calls are kept of the first 0, 1, 2 … calls."""
    found = [0]
    for call in episode.calls:
        found.append(found[-1] + (call.index in numbers))
    return found


def importance_weight(logprob: float, probability: float, *, proposed: bool) -> float:
    """Return pi(y) / b(y) of a reply that acted; see the top of this module.

    Args:
        logprob: log pi(y), the sum over its tokens.
        probability: p, with which the advisor acts in this turn.
        proposed: whether the advisor proposed y.
    """
    if probability == 0:
        return 1.0  # also of a reply whose probability is too small for a number
    if not proposed:
        return 1 / (1 - probability)
    likely = math.exp(logprob)
    return likely / ((1 - probability) * likely + probability)
