"""Demonstrations in the layout of WebLINX: turns of a user and of a navigator with a browser.

    FOLDER/splits.json                          names of demonstrations by split; may be missing
    FOLDER/demonstrations/NAME/replay.json      the turns
    FOLDER/demonstrations/NAME/pages/page-I-J.html    what they saw, with an id on each element
    FOLDER/demonstrations/NAME/bboxes/bboxes-I.json   the boxes of these elements in the window
    FOLDER/demonstrations/NAME/screenshots/screenshot-I-J.png   the window; may be missing

What the navigator says and does is a gesture here (`core.gesture`): dialogue acts and browser
actions are in one action space.

Source: Lù, Kasner and Reddy 2024 (WebLINX).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from palaestra.core.dealt_splits import deal
from palaestra.core.element import Box, Element
from palaestra.core.element_text import flat
from palaestra.core.errors import InputError
from palaestra.core.gesture import Gesture, Id
from palaestra.core.gestures.gesture_line import write_line
from palaestra.core.task import Split
from palaestra.store.exchange.html_elements import UID, read_page
from palaestra.store.exchange.invalid_documents import understood

INTENTS = (
    "say", "click", "hover", "textinput", "submit", "change", "load", "scroll", "copy", "paste",
    "tabcreate", "tabremove", "tabswitch",
)  # fmt: skip
"""The intents of WebLINX, in lower case."""
ON_ELEMENTS = frozenset(("click", "textinput", "submit", "change"))
PREDICTED = ON_ELEMENTS | {"say", "load", "scroll"}
"""Intents that a policy is asked for; the others only lead to the next ones (`select_turns…` of the
package weblinx 0.3.2)."""
DEALT = {Split.TRAIN: "train", Split.VALIDATION: "valid", Split.TEST: "test_web"}
OURS = {"train": Split.TRAIN, "valid": Split.VALIDATION}
"""The splits of WebLINX that are ours; all others are tests."""
LONG = 60  # characters of an element's words in a past action


@dataclass(frozen=True, slots=True)
class DemonstrationTurn:
    """One turn of a demonstration."""

    index: int
    speaker: Literal["instructor", "navigator"]
    intent: str  # "say" also of the instructor
    words: str  # what was said or done, in one line, with elements by their words
    gesture: Gesture | None  # of the navigator; None: it has no gesture, as a scroll by nothing
    uid: str  # of its element; empty: it has none
    box: Box | None  # of its element, as recorded with the action; None: none was
    page: str  # the file of the page that it was done on; empty: none was saved
    screenshot: str  # the file of the window's picture; empty: none was saved, or it is broken
    size: tuple[int, int] | None  # width and height of the window, in pixels; None: not recorded
    url: str  # of the page; empty: it is not known


@dataclass(frozen=True, slots=True)
class SeenPage:
    """What a turn was done on."""

    elements: list[Element]  # boxes only of those in the window
    boxes: Mapping[str, Box]  # of all elements by their ids; empty: they are not known

    @property
    def text(self) -> str:
        """The words and the elements to act on that were in the window; of lists, the options.

        Where no boxes are known, all that the page has.
        """
        known = any(one.box is not None for one in self.elements)
        shown: dict[str, Element] = {}
        for one in self.elements:
            if one.box or not known or (one.role == "option" and one.parent in shown):
                shown[one.id] = one
        return flat(list(shown.values()))


@dataclass(frozen=True, slots=True)
class Demonstration:
    """One conversation between a user (the instructor) and a navigator."""

    name: str
    folder: Path
    turns: tuple[DemonstrationTurn, ...]

    @property
    def site(self) -> str:
        """The host of its first page; empty if none is known."""
        loaded = (t.gesture.text if t.gesture and t.intent == "load" else t.url for t in self.turns)
        return next((host for url in loaded if (host := _host(url))), "")

    def page(self, turn: DemonstrationTurn) -> SeenPage:
        """Return what a turn was done on; where no page was saved, only the box of its element.

        Raises:
            InputError: a file of it is missing or invalid.
        """
        own = {turn.uid: turn.box} if turn.box is not None else {}
        if not turn.page:
            return SeenPage([], own)
        numbered = re.match(r"page-(\d+)-", turn.page)
        file = self.folder / "bboxes" / f"bboxes-{numbered[1] if numbered else ''}.json"
        boxes: dict[str, Box] = {}
        if file.is_file():
            with understood(str(file), "file of boxes"):
                boxes = {uid: _box(found) for uid, found in json.loads(_text(file)).items()}
        html = _text(self.folder / "pages" / turn.page)
        elements = read_page(html, boxes or None, turn.size)
        seen = boxes.get(turn.uid)
        if seen is not None and seen.width * seen.height > 0:
            own = {}
        return SeenPage(elements, {**boxes, **own})

    def picture(self, turn: DemonstrationTurn) -> Path:
        """Return the file of a turn's screenshot, which may be missing."""
        return self.folder / "screenshots" / (turn.screenshot or "none")

    def predicted(self, *, seen: bool = False) -> list[DemonstrationTurn]:
        """Return the turns of the navigator that a policy can be asked for.

        As in WebLINX these are the turns of `PREDICTED`, without clicks that only lead to a copy or
        to a submission of the same element, and without elements that have no id or no area.

        Args:
            seen: only turns with a screenshot.
        """
        pairs = zip(self.turns, [*self.turns[1:], None], strict=True)
        found = [turn for turn, after in pairs if _is_predicted(turn, after)]
        return [turn for turn in found if not seen or self.picture(turn).is_file()]


