"""The stage that learns from pairs of replies or rollouts, or from labels of single ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from palaestra.learning.data.examples.labels import balance
from palaestra.learning.data.examples.preferred import Label, Pair
from palaestra.learning.loop.learner import Learner
from palaestra.learning.loop.preference_learning import Loss, PreferencePlan, prefer, takes_pairs
from palaestra.learning.methods.component import Kind, find
from palaestra.training.run_context import RunContext
from palaestra.training.stage_program import Made
from palaestra.training.stage_sections import Prefer
from palaestra.training.stages.learning_updates import Lesson, Progress, learn
from palaestra.training.stages.reading import Shown, chosen, rows_of_items

WEIGHTS = ("weight_desirable", "weight_undesirable")  # of KTO; unset: see `balance`


async def preference(context: RunContext, part: Prefer, made: Made) -> None:
    """Learn the preferences that a rule finds in the episodes of the sources; see `learn`.

    The reference policy is the one that the stage begins with.
    """
    rule = find(Kind.EXAMPLES, part.examples).configured(part.examples_options)

    def prepare(shown: list[Shown]) -> Lesson:
        judged: list[Pair] | list[Label] = chosen(context, rule, shown)
        if not _compares(judged):
            judged = []

        def updates(learner: Learner) -> Iterator[Progress]:
            return _updates(context, learner, judged, part)

        return Lesson(len(judged), rows_of_items(judged), updates)

    await learn(context, part, made, prepare)


def _compares(judged: Sequence[Pair | Label]) -> bool:
    """Return whether there is something to prefer: pairs, or labels of both kinds."""
    kinds = {item.desirable for item in judged if isinstance(item, Label)}
    return bool(judged) and len(kinds) != 1


def _updates(
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
