"""What the stages that learn from examples share: from their sources to a checkpoint."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palaestra.learning.data.rows import Row
from palaestra.learning.loop.learner import Learner, Reference
from palaestra.runtime.machine import release_memory
from palaestra.training.demonstrations import RECORDED
from palaestra.training.run_context import RunContext
from palaestra.training.stage_program import Made
from palaestra.training.stage_sections import Distil, Imitate, Prefer, Study
from palaestra.training.stages.adapter_learning import adapter_learner
from palaestra.training.stages.assigning import assigned, find_clusters
from palaestra.training.stages.reading import Shown, read
from palaestra.training.stages.testing import tokens_of

ROWS = "rows/"  # documents: what each stage learned from


@dataclass(frozen=True, slots=True)
class Progress:
    """One optimiser step of a stage."""

    step: int  # 1-based
    steps: int  # in all
    tokens: int  # that were computed
    figures: Mapping[str, float]
    shown: tuple[str, ...]  # names of the figures on the progress line


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a stage learns from."""

    items: int  # examples, pairs or labels
    rows: Sequence[Row]  # of all of them
    updates: Callable[[Learner], Iterator[Progress]]


async def learn(
    context: RunContext,
    part: Imitate | Prefer | Study | Distil,
    made: Made,
    prepare: Callable[[list[Shown]], Lesson],
    *,
    reference: Reference | None = None,
) -> None:
    """Learn what a stage makes of its sources, and save the version.

    If the stage is done, load its checkpoint; without a valid one, learn again from what was
    recorded.

    Args:
        context: of the stage.
        part: its table.
        made: what earlier stages have made.
        prepare: makes the lesson of the episodes.
        reference: of the learner, see `Learner`.

    Raises:
        InputError: a source has nothing to show, or not to the roles that learn.
    """
    learner = context.learner(part.learning_rate, reference=reference)
    done = context.accounts.is_done(context.record)
    if done:
        if context.resume(learner) is not None:
            learner.close()
            return
        context.reporter.say(
            f"no valid checkpoint after {context.record} is left: training again on what was "
            "recorded"
        )
    started = time.monotonic()
    shown = await read(context, part.sources, made)
    if isinstance(part, Imitate) and part.adapters is not None:
        find_clusters(context, part.adapters, shown)
    shown = assigned(context, part, shown)
    lesson = prepare(shown)
    rows_learned(context, lesson.rows, shown)
    expected = part.epochs * math.ceil(lesson.items / part.batch)
    rank = part.adapter_rank if isinstance(part, Imitate) else None
    if rank is None:
        trained = await _run(context, lesson.updates(learner), expected)
    else:
        learner.close()
        with adapter_learner(context, rank, part.learning_rate) as own:
            trained = await _run(context, lesson.updates(own), expected)
        learner = context.learner(part.learning_rate)  # of all weights, as others load them
    context.save(context.record, learner, {})
    learner.close()
    if not done:
        counted = tokens_of([e for one in shown if one.counted for e in one.episodes])
        seconds = time.monotonic() - started
        context.accounts.finish_stage(context.record, seconds, **counted, trained=trained)


async def _run(context: RunContext, updates: Iterator[Progress], expected: int) -> int:
    """Take all optimiser steps of a stage; return the tokens trained on."""
    trained, started = 0, time.monotonic()
    with context.reporter.stage(context.record, expected, "updates") as line:
        for one in updates:
            trained += one.tokens
            context.add_metrics(context.record, one.step, one.figures)
            rate = trained / max(time.monotonic() - started, 1e-9)
            figures = {name: f"{one.figures[name]:.2f}" for name in one.shown}
            line.show(one.step, {**figures, "tokens/s": f"{rate:.0f}"}, total=one.steps)
            release_memory(one.step)
            await asyncio.sleep(0)  # lets Ctrl-C through
    return trained


def rows_learned(context: RunContext, rows: Sequence[Row], shown: Sequence[Shown]) -> None:
    """Record which rows the stage learns from: by phase how many, and who speaks in them.

    Where another agent than the recipe's recorded them, it is named too; where they are of other
    environments than the recipe's, so are these, with the rows of each.
    """
    own = context.recipe.environment.id
    places = {e.key: e.task.environment for one in shown for e in one.episodes}
    speakers = {episode.key.phase: one.speaker for one in shown for episode in one.episodes}
    agents = {episode.key.phase: episode.agent for one in shown for episode in one.episodes}
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        speaker = speakers.get(row.key.phase, "text")
        place = places.get(row.key, own)
        count = found.setdefault(row.key.phase, {"speaker": speaker, "rows": 0, "tokens": 0})
        agent = agents.get(row.key.phase, context.agent.name)
        if speaker != RECORDED and agent != context.agent.name:
            count["agent"] = agent
        count["rows"] += 1
        of = count.setdefault("environments", {})
        of[place] = of.get(place, 0) + 1
        count["tokens"] += row.trained
    for count in found.values():
        if set(count["environments"]) == {own}:
            del count["environments"]
    context.store.put(ROWS + context.record, found)


def learned_rows(context: RunContext, record: str) -> dict[str, dict[str, Any]]:
    """Return what `rows_learned` recorded of a stage; empty if it learned nothing."""
    return dict(context.store.get(ROWS + record) or {})
