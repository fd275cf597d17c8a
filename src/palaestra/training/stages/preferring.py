"""The stage that learns from pairs of replies or rollouts, or from labels of single ones."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence

from palaestra.learning.data.examples.labels import balance
from palaestra.learning.data.examples.preferred import Label, Pair
from palaestra.learning.loop.learner import Learner
from palaestra.learning.loop.preference_learning import Loss, PreferencePlan, prefer, takes_pairs
from palaestra.learning.methods.component import Kind, find
from palaestra.training.run_context import RunContext
from palaestra.training.stage_program import Made
from palaestra.training.stage_sections import Prefer
from palaestra.training.stages.learning_updates import (
    Progress,
    restored,
    rows_learned,
    run_updates,
)
from palaestra.training.stages.reading import chosen, read, rows_of_items
from palaestra.training.stages.testing import tokens_of

WEIGHTS = ("weight_desirable", "weight_undesirable")  # of KTO; unset: see `balance`


async def preference(context: RunContext, part: Prefer, made: Made) -> None:
    """Learn the preferences that a rule finds in the episodes of the sources.

    The reference policy is the one that the stage begins with. If the stage is done, load its
    checkpoint; without a valid one, train again on what was recorded.

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
    judged: list[Pair] | list[Label] = chosen(context, rule, shown)
    if not _compares(judged):
        judged = []
    rows_learned(context, rows_of_items(judged), shown)
    updates = _preferred(context, learner, judged, part)
    expected = part.epochs * math.ceil(len(judged) / part.batch)
    trained = await run_updates(context, learner, updates, expected)
    learner.close()
    if not done:
        counted = tokens_of([e for one in shown if one.counted for e in one.episodes])
        seconds = time.monotonic() - started
        context.accounts.finish_stage(context.record, seconds, **counted, trained=trained)


def _compares(judged: Sequence[Pair | Label]) -> bool:
    """Return whether there is something to prefer: pairs, or labels of both kinds."""
    kinds = {item.desirable for item in judged if isinstance(item, Label)}
    return bool(judged) and len(kinds) != 1


def _preferred(
    context: RunContext, learner: Learner, judged: list[Pair] | list[Label], part: Prefer
) -> Iterator[Progress]:
    if not judged:
        return
    loss = _loss(part, judged)
    plan = PreferencePlan(part.epochs, part.batch, part.learning_rate)
    for one in prefer(learner, judged, loss, plan, context.stage_seed):
        tokens = one.update.processed
        yield Progress(one.step, one.steps, tokens, one.figures(), ("loss", "accuracy"))


def _loss(part: Prefer, judged: Sequence[Pair | Label]) -> Loss:
    """Return the stage's loss; KTO's labels weigh the same by default, however many there are."""
    found, options = find(Kind.PREFERENCE, part.loss), dict(part.loss_options)
    loss: Loss = found.configured(options)
    if takes_pairs(loss) or any(name in options for name in WEIGHTS):
        return loss
    good = sum(item.desirable for item in judged if isinstance(item, Label))
    weights = balance(good, len(judged) - good)
    return found.configured({**dict(zip(WEIGHTS, weights, strict=True)), **options})
