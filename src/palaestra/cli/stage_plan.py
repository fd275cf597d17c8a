"""The stages of a recipe before they run: a graph in text, and what each may cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from palaestra.environments.registry import spec
from palaestra.training.adapter_sections import roles_trained
from palaestra.training.recipe import Recipe
from palaestra.training.stage_program import Made, Step, program, steps_of
from palaestra.training.stage_sections import (
    Distil,
    Evaluate,
    Explore,
    Imitate,
    Judge,
    Label,
    Merge,
    Prefer,
    Reinforce,
    Repeat,
    Reward,
    Study,
    Value,
)
from palaestra.training.stage_sources import ALL, FromRun, FromSpeaker, FromStage, StagePart

COMPARING = 5 / 3
"""Work of a preference stage on a token, in steps of imitation: two forward passes come before."""

TEACHING = 4 / 3
"""Work of a stage that distils, likewise: the teacher's forward pass comes before."""


@dataclass(frozen=True, slots=True)
class Effort:
    """Episodes of a step: how many are run, and how many are read by the learner in all."""

    name: str
    acted: float
    learned: float


def efforts(recipe: Recipe) -> Iterator[Effort]:
    """Yield the effort of each step, as if no repeat ended early and rules kept all episodes."""
    made = Made()
    for step in steps_of(program(recipe)):
        yield _effort(recipe, step, made)
        made.add(step)


def _effort(recipe: Recipe, step: Step, made: Made) -> Effort:
    part, name = step.part, step.name
    if isinstance(part, Explore):
        scripted = part.speaker != "policy"
        return Effort(name, 0 if scripted else part.tasks * part.group, 0)
    if isinstance(part, Evaluate):
        return Effort(name, part.tasks or recipe.evaluation.tasks, 0)
    if isinstance(part, Reinforce):
        from palaestra.training.memory_beside import rollouts_learned_beside

        count = part.steps * part.tasks * part.group
        refreshed = _refreshed(recipe, part)
        return Effort(name, count, count + refreshed + rollouts_learned_beside(recipe, part))
    if isinstance(part, Reward):
        return Effort(name, 0, part.updates * part.batch)
    if isinstance(part, Value):
        from palaestra.training.memory_beside import WITH_TARGET

        return Effort(name, 0, part.updates * part.batch * WITH_TARGET)
    if isinstance(part, Label):
        turns = recipe.environment.turns or spec(recipe.environment.id).typical_turns
        return Effort(name, 0, part.updates * part.batch / turns)
    if isinstance(part, Imitate | Prefer | Study | Distil):
        read = sum(_episodes(source, made) for source in part.sources)
        factor = COMPARING if isinstance(part, Prefer) else 1.0
        factor = TEACHING if isinstance(part, Distil) else factor
        own = [s for s in part.sources if isinstance(s, FromSpeaker) and s.speaker == "policy"]
        return Effort(name, sum(s.demonstrations for s in own), read * part.epochs * factor)
    return Effort(name, 0, 0)


def _refreshed(recipe: Recipe, part: Reinforce) -> int:
    """Return how many rollouts the stage's reward model learns from."""
    refresh = part.reward_refresh
    if refresh is None:
        return 0
    steps = steps_of(program(recipe))
    model = next(step.part for step in steps if step.name == part.reward_model)
    assert isinstance(model, Reward)
    return part.steps // refresh.every * refresh.updates * model.batch


def _episodes(source: object, made: Made) -> int:
    """Return how many episodes a source has; none is known of another run."""
    if isinstance(source, FromSpeaker):
        return source.demonstrations
    if not isinstance(source, FromStage):
        return 0
    found = 0
    for step in made.read(source):
        part = step.part
        if isinstance(part, Explore):
            found += part.tasks * part.group
        elif isinstance(part, Reinforce):
            found += part.steps * part.tasks * part.group
        else:
            own = [s for s in getattr(part, "sources", ()) if isinstance(s, FromSpeaker)]
            found += sum(s.demonstrations for s in own)
    return found


# ── the graph ────────────────────────────────────────────────────────────────


def graph(recipe: Recipe) -> list[str]:
    """Return lines that show the stages in order, with what each reads and writes."""
    tested = f"tests the base, and the last version, on {recipe.evaluation.tasks} tasks each"
    return ["stages:", *(f"  {line}" for line in _lines(recipe.stage)), f"  {tested}"]


def _lines(stages: Sequence[StagePart]) -> Iterator[str]:
    width = max((len(part.called) for part in stages), default=0)
    for part in stages:
        if isinstance(part, Repeat):
            yield f"{part.called}, {part.rounds} rounds{_until(part)}:"
            yield from (f"  {line}" for line in _lines(part.stages))
        else:
            yield f"{part.called:{width}}  {_words(part)}"


