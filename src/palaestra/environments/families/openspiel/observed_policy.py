"""The empirical policy of recorded episodes: action frequencies in each information state.

The recorded moves are replayed with the task's rng, so the observations that the player saw do not
matter, and any kind of player can be analysed: models, programs, people. A reply that named no
legal move does not count as a decision.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from palaestra.core.episode import Episode
from palaestra.core.errors import InputError
from palaestra.environments.families.openspiel.environment import OpenSpiel
from palaestra.environments.families.openspiel.exploitability import decisions, uniform

FAMILY = "openspiel/"


class Decision(NamedTuple):
    """One move of an empirical policy."""

    player: str  # the policy of the model call that chose it; without a call, the agent
    state: str  # the package's information state
    words: str  # the action


def game_in(environment: str) -> str | None:
    """Return the game of an environment's id; None if it is not OpenSpiel's, or has knobs set."""
    title = re.split("[:@]", environment.removeprefix(FAMILY))[0]
    return title if environment.startswith(FAMILY) and "?" not in environment else None


def episode_decisions(episode: Episode) -> list[Decision]:
    """Extract the decisions of an OpenSpiel episode.

    Raises:
        InputError: the replay differs from the recording (another version of the package).
    """
    world = OpenSpiel(episode.task.environment.removeprefix(FAMILY).partition("@")[0])
    found = []
    try:
        world.reset(episode.task)
        for step in episode.steps:
            state, words = world.information_state(), world.move(step.action.text)
            if words is not None:
                caller = None if step.call is None else episode.calls[step.call].policy
                found.append(Decision(caller or episode.agent, state, words))
            transition = world.step(step.action)
            if transition.observation.text != step.transition.observation.text:
                raise InputError(
                    f"The replay of episode {episode.key} differs from its recording, which was "
                    "made with another version of OpenSpiel; run the episode again."
                )
    finally:
        world.close()
    return found


def frequencies(game: str, seen: Iterable[Decision]) -> dict[str, dict[str, float]]:
    """Return the policy with these decisions' frequencies; uniform in states without any."""
    counts: dict[str, Counter[str]] = {}
    for decision in seen:
        counts.setdefault(decision.state, Counter())[decision.words] += 1
    policy = uniform(game)
    for state, counted in counts.items():
        policy[state] = {
            words: counted[words] / counted.total() for words in decisions(game)[state]
        }
    return policy
