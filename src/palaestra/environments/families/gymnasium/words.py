"""Descriptions of Gymnasium's environments: names of actions and observations, and goals.

Taken from the environments' own documentation; `KNOWN` has the toy texts and the classic control
problems; subclasses add others (see `environment.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Solved(StrEnum):
    """When an episode counts as solved."""

    ENDS = "ends"  # whenever it terminates: only the goal does that
    WINS = "wins"  # it terminates with a positive reward
    THRESHOLD = "threshold"  # its return reaches the spec's reward threshold; never without one


@dataclass(frozen=True, slots=True)
class Words:
    """The description of one environment; what is left out is rendered as numbers."""

    goal: str = ""  # what to do, in a few short sentences
    actions: tuple[str, ...] = ()  # of a Discrete action space, in its order
    observed: tuple[str, ...] = ()  # the numbers of a Box, or the parts of a Tuple, in order
    render: Callable[[Any, Any], str] | None = None
    """Text for (the unwrapped environment, an observation), in place of names and numbers."""
    marker: str = "[{}]"  # for the highlighted character of an "ansi" rendering
    solved: Solved = Solved.THRESHOLD
    tabular: bool = False
    """The environment's `s` and its random generator are its whole state; `P` has transitions."""
    turns: int = 0  # typical turns of an episode; 0: the spec's limit


def of(id: str, words: Mapping[str, Words]) -> Words:
    """Return the description of the environment of that id, with or without its version."""
    return words.get(id) or words.get(id.rpartition("-v")[0]) or Words()


def _taxi(env: Any, state: int) -> str:
    row, column, passenger, destination = env.decode(state)

    def letter(place: int) -> str:
        y, x = env.locs[place]
        return bytes(env.desc[1 + y, 2 * x + 1]).decode()

    where = f"waits at {letter(passenger)}" if passenger < len(env.locs) else "is in the taxi"
    return (
        f"Taxi in row {row}, column {column}. "
        f"The passenger {where} and wants to go to {letter(destination)}."
    )


def _lake(env: Any, state: int) -> str:
    row, column = divmod(int(state), env.ncol)
    return f"You are in row {row}, column {column}."


def _cliff(env: Any, state: int) -> str:
    row, column = divmod(int(state), env.shape[1])
    return f"You are in row {row}, column {column}."


LAKE = Words(
    goal=(
        "You walk over a frozen lake from S to G. F is ice, H is a hole that ends it all, and [] "
        "is around your place. The ice is slippery: you may slide to a side instead."
    ),
    actions=("left", "down", "right", "up"),
    render=_lake,
    solved=Solved.WINS,
    tabular=True,
)
CLIFF = "You (x) walk along a cliff (C) to the target T. Who steps over it is back at the start."
CLIFF_ACTIONS = ("up", "right", "down", "left")
CAR = ("position", "velocity")

KNOWN: dict[str, Words] = {
    "Acrobot": Words(
        goal=(
            "An arm of two links hangs from a joint; you drive the joint between the links. "
            "Swing the free end up to a link's length above the fixed joint, soon. "
            "A is the first link's angle from below, B the second's from the first."
        ),
        actions=("minus", "zero", "plus"),
        observed=("cos A", "sin A", "cos B", "sin B", "speed A", "speed B"),
    ),
    "Blackjack": Words(
        goal=(
            "You play Blackjack: come closer to 21 than the dealer, but not over it. "
            "To hit is to take a card, to stick is to stop. The dealer's card 1 is an ace."
        ),
        actions=("stick", "hit"),
        observed=("your sum", "dealer's card", "usable ace"),
        solved=Solved.WINS,
        turns=10,
    ),
    "CartPole": Words(
        goal="Keep the pole on the cart upright, and the cart near 0, by pushing the cart.",
        actions=("left", "right"),
        observed=("cart position", "cart velocity", "pole angle", "pole angular velocity"),
    ),
    "CliffWalking": Words(
        goal=CLIFF,
        actions=CLIFF_ACTIONS,
        render=_cliff,
        solved=Solved.ENDS,
        tabular=True,
        turns=30,
    ),
    "CliffWalkingSlippery": Words(
        goal=f"{CLIFF} The ground is slippery: you may slide to a side instead.",
        actions=CLIFF_ACTIONS,
        render=_cliff,
        solved=Solved.ENDS,
        tabular=True,
        turns=200,
    ),
    "FrozenLake": LAKE,
    "FrozenLake8x8": LAKE,
    "MountainCar": Words(
        goal=(
            "A car stands in a valley and is too weak to drive straight up the hill. "
            "Swing it up to the flag at position 0.5, soon."
        ),
        actions=("left", "wait", "right"),
        observed=CAR,
    ),
    "MountainCarContinuous": Words(
        goal=(
            "A car stands in a valley and is too weak to drive straight up the hill. Swing it up "
            "to the flag at position 0.45 with little force; negative numbers push to the left."
        ),
        observed=CAR,
    ),
    "Pendulum": Words(
        goal="Swing the pendulum up (x 1, y 0) and keep it there; a number is a torque.",
        observed=("x", "y", "angular velocity"),
    ),
    "Taxi": Words(
        goal=(
            "Drive the taxi (T) to the passenger, pick up, drive to the destination and drop off. "
            "A | is a wall, a : is none."
        ),
        actions=("south", "north", "east", "west", "pickup", "dropoff"),
        render=_taxi,
        marker="T",
        solved=Solved.ENDS,
        tabular=True,
        turns=40,
    ),
}