def _until(part: Repeat) -> str:
    if part.until is None:
        return ""
    rule = part.until
    ends = [f"{rule.success:.0%} success"] if rule.success is not None else []
    ends += [f"{rule.patience} without progress"] if rule.patience is not None else []
    return f" at most (until {' or '.join(ends)} by '{rule.stage}')"


def _words(part: StagePart) -> str:
    if isinstance(part, Explore):
        times = f" x {part.group}" if part.group > 1 else ""
        hints = f", with hints of {' and '.join(part.hints)}" if part.hints else ""
        by = f", by {part.agent}" if part.agent else ""
        what = f"{by}{hints}{_commands(part.commands)}"
        return f"{part.speaker} on {part.tasks}{times} tasks{what} → episodes"
    if isinstance(part, Evaluate):
        steered = f", steered by {part.steer.stage}" if part.steer else ""
        return f"the latest version on {part.split} tasks{_commands(part.commands)}{steered}"
    if isinstance(part, Merge):
        rounds = " of all rounds" if part.rounds == ALL else ""
        return f"mean of {' and '.join(part.versions)}{rounds} → version"
    begin = getattr(part, "start", None) or "the latest version"
    if isinstance(part, Judge):
        return f"{part.judge} on {' and '.join(map(_source, part.sources))} → verdicts"
    if isinstance(part, Reward):
        read = [_source(source) for source in part.sources]
        return f"{begin} + {' and '.join(read)} ({part.kind}) → reward model"
    if isinstance(part, Value):
        read = [_source(source) for source in part.sources]
        return f"{begin} + {' and '.join(read)} (ILQL) → action values"
    if isinstance(part, Label):
        read = [_source(source) for source in part.sources]
        return f"{begin} + {part.share:.0%} of {' and '.join(read)} → proxy labels of the rest"
    if isinstance(part, Reinforce):
        judged = _rewarding(part)
        rollouts = f"{part.steps} steps of {part.tasks} x {part.group} rollouts"
        return f"{begin} + {rollouts} ({part.algorithm}{judged}{_trains(part)}) → version"
    read = [_source(source) for source in getattr(part, "sources", ())]
    if isinstance(part, Distil):
        teacher = part.teacher or "itself, with hints"
        how = f"taught by {teacher}, {part.divergence} KL{_trains(part)}"
    elif isinstance(part, Study):
        read = ["instructions"] * part.instructions + read + list(part.files)
        how = "every token"
    else:
        how = f"{getattr(part, 'examples', '')}{_trains(part)}"
        if isinstance(part, Imitate) and part.adapter_rank is not None:
            how += f", by adapters of rank {part.adapter_rank}"
        if isinstance(part, Imitate) and part.advantages is not None:
            how += f", weighed by {part.advantages.stage}"
        general = getattr(part, "general", None)
        if general is not None:
            read.append(f"{general.share:.0%} general text of {', '.join(general.files)}")
    return f"{begin} + {' and '.join(read)} ({how}) → version"


def _rewarding(part: Reinforce) -> str:
    named, refresh = part.reward_model, part.reward_refresh
    if named is None:
        return ""
    whose = named if isinstance(named, str) else f"{named.stage} of run {named.run}"
    often = "" if refresh is None else f", refreshed every {refresh.every} steps"
    return f", rewarded by {whose}{often}"


def _trains(part: StagePart) -> str:
    """Return which adapters a stage trains, in words; empty if it trains all."""
    if isinstance(part, Imitate) and part.adapters is not None:
        return f", trains {part.adapters.clusters} clusters of calls"
    named = roles_trained(part)
    return "" if named is None else f", trains {' and '.join(named)}"


def _commands(names: Sequence[str]) -> str:
    return f", with commands of {' and '.join(names)}" if names else ""


def _source(source: object) -> str:
    if isinstance(source, FromSpeaker):
        where = [f"{count} in {level}" for level, count in source.counts("").items() if level]
        levels = f" ({', '.join(where)})" if where else ""
        return f"{source.demonstrations} episodes of the {source.speaker}{levels}"
    if isinstance(source, FromRun):
        return f"run {source.run}"
    assert isinstance(source, FromStage)
    rounds = " of all rounds" if source.rounds == ALL else ""
    judged = f" as judged by {source.judged}" if source.judged else ""
    labelled = f" with the labels of {source.labelled}" if source.labelled else ""
    return source.stage + rounds + judged + labelled
