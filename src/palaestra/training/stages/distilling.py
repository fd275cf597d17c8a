"""The stage that learns a teacher's distribution at each token of recorded replies."""

from __future__ import annotations

from collections.abc import Iterator

from palaestra.core.errors import InputError
from palaestra.learning.data.examples.distillation import taught
from palaestra.learning.data.examples.example import success
from palaestra.learning.loop.knowledge_distillation import DistillationPlan, distil
from palaestra.learning.loop.learner import Learner
from palaestra.learning.losses.kl import Divergence
from palaestra.training.policy_building import state_of
from palaestra.training.policy_versions import Version
from palaestra.training.run_context import RunContext
from palaestra.training.stage_program import Made
from palaestra.training.stage_sections import Distil
from palaestra.training.stages.learning_updates import Lesson, Progress, learn
from palaestra.training.stages.reading import Shown, hints_in


async def distillation(
    context: RunContext, part: Distil, made: Made, teacher: Version | None
) -> None:
    """Learn from the teacher at all replies in the episodes of the sources; see `learn`.

    The teacher reads the prompts as recorded, the student reads them without hints.

    Args:
        context: of the stage.
        part: its table.
        made: what earlier stages have made.
        teacher: its weights; None: those with which the stage begins.

    Raises:
        InputError: teacher and student have different clusters of calls.
    """
    if teacher is not None and teacher.state.get("router") != state_of(context.policy).get(
        "router"
    ):
        raise InputError(
            f"The stage '{context.record}' learns from '{part.teacher}', whose adapters belong to "
            "other clusters of calls than those of the version that it begins with; let both have "
            "the same."
        )
    renderer, hints = context.policy.renderer, hints_in(context)
    divergence = Divergence(part.divergence)
    plan = DistillationPlan(part.epochs, part.batch, part.learning_rate, divergence)

    def prepare(shown: list[Shown]) -> Lesson:
        lessons = [
            lesson
            for one in shown
            for lesson in taught(
                [e for e in one.episodes if success(e) >= part.least], one.speaker, renderer, hints
            )
        ]

        def updates(learner: Learner) -> Iterator[Progress]:
            if teacher is not None:
                learner.take_reference(teacher.weights)
            for step, steps, update in distil(learner, lessons, plan, context.stage_seed):
                yield Progress(step, steps, update.processed, update.figures(), ("loss", "entropy"))

        return Lesson(len(lessons), [lesson.row for lesson in lessons], updates)

    await learn(context, part, made, prepare, reference="start")
