"""What a website promises, function by function: words, code, a test, and defects.

A site shows a list of things with a name and a number. Each function has a part of the reference's
script and page, a test (an operation and what is expected of it), and defects: small changes of
the reference, each of which breaks this function, and those that need it, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Topic:
    """What a site is about."""

    title: str
    noun: str  # of one thing
    number: str  # the name of its number
    items: tuple[tuple[str, int], ...]  # what the list begins with; at least four, all different
    added: tuple[str, int]  # what tests add
    colour: tuple[int, int, int]  # of the background


@dataclass(frozen=True, slots=True)
class SiteTest:
    """An operation, and what is expected to be shown after it."""

    operation: tuple[str, ...] = ()  # gestures, beginning at the first page
    shows: tuple[str, ...] = ()  # texts of the page, in this order
    hides: tuple[str, ...] = ()  # texts that must not be there
    colour: str = ""  # of the background, as the browser computes it


@dataclass(frozen=True, slots=True)
class Defect:
    """A change of one place of the reference."""

    what: str
    file: str
    old: str
    new: str


@dataclass(frozen=True)
class SiteFunction:
    """One promise of a site."""

    promise: Callable[[Topic], str]  # what the builder is told
    test: Callable[[Topic], SiteTest]
    defects: tuple[Defect, ...]
    needs: tuple[str, ...] = ()  # functions without which its test cannot pass
    code: Mapping[str, str] = field(default_factory=dict)
    """Parts of the reference by slot: `tools` of the page; of its script `chosen`, `entry`, `after`
    (of each drawing), `check` (of what is added) and `setup`."""


SCRIPT, STYLE, ABOUT = "app.js", "style.css", "about.html"


def _names(topic: Topic) -> tuple[str, ...]:
    return tuple(name for name, _ in topic.items)


def _listed(topic: Topic) -> SiteTest:
    return SiteTest(shows=tuple(str(part) for item in topic.items for part in item))


def _add(topic: Topic) -> SiteTest:
    name, number = topic.added
    return SiteTest(
        (f"type 'Name' '{name}'", f"type '{topic.number}' '{number}'", "click 'Add'"),
        shows=(*_names(topic), name, str(number)),
    )


def _refuse(topic: Topic) -> SiteTest:
    return SiteTest(
        (f"type '{topic.number}' '{topic.added[1]}'", "click 'Add'"),
        shows=("A name is needed.",),
        hides=(str(topic.added[1]),),
    )


def _remove(topic: Topic) -> SiteTest:
    first, gone, *others = _names(topic)
    return SiteTest((f"click 'Remove {gone}'",), shows=(first, *others), hides=(gone,))


def _search(topic: Topic) -> SiteTest:
    wanted, *others = _names(topic)[::-1]
    return SiteTest((f"type 'Search' '{wanted[:4].lower()}'",), (wanted,), tuple(others))


def _sort(topic: Topic) -> SiteTest:
    in_order = sorted(topic.items, key=lambda item: item[1])
    return SiteTest((f"click 'Sort by {topic.number}'",), tuple(name for name, _ in in_order))


def _total(topic: Topic) -> SiteTest:
    gone, number = topic.items[1]
    left = sum(number for _, number in topic.items) - number
    return SiteTest((f"click 'Remove {gone}'",), (f"Total: {left}",))


def _keep(topic: Topic) -> SiteTest:
    gone = topic.items[1][0]
    again = "go 'http://site.example/'"
    return SiteTest((f"click 'Remove {gone}'", again), (topic.items[0][0],), (gone,))


def _about(topic: Topic) -> SiteTest:
    return SiteTest(
        ("click 'About'",), (f"About {topic.title}", f"Everything about each {topic.noun}.")
    )


def _colour(topic: Topic) -> SiteTest:
    return SiteTest(colour="rgb({}, {}, {})".format(*topic.colour))


FUNCTIONS: dict[str, SiteFunction] = {
    "list": SiteFunction(
        lambda topic: (
            "It lists these things, each with its name and then its number: "
            + ", ".join(f"{name} ({number})" for name, number in topic.items)
            + "."
        ),
        _listed,
        (
            Defect("shows no numbers", SCRIPT, "text(item.number)", 'text("")'),
            Defect("shows other numbers", SCRIPT, "text(item.number)", "text(item.number + 1)"),
        ),
    ),
    "add": SiteFunction(
        lambda topic: (
            f"With the fields 'Name' and '{topic.number}' and the button 'Add' one adds a "
            f"{topic.noun} at the end of the list."
        ),
        _add,
        (
            Defect("adds nothing", SCRIPT, "items.push(added);", ""),
            Defect("adds no number", SCRIPT, "number: Number(", "number: 0 * Number("),
        ),
        needs=("list",),
        code={
            "tools": '<p>{name_field} {number_field} <button id="add">Add</button></p>\n',
            "setup": 'byId("add").onclick = () => {\n'
            '  const name = byId("name").value.trim();\n'
            '  const added = { name, number: Number(byId("number").value) };\n'
            "  // check\n"
            "  items.push(added);\n"
            "  draw();\n"
            "};\n",
        },
    ),
    "refuse": SiteFunction(
        lambda topic: "Without a name, 'Add' adds nothing, and the page says 'A name is needed.'",
        _refuse,
        (
            Defect("says nothing", SCRIPT, '"A name is needed."', '""'),
            Defect("adds what has no name", SCRIPT, 'needed."; return;', 'needed.";'),
        ),
        code={
            "check": "  if (!added.name) "
            '{ byId("said").textContent = "A name is needed."; return; }\n'
        },
    ),
    "remove": SiteFunction(
        lambda topic: f"Each {topic.noun} has a button 'Remove NAME', which removes it.",
        _remove,
        (
            Defect("removes nothing", SCRIPT, "items.indexOf(item), 1", "items.indexOf(item), 0"),
            Defect("removes the first one", SCRIPT, "items.indexOf(item), 1", "0, 1"),
        ),
        code={
            "entry": '  const button = document.createElement("button");\n'
            '  button.textContent = "Remove " + item.name;\n'
            "  button.onclick = () => { items.splice(items.indexOf(item), 1); draw(); };\n"
            "  parts.push(button);\n",
        },
    ),
    "search": SiteFunction(
        lambda topic: (
            "While one types into the field 'Search', only things whose name contains the text "
            "are shown, in small or capital letters."
        ),
        _search,
        (
            Defect("finds no small letters", SCRIPT, "item.name.toLowerCase()", "item.name"),
            Defect("shows all", SCRIPT, "includes(wanted)", 'includes("")'),
        ),
        code={
            "tools": "<p>{search_field}</p>\n",
            "chosen": '  const wanted = byId("search").value.toLowerCase();\n'
            "  found = found.filter((item) => item.name.toLowerCase().includes(wanted));\n",
            "setup": 'byId("search").oninput = draw;\n',
        },
    ),
    "sort": SiteFunction(
        lambda topic: (
            f"The button 'Sort by {topic.number}' orders the list by that number, the smallest "
            "first."
        ),
        _sort,
        (
            Defect("sorts downward", SCRIPT, "one.number - other", "-one.number + other"),
            Defect("sorts as texts", SCRIPT, "one.number - other.number",
                   "`${one.number}`.localeCompare(`${other.number}`)"),
        ),
        code={
            "tools": '<p><button id="sort">Sort by {number}</button></p>\n',
            "setup": 'byId("sort").onclick = () => {\n'
            "  items.sort((one, other) => one.number - other.number);\n"
            "  draw();\n"
            "};\n",
        },
    ),
    "total": SiteFunction(
        lambda topic: "It shows 'Total: N', the sum of all numbers, which follows every change.",
        _total,
        (
            Defect("stays as it was", SCRIPT, "textContent = total", "textContent ||= total"),
            Defect("counts things", SCRIPT, "sum + item.number", "sum + 1"),
        ),
        needs=("remove",),
        code={
            "tools": '<p>Total: <span id="total"></span></p>\n',
            "after": "  sum(items.reduce((sum, item) => sum + item.number, 0));\n",
            "setup": 'function sum(total) { byId("total").textContent = total; }\n',
        },
    ),
    "keep": SiteFunction(
        lambda topic: "What was changed is still so when the page is opened again.",
        _keep,
        (
            Defect("stores nothing", SCRIPT, "localStorage.setItem(KEY", "void (KEY"),
            Defect("reads nothing", SCRIPT, "localStorage.getItem(KEY)", "null"),
        ),
        needs=("remove",),
        code={"after": "  localStorage.setItem(KEY, JSON.stringify(items));\n"},
    ),
    "about": SiteFunction(
        lambda topic: (
            f"A link 'About' leads to a page with the heading 'About {topic.title}' and the words "
            f"'Everything about each {topic.noun}.'"
        ),
        _about,
        (
            Defect("leads nowhere", "index.html", 'href="about.html"', 'href="abuot.html"'),
            Defect("has another heading", ABOUT, "<h1>About", "<h1>On"),
        ),
        code={"tools": '<p><a href="about.html">About</a></p>\n'},
    ),
    "colour": SiteFunction(
        lambda topic: "The background has the colour rgb({}, {}, {}).".format(*topic.colour),
        _colour,
        (
            Defect("is white", STYLE, "background: rgb", "border-color: rgb"),
            Defect("has no style sheet", "index.html", 'href="style.css"', 'href="styles.css"'),
        ),
    ),
}  # fmt: skip
"""All functions by name, in the order in which builders are told of them."""


def broken_by(name: str, chosen: tuple[str, ...]) -> frozenset[str]:
    """Return the functions of a site whose tests a defect of one of them must fail."""
    return frozenset(one for one in chosen if one == name or name in FUNCTIONS[one].needs)
