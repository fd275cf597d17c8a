"""Recorded episodes as data of a critic: values of states, and the better of two replies.

States and replies are those of one role, in the tokens in which they were sampled. Where a state
was reached several times (rollouts of one task, runs with the same plan), its value is the mean
over them; a reply that was only considered, and never acted on, has no value of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from palaestra.core.episode import Episode
from palaestra.core.errors import InputError
from palaestra.core.graph import Call
from palaestra.learning.critics.step_q import Preference
from palaestra.learning.data.examples.decisions import Decision, Option, decisions
from palaestra.learning.data.examples.pairs import extremes

ACTS = "agent"  # the role whose replies are actions
UNCOUNTED = ""  # the policy given to calls that do not count


@dataclass(frozen=True, slots=True)
class State:
    """A state in tokens, and the mean score of the episodes that reached it."""

    group: str  # equal for rollouts of one task from one initial state
    tokens: tuple[int, ...]
    value: float


@dataclass(frozen=True, slots=True)
class Choice:
    """The best and the worst of several replies to one history."""

    group: str
    preference: Preference
    gap: float  # of their values


def states(episodes: Sequence[Episode], role: str = ACTS, *, score: str = "success") -> list[State]:
    """Return the states in which the role replied, each with its mean score.

    Raises:
        InputError: the replies are not recorded in tokens.
    """
    return [State(d.group, d.history, d.value) for d in _decisions(episodes, role, score)]


def choices(
    episodes: Sequence[Episode], role: str = ACTS, *, score: str = "success", gap: float = 0.0
) -> list[Choice]:
    """Return the best and the worst reply to each history that has several.

    Source: MPO (Xiong et al. 2025) pairs meta plans like this, where each is worth the mean over
    the runs with it; step-level Q models (Zhai et al. 2024) pair actions.

    Args:
        episodes: rollouts, several of each task.
        role: whose replies are compared.
        score: success, reward or progress, whose mean is a reply's value.
        gap: values of a pair differ by more than this.

    Raises:
        InputError: as `states`.
    """
    found: list[Choice] = []
    for decision in _decisions(episodes, role, score):
        chosen = extremes([option.value for option in decision.options], gap=gap)
        if chosen is None:
            continue
        good, bad = (decision.options[index] for index in chosen)
        replied = [_reply_tokens(decision, option) for option in (good, bad)]
        pair = Preference(decision.history, *replied)
        found.append(Choice(decision.group, pair, good.value - bad.value))
    return found


def _decisions(episodes: Sequence[Episode], role: str, score: str) -> list[Decision]:
    try:
        return decisions([_alone(episode, role) for episode in episodes], role, score=score)
    except ValueError:
        raise InputError(
            f"The replies of the role '{role}' are not recorded in tokens, so nothing can be "
            "learned from them; let a model of this library play it."
        ) from None


def _alone(episode: Episode, role: str) -> Episode:
    """Return the episode in which the role's calls that acted are a policy of their own."""
    acted = {step.call for step in episode.steps}
    did = acted if role == ACTS else set(range(len(episode.calls)))

    def policy(call: Call) -> str:
        return role if call.role == role and call.index in did else UNCOUNTED

    calls = tuple(replace(call, policy=policy(call)) for call in episode.calls)
    return replace(episode, calls=calls)


def _reply_tokens(decision: Decision, option: Option) -> tuple[int, ...]:
    return tuple(option.row.tokens[len(decision.history) :])
