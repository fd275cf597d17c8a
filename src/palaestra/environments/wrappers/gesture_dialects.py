"""Actions in the dialect of another system (`dialect=browsergym`), read as gestures."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from palaestra.core.element import Element
from palaestra.core.element_text import marked
from palaestra.core.environment import (
    Action,
    Capability,
    Environment,
    Observation,
    Spec,
    Transition,
)
from palaestra.core.errors import InputError
from palaestra.core.gesture import Gesture, Id, Mark, Target
from palaestra.core.gestures.dialects import dialect, read_single
from palaestra.core.gestures.gesture_line import read_line, write_line
from palaestra.core.gestures.gesture_tools import gesture_in
from palaestra.core.gestures.locating import element_of, with_points
from palaestra.core.rare_capabilities import answer_of, elements_of, picture_of, sample_action
from palaestra.core.tool import Tool
from palaestra.environments.shared.png_images import size_of
from palaestra.environments.wrappers.wrapper import Wrapper, require_capability


class InDialect(Wrapper):
    """An environment of gestures whose agent acts in another system's dialect.

    A line of text, as the environment itself takes it, is an action as well: an oracle cannot know
    where an element of a later page will be, as the dialects of points would need.
    """

    def __init__(self, inner: Environment, value: str) -> None:
        super().__init__(inner, value)
        self._dialect = dialect(value)

    @classmethod
    def adapt_spec(cls, spec: Spec, value: str) -> Spec:
        require_capability(spec, Capability.ELEMENTS, f"dialect={value}")
        return replace(spec, tools=False)

    @property
    def tools(self) -> tuple[Tool, ...]:  # type: ignore[override]
        return ()

    @property
    def instructions(self) -> str:
        forms = "\n".join(self._dialect.forms)
        return (
            f"{self.inner.instructions}\nWrite each gesture as an action of {self._dialect.name}, "
            f"in one of these forms, where there is such a gesture:\n{forms}"
        )

    def step(self, action: Action) -> Transition:
        try:
            gesture = self._read(action.text)
        except InputError as wrong:
            return Transition(Observation(str(wrong)), valid=False)
        return super().step(replace(action, text=write_line(gesture), call=None))

    def oracle(self) -> Sequence[Action]:
        """Return the inner plan; only the first action has other targets than in that plan."""
        plan = [gesture_in(action) for action in self.inner.oracle()]
        return [self._said(gesture, now=number == 0) for number, gesture in enumerate(plan)]

    def answer(self) -> Action:
        return self._said(gesture_in(answer_of(self.inner)), now=False)

    def sample_action(self, rng: random.Random) -> Action:
        return self._said(gesture_in(sample_action(self.inner, rng)), now=True)

    def admissible(self) -> Sequence[str]:
        return [self._said(read_line(line), now=True).text for line in self.inner.admissible()]

    def _read(self, text: str) -> Gesture:
        try:
            return read_single(text, self._dialect)
        except InputError as wrong:
            with suppress(InputError):
                return read_line(text)
            raise wrong

    def _said(self, gesture: Gesture, *, now: bool) -> Action:
        """Return a gesture as an action of the dialect, or as a line where that cannot say it.

        Args:
            gesture: the gesture.
            now: whether its targets are on the present page, so that they have points.
        """
        with suppress(InputError):
            return Action(self._dialect.write(gesture))
        if now and (gesture.target is not None or gesture.to is not None):
            for same in self._alternatives(gesture):
                with suppress(InputError):
                    return Action(self._dialect.write(same))
        return Action(write_line(gesture))

    def _alternatives(self, gesture: Gesture) -> list[Gesture]:
        """Return gestures that do the same on the present page, with other targets."""
        elements = elements_of(self.inner)
        numbers = {element.id: number for number, element in enumerate(marked(elements), 1)}

        def with_targets(target_of: Callable[[Element], Target]) -> Gesture:
            start, end = (
                None if target is None else target_of(element_of(target, elements))
                for target in (gesture.target, gesture.to)
            )
            return replace(gesture, target=start, to=end)

        found: list[Gesture] = []
        with suppress(InputError):
            found.append(with_targets(lambda element: Id(element.id)))
            target = found[0].target
            if gesture.kind == "type" and target and not element_of(target, elements).value:
                found.append(replace(found[0], clear=True))  # the field is empty anyway
        with suppress(InputError, KeyError):
            found.append(with_targets(lambda element: Mark(numbers[element.id])))
        if Capability.PICTURE in self.inner.spec.capabilities:
            size = size_of(picture_of(self.inner))
            with suppress(InputError):
                found.append(with_points(gesture, elements, size, "pixels"))
                found.append(with_points(gesture, elements, size, "shares"))
        return found
