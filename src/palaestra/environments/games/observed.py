"""The policy that somebody was seen to play: in each information state, how often each action.

The recorded moves are made again with the task's dice, so it does not matter what a player was
shown, and players of any kind can be looked at: models here and elsewhere, programs, people. A
move of no game (a reply that named none) is no decision.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from palaestra.core.episode import Episode
from palaestra.core.errors import InputError
from palaestra.environments.games.exploitability import decisions, uniform
from palaestra.environments.games.openspiel import OpenSpiel

FAMILY = "openspiel/"


class Decision(NamedTuple):
    """One move, as it counts for a policy."""

    player: str  # the policy behind the call that made it; the agent, if no model did
    state: str  # the package's information state
    words: str  # of the action


def game_in(environment: str) -> str | None:
    """The game of an environment's id; None if it is none of OpenSpiel's, or has knobs set."""
    title = re.split("[:@]", environment.removeprefix(FAMILY))[0]
    return title if environment.startswith(FAMILY) and "?" not in environment else None


def made(episode: Episode) -> list[Decision]:
    """What was decided in an episode of an OpenSpiel world.

    Raises:
        InputError: the world goes another way than is recorded (another version of the package).
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
                    f"Episode {episode.key} goes another way now than is recorded; it was played "
                    "with another version of OpenSpiel. Play it anew."
                )
    finally:
        world.close()
    return found


def frequencies(game: str, seen: Iterable[Decision]) -> dict[str, dict[str, float]]:
    """The policy with the frequencies of these decisions; uniform in states that nobody met."""
    counts: dict[str, Counter[str]] = {}
    for decision in seen:
        counts.setdefault(decision.state, Counter())[decision.words] += 1
    policy = uniform(game)
    for state, counted in counts.items():
        policy[state] = {
            words: counted[words] / counted.total() for words in decisions(game)[state]
        }
    return policy
