"""Judge recorded episodes again: their actions are repeated in a fresh environment of today.

No model is called. What the agent saw must be the same, since it would have acted otherwise on
something else; rewards, success, progress and `info` are those of today. So a run that an older
version of an environment judged becomes comparable with new ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from palaestra.core.environment import Environment, Transition
from palaestra.core.episode import Episode, Step
from palaestra.core.errors import EnvironmentFault, InputError
from palaestra.core.outcome import Outcome, Status
from palaestra.rollout.guarded_environment import LocalEnvironment

EnvironmentFactory = Callable[[str], Environment]
"""Environment id to a fresh environment, such as `registry.make`."""

JUDGED = (Status.SUCCESS, Status.FAILURE)
"""The outcomes that the environment decides; limits and errors stay what they were."""


@dataclass(frozen=True, slots=True)
class Rescored:
    """An episode, and how it is judged today."""

    recorded: Episode
    judged: Episode | None  # None: it cannot be judged again
    reason: str = ""  # why it cannot

    @property
    def changed(self) -> bool:
        """Whether the outcome, the reward or the progress is another one."""
        if self.judged is None:
            return False
        pairs = [(e.outcome, e.reward, e.progress) for e in (self.recorded, self.judged)]
        return pairs[0] != pairs[1]


async def rescore(episode: Episode, make_env: EnvironmentFactory) -> Rescored:
    """Judge an episode again.

    Raises:
        InputError: the environment is not deterministic, or does not exist here.
    """
    env = LocalEnvironment(make_env(episode.task.environment))
    try:
        if not env.deterministic:
            raise InputError(
                f"'{episode.task.environment}' is not deterministic, so repeating its actions says "
                "nothing about recorded episodes; name a run in another environment."
            )
        if episode.observation is None:
            return Rescored(episode, None, "it never began")
        return await _rescored(episode, env)
    except EnvironmentFault as fault:
        return Rescored(episode, None, str(fault))
    finally:
        await env.close()


async def _rescored(episode: Episode, env: LocalEnvironment) -> Rescored:
    seen, signals = await env.reset(episode.task)
    if seen != episode.observation:
        return Rescored(episode, None, "the first observation is another one")
    steps: list[Step] = []
    for step in episode.steps:
        if step.forfeit is not None and step.transition.terminated:
            steps.append(step)  # the environment saw no action
            break
        before = signals
        now, signals = await env.step(step.action)
        if _course(now) != _course(step.transition):
            return Rescored(episode, None, f"turn {len(steps) + 1} leads somewhere else")
        steps.append(replace(step, transition=now, before=before))
    outcome = episode.outcome
    if outcome.status in JUDGED:
        solved = bool(steps) and steps[-1].transition.success
        outcome = Outcome.success() if solved else Outcome.failure()
    progress = None if episode.progress is None else signals.progress
    return Rescored(
        episode, replace(episode, steps=tuple(steps), outcome=outcome, progress=progress)
    )


def _course(transition: Transition) -> tuple[object, ...]:
    """Return what an agent notices of a step."""
    return transition.observation, transition.terminated, transition.truncated, transition.valid