def _is_predicted(turn: DemonstrationTurn, after: DemonstrationTurn | None) -> bool:
    if turn.gesture is None or turn.intent not in PREDICTED:
        return False
    if turn.intent not in ON_ELEMENTS:
        return True
    if not turn.uid or turn.box is None or turn.box.width * turn.box.height <= 0:
        return False
    if turn.intent != "click" or after is None:
        return True
    return after.intent != "copy" and not (after.intent == "submit" and after.uid == turn.uid)


def demonstrations_in(folder: Path) -> dict[str, Path]:
    """Return the folders of all valid demonstrations by their names, in order.

    Raises:
        InputError: there are none.
    """
    found = {
        path.parent.name: path.parent
        for path in sorted(_root(folder).glob("*/replay.json"))
        if not (path.parent / "invalid.json").exists()
    }
    if not found:
        raise InputError(
            f"{folder} holds no demonstrations of WebLINX; name the folder in which "
            "demonstrations/NAME/replay.json lie."
        )
    return found


def has_screenshots(folder: Path) -> bool:
    """Return whether a folder has the screenshots of any demonstration."""
    return next(_root(folder).glob("*/screenshots/*.png"), None) is not None


def named_demonstration(folder: Path, name: str) -> Demonstration:
    """Return the demonstration with a name.

    Raises:
        InputError: there is none, or it is invalid; see `read_demonstration`.
    """
    own = _root(folder) / name
    if own.parent != _root(folder) or not (own / "replay.json").is_file():
        raise InputError(f"{folder} holds no demonstration '{name}'; check the folder.")
    return read_demonstration(own)


def splits_of(folder: Path) -> dict[str, list[str]]:
    """Return the names of the demonstrations of each split that are in the folder.

    Without `splits.json`, they are dealt out by website as "train", "valid" and "test_web", so that
    the sites of the test were never seen before.

    Raises:
        InputError: there are no demonstrations, or the file is invalid.
    """
    there, file = demonstrations_in(folder), folder / "splits.json"
    if file.is_file():
        with understood(str(file), "file of splits"):
            named = {
                split: list(map(str, names)) for split, names in json.loads(_text(file)).items()
            }
        return {split: [name for name in names if name in there] for split, names in named.items()}
    names = list(there)
    sites = {number: read_demonstration(path).site for number, path in enumerate(there.values())}
    return {DEALT[split]: [names[n] for n in found] for split, found in deal(sites).items()}


@lru_cache(maxsize=4096)
def read_demonstration(folder: Path) -> Demonstration:
    """Return the demonstration of a folder.

    Raises:
        InputError: its `replay.json` is missing or invalid, or has an intent that is not known.
    """
    file = folder / "replay.json"
    with understood(str(file), "demonstration of WebLINX"):
        reader = _Reader(str(file))
        turns = tuple(reader.turn(n, one) for n, one in enumerate(json.loads(_text(file))["data"]))
    return Demonstration(folder.name, folder, turns)


