"""Explaining a failed episode: every method that can work here, the most certain one first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from palaestra.core.environment import Capability
from palaestra.core.episode import Episode
from palaestra.core.errors import CapabilityMissing, EnvironmentFault, InputError
from palaestra.evaluation.attribution.attribution import Attribution
from palaestra.evaluation.attribution.counterfactual import (
    Label,
    labels,
    largest_drop,
    losing_turn,
)
from palaestra.evaluation.attribution.dependencies import ignored, root_cause
from palaestra.evaluation.attribution.replay import Replay, Worlds
from palaestra.evaluation.attribution.values import chance_values, oracle_values

METHODS = ("oracle", "chance", "words")


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is found of one episode."""

    episode: Episode
    attributions: tuple[Attribution, ...]  # the most certain first
    labels: tuple[Label, ...]  # of the turns, where the oracle tells them
    ignored: tuple[str, ...]  # names and numbers of the task that no action used
    unable: tuple[str, ...]  # why methods could not be applied


def check_failed(episode: Episode) -> None:
    """Raise InputError unless the episode is a failure that the agent may have caused."""
    if episode.outcome.solved:
        raise InputError(f"{episode.key} succeeded, so no turn lost it; name a failed episode.")
    if not episode.outcome.scored:
        raise InputError(
            f"{episode.key} ended in {episode.outcome}, which was not the agent's doing; "
            "name an episode that was scored."
        )


def explain(
    episode: Episode,
    worlds: Worlds,
    *,
    turns: int,
    methods: Sequence[str] = METHODS,
    samples: int = 8,
    seed: int = 0,
) -> Explanation:
    """Apply the methods that need no model; what cannot be applied says why.

    Args:
        episode: a failed one.
        worlds: makes worlds.
        turns: most actions of an episode.
        methods: of METHODS; chance is left out where the oracle has spoken, unless it is alone.
        samples: tries per state, of chance.
        seed: of the chance.

    Raises:
        InputError: the episode did not fail.
    """
    check_failed(episode)
    found: list[Attribution] = []
    labelled: list[Label] = []
    unable: list[str] = []
    if "oracle" in methods or "chance" in methods:
        try:
            with Replay.of(episode, worlds) as replay:
                if "oracle" in methods and Capability.ORACLE in replay.world.capabilities:
                    values = oracle_values(replay, turns)
                    found.append(losing_turn(episode, values, replay.actions))
                    labelled = labels(values)
                elif "oracle" in methods:
                    unable.append(f"oracle: '{episode.task.environment}' declares none")
                if "chance" in methods and (not found or "oracle" not in methods):
                    before = replay.actions
                    tried = chance_values(replay, turns, samples, seed)
                    spent = replay.actions - before
                    found.append(largest_drop(episode, tried, "chance", spent))
        except (InputError, CapabilityMissing, EnvironmentFault) as why:
            unable.append(f"replay: {why}")
    if "words" in methods:
        found.append(root_cause(episode))
    return Explanation(
        episode, tuple(found), tuple(labelled), tuple(ignored(episode)), tuple(unable)
    )
