"""The reference: a website of several files that keeps all its promises, or all but one."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from palaestra.environments.families.websites.site_functions import (
    ABOUT,
    FUNCTIONS,
    SCRIPT,
    STYLE,
    Defect,
    Topic,
)

Layout = Literal["list", "table", "cards"]
LAYOUTS: tuple[Layout, ...] = ("list", "table", "cards")
FIRST = "index.html"
ALWAYS = ("list", "add", "remove")
TOPICS = (
    ("Plants", "plant", "Height", "Maple Fern Ivy Cactus Tulip Rosemary Orchid Willow"),
    ("Ships", "ship", "Length", "Aurora Beagle Comet Dolphin Endeavour Falcon Galatea Hornet"),
    ("Recipes", "recipe", "Minutes", "Goulash Risotto Pancakes Borscht Curry Lasagne Falafel Stew"),
    ("Rivers", "river", "Depth", "Danube Rhine Volga Tagus Loire Vistula Ebro Severn"),
    ("Books", "book", "Pages", "Emma Ulysses Dracula Walden Candide Beloved Middlemarch Utopia"),
)


@dataclass(frozen=True, slots=True)
class SitePlan:
    """What a website is about, and what it promises."""

    topic: Topic
    functions: tuple[str, ...]

    def words(self) -> str:
        """Return the promises, as a builder is told them."""
        told = [f"- {FUNCTIONS[name].promise(self.topic)}" for name in self.functions]
        return "\n".join([f"A website '{self.topic.title}', about some {self.topic.noun}s.", *told])


def drawn_plan(rng: random.Random, most: int) -> SitePlan:
    """Draw what a website promises: some functions, the usual ones among them."""
    title, noun, number, names = rng.choice(TOPICS)
    chosen = rng.sample(names.split(), 5)
    # One number is longer than the others, so that an order of texts is another one.
    numbers = [rng.randrange(1000, 2000), *rng.sample(range(210, 999), 4)]
    colour = (rng.randrange(180, 250), rng.randrange(180, 250), rng.randrange(180, 250))
    *items, added = zip(chosen, numbers, strict=True)
    rng.shuffle(items)
    others = [name for name in FUNCTIONS if name not in ALWAYS]
    functions = {*ALWAYS, *rng.sample(others, min(most - len(ALWAYS), len(others)))}
    topic = Topic(title, noun, number, tuple(items), added, colour)
    return SitePlan(topic, tuple(name for name in FUNCTIONS if name in functions))


def site_files(
    plan: SitePlan, layout: Layout = "list", defect: Defect | None = None
) -> dict[str, str]:
    """Return the files of a website, by path; the first page comes last.

    Args:
        plan: what it promises.
        layout: how things are shown, and fields are labelled.
        defect: of one of its functions.
    """
    topic = plan.topic
    files = {STYLE: _style(topic), SCRIPT: _script(plan, layout)}
    if "about" in plan.functions:
        files[ABOUT] = (
            f"<!doctype html>\n<title>About</title>\n<h1>About {topic.title}</h1>\n"
            f'<p>Everything about each {topic.noun}.</p>\n<a href="{FIRST}">Back</a>\n'
        )
    files[FIRST] = _page(plan, layout)
    if defect is not None:
        assert files[defect.file].count(defect.old) == 1, defect
        files[defect.file] = files[defect.file].replace(defect.old, defect.new)
    return files


def _page(plan: SitePlan, layout: Layout) -> str:
    number = plan.topic.number
    fields = {
        "name_field": _field("name", "Name", layout),
        "number_field": _field("number", number, layout),
        "search_field": _field("search", "Search", layout),
        "number": number,
    }
    tools = "".join(_parts(plan.functions, "tools")).format(**fields)
    tag = {"list": "ul", "table": "table", "cards": "div"}[layout]
    title = plan.topic.title
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f'<link rel="stylesheet" href="{STYLE}">\n<h1>{title}</h1>\n{tools}'
        f'<p id="said" role="status"></p>\n<{tag} id="things"></{tag}>\n'
        f'<script src="{SCRIPT}"></script>\n</html>\n'
    )


def _field(id: str, label: str, layout: Layout) -> str:
    """Return a field; each layout has its own way to label it."""
    if layout == "list":
        return f'<label for="{id}">{label}</label> <input id="{id}">'
    if layout == "table":
        return f'<label>{label} <input id="{id}"></label>'
    return f'<input id="{id}" aria-label="{label}">'


def _script(plan: SitePlan, layout: Layout) -> str:
    begun = json.dumps([{"name": name, "number": number} for name, number in plan.topic.items])
    stored = "JSON.parse(localStorage.getItem(KEY)) || " if "keep" in plan.functions else ""
    outer, inner = {"list": ("li", "span"), "table": ("tr", "td"), "cards": ("div", "b")}[layout]
    check = "".join(_parts(plan.functions, "check"))
    setup = "".join(_parts(plan.functions, "setup")).replace("  // check\n", check)
    return (
        'const KEY = "things";\nconst byId = (id) => document.getElementById(id);\n'
        f"let items = {stored}{begun};\n"
        "function chosen() {\n  let found = items;\n"
        f"{''.join(_parts(plan.functions, 'chosen'))}  return found;\n}}\n"
        f'function text(value) {{\n  const part = document.createElement("{inner}");\n'
        "  part.textContent = value;\n  return part;\n}\n"
        "function entry(item) {\n"
        '  const parts = [text(item.name), " ", text(item.number), " "];\n'
        f"{''.join(_parts(plan.functions, 'entry'))}"
        f'  const whole = document.createElement("{outer}");\n'
        "  whole.append(...parts);\n  return whole;\n}\n"
        "function draw() {\n"
        '  byId("things").replaceChildren(...chosen().map(entry));\n'
        f"{''.join(_parts(plan.functions, 'after'))}}}\n"
        f"{setup}draw();\n"
    )


def _style(topic: Topic) -> str:
    colour = "rgb({}, {}, {})".format(*topic.colour)
    return f"body {{ background: {colour}; font-family: sans-serif; margin: 24px; }}\n"


def _parts(functions: Sequence[str], slot: str) -> list[str]:
    return [FUNCTIONS[name].code[slot] for name in functions if slot in FUNCTIONS[name].code]
