"""From an episode to the rewards that credit rules read: an outcome, and one reward per turn.

Both are weighted sums of named terms (see `reward_terms`). A term that returns one number adds to
the outcome, one that returns a number per step to the turns that those steps belong to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from palaestra.core.episode import Episode, Step, player_of
from palaestra.core.errors import InputError
from palaestra.core.graph import Call
from palaestra.core.model import is_of
from palaestra.core.outcome import Status
from palaestra.learning.credit.turn_rewards import belief
from palaestra.learning.data.control_reward import ControlReward
from palaestra.learning.data.reward_terms import OUTCOME
from palaestra.learning.data.trajectory import Trajectory, Turn
from palaestra.learning.methods.component import Kind, find

DEFAULT_WEIGHTS: Mapping[str, float] = MappingProxyType({OUTCOME: 1.0, "invalid": -0.05})
"""The terms of a recipe that names none."""

Value = float | list[float]
"""What a term measures: one number for how the episode ended, or one per step."""

Values = Mapping[str, Value]
"""What all terms measure in one episode, by name."""


@dataclass(frozen=True, slots=True)
class Term:
    """A reward term with its weight and options."""

    name: str
    weight: float  # 0: measured and logged, but not part of the reward
    measure: Callable[[Episode], Value]

    def value(self, episode: Episode) -> Value:
        """Return what the term measures in a scored episode.

        Raises:
            InputError: a number is not finite, or there is not one per step.
        """
        found = self.measure(episode)
        if not isinstance(found, list):
            self._check(episode, found, "for the episode")
            return float(found)
        if len(found) != len(episode.steps):
            raise InputError(
                f"The reward term '{self.name}' gave {len(found)} numbers for the "
                f"{len(episode.steps)} steps of {episode.key}; return one per step, or one number "
                "for the whole episode."
            )
        for index, number in enumerate(found):
            self._check(episode, number, f"at step {index}")
        return found

    def _check(self, episode: Episode, number: object, where: str) -> None:
        if not isinstance(number, int | float) or not math.isfinite(number):
            raise InputError(
                f"{episode.key} ({episode.task.environment}): the reward term '{self.name}' is "
                f"{number} {where}; fix the term, the environment or the record, or leave the "
                "term out."
            )


@dataclass(frozen=True, slots=True)
class Shaping:
    """The rewards of outcomes and turns: weighted sums of terms.

    A term of weight 0 is measured, but changes no sum by a bit. With several players each has an
    outcome of its own, in which its return (`Episode.results`) stands for the term `outcome`; the
    outcome of the rollout is the first player's.

    Raises:
        UnknownName, RecipeError: there is no such term or option.
    """

    most_turns: int  # actions of an episode, for terms that have an option of this name
    weights: Mapping[str, float] = field(default_factory=lambda: DEFAULT_WEIGHTS)
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by name of the term
    control: ControlReward | None = None  # replaces all of this in a control arm
    terms: tuple[Term, ...] = field(init=False, repr=False, compare=False)
    """In the order of their names, in which they are summed."""

    def __post_init__(self) -> None:
        found = tuple(self._term(name) for name in sorted(self.weights))
        object.__setattr__(self, "terms", found)

    def _term(self, name: str) -> Term:
        part = find(Kind.REWARD, name)
        measure = part.configured(self.options.get(name, {}))
        if "most_turns" in part.options:
            measure = partial(measure, most_turns=self.most_turns)
        return Term(name, self.weights[name], measure)

    def values(self, episode: Episode) -> Values:
        """Return what each term measures in a scored episode; raises like `Term.value`."""
        return {term.name: term.value(episode) for term in self.terms}

    def measured(self, episode: Episode) -> dict[str, float]:
        """Return each term's sum over a scored episode, without its weight."""
        found = self.values(episode).items()
        return {name: sum(v) if isinstance(v, list) else v for name, v in found}

    def outcome(self, episode: Episode, score: float | None = None) -> float:
        """Return the reward for how a scored episode ended; with several players, the first's.

        Args:
            episode: the record.
            score: replaces what the term `outcome` measures; None: its own.
        """
        return self._ending(self.values(episode), score)

    def outcomes(self, episode: Episode) -> dict[str, float]:
        """Return the outcome of each of several players, the first one first; empty for one."""
        return self._outcomes(self.values(episode), episode)

    def _outcomes(self, values: Values, episode: Episode) -> dict[str, float]:
        return {player: self._ending(values, own) for player, own in episode.results.items()}

    def _ending(self, values: Values, score: float | None = None) -> float:
        """Return the weighted sum of the terms of one number each; `score` replaces `outcome`."""
        found = 0.0
        for term in self.terms:
            value = values[term.name]
            if score is not None and term.name == OUTCOME:
                value = score
            if term.weight and not isinstance(value, list):
                found += term.weight * value
        return found

    def _of_steps(self, values: Values, steps: int) -> list[float]:
        """Return the weighted sum of the terms of one number per step, for each step."""
        found = [0.0] * steps
        for term in self.terms:
            value = values[term.name]
            if term.weight and isinstance(value, list):
                found = [a + term.weight * b for a, b in zip(found, value, strict=True)]
        return found

    def step_rewards(self, episode: Episode) -> list[float]:
        """Return the reward of each step of an episode, how it ended apart."""
        return self._of_steps(self.values(episode), len(episode.steps))

    def episode_return(self, episode: Episode) -> float:
        """Return the undiscounted return of a scored episode; with several players, the first's."""
        values, first = self.values(episode), next(iter(episode.results), None)
        rewards = zip(self._of_steps(values, len(episode.steps)), episode.steps, strict=True)
        own = sum(reward for reward, step in rewards if first in (None, step.before.turn))
        true = self._ending(values) + own
        return true if self.control is None else self.control.episode_return(episode.key, true)

    def trajectory(self, episode: Episode, policy: str) -> Trajectory:
        """Return the turns of `policy` in a scored episode, with their rewards.

        A step belongs to the call that proposed it (see `Step.call`); rewards of steps that no call
        of the policy proposed count for its latest call before them (or its first). Steps of one of
        several players count for calls of that player only, in whichever of its roles; without any,
        for calls of no player. The belief after a turn is the one measured at the policy's next
        call, on all that it then read.

        Raises:
            ValueError: the policy has no reply in it.
        """
        calls = [call for call in episode.calls if is_of(call.policy, policy) and call.completion]
        if not calls:
            raise ValueError(f"{episode.key}: '{policy}' has no reply")
        owned = _steps_by_call(episode, calls)
        beliefs = [belief(c.answer_logprobs) if c.answer_logprobs else None for c in calls]
        later = dict(zip([c.index for c in calls], [*beliefs[1:], None], strict=True))
        segments, values = _segments(episode), self.values(episode)
        rewards = self._of_steps(values, len(episode.steps))
        players = episode.results
        # the state before a call that did not act is that of the next step, of its player if any
        following: dict[str | None, Step] = {}
        left = list(episode.steps)
        turns: list[Turn] = []
        for call in reversed(calls):
            while left and left[-1].calls_before > call.index:
                step = left.pop()
                following[None] = following[step.before.turn] = step
            steps = owned[call.index]
            player = player_of(call.role)
            state = steps[0] if steps else following.get(player if player in players else None)
            turn = _turn(episode, call, steps, state, segments[call.index], rewards)
            turns.append(replace(turn, belief=later[call.index]))
        true = Trajectory(
            key=episode.key,
            group=f"{episode.key.phase}/{episode.key.group}",
            turns=tuple(reversed(turns)),
            outcome=self._ending(values),
            task=episode.task.environment,
            success=episode.outcome.solved,
            truncated=episode.outcome.status is Status.TRUNCATED,
            outcomes=self._outcomes(values, episode),
            belief=beliefs[0],
        )
        return true if self.control is None else self.control.trajectory(true)


