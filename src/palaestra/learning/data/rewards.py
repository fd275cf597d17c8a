"""From an episode to the rewards that credit rules read: an outcome, and one reward per turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from palaestra.core.environment import Transition
from palaestra.core.episode import Episode, Step
from palaestra.core.graph import Call
from palaestra.core.model import is_of
from palaestra.core.outcome import Status
from palaestra.learning.data.control_reward import ControlReward
from palaestra.learning.data.filters import overlong
from palaestra.learning.data.trajectory import Trajectory, Turn


@dataclass(frozen=True, slots=True)
class Overlong:
    """DAPO's soft punishment of rollouts that sample nearly too many, or too many, tokens."""

    limit: int  # sampled tokens of a rollout
    buffer: int  # the punishment starts this many tokens before
    factor: float = 1.0  # of the full punishment


@dataclass(frozen=True, slots=True)
class Shaping:
    """The rewards of outcomes and turns.

    The outcome: `success * (1 - turn_cost * turns / most_turns)`. A turn: minus `invalid_cost`
    for each invalid action, plus `progress` times the progress that it made, plus `environment`
    times the environment's own reward. The outcome less `overlong`, if any. `outcome` is always
    the true one.

    In multi-player episodes each player has an outcome of its own, the sum of its rewards from
    the environment, and `turn_cost` and `environment` are not read; the outcome of the rollout is
    the first player's.
    """

    most_turns: int
    turn_cost: float = 0.2
    invalid_cost: float = 0.05
    progress: float = 0.0
    environment: float = 0.0
    overlong: Overlong | None = None
    control: ControlReward | None = None  # replaces all of this in a control arm

    def outcome(self, episode: Episode) -> float:
        """Return the reward for how a scored episode ended; with several players, the first's."""
        if players := self.outcomes(episode):
            return next(iter(players.values()))
        earned = 0.0
        if episode.outcome.solved:
            earned = 1.0 - self.turn_cost * episode.usage.turns / self.most_turns
        return earned + self._punishment(episode)

    def outcomes(self, episode: Episode) -> dict[str, float]:
        """Return the outcome of each of several players, the first one first; empty for one."""
        punishment = self._punishment(episode)
        return {player: own + punishment for player, own in episode.results.items()}

    def _punishment(self, episode: Episode) -> float:
        """Return the cost of too many sampled tokens, 0 or less."""
        if self.overlong is None:
            return 0.0
        limits = self.overlong
        return overlong(
            episode.usage.sampled_tokens,
            limit=limits.limit,
            buffer=limits.buffer,
            factor=limits.factor,
        )

    def episode_return(self, episode: Episode) -> float:
        """Return the undiscounted return of a scored episode."""
        true = self.outcome(episode) + sum(self._reward(episode, s) for s in episode.steps)
        return true if self.control is None else self.control.episode_return(episode.key, true)

    def trajectory(self, episode: Episode, policy: str) -> Trajectory:
        """Return the turns of `policy` in a scored episode, with their rewards.

        A step belongs to the call that proposed it (see `Step.call`); rewards of steps that no call
        of the policy proposed count for its latest call before them (or its first).

        Raises:
            ValueError: the policy has no reply in it.
        """
        calls = [call for call in episode.calls if is_of(call.policy, policy) and call.completion]
        if not calls:
            raise ValueError(f"{episode.key}: '{policy}' has no reply")
        owned: dict[int, list[Step]] = {call.index: [] for call in calls}
        for step in episode.steps:
            earlier = [index for index in owned if index < step.calls_before]
            latest = max(earlier, default=calls[0].index)
            owned[step.call if step.call in owned else latest].append(step)
        segments = _segments(episode)
        following = None  # the state before a call that did not act is that of the next step
        left = list(episode.steps)
        turns: list[Turn] = []
        for call in reversed(calls):
            while left and left[-1].calls_before > call.index:
                following = left.pop()
            steps = owned[call.index]
            state = steps[0] if steps else following
            turns.append(self._turn(episode, call, steps, state, segments[call.index]))
        true = Trajectory(
            key=episode.key,
            group=f"{episode.key.phase}/{episode.key.group}",
            turns=tuple(reversed(turns)),
            outcome=self.outcome(episode),
            task=episode.task.environment,
            success=episode.outcome.solved,
            truncated=episode.outcome.status is Status.TRUNCATED,
            outcomes=self.outcomes(episode),
        )
        return true if self.control is None else self.control.trajectory(true)

    def _turn(
        self, episode: Episode, call: Call, steps: Sequence[Step], state: Step | None, segment: int
    ) -> Turn:
        return Turn(
            tokens=len(call.completion) - len(call.forced),
            reward=sum(self._reward(episode, step) for step in steps),
            call=call.index,
            role=call.role,
            step=state.index if state else len(episode.steps),
            segment=segment,
            valid=all(step.transition.valid for step in steps),
            anchor=state.before.state_key if state else None,
            progress=state.before.progress if state else episode.progress,
            seconds=call.seconds + sum(step.seconds for step in steps),
        )

    def _reward(self, episode: Episode, step: Step) -> float:
        made = _progress_made(episode, step) if self.progress else 0.0
        return self.step_reward(step.transition, made, alone=step.before.turn is None)

    def step_reward(self, transition: Transition, made: float, *, alone: bool = True) -> float:
        """Return the reward of one action.

        Args:
            transition: what it led to.
            made: the progress that it made.
            alone: whether there is a single player.
        """
        reward = 0.0 if transition.valid else -self.invalid_cost
        if self.environment and alone:
            reward += self.environment * transition.reward
        if self.progress:
            reward += self.progress * made
        return reward


def _progress_made(episode: Episode, step: Step) -> float:
    """Return how much further the step led; 0 where progress is not known before and after it."""
    later = step.index + 1
    ended = later >= len(episode.steps)
    before = step.before.progress
    after = episode.progress if ended else episode.steps[later].before.progress
    return 0.0 if before is None or after is None else after - before


def _segments(episode: Episode) -> dict[int, int]:
    """Return which branch of the conversation trains each call: the first that holds it."""
    found: dict[int, int] = {}
    for number, branch in enumerate(episode.graph.branches()):
        for call in branch:
            found.setdefault(call.index, number)
    return found
