"""The stage that learns the replies of chosen episodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from palaestra.learning.data.examples.example import Example
from palaestra.learning.loop.imitation import ImitationPlan, imitate
from palaestra.learning.loop.learner import Learner
from palaestra.learning.methods.component import Kind, find
from palaestra.training.run_context import RunContext
from palaestra.training.stage_program import Made
from palaestra.training.stage_sections import Imitate, Study
from palaestra.training.stages.learning_updates import Lesson, Progress, learn
from palaestra.training.stages.reading import Shown, chosen, rows_of_items
from palaestra.training.stages.valuing import weighed_by_advantages


async def imitation(context: RunContext, part: Imitate, made: Made) -> None:
    """Learn the examples that a rule chooses among the episodes of the sources; see `learn`."""
    rule = find(Kind.EXAMPLES, part.examples).configured(part.examples_options)

    def prepare(shown: list[Shown]) -> Lesson:
        examples = chosen(context, rule, shown)
        if (by := part.advantages) is not None and examples:
            record = made.critics[by.stage][-1]
            examples = weighed_by_advantages(context, record, examples, by.beta)
        return imitating(context, part, examples)

    await learn(context, part, made, prepare)


def imitating(context: RunContext, part: Imitate | Study, examples: Sequence[Example]) -> Lesson:
    """Return the lesson of examples whose replies become likelier."""
    plan = ImitationPlan(part.epochs, part.batch, part.learning_rate)

    def updates(learner: Learner) -> Iterator[Progress]:
        for step, steps, update in imitate(learner, examples, plan, context.stage_seed):
            yield Progress(step, steps, update.processed, update.figures(), ("loss", "entropy"))

    return Lesson(len(examples), rows_of_items(examples), updates)