def _steps_by_call(episode: Episode, calls: Sequence[Call]) -> dict[int, list[Step]]:
    """Return the steps that count for each of these calls; see `Shaping.trajectory`."""
    players = episode.results
    by_player: dict[str | None, list[int]] = {}
    for call in calls:
        player = player_of(call.role)
        by_player.setdefault(player if player in players else None, []).append(call.index)
    owned: dict[int, list[Step]] = {call.index: [] for call in calls}
    for step in episode.steps:
        if step.call in owned:
            owned[step.call].append(step)
            continue
        turn = step.before.turn
        own = list(owned) if turn is None else by_player.get(turn) or by_player.get(None)
        if own:
            earlier = [index for index in own if index < step.calls_before]
            owned[max(earlier, default=own[0])].append(step)
    return owned


def _turn(
    episode: Episode,
    call: Call,
    steps: Sequence[Step],
    state: Step | None,
    segment: int,
    rewards: Sequence[float],
) -> Turn:
    """Return the turn of a call, with the `rewards` of those steps of the episode that are its."""
    return Turn(
        tokens=len(call.completion) - len(call.forced),
        reward=sum(rewards[step.index] for step in steps),
        call=call.index,
        role=call.role,
        step=state.index if state else len(episode.steps),
        segment=segment,
        valid=all(step.transition.valid for step in steps if step.forfeit is None),
        anchor=state.before.state_key if state else None,
        progress=state.before.progress if state else episode.progress,
        seconds=call.seconds + sum(step.seconds for step in steps),
    )


def _segments(episode: Episode) -> dict[int, int]:
    """Return which branch of the conversation trains each call: the first that holds it."""
    found: dict[int, int] = {}
    for number, branch in enumerate(episode.graph.branches()):
        for call in branch:
            found.setdefault(call.index, number)
    return found