class _Reader:
    """The turns of one demonstration, each with the page and the window of the turn before."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._page, self._screenshot, self._url = "", "", ""
        self._size: tuple[int, int] | None = None
        self._tabs: list[Any] = []  # the numbers that the browser gave them, in order

    def turn(self, index: int, data: Mapping[str, Any]) -> DemonstrationTurn:
        arguments: Mapping[str, Any] = {}
        before = self._url
        state = data.get("state") or {}
        self._page = state.get("page") or self._page
        if state.get("screenshot"):
            good = state.get("screenshot_status", "good") == "good"
            self._screenshot = str(state["screenshot"]) if good else ""
        if data["type"] == "chat":
            speaker: Literal["instructor", "navigator"] = (
                "navigator" if data["speaker"] == "navigator" else "instructor"
            )
            intent, words = "say", str(data["utterance"])
            gesture = Gesture("say", text=words) if words and speaker == "navigator" else None
        else:
            speaker, intent = "navigator", str(data["action"]["intent"]).lower()
            arguments = data["action"].get("arguments") or {}
            self._window(arguments.get("metadata") or {})
            gesture = self._gesture(intent, arguments)
            words = _past(gesture, arguments.get("element") or {}) if gesture else intent
        element = arguments.get("element") or {}
        uid = str((element.get("attributes") or {}).get(UID) or "")
        box = _box(element["bbox"]) if element.get("bbox") else None
        url = self._url
        if intent == "load" and gesture is not None:  # recorded when the new page was there
            url, self._url = before, gesture.text
        return DemonstrationTurn(
            index=index,
            speaker=speaker,
            intent=intent,
            words=words,
            gesture=gesture,
            uid=uid,
            box=box,
            page=self._page,
            screenshot=self._screenshot,
            size=self._size,
            url=url,
        )

    def _window(self, metadata: Mapping[str, Any]) -> None:
        self._url = metadata.get("url") or self._url
        if metadata.get("viewportWidth") and metadata.get("viewportHeight"):
            self._size = (int(metadata["viewportWidth"]), int(metadata["viewportHeight"]))

    def _gesture(self, intent: str, arguments: Mapping[str, Any]) -> Gesture | None:
        """Return the gesture of a browser action; None for one that does nothing."""
        uid = ((arguments.get("element") or {}).get("attributes") or {}).get(UID)
        target = Id(str(uid)) if uid else None
        properties = arguments.get("properties") or {}
        match intent:
            case "click":
                return Gesture("click", target)
            case "hover":
                return None if target is None else Gesture("hover", target)
            case "textinput":
                text = str(arguments.get("text") or "")
                return Gesture("type", target, text=text, clear=not text)
            case "submit":
                return Gesture("press", target, text="Enter")
            case "change":
                value = str(arguments.get("value") or "")
                return Gesture("select", target, text=value) if value and target else None
            case "load":
                url = str(properties.get("url") or arguments.get("url") or "")
                return Gesture("go", text=url) if url else None
            case "scroll":
                by = (float(arguments["scrollX"]), float(arguments["scrollY"]))
                return Gesture("scroll", amount=by) if any(by) else None
            case "copy":
                return Gesture("press", text="Control+c")
            case "paste":
                return Gesture("press", text="Control+v")
            case "tabcreate":
                self._tab(properties.get("tabId"))
                return Gesture("tab", text="new")
            case "tabremove":
                return Gesture("tab", text="close")
            case "tabswitch":
                self._tab(properties.get("tabIdOrigin"))
                return Gesture("tab", text=str(self._tab(properties.get("tabId"))))
            case _:
                raise InputError(
                    f"{self._where} has the intent {intent!r}, which WebLINX does not have; known: "
                    f"{', '.join(INTENTS)}."
                )

    def _tab(self, number: Any) -> int:
        """Return the place of a tab, by the order in which tabs were first named."""
        if number not in self._tabs:
            self._tabs.append(number)
        return self._tabs.index(number)


def _past(gesture: Gesture, element: Mapping[str, Any]) -> str:
    """Return a past action in one line: its element, whose page has gone, by tag and words."""
    line = write_line(gesture)
    if gesture.target is None:
        return line
    said = " ".join(str(element.get("textContent") or "").split())
    shown = said if len(said) <= LONG else f"{said[: LONG - 1]}…"
    called = f"{str(element.get('tagName') or 'element').lower()} {shown!r}"
    return re.sub(r"\[[^]]*\]", lambda _: called, line, count=1)


def _root(folder: Path) -> Path:
    inner = folder / "demonstrations"
    return inner if inner.is_dir() else folder


def _host(url: str) -> str:
    try:
        return urlsplit(url).netloc
    except ValueError:
        return ""


def _box(found: Mapping[str, float]) -> Box:
    return Box(
        float(found["left"]), float(found["top"]), float(found["width"]), float(found["height"])
    )


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error}. Check the folder.") from error
