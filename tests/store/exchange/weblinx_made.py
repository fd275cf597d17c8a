"""Small demonstrations in the layout of WebLINX, as its recorder writes them, for tests."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image

SHOP = """<!DOCTYPE html><html data-webtasks-id="r"><head><title>Shop</title></head><body
><nav data-webtasks-id="n"><a data-webtasks-id="home" href="/">Home</a></nav>
<form data-webtasks-id="f"><label for="q">Search for</label>
<input data-webtasks-id="field" id="q" value=""><button data-webtasks-id="find">Find</button>
<select data-webtasks-id="size"><option data-webtasks-id="s">small</option>
<option data-webtasks-id="m" selected>medium</option></select></form>
<div data-webtasks-id="card" onclick="buy()"><b>Red shoes</b> 20 €</div>
<p data-webtasks-id="gone">Not shown</p><script>track()</script>
<footer data-webtasks-id="foot">Far below</footer></body></html>"""
BOXES = {
    "r": (0, 0, 800, 2000), "n": (0, 0, 800, 40), "home": (10, 10, 60, 20),
    "f": (0, 40, 800, 60), "field": (100, 50, 200, 30), "find": (310, 50, 80, 30),
    "size": (400, 50, 100, 30), "card": (0, 120, 400, 100), "gone": (0, 0, 0, 0),
    "foot": (0, 1900, 800, 100),
}  # fmt: skip
Data = dict[str, Any]


def say(speaker: str, words: str) -> Data:
    return {"type": "chat", "speaker": speaker, "utterance": words, "timestamp": 0.0}


def act(intent: str, uid: str = "", *, site: str = "shop.example", **arguments: Any) -> Data:
    """Return a browser action on the page of `SHOP`, on the element of that id."""
    if uid:
        arguments["element"] = {
            "attributes": {"data-webtasks-id": uid},
            "bbox": corners(*BOXES[uid]),
            "tagName": "BUTTON",
            "textContent": " Find ",
        }
    seen = {"url": f"http://{site}/", "viewportWidth": 800, "viewportHeight": 600, "tabId": 7}
    state = {"page": "page-1-0.html", "screenshot": None}
    made = {"intent": intent, "arguments": {"metadata": seen, "properties": {}, **arguments}}
    return {"type": "browser", "timestamp": 1.0, "state": state, "action": made}


def corners(x: float, y: float, width: float, height: float) -> dict[str, float]:
    return {
        "x": x, "y": y, "width": width, "height": height,
        "left": x, "top": y, "right": x + width, "bottom": y + height,
    }  # fmt: skip


def with_screenshots(folder: Path, scale: int = 2) -> None:
    """Add screenshots to the demonstrations of a folder, with more pixels than the window has."""
    file = io.BytesIO()
    Image.new("RGB", (800 * scale, 600 * scale), (250, 250, 250)).save(file, "PNG")
    for replay in folder.glob("demonstrations/*/replay.json"):
        (replay.parent / "screenshots").mkdir()
        (replay.parent / "screenshots" / "screenshot-1-0.png").write_bytes(file.getvalue())
        text = replay.read_text()
        replay.write_text(text.replace('"screenshot": null', '"screenshot": "screenshot-1-0.png"'))


def write(folder: Path, name: str, data: Sequence[Data]) -> Path:
    """Write one demonstration below a folder of several; return its own folder."""
    own = folder / "demonstrations" / name
    (own / "pages").mkdir(parents=True)
    (own / "bboxes").mkdir()
    (own / "pages" / "page-1-0.html").write_text(SHOP)
    (own / "bboxes" / "bboxes-1.json").write_text(
        json.dumps({uid: corners(*box) for uid, box in BOXES.items()})
    )
    (own / "replay.json").write_text(json.dumps({"version": "1.0.0", "data": list(data)}))
    return own


SEARCH = (
    say("instructor", "Hello"),
    say("navigator", "Hi, what can I do?"),
    say("instructor", "Find red shoes"),
    act("load", properties={"url": "http://shop.example/"}),
    act("click", "field"),
    act("textInput", "field", text="red shoes"),
    act("submit", "f"),
    act("scroll", scrollX=0, scrollY=200),
    act("click", "card"),
    say("navigator", "They cost 20 €."),
)
"""A conversation with the intents that a policy is asked for."""
