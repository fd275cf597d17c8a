"""What the stages that learn from examples share: updates, their figures, and their checkpoint."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palaestra.learning.data.rows import Row
from palaestra.learning.loop.learner import Learner
from palaestra.runtime.machine import release_memory
from palaestra.training.run_context import RunContext
from palaestra.training.stages.reading import Shown

ROWS = "rows/"  # documents: what each stage learned from


@dataclass(frozen=True, slots=True)
class Progress:
    """One optimiser step of a stage."""

    step: int  # 1-based
    steps: int  # in all
    tokens: int  # that were computed
    figures: Mapping[str, float]
    shown: tuple[str, ...]  # names of the figures on the progress line


async def run_updates(
    context: RunContext, learner: Learner, updates: Iterator[Progress], expected: int
) -> int:
    """Take all optimiser steps of a stage and save its checkpoint; return the tokens trained on."""
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
    context.save(context.record, learner, {})
    return trained


def restored(context: RunContext, learner: Learner) -> bool:
    """Restore the version that the stage has written, if it is there; return whether it is."""
    if not context.accounts.is_done(context.record):
        return False
    if context.resume(learner) is not None:
        return True
    context.reporter.say(
        f"no valid checkpoint after {context.record} is left: training again on what was recorded"
    )
    return False


def rows_learned(context: RunContext, rows: Sequence[Row], shown: Sequence[Shown]) -> None:
    """Record which rows the stage learns from: by phase how many, and who speaks in them."""
    speakers = {episode.key.phase: one.speaker for one in shown for episode in one.episodes}
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        speaker = speakers.get(row.key.phase, "text")
        count = found.setdefault(row.key.phase, {"speaker": speaker, "rows": 0, "tokens": 0})
        count["rows"] += 1
        count["tokens"] += row.trained
    context.store.put(ROWS + context.record, found)


def learned_rows(context: RunContext, record: str) -> dict[str, dict[str, Any]]:
    """Return what `rows_learned` recorded of a stage; empty if it learned nothing."""
    return dict(context.store.get(ROWS + record) or {})
