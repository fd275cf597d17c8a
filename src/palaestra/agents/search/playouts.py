"""Parts of a Monte-Carlo tree search: its states, which child to go to, what a state is worth.

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
"""What each player gets."""

Value = Callable[[Session, Trial, random.Random], Awaitable[Returns]]
"""What the state in which a trial stands is worth, over what was got before it."""


@dataclass(eq=False, slots=True)
class State:
    """A state of the tree."""

    point: Point | None  # None: the end
    mover: str  # who acts in it
    untried: list[str]  # actions, in the order in which they will be tried from the last one on
    got: Returns = field(default_factory=dict)  # by the action that led here
    children: dict[str, State] = field(default_factory=dict)
    visits: int = 0
    worth: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


async def rollout(session: Session, trial: Trial, dice: random.Random) -> Returns:
    """What players get when all of them act by chance from here on."""
    found: defaultdict[str, float] = defaultdict(float)
    while not trial.over:
        action = dice.choice(await session.world.admissible())
        add(found, got(session, await trial.act(action)))
    return found


def uct(node: State, child: State, explore: float) -> float:
    """Kocsis and Szepesvári 2006."""
    return child.worth[node.mover] / child.visits + explore * math.sqrt(
        math.log(node.visits) / child.visits
    )


def puct(node: State, child: State, explore: float) -> float:
    """Silver et al. 2017, with the same prior for each action."""
    prior = 1 / len(node.children)
    return child.worth[node.mover] / child.visits + explore * prior * math.sqrt(node.visits) / (
        1 + child.visits
    )


SELECT = {"uct": uct, "puct": puct}


def got(session: Session, transition: Transition) -> Returns:
    """What each player gets by a transition."""
    return transition.rewards or {session.players[0]: transition.reward}


def add(to: defaultdict[str, float], more: Returns) -> None:
    """Add what each player gets."""
    for player, amount in more.items():
        to[player] += amount


def find_value(name: str) -> Value:
    """The value of that name; raises UnknownName where there is none."""
    if name == "rollout":
        return rollout
    module, _, attribute = name.partition(":")
    try:
        found: Value = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError):
        raise UnknownName("value of a state", name, ["rollout", "module:function"]) from None
    return found
