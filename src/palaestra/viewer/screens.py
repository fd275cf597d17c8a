"""What a turn saw and changed on a screen: the picture with its boxes, before and after a gesture.

Pictures are not recorded unless the agent saw them. The recorded actions are repeated in the
episode's environment instead, which compares each observation with the record (`TurnReplay`), and
`look` gives the picture and the elements.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

from palaestra.core.element import Element
from palaestra.core.element_text import described, is_interactive, marked
from palaestra.core.environment import Capability, Environment, Sight
from palaestra.core.episode import Episode
from palaestra.core.errors import InputError, PalaestraError
from palaestra.core.gesture import Gesture, Point, Target
from palaestra.core.gestures.locating import element_of, point_of
from palaestra.core.rare_capabilities import sight_of
from palaestra.environments import registry
from palaestra.environments.shared.png_images import size_of
from palaestra.evaluation.attribution.turn_replay import TurnReplay
from palaestra.evaluation.running.shown_demonstrations import gesture_of_action
from palaestra.viewer.message_views import picture_urls
from palaestra.viewer.texts import line

MOST = 2000  # boxes of a picture


@dataclass(frozen=True, slots=True)
class BoxView:
    """An element's box on the picture, in pixels."""

    x: float
    y: float
    width: float
    height: float
    about: str  # "#3 [12] button 'Buy'"
    target: bool  # whether the gesture is for this element


@dataclass(frozen=True, slots=True)
class Screen:
    """A picture with its boxes."""

    url: str  # of the picture, as `data:` URL
    size: tuple[int, int]  # width and height in pixels
    boxes: tuple[BoxView, ...]
    points: tuple[tuple[float, float], ...]
    """Where the gesture is in pixels: none, one, or the beginning and the end of a drag."""


@dataclass(frozen=True, slots=True)
class TurnScreens:
    """The screens of one turn."""

    before: Screen
    after: Screen | None  # None: the environment shows nothing at the end of the task


@lru_cache(maxsize=256)
def has_screens(environment: str) -> bool:
    """Return whether an environment shows pictures and elements; False if it is not installed."""
    try:
        spec = registry.spec(environment)
    except PalaestraError:
        return False
    return {Capability.PICTURE, Capability.ELEMENTS} <= spec.capabilities and (
        len(spec.players) == 1
    )


def turn_screens(episode: Episode, index: int) -> TurnScreens:
    """Return what a turn showed before and after its action.

    Args:
        episode: the whole record up to that turn.
        index: the turn, from 0.

    Raises:
        InputError: the environment is not here, or differs from the record.
        EnvironmentFault: it crashed.
    """
    step = episode.steps[index]
    gesture = gesture_of_action(episode.task.environment, step.action)
    with TurnReplay.of(episode, registry.make) as replay:
        environment = replay.at(index)
        before = _screen(replay.guarded(lambda: sight_of(environment)), gesture)
        replay.act(step.action)
        return TurnScreens(before, _after(replay, environment))


def _after(replay: TurnReplay, environment: Environment) -> Screen | None:
    with suppress(InputError):  # some environments show nothing once the task is over
        return _screen(replay.guarded(lambda: sight_of(environment)), None)
    return None


def _screen(sight: Sight, gesture: Gesture | None) -> Screen:
    assert sight.picture is not None  # `has_screens`
    (url,) = picture_urls([sight.picture]) or ("",)
    size = size_of(sight.picture.data)
    targets = [] if gesture is None else [gesture.target, gesture.to]
    given = [target for target in targets if target is not None]
    aimed = {found.id for target in given if (found := _element(target, sight.elements))}
    points = (_point(target, sight.elements, size) for target in given)
    return Screen(url, size, _boxes(sight.elements, aimed), tuple(p for p in points if p))


def _boxes(elements: tuple[Element, ...], aimed: set[str]) -> tuple[BoxView, ...]:
    """Return the boxes of the elements to act on, and of those that a gesture is for."""
    numbers = {element.id: number for number, element in enumerate(marked(elements), 1)}
    found = []
    for element in elements:
        box, target = element.box, element.id in aimed
        if box is None or not (target or is_interactive(element)):
            continue
        mark = f"#{numbers[element.id]} " if element.id in numbers else ""
        about = line(mark + described(element), 200)
        found.append(BoxView(box.x, box.y, box.width, box.height, about, target))
    return tuple(found[:MOST])


def _element(target: Target, elements: tuple[Element, ...]) -> Element | None:
    if isinstance(target, Point):
        return None  # only its point is shown: what lies below it is the browser's to decide
    with suppress(InputError):
        return element_of(target, elements)
    return None


def _point(
    target: Target, elements: tuple[Element, ...], size: tuple[int, int]
) -> tuple[float, float] | None:
    with suppress(InputError):
        return point_of(target, elements, size)
    return None
