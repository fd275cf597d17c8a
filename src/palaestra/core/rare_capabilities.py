"""Rare capabilities: an environment has one if it has its method.

Besides, what is asked of any environment, whether or not it has them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from palaestra.core.element import Element
from palaestra.core.environment import (
    Action,
    Capability,
    Environment,
    Observation,
    Sight,
    Signals,
    Spec,
)
from palaestra.core.errors import CapabilityMissing
from palaestra.core.message import Image
from palaestra.core.tool import random_call


@runtime_checkable
class Pictured(Protocol):
    """An environment that can declare `picture`."""

    def picture(self) -> bytes:
        """Return what the agent sees now, as a PNG; equal states give equal images."""
        ...

    def caption(self) -> str:
        """Return what the first observation says that no picture shows, such as the goal."""
        return ""


@runtime_checkable
class Elemental(Protocol):
    """An environment that can declare `elements`; its actions are gestures (`core.gesture`)."""

    def elements(self) -> Sequence[Element]:
        """Return what the agent sees now, in document order, a parent before its children.

        Equal states give equal elements, and an element keeps its id within an episode.
        """
        ...

    def caption(self) -> str:
        """Return what the present observation says that no element shows.

        At first this is the goal, later what came of the last gesture.
        """
        return ""


@runtime_checkable
class Answered(Protocol):
    """An environment that can declare `answer`."""

    def answer(self) -> Action:
        """Return the action that solves the task, by itself and at any time before its end.

        It is the same throughout the task: what an agent would do at once if it knew. With several
        players, the task is solved once all have given it.
        """
        ...


@runtime_checkable
class Privileged(Protocol):
    """An environment whose spec names `privileged` numbers."""

    def privileged_state(self) -> Sequence[float]:
        """Return these numbers in the present state, in the spec's order, each about -1 to 1."""
        ...


@runtime_checkable
class Multiplayer(Protocol):
    """An environment with several `players`.

    It takes the actions of players who act at the same time one by one, in the order of `acting`:
    each stays pending, and hidden from the other players, until all have acted (`Simultaneous`).
    """

    def acting(self) -> Sequence[str]:
        """Return the players that act next: one, or several at the same time; none at the end."""
        ...

    def observe(self, player: str) -> Observation:
        """Return what a player sees now, at any time of an episode and at its end.

        It depends on nothing that only other players may know.
        """
        ...


@runtime_checkable
class Sampling(Protocol):
    """An environment that samples the actions of a random agent itself."""

    def sample_action(self, rng: random.Random) -> Action:
        """Return a random action that is valid now."""
        ...


@runtime_checkable
class Varied(Protocol):
    """A class of environments in which one thing can be varied alone (`eval --factor`)."""

    @classmethod
    def factors(cls, name: str) -> Mapping[str, Sequence[str]]:
        """Return the factors that can be varied alone: names within the family, by factor.

        Task i of each of these names is task i of `name` with that one thing changed, so that
        their results are compared task by task.
        """
        ...


@runtime_checkable
class Contextual(Protocol):
    """An environment whose spec has a `context` that can be changed."""

    def set_context(self, values: Mapping[str, float]) -> None:
        """Change these numbers from the next reset on; all others take their usual values."""
        ...


@runtime_checkable
class Timed(Protocol):
    """An environment whose spec has `virtual_time`."""

    def use_real_time(self) -> None:
        """Let time pass as on a clock, also between actions, from the next reset on."""
        ...


def picture_of(environment: Environment) -> bytes:
    """Return what the agent sees now, as a PNG; raises CapabilityMissing if it is undeclared."""
    if isinstance(environment, Pictured) and Capability.PICTURE in environment.spec.capabilities:
        return environment.picture()
    environment._undeclared(Capability.PICTURE)


def elements_of(environment: Environment) -> tuple[Element, ...]:
    """Return what the agent sees now as elements; raises CapabilityMissing if undeclared."""
    if isinstance(environment, Elemental) and Capability.ELEMENTS in environment.spec.capabilities:
        return tuple(environment.elements())
    environment._undeclared(Capability.ELEMENTS)


def caption_of(environment: Environment) -> str:
    """Return the text beside pictures or elements that take the place of text."""
    return environment.caption() if isinstance(environment, Pictured | Elemental) else ""


