"""The pages on the ways of references, stored from a real browser, to be read without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from palaestra.core.element import Element
from palaestra.core.environment import Action, Environment, Observation, Transition
from palaestra.core.errors import InputError
from palaestra.core.gesture import Gesture
from palaestra.core.gestures.gesture_line import read_line
from palaestra.core.gestures.locating import element_of
from palaestra.core.rare_capabilities import Elemental, caption_of, elements_of
from palaestra.core.task import Split, Task
from palaestra.environments import registry

SITES = ("shop-easy", "shop-medium", "forum-easy", "forum-medium", "cms-easy", "cms-medium")
TAGS = ("massive-memory", "calculation", "long-term-memory", "facts")
HOPS = ("capital-on-map", "larger-capital", "mail-a-fact", "capital-of-a-saved-country")
GROUPS = {
    "sites": tuple(f"sites/{name}" for name in SITES),
    "chores": tuple(f"sites/world:{tag}" for tag in TAGS),
    "hops": tuple(f"sites/world:{name}" for name in HOPS),
    "miniwob": ("miniwob/basic",),
}
LONGEST = 60  # gestures of a reference


@dataclass(frozen=True)
class Seen:
    """A page of a reference's way, and the gesture there."""

    caption: str
    elements: tuple[Element, ...]
    gesture: str
    is_hop: bool  # one of the pages that have to be seen


@dataclass(frozen=True)
class Walked:
    """A reference that was followed to the end."""

    id: str
    number: int
    instructions: str
    pages: tuple[Seen, ...]

    @property
    def goal(self) -> str:
        return self.pages[0].caption


def walk(id: str, number: int, split: Split = Split.TEST) -> Walked | None:
    """Follow the reference of a task; None if it did not solve it."""
    environment = registry.make(id)
    task = registry.tasks(id).task(split, number)
    try:
        observation, pages = environment.reset(task), list[Seen]()
        hops = hops_of(id, task)
        while len(pages) < LONGEST and (plan := environment.oracle()):
            caption = caption_of(environment)
            address = observation.text.removeprefix(caption).strip().partition("\n")[0]
            found = tuple(elements_of(environment))
            pages.append(Seen(caption, found, plan[0].text, address in hops))
            step = environment.step(plan[0])
            observation = step.observation
            if step.terminated:
                whole = Walked(id, number, environment.instructions, tuple(pages))
                return whole if step.success else None
    finally:
        environment.close()
    return None


def hops_of(id: str, task: Task) -> tuple[str, ...]:
    """Return the addresses that a task's reference has to see."""
    family, _, name = id.partition("/")
    if family != "sites":
        return ()
    from palaestra.environments.families.real_sites.environment import drawn

    return drawn(name, task.seed).task.hops


class Walkway(Environment, Elemental, capabilities={"elements", "oracle"}):
    """The pages of a reference's way; any other gesture ends the episode."""

    def __init__(self, walked: Walked) -> None:
        super().__init__()
        self.walked, self.at = walked, 0

    @property
    def instructions(self) -> str:
        return self.walked.instructions

    @property
    def here(self) -> Seen:
        return self.walked.pages[self.at]

    def reset(self, task: Task) -> Observation:
        self.at = 0
        return Observation(self.here.caption)

    def step(self, action: Action) -> Transition:
        if not self._is_the_way(action):
            return Transition(Observation("That is not the way."), terminated=True)
        if self.at == len(self.walked.pages) - 1:
            return Transition(Observation("Solved."), 1.0, terminated=True, success=True)
        self.at += 1
        return Transition(Observation(self.here.caption))

    def _is_the_way(self, action: Action) -> bool:
        """Return whether an action is the reference's, whatever it calls the same element."""
        one, other = read_line(action.text), read_line(self.here.gesture)
        targets = [target_of(gesture, self.here.elements) for gesture in (one, other)]
        known = targets[0] is not None and targets[0] == targets[1]
        return one == other or (known and replace(one, target=other.target) == other)

    def elements(self) -> Sequence[Element]:
        return self.here.elements

    def caption(self) -> str:
        return self.here.caption

    def oracle(self) -> Sequence[Action]:
        return [Action(page.gesture) for page in self.walked.pages[self.at :]]


def target_of(gesture: Gesture, elements: Sequence[Element]) -> Element | None:
    """Return the element that a gesture is about; None: it has no target, or a point."""
    try:
        return None if gesture.target is None else element_of(gesture.target, elements)
    except InputError:
        return None
