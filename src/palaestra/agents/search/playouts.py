"""Components of a Monte-Carlo tree search: states, child selection, and state values.

Sources: Kocsis and Szepesvári 2006 (UCT); Silver et al. 2017 (PUCT, here with equal priors).
"""

from __future__ import annotations

import importlib
import math
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from palaestra.core.environment import Transition
from palaestra.core.errors import UnknownName
from palaestra.core.session import Session
from palaestra.core.trial import Point, Trial

Returns = Mapping[str, float]
"""The return of each player."""

Value = Callable[[Session, Trial, random.Random], Awaitable[Returns]]
"""A function that values the current state of a trial: the further return of each player."""


@dataclass(eq=False, slots=True)
class State:
    """A state of the tree."""

    point: Point | None  # None: a final state
    mover: str  # who acts in it
    untried: list[str]  # actions; the last one is tried first
    gained: Returns = field(default_factory=dict)  # from the action that led here
    children: dict[str, State] = field(default_factory=dict)
    visits: int = 0
    worth: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


async def rollout(session: Session, trial: Trial, rng: random.Random) -> Returns:
    """Return what each player gets if all of them act at random from here on."""
    found: defaultdict[str, float] = defaultdict(float)
    while not trial.over:
        action = rng.choice(await session.environment.admissible())
        add(found, rewards_of(session, await trial.act(action)))
    return found


def uct(node: State, child: State, explore: float) -> float:
    """Return the UCT score of a child (Kocsis and Szepesvári 2006)."""
    return child.worth[node.mover] / child.visits + explore * math.sqrt(
        math.log(node.visits) / child.visits
    )


def puct(node: State, child: State, explore: float) -> float:
    """Return the PUCT score of a child (Silver et al. 2017), with equal priors."""
    prior = 1 / len(node.children)
    return child.worth[node.mover] / child.visits + explore * prior * math.sqrt(node.visits) / (
        1 + child.visits
    )


SELECT = {"uct": uct, "puct": puct}


def rewards_of(session: Session, transition: Transition) -> Returns:
    """Return each player's reward of a transition."""
    return transition.rewards or {session.players[0]: transition.reward}


def add(to: defaultdict[str, float], more: Returns) -> None:
    """Add each player's amount in place."""
    for player, amount in more.items():
        to[player] += amount


def find_value(name: str) -> Value:
    """Return the value function of that name; raises UnknownName if there is none."""
    if name == "rollout":
        return rollout
    module, _, attribute = name.partition(":")
    try:
        found: Value = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError):
        raise UnknownName("value of a state", name, ["rollout", "module:function"]) from None
    return found
