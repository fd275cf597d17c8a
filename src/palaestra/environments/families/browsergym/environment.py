"""Any task of BrowserGym: `browsergym/miniwob.click-test`, `browsergym/webarena.12`.

BrowserGym's own browser, observations and verdicts; elements come from its accessibility tree, with
its `bid` as their id, and gestures are sent as its actions. The seed of a task is BrowserGym's. An
episode that it ends with a reward above 0 is a success. Its pages live in real time, so equal
actions may lead to different states; nothing is snapshotted.

Source: de Chezelles et al. 2024, https://github.com/ServiceNow/BrowserGym.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from palaestra.core.element import Element
from palaestra.core.element_text import is_interactive, tree
from palaestra.core.environment import Action, Observation, Spec, Transition, declared
from palaestra.core.errors import InputError
from palaestra.core.gesture import Gesture, Id, Point
from palaestra.core.gestures import browsergym_actions
from palaestra.core.gestures.gesture_line import write_line
from palaestra.core.gestures.gesture_tools import gesture_in
from palaestra.core.gestures.locating import element_of, point_of
from palaestra.core.rare_capabilities import Elemental, Pictured, Sampling
from palaestra.core.task import Task
from palaestra.environments.base import Adapter, refused, without_parameters
from palaestra.environments.families.browsergym import driver
from palaestra.environments.shared.browsergym_observations import UNMARKED, read_elements
from palaestra.environments.shared.png_images import png

VERSION = version("browsergym-core")
INSTRUCTIONS = """You use web pages. Do what is asked by one gesture at a time, such as:
click [12]
type [7] 'hello' clear
select [5] 'Red'
press 'Enter'
go 'http://shop/'
answer '42'
The numbers are those of the page's elements. Reply with one gesture and nothing else."""


class BrowserGym(
    Adapter,
    Pictured,
    Elemental,
    Sampling,
    id="browsergym",
    deterministic=False,
    capabilities={"elements", "picture"},
    typical_turns=15,
):
    """One task of BrowserGym."""

    instructions = INSTRUCTIONS

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._name = name
        self._env: Any = None
        self._seen: dict[str, Any] = {}
        self._said = ""
        self._elements: list[Element] = []

    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        if not name:
            raise InputError(
                "The id 'browsergym' names no task; write browsergym/TASK, such as "
                "browsergym/miniwob.click-test."
            )
        driver.check(name)
        return declared(cls).named(name)

    def _begin(self, task: Task) -> Observation:
        without_parameters(task, "choose a task of BrowserGym by its name instead")
        if self._env is None:
            self._env = driver.guarded(driver.opened, self._name)
        seen, _ = driver.guarded(self._env.reset, seed=task.seed)
        self._said = str(seen["goal"])
        return self._observed(seen)

    def _act(self, action: Action) -> Transition:
        try:
            calls = self._calls(gesture_in(action))
        except InputError as wrong:
            return refused(str(wrong))
        seen, reward, terminated, truncated, _ = driver.guarded(self._env.step, calls)
        self._said = str(seen["last_action_error"])
        return Transition(
            self._observed(seen),
            reward=float(reward),
            terminated=bool(terminated),
            truncated=bool(truncated),
            success=bool(terminated) and reward > 0,
        )

    def close(self) -> None:
        env, self._env = self._env, None
        if env is not None:
            driver.guarded(env.close)

    def elements(self) -> Sequence[Element]:
        self._current()
        return self._elements

    def picture(self) -> bytes:
        self._current()
        return png(self._seen["screenshot"])

    def caption(self) -> str:
        return self._said

    def sample_action(self, rng: random.Random) -> Action:
        """Sample a click on an element, or a word for the one in focus."""
        self._current()
        some = [one for one in self._elements if is_interactive(one) and one.box is not None]
        if some and rng.random() < 0.8:
            return Action(write_line(Gesture("click", Id(rng.choice(some).id))))
        return Action(write_line(Gesture("type", text=rng.choice(("a", "7", "Ann")))))

    def _observed(self, seen: dict[str, Any]) -> Observation:
        self._seen = seen
        self._elements = read_elements(seen["axtree_object"], seen["extra_element_properties"])
        return Observation(f"{self._said}\n{tree(self._elements)}".strip())

    def _calls(self, gesture: Gesture) -> str:
        """Return a gesture as one or several of BrowserGym's actions.

        Raises:
            InputError: BrowserGym has no such action, or there is no such element.
        """
        target, end = (
            None if given is None else self._target(given) for given in (gesture.target, gesture.to)
        )
        gesture = replace(gesture, target=target, to=end)
        if gesture.kind == "scroll" and gesture.unit == "pages":
            height, width = self._seen["screenshot"].shape[:2]
            across, down = gesture.amount
            gesture = replace(gesture, amount=(across * width, down * height), unit="pixels")
        parts = [gesture]
        if gesture.kind == "type" and (gesture.enter or not (gesture.clear and target)):
            fills = gesture.clear and isinstance(target, Id)
            text = Gesture("type", target if fills else None, text=gesture.text, clear=fills)
            before = [] if fills or target is None else [Gesture("click", target)]
            before += [Gesture("press", text="Control+a")] if gesture.clear and not fills else []
            after = [Gesture("press", text="Enter")] if gesture.enter else []
            parts = [*before, text, *after]
        return "\n".join(map(browsergym_actions.write, parts))

    def _target(self, given: Any) -> Id | Point:
        """Return an element's bid, or a point in pixels."""
        height, width = self._seen["screenshot"].shape[:2]
        if isinstance(given, Point):
            return Point(*point_of(given, self._elements, (width, height)))
        element = element_of(given, self._elements)
        if element.id.startswith(UNMARKED):  # BrowserGym has no id for it
            return Point(*point_of(Id(element.id), self._elements, (width, height)))
        return Id(element.id)
