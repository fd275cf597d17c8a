"""The stage that learns the replies of chosen episodes."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence

from palaestra.learning.data.examples.example import Example
from palaestra.learning.loop.imitation import ImitationPlan, imitate
from palaestra.learning.loop.learner import Learner
from palaestra.learning.methods.component import Kind, find
from palaestra.training.run_context import RunContext
from palaestra.training.stage_program import Made
from palaestra.training.stage_sections import Imitate
from palaestra.training.stages.learning_updates import (
    Progress,
    restored,
    rows_learned,
    run_updates,
)
from palaestra.training.stages.reading import chosen, read, rows_of_items
from palaestra.training.stages.testing import tokens_of


async def imitation(context: RunContext, part: Imitate, made: Made) -> None:
    """Learn the examples that a rule chooses among the episodes of the sources.

    If the stage is done, load its checkpoint; without a valid one, train again on what was
    recorded.

    Raises:
        InputError: a source has nothing to show.
    """
    learner, done = context.learner(part.learning_rate), context.accounts.is_done(context.record)
    if restored(context, learner):
        learner.close()
        return
    started = time.monotonic()
    shown = await read(context, part.sources, made)
    rule = find(Kind.EXAMPLES, part.examples).configured(part.examples_options)
    examples: list[Example] = chosen(context, rule, shown)
    rows_learned(context, rows_of_items(examples), shown)
    expected = part.epochs * math.ceil(len(examples) / part.batch)
    updates = imitated(context, learner, examples, part.epochs, part.batch, part.learning_rate)
    trained = await run_updates(context, learner, updates, expected)
    learner.close()
    if not done:
        counted = tokens_of([e for one in shown if one.counted for e in one.episodes])
        seconds = time.monotonic() - started
        context.accounts.finish_stage(context.record, seconds, **counted, trained=trained)


def imitated(
    context: RunContext,
    learner: Learner,
    examples: Sequence[Example],
    epochs: int,
    batch: int,
    learning_rate: float,
) -> Iterator[Progress]:
    """Yield the optimiser steps on examples."""
    plan = ImitationPlan(epochs, batch, learning_rate)
    for step, steps, update in imitate(learner, examples, plan, context.stage_seed):
        yield Progress(step, steps, update.processed, update.figures(), ("loss", "entropy"))
