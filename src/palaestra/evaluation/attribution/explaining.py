"""Explaining a failed episode: every applicable method, the most certain one first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from palaestra.core.environment import Capability
from palaestra.core.episode import Episode
from palaestra.core.errors import CapabilityMissing, EnvironmentFault, InputError
from palaestra.evaluation.attribution.base import Attribution
from palaestra.evaluation.attribution.counterfactual import (
    Label,
    labels,
    largest_drop,
    losing_turn,
)
from palaestra.evaluation.attribution.dependencies import ignored, root_cause
from palaestra.evaluation.attribution.state_values import oracle_values, random_values
from palaestra.evaluation.attribution.turn_replay import EnvironmentFactory, TurnReplay

METHODS = ("oracle", "chance", "words")


@dataclass(frozen=True, slots=True)
class Explanation:
    """The attributions and labels of one failed episode."""

    episode: Episode
    attributions: tuple[Attribution, ...]  # the most certain first
    labels: tuple[Label, ...]  # of the turns, if the oracle can label them
    ignored: tuple[str, ...]  # names and numbers of the task that no action used
    unable: tuple[str, ...]  # why methods could not be applied


def check_failed(episode: Episode) -> None:
    """Raise InputError unless the episode is a failure that the agent may have caused."""
    if episode.outcome.solved:
        raise InputError(f"{episode.key} succeeded; name a failed episode.")
    if not episode.outcome.scored:
        raise InputError(
            f"{episode.key} ended in {episode.outcome}, which the agent did not cause; "
            "name a scored episode."
        )


def explain(
    episode: Episode,
    make_env: EnvironmentFactory,
    *,
    turns: int,
    methods: Sequence[str] = METHODS,
    samples: int = 8,
    seed: int = 0,
) -> Explanation:
    """Apply the methods that need no model; record why a method could not be applied.

    Args:
        episode: a failed episode.
        make_env: creates environments.
        turns: most actions of an episode.
        methods: of METHODS; "chance" is skipped if the oracle gave an answer, unless it is alone.
        samples: random rollouts per state.
        seed: of the random rollouts.

    Raises:
        InputError: the episode did not fail.
    """
    check_failed(episode)
    found: list[Attribution] = []
    labelled: list[Label] = []
    unable: list[str] = []
    if "oracle" in methods or "chance" in methods:
        try:
            with TurnReplay.of(episode, make_env) as replay:
                if "oracle" in methods and Capability.ORACLE in replay.env.spec.capabilities:
                    values = oracle_values(replay, turns)
                    found.append(losing_turn(episode, values, replay.actions))
                    labelled = labels(values)
                elif "oracle" in methods:
                    unable.append(f"oracle: '{episode.task.environment}' declares none")
                if "chance" in methods and (not found or "oracle" not in methods):
                    before = replay.actions
                    tried = random_values(replay, turns, samples, seed)
                    spent = replay.actions - before
                    found.append(largest_drop(episode, tried, "chance", spent))
        except (InputError, CapabilityMissing, EnvironmentFault) as why:
            unable.append(f"replay: {why}")
    if "words" in methods:
        found.append(root_cause(episode))
    return Explanation(
        episode, tuple(found), tuple(labelled), tuple(ignored(episode)), tuple(unable)
    )
