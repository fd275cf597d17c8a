"""The state of a running episode: what has happened, what it has cost, and how it ended."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Sequence
from dataclasses import replace

from palaestra.core.budget import Budget, Spending
from palaestra.core.environment import Action, AsyncEnvironment, Observation, Signals, Transition
from palaestra.core.episode import Episode, Event, Forfeit, Journal, Key, Recording, Step
from palaestra.core.errors import SessionOver
from palaestra.core.model_calls import ModelCalls
from palaestra.core.outcome import Limit, Outcome, Owner
from palaestra.core.task import Task


class EpisodeState:
    """The steps, calls and costs of an episode so far; each step and call is recorded at once."""

    def __init__(
        self,
        key: Key,
        task: Task,
        budget: Budget,
        seed: int,
        journal: Journal | None,
        past: Sequence[Event],
    ) -> None:
        """Begin without events; see `Session` for the arguments. `seed` is of this episode."""
        self.key, self.task = key, task
        self.steps: list[Step] = []
        self.observation: Observation | None = None  # the first one
        self.outcome: Outcome | None = None
        self.signals = Signals()
        self.recording = Recording(key, journal, past)
        self.spending = Spending(budget)
        self.calls = ModelCalls(key, task.environment, seed, self.recording, self.spending)
        self._charged = 0  # the tokens that valid actions carried, see `Action.spent`
        self.limits_invalid = True  # whether too many invalid actions in a row end it

    def check_limits(self) -> None:
        """End the episode if it has reached a limit."""
        limit = self.spending.limit
        if self.outcome is None and limit is not None:
            self.outcome = Outcome.truncated(limit)

    def check_open(self) -> None:
        """Raise SessionOver if the episode has ended, or has reached a limit."""
        self.check_limits()
        if self.outcome is not None:
            raise SessionOver(f"{self.key} is over: {self.outcome}")

    async def take(
        self,
        environment: AsyncEnvironment,
        action: Action,
        call: int | None,
        forfeit: Forfeit | None = None,
        late: bool = False,
    ) -> Transition:
        """Take one step and record it, as proposed by a call of this episode."""
        if environment.token_time:
            action = replace(action, spent=self.spending.sampled - self._charged)
        started = time.monotonic()
        transition, signals = await environment.step(action)
        step = Step(
            index=len(self.steps),
            call=call,
            action=action,
            transition=transition,
            before=self.signals,
            seconds=time.monotonic() - started,
            calls_made=len(self.calls.graph.calls),
            forfeit=forfeit,
            late=late,
        )
        if transition.valid:
            self._charged += action.spent
        self.signals = signals
        saved = self.record(step)
        if saved is not None:
            await saved
        return transition

    def record(self, step: Step) -> Awaitable[None] | None:
        """Add a step, which may end the episode; return what to await until it is stored."""
        saved: Awaitable[None] | None = None
        recorded = self.recording.replayed(
            Step, lambda past: (past.action, past.transition) == (step.action, step.transition)
        )
        if recorded is None:
            saved = self.recording.write(step)
        self.steps.append(recorded or step)
        self.spending.act(step.transition.valid)
        self.outcome = self._judge(step.transition)
        return saved

    def episode(self, agent: str) -> Episode:
        """Return the record so far, of an agent of that name."""
        return Episode(
            key=self.key,
            task=self.task,
            agent=agent,
            observation=self.observation,
            calls=tuple(self.calls.graph.calls),
            steps=tuple(self.steps),
            outcome=self.outcome or Outcome.failure(),
            usage=self.spending.usage,
            progress=self.signals.progress,
        )

    def _judge(self, transition: Transition) -> Outcome | None:
        if transition.terminated:
            return Outcome.success() if transition.success else Outcome.failure()
        if transition.truncated:
            return Outcome.truncated(Limit.ENVIRONMENT)
        invalid = self.spending.too_many_invalid
        if invalid is not None and self.limits_invalid:
            detail = f"{invalid} actions in a row were not understood"
            return Outcome.error("unparsed", Owner.AGENT, detail)
        limit = self.spending.limit
        return Outcome.truncated(limit) if limit else None
