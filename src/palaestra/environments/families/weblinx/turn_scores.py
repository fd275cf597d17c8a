"""How well a predicted action matches the recorded one of the same turn.

Source: Lù, Kasner and Reddy 2024 (WebLINX), section 4, as the package weblinx 0.3.2 computes it:
the intent must be the same; what is said is compared by chrF, an element by the overlap of boxes
(IoU), an address by the F1 of its parts (URLF), typed text by chrF times IoU. Here, a scroll is
judged by its intent alone; the package scores it as the overlap with an element that it never has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from palaestra.core.element import Box
from palaestra.core.gesture import Gesture

CHRF_ORDER, CHRF_BETA = 6, 2
_INTENTS = {
    "answer": "say",
    "type": "textinput",
    "select": "change",
    "go": "load",
}
_TABS = {"new": "tabcreate", "close": "tabremove"}
_KEYS = {"Enter": "submit", "Control+c": "copy", "Control+v": "paste"}


@dataclass(frozen=True, slots=True)
class TurnScore:
    """The match of one turn; each part is in [0, 1], and None where it does not apply."""

    intent: float
    element: float | None = None  # IoU
    text: float | None = None  # chrF, of addresses URLF

    @property
    def overall(self) -> float:
        """The product of the parts, in [0, 1]."""
        element = 1.0 if self.element is None else self.element
        return self.intent * element * (1.0 if self.text is None else self.text)


def intent_of(gesture: Gesture) -> str:
    """Return the intent of WebLINX that a gesture is; its own kind if there is none."""
    match gesture.kind:
        case "press":
            return _KEYS.get(gesture.text, "press")
        case "tab":
            return _TABS.get(gesture.text, "tabswitch")
        case kind:
            return _INTENTS.get(kind, kind)


def turn_score(
    predicted: Gesture, recorded: Gesture, where: Box | None, wanted: Box | None
) -> TurnScore:
    """Return the match of an action with the recorded one.

    Args:
        predicted: the action.
        recorded: the demonstrated action.
        where: the box of the predicted target; None: it has none.
        wanted: the box of the recorded target; None: it has none.
    """
    intent = intent_of(recorded)
    if intent_of(predicted) != intent:
        return TurnScore(0.0)
    match intent:
        case "say":
            return TurnScore(1.0, text=chrf(predicted.text, recorded.text))
        case "load":
            return TurnScore(1.0, text=urlf(predicted.text, recorded.text))
        case "textinput" | "change":
            text = chrf(predicted.text, recorded.text)
            return TurnScore(1.0, element=overlap(where, wanted), text=text)
        case "click" | "hover" | "submit":
            return TurnScore(1.0, element=overlap(where, wanted))
        case _:
            return TurnScore(1.0)


def overlap(first: Box | None, second: Box | None) -> float:
    """Return the intersection over union of two boxes; 0 where one is missing or has no area."""
    if first is None or second is None:
        return 0.0
    width = min(first.x + first.width, second.x + second.width) - max(first.x, second.x)
    height = min(first.y + first.height, second.y + second.height) - max(first.y, second.y)
    common = max(width, 0.0) * max(height, 0.0)
    union = first.width * first.height + second.width * second.height - common
    return common / union if union > 0 else 0.0


def chrf(text: str, reference: str) -> float:
    """Return the character n-gram F-score of a text, from 0 to 1 (Popović 2015).

    Precision and recall are averaged over n = 1 … 6, as far as both texts have n-grams, and recall
    counts twice (beta = 2); white space does not count. Equals sacrebleu's sentence score / 100.
    """
    precision = recall = 0.0
    orders = 0
    for n in range(1, CHRF_ORDER + 1):
        given, wanted = _ngrams(text, n), _ngrams(reference, n)
        if given and wanted:
            common = (given & wanted).total()
            precision += common / given.total()
            recall += common / wanted.total()
            orders += 1
    if not precision + recall:
        return 0.0
    weight = CHRF_BETA**2
    return (1 + weight) * precision * recall / (weight * precision + recall) / orders


def urlf(url: str, reference: str) -> float:
    """Return the F1 of the parts of an address: its host without "www.", and those of its path."""
    given, wanted = _parts(url), _parts(reference)
    common = len(given & wanted)
    return 2 * common / (len(given) + len(wanted)) if common else 0.0


def by_box(boxes: Mapping[str, Box], x: float, y: float) -> Box | None:
    """Return the smallest box with an area around a point; None if there is none."""
    around = [box for box in boxes.values() if box.width * box.height > 0 and box.contains(x, y)]
    return min(around, key=lambda box: box.width * box.height, default=None)


def _parts(url: str) -> frozenset[str]:
    try:
        found = urlsplit(url)
    except ValueError:
        return frozenset()
    path = [part for part in found.path.strip("/").split("/") if part]
    return frozenset((found.netloc.removeprefix("www."), *path)) if url else frozenset()


def _ngrams(text: str, n: int) -> Counter[str]:
    plain = "".join(text.split())
    return Counter(plain[at : at + n] for at in range(len(plain) - n + 1))
