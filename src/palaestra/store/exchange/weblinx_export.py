"""The export of demonstrations in the layout of WebLINX (see `weblinx_demonstrations.py`).

Pages are written from elements, so any environment that shows elements with boxes can be exported.
Reading a demonstration gives the same gestures, elements and boxes; only ids that are numbers begin
with an "e", as the package weblinx reads `uid="19"` as a number, which is no id.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from palaestra.core.element import Box, Element
from palaestra.core.element_text import TEXT
from palaestra.core.errors import InputError
from palaestra.core.gesture import Gesture, Id, Target
from palaestra.core.gestures.gesture_line import write_line
from palaestra.core.gestures.locating import element_of
from palaestra.store.disk import replacing
from palaestra.store.exchange.html_elements import UID, write_page

VERSION = "1.0.0"  # of the layout
SECONDS = 1.0  # from one turn to the next: episodes record no time of day
_INPUTS = frozenset(("textbox", "searchbox", "spinbutton", "slider"))


@dataclass(frozen=True, slots=True)
class ShownTurn:
    """A gesture, and what was shown when it was made."""

    gesture: Gesture
    elements: Sequence[Element]
    picture: bytes | None = None  # PNG


@dataclass(frozen=True, slots=True)
class ShownEpisode:
    """What becomes one demonstration."""

    name: str
    instruction: str  # what the user says first
    url: str  # of all pages
    size: tuple[int, int]  # width and height of the window in pixels
    split: str  # "train", "valid" or "test_iid"
    turns: Sequence[ShownTurn]


def write_weblinx(folder: Path, episodes: Iterable[ShownEpisode]) -> int:
    """Write demonstrations and their splits into a new folder; return their number.

    Raises:
        InputError: a gesture has no intent there, or its target is not shown.
    """
    splits: dict[str, list[str]] = {"train": [], "valid": [], "test_iid": []}
    with replacing(folder, "The folder of demonstrations") as fresh:
        for episode in episodes:
            _write(fresh / "demonstrations" / episode.name, episode)
            splits[episode.split].append(episode.name)
        _write_json(fresh / "splits.json", splits)
    return sum(map(len, splits.values()))


def _write(folder: Path, episode: ShownEpisode) -> None:
    for part in ("pages", "bboxes", "screenshots"):
        (folder / part).mkdir(parents=True)
    data: list[dict[str, Any]] = [_chat(0.0, "instructor", episode.instruction)]
    page, shown = 0, object()
    for turn in map(_renamed, episode.turns):
        if (turn.elements, turn.picture) != shown:
            page, shown = page + 1, (turn.elements, turn.picture)
            _write_page(folder, page, turn)
        state = {"page": f"page-{page}-0.html"}
        if turn.picture is not None:
            state |= {"screenshot": f"screenshot-{page}-0.png", "screenshot_status": "good"}
        for said in _said(turn, episode):
            when = len(data) * SECONDS
            if isinstance(said, str):
                data.append({**_chat(when, "navigator", said), "state": state})
            else:
                data.append({"type": "browser", "timestamp": when, "state": state, "action": said})
    _write_json(folder / "replay.json", {"version": VERSION, "created": 0, "data": data})
    about = {"recordingId": episode.name, "version": VERSION, "userAgent": "palaestra"}
    _write_json(folder / "metadata.json", about)
    form = {"shortcode": episode.name, "description": episode.instruction, "tasks": []}
    _write_json(folder / "form.json", form)


def _renamed(turn: ShownTurn) -> ShownTurn:
    """Return a turn whose ids are no numbers."""

    def id_of(id: str) -> str:
        return f"e{id}" if id.isdigit() else id

    def target_of(target: Target | None) -> Target | None:
        return Id(id_of(target.id)) if isinstance(target, Id) else target

    elements = [
        replace(one, id=id_of(one.id), parent=None if one.parent is None else id_of(one.parent))
        for one in turn.elements
    ]
    return replace(
        turn,
        gesture=replace(turn.gesture, target=target_of(turn.gesture.target)),
        elements=elements,
    )


def _write_page(folder: Path, page: int, turn: ShownTurn) -> None:
    html = write_page(turn.elements)
    (folder / "pages" / f"page-{page}-0.html").write_text(html, encoding="utf-8")
    nodes = [one for one in turn.elements if one.role != TEXT]  # a text is no HTML element
    boxes = {one.id: _corners(one.box) for one in nodes if one.box is not None}
    _write_json(folder / "bboxes" / f"bboxes-{page}.json", boxes)
    if turn.picture is not None:
        (folder / "screenshots" / f"screenshot-{page}-0.png").write_bytes(turn.picture)


def _chat(when: float, speaker: str, words: str) -> dict[str, Any]:
    return {"type": "chat", "timestamp": when, "speaker": speaker, "utterance": words}


def _said(turn: ShownTurn, episode: ShownEpisode) -> list[dict[str, Any] | str]:
    """Return the actions of a gesture; a text for what the navigator says."""
    gesture = turn.gesture
    if gesture.kind in ("say", "answer"):
        return [gesture.text]
    width, height = episode.size
    arguments: dict[str, Any] = {
        "metadata": {"url": episode.url, "viewportWidth": width, "viewportHeight": height},
        "properties": {},
    }
    if gesture.target is not None:
        target = element_of(gesture.target, turn.elements)
        if target.role == TEXT and target.parent is not None:
            target = element_of(Id(target.parent), turn.elements)
        arguments["element"] = _element(target, turn.elements)
        if target.box is not None:
            x, y = target.box.centre
            arguments["metadata"] |= {"mouseX": x, "mouseY": y}
    intents = _intents(gesture, arguments)
    return [{"intent": intent, "arguments": {**arguments, **more}} for intent, more in intents]


def _intents(gesture: Gesture, arguments: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    submit = [("submit", dict[str, Any]())]
    match gesture.kind, gesture.text:
        case ("click" | "hover") as kind, _ if gesture.target is not None:
            return [(kind, {})]
        case "type", text if gesture.target is not None:
            typed = [("textInput", {"text": text})] if text or gesture.clear else []
            return [*typed, *(submit if gesture.enter else [])]
        case "press", "Enter" if gesture.target is not None:
            return submit
        case "select", text:
            return [("change", {"value": text})]
        case "go", text:
            return [("load", {"properties": {"url": text}})]
        case "scroll", _ if gesture.unit == "pixels":
            x, y = gesture.amount
            return [("scroll", {"scrollX": x, "scrollY": y})]
        case _:
            raise InputError(
                f"WebLINX has no action for `{write_line(gesture)}`; export other episodes."
            )


def _element(element: Element, elements: Sequence[Element]) -> dict[str, Any]:
    inside = write_page(_within(element, elements))
    html = inside.split("\n", 1)[1]
    text = "" if element.role in _INPUTS else element.name
    return {
        "attributes": {UID: element.id},
        "bbox": None if element.box is None else _corners(element.box),
        "tagName": html[1:].split(" ", 1)[0].upper(),
        "textContent": text,
        "innerHTML": "",
        "outerHTML": html,
        "xpath": f'//*[@{UID}="{element.id}"]',
    }


def _within(element: Element, elements: Sequence[Element]) -> list[Element]:
    """Return an element and all that is in it."""
    ids, found = {element.id}, [element]
    for one in elements:
        if one.parent in ids:
            ids.add(one.id)
            found.append(one)
    return found


def _corners(box: Box) -> dict[str, float]:
    return {
        "x": box.x, "y": box.y, "width": box.width, "height": box.height, "left": box.x,
        "top": box.y, "right": box.x + box.width, "bottom": box.y + box.height,
    }  # fmt: skip


def demonstration_name(episode: str) -> str:
    """Return a name of seven letters, as in WebLINX, for the key of an episode."""
    number = int.from_bytes(hashlib.sha256(episode.encode()).digest()[:8], "big")
    return "".join(chr(ord("a") + number // 26**place % 26) for place in range(7))


def _write_json(file: Path, data: object) -> None:
    file.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
