"""The program of a recipe: its stages in the order in which they run, each with a name of its own.

A recipe without stages is such a program too: test, imitate, test, reinforce, test. Stages in a
repeat are steps of their own in each round, with the round's number after their name.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from palaestra.training.recipe import Recipe, read_recorded
from palaestra.training.recipe_sections import Imitation
from palaestra.training.reinforcement_section import Reinforcement
from palaestra.training.stage_sections import (
    Distil,
    Evaluate,
    Explore,
    Imitate,
    Judge,
    Label,
    Merge,
    Reinforce,
    Repeat,
    Reward,
    Value,
)
from palaestra.training.stage_sources import ALL, BASE, FromRun, FromSpeaker, FromStage, StagePart

T = TypeVar("T")

RECORDS = {"imitate": "imitation", "reinforce": "rl"}
"""Under what a stage is recorded that has no other name than what it does."""


@dataclass(frozen=True, slots=True)
class Step:
    """One stage, in one round of the repeats that it is in."""

    part: StagePart
    rounds: tuple[tuple[str, int], ...] = ()  # name and number of the round, outermost first

    @property
    def name(self) -> str:
        """The name by which other stages refer to it."""
        return self.part.called

    @property
    def record(self) -> str:
        """Under what its episodes, metrics and weights are recorded."""
        own = RECORDS.get(self.name, self.name)
        return own if not self.rounds else "-".join([self.name, *(str(n) for _, n in self.rounds)])


@dataclass(frozen=True, slots=True)
class RoundEnd:
    """The end of a round, where a repeat may end."""

    part: Repeat
    rounds: tuple[tuple[str, int], ...]  # with this round

    @property
    def last(self) -> bool:
        """Whether no other round is left."""
        return self.rounds[-1][1] == self.part.rounds


def program(recipe: Recipe) -> list[Step | RoundEnd]:
    """Return all steps of a recipe, as if no repeat ended early."""
    tested = Evaluate(do="evaluate")
    if not recipe.stage:
        return [Step(part) for part in _tables(recipe, tested)]
    found = list(unrolled(recipe.stage))
    ends_tested = _tests(found[-1])
    return [Step(tested), *found, *([] if ends_tested else [Step(tested)])]


def _tests(step: Step | RoundEnd) -> bool:
    return isinstance(step, Step) and isinstance(step.part, Evaluate) and step.part.split == "test"


def _tables(recipe: Recipe, tested: Evaluate) -> Iterator[StagePart]:
    """Yield the stages of a recipe without stages."""
    yield tested
    if recipe.imitation.demonstrations:
        yield imitate_of(recipe.imitation)
        yield tested
    if recipe.rl.steps:
        yield Reinforce(do="reinforce", **recipe.rl.model_dump())
        yield tested


def unrolled(
    stages: Sequence[StagePart], rounds: tuple[tuple[str, int], ...] = ()
) -> Iterator[Step | RoundEnd]:
    """Yield the steps of stages, those of a repeat once per round."""
    for part in stages:
        if not isinstance(part, Repeat):
            yield Step(part, rounds)
            continue
        for number in range(1, part.rounds + 1):
            inner = (*rounds, (part.called, number))
            yield from unrolled(part.stages, inner)
            yield RoundEnd(part, inner)


def versions_read(part: StagePart) -> tuple[str, ...]:
    """Return the names of versions that a stage names; not the latest, with which most begin."""
    if isinstance(part, Merge):
        return part.versions
    named = (getattr(part, "start", None), part.teacher if isinstance(part, Distil) else None)
    return tuple(name for name in named if name is not None)


def named_versions(recipe: Recipe) -> set[str]:
    """Return the names of all versions that some stage names."""
    steps = steps_of(program(recipe))
    return {name for step in steps for name in versions_read(step.part)}


def distils(recipe: Recipe) -> bool:
    """Return whether a stage distils, for which the learner keeps the teacher's weights."""
    return any(isinstance(step.part, Distil) for step in steps_of(program(recipe)))


def environments_recorded(recipe: Recipe) -> list[str]:
    """Return the recipe's environment, and those in which its stages let speakers act."""
    sources = [s for step in steps_of(program(recipe)) for s in getattr(step.part, "sources", ())]
    levels = [level for s in sources if isinstance(s, FromSpeaker) for level in s.levels]
    return list(dict.fromkeys([recipe.environment.id, *levels]))


def adds_to_prompts(recipe: Recipe) -> bool:
    """Return whether a stage's prompts hold hints or commands."""
    parts = [step.part for step in steps_of(program(recipe))]
    return any(getattr(part, key, ()) for part in parts for key in ("hints", "commands"))


# ── stages as tables ─────────────────────────────────────────────────────────


def imitate_of(part: Imitation) -> Imitate:
    """Return the stage that the table `imitation` stands for."""
    source: FromSpeaker | FromRun
    if part.demonstrator == "recorded":
        assert part.run is not None
        source = FromRun(
            run=part.run, label=part.label, judge=part.judge, demonstrations=part.demonstrations
        )
    else:
        source = FromSpeaker(speaker=part.demonstrator, demonstrations=part.demonstrations)
    return Imitate(
        do="imitate",
        sources=(source,),
        examples=part.examples,
        examples_options=part.examples_options,
        epochs=part.epochs,
        batch=part.batch,
        learning_rate=part.learning_rate,
    )


