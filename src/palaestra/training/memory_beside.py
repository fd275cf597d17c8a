"""Memory and work of the models beside the policy, before a run starts.

Each of them begins as a copy of the policy. With P weights of b bytes, of which T are trained:

    separate critic     P b + 12 P, and 4 P where b < 4: weights, gradients, moments, master weights
    progress model      P b + 12 T, and 4 T likewise; a reward model that learns takes as much
    utterance critic    as a progress model, and 4 P: its target networks; so do action values
    frozen reward model P b + 8 T, and 4 T likewise: its optimiser is loaded with it

Their heads, of a few hidden vectors' squares, are not counted. A pass of them reads `AT_ONCE`
rollouts without recomputing anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from palaestra.learning.methods.algorithms import Method
from palaestra.training.method import chosen, critic_of, progress_model_of, utterance_critic_of
from palaestra.training.recipe import Recipe
from palaestra.training.stage_program import program, steps_of, view
from palaestra.training.stage_sections import Evaluate, Imitate, Reinforce, Reward, Value
from palaestra.training.stage_sources import StagePart

WIDE = 4  # bytes of a number in fp32
MOMENTS = 2  # of AdamW, in fp32


@dataclass(frozen=True, slots=True)
class Sizes:
    """The policy's sizes."""

    parameters: int
    trained: int
    weights: int  # bytes
    narrow: bool  # fewer than 4 bytes a weight


@dataclass(frozen=True, slots=True)
class ModelBeside:
    """A model that a stage holds beside the policy."""

    name: str
    learns: bool = True  # whether it takes optimiser steps, and so gradients
    whole: bool = False  # all of its weights are trained, whatever the policy's are
    target: bool = False  # it has target networks, in fp32

    def bytes(self, sizes: Sizes) -> int:
        """Return what it takes."""
        trained = sizes.parameters if self.whole else sizes.trained
        copies = MOMENTS + self.learns + sizes.narrow
        return sizes.weights + WIDE * (copies * trained + self.target * sizes.parameters)


def models_beside(recipe: Recipe, part: StagePart) -> Iterator[ModelBeside]:
    """Yield the models that a stage of a recipe holds beside the policy."""
    if isinstance(part, Reward):
        yield ModelBeside("reward model")
    if isinstance(part, Value):
        yield ModelBeside("action values", target=True)
    if isinstance(part, Evaluate) and part.steer is not None:
        yield ModelBeside("action values", learns=False, target=True)
    if isinstance(part, Imitate) and part.advantages is not None:
        yield ModelBeside("action values", learns=False, target=True)
    if not isinstance(part, Reinforce):
        return
    rl = view(recipe, part).rl
    method = Method(chosen(rl))
    critic = critic_of(rl, method)
    if critic is not None and critic.kind == "separate":
        yield ModelBeside("separate critic", whole=True)
    if progress_model_of(rl, method) is not None:
        yield ModelBeside("progress model")
    if utterance_critic_of(rl, method) is not None:
        yield ModelBeside("utterance critic", target=True)
    if part.reward_model is not None:
        yield ModelBeside("reward model", learns=part.reward_refresh is not None)


WITH_TARGET = 4 / 3
"""Work of a critic with target networks on a token, in steps of learning: their forward pass."""


def rollouts_learned_beside(recipe: Recipe, part: Reinforce) -> float:
    """Return how many rollouts models beside the policy learn from in a stage, refresh apart."""
    rl = view(recipe, part).rl
    method = Method(chosen(rl))
    found = 0.0
    if (progress := progress_model_of(rl, method)) is not None:
        found += progress.updates * progress.batch
    if (critic := utterance_critic_of(rl, method)) is not None:
        found += critic.updates * critic.batch * WITH_TARGET
    return part.steps * found


def most_beside(recipe: Recipe, sizes: Sizes) -> tuple[int, list[ModelBeside]]:
    """Return the bytes of the stage that holds most beside the policy, and what it holds."""
    found: tuple[int, list[ModelBeside]] = (0, [])
    for step in steps_of(program(recipe)):
        models = list(models_beside(recipe, step.part))
        taken = sum(model.bytes(sizes) for model in models)
        if taken > found[0]:
            found = taken, models
    return found
