"""Horizons: how many turns an episode may have at a step of training."""

from __future__ import annotations

from collections.abc import Sequence

from palaestra.core.errors import RecipeError
from palaestra.learning.methods.component import Kind, Status, component
from palaestra.learning.methods.options import Count


@component(
    Kind.CURRICULUM,
    "scaling-inter",
    source="Xi et al. 2025 (ScalingInter-RL), AgentGym-RL release",
    status=Status.RELEASE,
)
def scaling_inter(step: int, *, horizons: Sequence[Count] = (5, 8, 10), every: Count = 100) -> int:
    """Raise the most turns in stages: one horizon for each `every` training steps, then the last.

    `horizons[min((step - 1) // every, last)]`, the release's counter during a run. Its resume
    path computes `step // every` from the steps done, which is the same for the step that comes
    next; for the step itself it is one too far at multiples of `every`. Pass the number of the
    step to be made and a resumed run agrees.

    The published schedules: BabyAI 6, 13, 20; search QA 5, 8, 10; SciWorld and TextCraft
    10, 20, 30 (100 steps each); WebArena 8, 12, 15 (80 each). Episodes cut by the horizon
    are failures, so the baseline shifts at each stage; evaluate with the last horizon.

    Args:
        step: number of the training step to be made, from 1.
        horizons: most turns per stage.
        every: training steps per stage.

    Raises:
        RecipeError: there is no stage, or a number is below 1.
    """
    if step < 1 or every < 1 or not horizons or min(horizons) < 1:
        raise RecipeError(
            f"ScalingInter-RL got step {step} with horizons {list(horizons)} of {every} steps "
            "each; all of them must be 1 or more."
        )
    return horizons[min((step - 1) // every, len(horizons) - 1)]