def sight_of(environment: Environment) -> Sight:
    """Return the declared views of the present state; raises CapabilityMissing without any."""
    has = environment.spec.capabilities
    if Capability.PICTURE not in has and Capability.ELEMENTS not in has:
        environment._undeclared(Capability.ELEMENTS)
    return Sight(
        Image.of(picture_of(environment)) if Capability.PICTURE in has else None,
        elements_of(environment) if Capability.ELEMENTS in has else (),
    )


def answer_of(environment: Environment) -> Action:
    """Return the known right answer; raises CapabilityMissing if it is undeclared."""
    if isinstance(environment, Answered) and Capability.ANSWER in environment.spec.capabilities:
        return environment.answer()
    environment._undeclared(Capability.ANSWER)


def privileged_of(environment: Environment) -> tuple[float, ...]:
    """Return the privileged numbers of the present state; empty where the spec names none."""
    if not environment.spec.privileged:
        return ()
    if not isinstance(environment, Privileged):
        raise CapabilityMissing(
            f"{type(environment).__name__} names privileged numbers, and has no method "
            "`privileged_state`; add it."
        )
    return tuple(map(float, environment.privileged_state()))


def acting_in(environment: Environment) -> tuple[str, ...]:
    """Return the players that act next; see `Multiplayer.acting`.

    Raises:
        CapabilityMissing: the spec names several players, and the class is not `Multiplayer`.
    """
    if hasattr(environment, "acting"):  # a hundred times faster than asking for the protocol
        return tuple(environment.acting())
    if len(environment.spec.players) > 1:
        raise CapabilityMissing(
            f"{type(environment).__name__} has several players, and lacks the method `acting` or "
            "`observe`; add both."
        )
    return environment.spec.players


def observed_by(environment: Environment, player: str) -> Observation:
    """Return what a player sees now; raises like `acting_in`."""
    if not hasattr(environment, "acting"):
        acting_in(environment)  # raises
    observed: Observation = environment.observe(player)  # type: ignore[attr-defined]
    return observed


def signals_of(environment: Environment) -> Signals:
    """Return the declared signals of the present state."""
    has = environment.spec.capabilities
    acting = acting_in(environment) if len(environment.spec.players) > 1 else ()
    return Signals(
        state_key=environment.state_key() if Capability.STATE_KEY in has else None,
        progress=environment.progress() if Capability.PROGRESS in has else None,
        turn=acting[0] if acting else None,
        together=acting[1:],
        privileged=privileged_of(environment),
    )


def sample_action(environment: Environment, rng: random.Random) -> Action:
    """Return a random action that is valid now: what a random agent does.

    Use the environment's own sampler if it is `Sampling`, else an admissible action, else a call
    of a tool with arguments that fit its schema, else a word that the instructions list.

    Raises:
        CapabilityMissing: there is nothing to sample from.
    """
    if isinstance(environment, Sampling):
        return environment.sample_action(rng)
    return usual_action(environment, rng)


def usual_action(environment: Environment, rng: random.Random) -> Action:
    """Return `sample_action` for an environment that has no sampler of its own."""
    if Capability.ADMISSIBLE in environment.spec.capabilities and (
        words := environment.admissible()
    ):
        return Action(rng.choice(list(words)))
    if environment.tools:
        call = random_call(environment.tools, rng)
        return Action(str(call), call)
    if stated := stated_actions(environment.instructions):
        return Action(rng.choice(stated))
    raise CapabilityMissing(
        f"'{environment.spec.id}' names no actions to sample from; choose another model than "
        "chance."
    )


def names_actions(cls: type[Environment], spec: Spec) -> bool:
    """Return whether `sample_action` has anything to sample from, judging by the class.

    Instructions that exist only once the environment is made are assumed to name actions.
    """
    if issubclass(cls, Sampling) or Capability.ADMISSIBLE in spec.capabilities or spec.tools:
        return True
    instructions: object = cls.instructions
    return bool(stated_actions(instructions)) if isinstance(instructions, str) else True


def stated_actions(instructions: str) -> list[str]:
    """Return the words of the last list "…: a, b, c." in the instructions; empty without one."""
    lists = [found for found in re.findall(r":\s+([^:.\n]+)", instructions) if "," in found]
    if not lists:
        return []
    words = (re.sub(r"^(and|or)\s+", "", part.strip()) for part in lists[-1].split(","))
    return [word for word in words if word]
