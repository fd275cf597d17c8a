"""What stages add to prompts: hints at failing steps, and commands to earn a return.

Both are made of recorded episodes alone, so a resumed stage states the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from palaestra.core.budget import Usage
from palaestra.core.environment import Action, Signals, Transition
from palaestra.core.episode import Episode, Key, Step, derive_seed
from palaestra.core.errors import InputError
from palaestra.core.outcome import Outcome
from palaestra.core.task import Task
from palaestra.learning.data.examples.example import usable
from palaestra.learning.data.examples.hints import StepHints, hint, step_hints
from palaestra.learning.data.examples.return_conditioning import Command, sample_command
from palaestra.learning.data.rewards import Shaping
from palaestra.learning.data.trajectory import Trajectory
from palaestra.rollout.annotated_environment import Notes
from palaestra.training.loop_plan import shaping
from palaestra.training.recipe import Recipe
from palaestra.training.run_context import RunContext
from palaestra.training.stage_program import Made, program, steps_of
from palaestra.training.stage_sections import Evaluate, Explore
from palaestra.training.stage_sources import ALL, FromStage
from palaestra.training.stages.reading import HINTS, Shown, of_stage

BEST = 25  # trajectories of whose returns and lengths commands are made, at least


def notes_of(
    context: RunContext, part: Explore | Evaluate, made: Made
) -> Callable[[], Notes] | None:
    """Return what makes the notes of a stage's environments; None if its prompts hold none.

    Args:
        context: of the stage.
        part: its table.
        made: what earlier stages have made.

    Raises:
        InputError: there is no episode to make a command of.
    """
    hints: StepHints = {}
    if isinstance(part, Explore) and part.hints:
        hints = _hints(context, part, made)
    best = _best(context, part.commands, made) if part.commands else []
    if not hints and not best:
        return None
    rewards = _shaping(context)
    return lambda: _StageNotes(hints, best, rewards, context.stage_seed)


def added_texts(recipe: Recipe, actions: Sequence[str]) -> list[str]:
    """Return texts like the hints and commands in a recipe's prompts, for a vocabulary.

    Args:
        recipe: whose stages may have some.
        actions: of the environment, of which hints are made.
    """
    parts = [step.part for step in steps_of(program(recipe))]
    found: list[str] = []
    if any(isinstance(part, Explore) and part.hints for part in parts):
        found += [hint(action) for action in actions]
    if any(getattr(part, "commands", ()) for part in parts):
        found += [f"\n{Command(n / 100, 1 + n % 20)}" for n in range(100)]
    return found


class _StageNotes(Notes):
    """A hint in each state that has one, then the command from here on."""

    def __init__(
        self, hints: StepHints, best: Sequence[Trajectory], rewards: Shaping, seed: int
    ) -> None:
        self._hints, self._best, self._rewards, self._seed = hints, best, rewards, seed
        self._task, self._before = "", Signals()
        self._command: Command | None = None

    def first(self, task: Task, signals: Signals) -> str:
        self._task, self._before = task.id, signals
        if self._best:  # one command per task, whichever rollout it is of
            seed = derive_seed(self._seed, "command", task.id)
            self._command = sample_command(self._best, top=len(self._best), seed=seed)
        return self._note(signals)

    def after(self, action: Action, transition: Transition, signals: Signals) -> str:
        if self._command is not None:
            step = Step(0, None, action, transition, self._before)
            self._command = self._command.after(self._earned(step, signals))
        self._before = signals
        return self._note(signals)

    def _earned(self, step: Step, after: Signals) -> float:
        """Return the reward of one step: that of an episode of this step alone."""
        alone = Episode(
            key=Key("commands", 0),
            task=Task(self._task, "", 0),
            agent="",
            observation=None,
            calls=(),
            steps=(step,),
            outcome=Outcome.failure(),
            usage=Usage(turns=1),
            progress=after.progress,
        )
        return self._rewards.step_rewards(alone)[0]

    def _note(self, signals: Signals) -> str:
        own = self._hints.get(self._task, {}).get(signals.state_key or "", "")
        return own if self._command is None else f"{own}\n{self._command}"

    def state(self) -> Any:
        command = self._command
        said = None if command is None else [command.wanted, command.horizon]
        return [self._task, asdict(self._before), said]

    def restore(self, state: Any) -> None:
        self._task, before, said = state
        self._before = Signals(**before)
        self._command = None if said is None else Command(*said)


# ── of what they are made ────────────────────────────────────────────────────


def _hints(context: RunContext, part: Explore, made: Made) -> StepHints:
    """Return the stage's hints, once they are recorded."""
    episodes = [e for one in _shown(context, part.hints, made) for e in one.episodes]
    found = step_hints(episodes)
    context.store.put(HINTS + context.record, found)
    context.reporter.say(f"{context.record}: hints for {len(found)} of {part.tasks} tasks")
    return found


def _best(context: RunContext, names: Sequence[str], made: Made) -> list[Trajectory]:
    """Return the trajectories of which commands are made: all successes, or else the best ones.

    With many tasks, the highest returns alone would be those of the easiest tasks.
    """
    rewards, found = _shaping(context), list[Trajectory]()
    for one in _shown(context, names, made):
        known = usable(one.episodes, one.speaker)
        found += [rewards.trajectory(episode, one.speaker) for episode in known]
    if not found:
        raise InputError(
            f"{context.record}: {' and '.join(names)} recorded no episode with a valid result, of "
            "which a command could be made; name another stage in commands."
        )
    solved = [trajectory for trajectory in found if trajectory.success]
    if len(solved) >= BEST:
        return solved
    return sorted(found, key=lambda trajectory: trajectory.total, reverse=True)[:BEST]


def _shown(context: RunContext, names: Sequence[str], made: Made) -> list[Shown]:
    """Return the episodes of stages, of all rounds so far; those that have not run have none."""
    sources = (FromStage(stage=name, rounds=ALL) for name in names)
    return [one for source in sources for one in of_stage(context, source, made)]


def _shaping(context: RunContext) -> Shaping:
    """Return the rewards that commands count, as the rule `commands` counts them."""
    return shaping(context.recipe.rl, context.turns, context.recipe.seed)
