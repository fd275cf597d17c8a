"""Keys of stages that use what another stage has learned: reward models and action values."""

from __future__ import annotations

from pydantic import Field

from palaestra.training.recipe_sections import Section


class ModelOfRun(Section):
    """A reward model that another run has learned."""

    run: str = Field(description="its folder")
    stage: str = Field("reward", description="the stage that learned it; in rounds, the last one")


class RewardRefresh(Section):
    """Updates of a reward model on the rollouts that it rewards, and on what it learned before."""

    every: int = Field(2, ge=1, description="RL steps between refreshes")
    updates: int = Field(16, ge=1, description="of the model per refresh")


class Steering(Section):
    """Replies that are steered by the action values of a stage (ILQL)."""

    stage: str = Field("value", description="a stage that learned action values")
    beta: float = Field(
        16.0, gt=0, description="log-probabilities grow by beta * (min(Q) - V), before temperature"
    )


class Advantages(Section):
    """Weights of the tokens that are imitated, by the action values of a stage."""

    stage: str = Field("value", description="a stage that learned action values")
    beta: float = Field(
        10.0, gt=0, description="a token with the advantage A weighs exp(beta * A), at most 100"
    )