def view(recipe: Recipe, part: StagePart) -> Recipe:
    """Return the recipe of one stage alone, in the form without stages."""
    nothing = {"stage": (), "imitation": Imitation(demonstrations=0), "rl": Reinforcement(steps=0)}
    if isinstance(part, Reinforce):
        own = part.model_dump(include=set(Reinforcement.model_fields))
        return recipe.model_copy(update=nothing | {"rl": Reinforcement(**own)})
    return recipe.model_copy(update=nothing)


def of_rollouts(recipe: Recipe) -> Recipe:
    """Return the recipe whose table `rl` is that of the first stage that reinforces, if any."""
    steps = steps_of(program(recipe))
    first = next((step.part for step in steps if isinstance(step.part, Reinforce)), None)
    return recipe if first is None else view(recipe, first)


def trains(recipe: Recipe) -> bool:
    """Return whether a recipe trains anything."""
    return any(step.part.trains for step in steps_of(program(recipe)))


def table_of(recorded: Mapping[str, Any], phase: str) -> Mapping[str, Any]:
    """Return the table `rl` by which the rollouts of a phase were learned.

    Args:
        recorded: the recipe, as a run recorded it.
        phase: of the run.
    """
    if recorded.get("stage"):
        recipe, stage = read_recorded(recorded), phase.rpartition("/")[0]
        for step in steps_of(program(recipe)):
            if step.record == stage and isinstance(step.part, Reinforce):
                return view(recipe, step.part).rl.model_dump(mode="json")
    return recorded.get("rl") or {}


# ── what was made ────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Made:
    """What steps have made so far, by name of the stage, the latest last."""

    episodes: dict[str, list[Step]] = field(default_factory=dict)
    versions: dict[str, list[str]] = field(default_factory=lambda: {BASE: [BASE]})  # records
    models: dict[str, list[str]] = field(default_factory=dict)  # records of reward models
    critics: dict[str, list[str]] = field(default_factory=dict)  # records of action values
    judges: dict[str, list[str]] = field(default_factory=dict)  # records of judgements
    labels: dict[str, list[str]] = field(default_factory=dict)  # records of proxy labels
    latest: str = BASE  # the record of the policy as it is
    tested: dict[str, list[str]] = field(default_factory=dict)  # versions, by the evaluation's name
    tasks: int = 0  # training tasks on which stages recorded episodes, of any speaker
    first_tasks: dict[str, int] = field(default_factory=dict)  # of the latest round, by stage

    def copy(self) -> Made:
        """Return what has been made so far, which later steps do not change."""
        return copy.deepcopy(self)

    def add(self, step: Step) -> None:
        """Note what a step has made."""
        part = step.part
        if part.trains:
            self.versions.setdefault(step.name, []).append(step.record)
            self.latest = step.record
        if records_episodes(part):
            self.episodes.setdefault(step.name, []).append(step)
        if isinstance(part, Reward):
            self.models.setdefault(step.name, []).append(step.record)
        if isinstance(part, Value):
            self.critics.setdefault(step.name, []).append(step.record)
        if isinstance(part, Judge):
            self.judges.setdefault(step.name, []).append(step.record)
        if isinstance(part, Label):
            self.labels.setdefault(step.name, []).append(step.record)
        if isinstance(part, Evaluate):
            self.tested.setdefault(step.name, []).append(self.latest)
        own = [s for s in getattr(part, "sources", ()) if isinstance(s, FromSpeaker)]
        if isinstance(part, Explore) or own:
            self.first_tasks[step.name] = self.first_task(part)
        if isinstance(part, Explore) and part.like is None:
            self.tasks += part.tasks
        self.tasks += sum(source.demonstrations for source in own)

    def first_task(self, part: StagePart) -> int:
        """Return the number of the first training task on which a stage records episodes."""
        if isinstance(part, Explore) and part.like is not None:
            return self.first_tasks[part.like]
        return self.tasks

    def read(self, source: FromStage) -> list[Step]:
        """Return the steps whose episodes a source names; none if the stage has not run."""
        return _of(self.episodes, source.stage, source.rounds)

    def versions_of(self, part: Merge) -> list[str]:
        """Return the records of the versions that a merge averages; without those not made yet."""
        return [v for name in part.versions for v in _of(self.versions, name, part.rounds)]


def _of(made: Mapping[str, list[T]], name: str, rounds: str) -> list[T]:
    found = made.get(name, [])
    return found if rounds == ALL else found[-1:]


def teacher_of(part: StagePart, made: Made) -> str | None:
    """Return the record of a stage's teacher; None if it has none but what it begins with."""
    named = isinstance(part, Distil) and part.teacher
    return made.versions[named][-1] if named else None


def records_episodes(part: StagePart) -> bool:
    """Return whether other stages can read episodes of a stage."""
    return getattr(part, "do", None) in ("explore", "reinforce", "evaluate") or any(
        isinstance(source, FromSpeaker) for source in getattr(part, "sources", ())
    )


def steps_of(found: Iterable[Step | RoundEnd]) -> list[Step]:
    """Return the steps alone."""
    return [step for step in found if isinstance(step, Step)]
