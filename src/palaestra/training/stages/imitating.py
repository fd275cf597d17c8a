"""The stage that learns the replies of chosen episodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from palaestra.learning.data.examples.example import Example
from palaestra.learning.data.examples.mixture import GENERAL, mixed
from palaestra.learning.loop.imitation import ImitationPlan, batches_of, imitate
from palaestra.learning.loop.learner import Learner
from palaestra.learning.methods.component import Kind, find
from palaestra.training.general_section import General
from palaestra.training.general_text import learned_paragraphs, read_text
from palaestra.training.run_context import RunContext
from palaestra.training.stage_program import Made
from palaestra.training.stage_sections import Imitate, Study
from palaestra.training.stages.learning_updates import Lesson, Progress, learn
from palaestra.training.stages.reading import Shown, chosen, rows_of_items


async def imitation(context: RunContext, part: Imitate, made: Made) -> None:
    """Learn the examples that a rule chooses among the episodes of the sources; see `learn`."""
    rule = find(Kind.EXAMPLES, part.examples).configured(part.examples_options)

    def prepare(shown: list[Shown]) -> Lesson:
        return imitating(context, part, chosen(context, rule, shown))

    await learn(context, part, made, prepare)


def imitating(context: RunContext, part: Imitate | Study, examples: Sequence[Example]) -> Lesson:
    """Return the lesson of examples whose replies become likelier."""
    plan = ImitationPlan(part.epochs, part.batch, part.learning_rate)
    batches = batches_of(examples, plan, context.stage_seed)
    rows = rows_of_items(examples)
    if isinstance(part, Imitate) and part.general is not None:
        batches = _with_general(context, part.general, batches)
        added = [one for batch in batches for one in batch if one.row.key.phase == GENERAL]
        rows += rows_of_items(added)

    def updates(learner: Learner) -> Iterator[Progress]:
        for step, steps, update in imitate(learner, batches, plan):
            yield Progress(step, steps, update.processed, update.figures(), ("loss", "entropy"))

    return Lesson(len(examples), rows, updates)


def _with_general(
    context: RunContext, part: General, batches: list[list[Example]]
) -> list[list[Example]]:
    """Return the batches with the stage's share of general text."""
    renderer = context.policy.renderer
    paragraphs = [one for file in part.files for one in learned_paragraphs(read_text(file))]
    return mixed(
        batches,
        [renderer.reply(paragraph) for paragraph in paragraphs],
        share=part.share,
        limit=context.recipe.model.context,
        seed=context.stage_seed,
    )
