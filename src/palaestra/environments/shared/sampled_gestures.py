"""Random gestures on a page, for environments that declare elements."""

from __future__ import annotations

import random
from collections.abc import Sequence

from palaestra.core.element import Element
from palaestra.core.element_text import is_interactive
from palaestra.core.gesture import Gesture, Id
from palaestra.core.gestures.gesture_line import write_line


def click_or_type(
    elements: Sequence[Element], words: Sequence[str], otherwise: str, rng: random.Random
) -> str:
    """Return a click on something, or a word typed into a field, as a line.

    Args:
        elements: of the page.
        words: what may be typed, not empty.
        otherwise: the gesture of a page on which nothing can be acted on.
        rng: draws the element and the word.
    """
    some = [one for one in elements if is_interactive(one)]
    if not some:
        return otherwise
    chosen = rng.choice(some)
    if chosen.role in ("textbox", "searchbox"):
        return write_line(Gesture("type", Id(chosen.id), text=rng.choice(words)))
    return write_line(Gesture("click", Id(chosen.id)))
