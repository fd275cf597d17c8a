"""The page of a comparison: whole in one file, and safe for any reply of a model."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from palaestra.learning.credit.returns import drgrpo, rloo
from palaestra.learning.methods.credit_comparison import Estimate, as_json, compare
from palaestra.learning.methods.credit_comparison_page import page
from tests.learning.credit import made

HOSTILE = '</script><script>alert(1)</script> & "quotes" <b>'
VOID = {"meta", "link", "br", "input"}


class Parsed(HTMLParser):
    """Elements, their attributes and the texts of scripts; checks that elements are closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        else:
            self.text += data


def comparison_json(*, truth: bool = False, rules: int = 2) -> dict[str, Any]:
    batch = made.batch([1.0, 0.0, 0.5, 0.0], turns=[2, 3, 1, 2])
    measured = {(batch[0].key, 1): Estimate(0.25, 0.1), (batch[1].key, 0): Estimate(-0.5, 0.1)}
    chosen = dict(list({"rloo": rloo, "drgrpo": drgrpo}.items())[:rules])
    comparison = as_json(compare(batch, chosen, measured if truth else None))
    comparison |= {"trace": HOSTILE, "phase": "rl/1", "environment": "made", "skipped": []}
    comparison["skipped"] = [{"rule": "gae", "reason": "'gae' needs values"}]
    if truth:
        comparison["truth"] |= {"samples": 8, "policy": "rl-000002"}
    for trajectory in comparison["trajectories"]:
        for turn in trajectory["turns"]:
            turn |= {"observation": "a room", "reply": HOSTILE}
    return comparison


@pytest.mark.parametrize("truth", [False, True])
@pytest.mark.parametrize("rules", [1, 2])
def test_the_page_is_well_formed_and_holds_the_comparison(truth: bool, rules: int) -> None:
    comparison = comparison_json(truth=truth, rules=rules)
    found = Parsed(page(comparison))
    assert found.open == []
    data, script = found.scripts
    assert json.loads(data) == comparison
    assert "addEventListener" in script
    assert ("Rank correlation" in found.text) == (rules == 2)
    assert ("wrong sign" in found.text.partition("How to read")[0]) == truth
    assert "'gae' needs values" in found.text


def test_what_a_model_replied_is_text_and_never_markup() -> None:
    text = page(comparison_json())
    assert "<script>alert" not in text
    assert HOSTILE in Parsed(text).text


def test_the_page_asks_nothing_of_the_network() -> None:
    text = page(comparison_json(truth=True))
    assert not re.search(r"https?:|@import|url\(", text)
    for tag, attributes in Parsed(text).elements:
        for name in ("src", "href", "data", "action"):
            link = attributes.get(name) or ""
            assert link.startswith(("#", "data:,")) or not link, (tag, link)


def test_colours_are_defined_for_light_and_dark() -> None:
    style = page(comparison_json()).partition("<style>")[2].partition("</style>")[0]
    light, _, dark = style.partition("prefers-color-scheme:dark")
    for name in ("bg", "ink", "zero", *(f"{kind}{n}" for kind in "pnc" for n in range(1, 6))):
        values = [re.search(rf"--{name}:(#\w+)", part) for part in (light, dark)]
        assert all(values)
        assert values[0] and values[1] and values[0][1] != values[1][1]
