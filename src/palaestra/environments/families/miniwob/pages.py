"""The pages of the package MiniWoB++: which there are, and how to begin and to read a task."""

from __future__ import annotations

import random
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from palaestra.browser.sites import FolderSite

PACKAGE = "miniwob"
HOST = "miniwob"
SIZE = (160, 210)  # of each page, in pixels
SECONDS = 60  # of the page's time until a task is over


def folder() -> Path:
    """Return the folder of pages; raises ModuleNotFoundError without the package."""
    found = find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named '{PACKAGE}'", name=PACKAGE)
    return Path(found.submodule_search_locations[0], "html")


BASIC = (
    "choose-list",
    "click-button",
    "click-checkboxes",
    "click-dialog-2",
    "click-link",
    "click-option",
    "click-tab",
    "click-widget",
    "enter-password",
    "enter-text",
    "focus-text-2",
    "login-user",
)
CHALLENGE = (
    "click-button-sequence",
    "click-checkboxes-large",
    "click-checkboxes-transfer",
    "click-collapsible",
    "click-dialog",
    "click-test-2",
    "enter-text-2",
    "enter-text-dynamic",
    "focus-text",
    "simple-arithmetic",
    "unicode-test",
)
SMALL = (
    "click-button-sequence",
    "click-collapsible",
    "click-dialog-2",
    "click-tab",
    "click-widget",
    "focus-text-2",
)
MIXTURES = {"basic": BASIC, "basic-challenge": CHALLENGE, "basic-skewed": BASIC, "small": SMALL}
"""Several pages in one environment; no page of the challenge is among the basic ones. The goals of
the small ones have few words, which a model from scratch can learn."""

WEIGHTS = {"basic-skewed": [1 / rank for rank in range(1, len(BASIC) + 1)]}
"""How often a mixture draws each of its pages, where that is not equally often: as in data that
nobody balanced, some pages are frequent and others, here those to type on, are rare."""

FOLDER = folder()
VERSION = version(PACKAGE)
MEASURED = "1.1.0"  # the version whose pages were tried, see `can_begin_again`


@cache
def site() -> FolderSite:
    """Return the site of all pages."""
    return FolderSite(FOLDER)


@cache
def names() -> tuple[str, ...]:
    """Return the names of the pages."""
    return tuple(sorted(path.stem for path in (FOLDER / "miniwob").glob("*.html")))


def of_task(name: str, seed: int) -> str:
    """Return the page of a task: that of the name, or one of the mixture, drawn by the seed."""
    if name not in MIXTURES:
        return name
    rng, mixture = random.Random(seed), MIXTURES[name]
    if name in WEIGHTS:
        return rng.choices(mixture, WEIGHTS[name])[0]
    return rng.choice(mixture)


def address(name: str) -> str:
    """Return the address of a page."""
    return f"http://{HOST}/miniwob/{name}.html"


_LOADED = frozenset(
    (
        "book-flight",
        "book-flight-nodelay",
        "chase-circle",
        "choose-date",
        "choose-date-easy",
        "choose-date-medium",
        "click-pie",
        "click-pie-nodelay",
        "scroll-text",
        "scroll-text-2",
        "search-engine",
        "simon-says",
        "stock-market",
        "use-autocomplete",
        "use-autocomplete-nodelay",
        "use-colorwheel",
        "use-colorwheel-2",
        "use-spinner",
    )
)
"""Pages that do not begin again as when they are loaded: in one of fourteen tasks, each after
another one with random gestures, their trees or their pictures differed."""


def can_begin_again(name: str) -> bool:
    """Return whether a page begins a task in a used document as in one that was just loaded."""
    return VERSION == MEASURED and name not in _LOADED


def program(seconds: int) -> str:
    """Return the function that begins a task: what the page's START does, with a seed, a text.

    In a document that begins again, plain global variables get the values that they had at first.

    Args:
        seconds: of the page's time until the task is over.

    What the page shows of rewards and time is for people who play; it is hidden. Pictures that a
    style shows only under the pointer are loaded before: until they have come, what they are on has
    no size, and a click misses it.
    """
    return f"""async (seed) => {{
      if (!core.loaded) {{
        const under = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]
          .filter((rule) => /:(hover|active|focus)/.test(rule.selectorText || ""))
          .flatMap((rule) => [...rule.cssText.matchAll(/url\\("([^"]+)"\\)/g)]
            .map((found) => new URL(found[1], sheet.href || location.href).href)));
        core.loaded = [...new Set(under)].map((url) => Object.assign(new Image(), {{ src: url }}));
        await Promise.allSettled(core.loaded.map((picture) => picture.decode()));
      }}
      const plain = (value) => !["object", "function"].includes(typeof value) || value === null;
      core.first ??= Object.entries(window).filter(([, value]) => plain(value));
      for (const [name, value] of core.first) if (window[name] !== value) window[name] = value;
      for (const name of ["countdownTimer", "clearTimer", "updateDisplay", "reloadDisplay"])
        core[name] = () => {{}};
      core.EPISODE_MAX_TIME = {seconds * 1000};
      Math.seedrandom(seed);
      core.startEpisodeReal();
      for (const id of ["reward-display", "click-canvas"])
        document.getElementById(id).style.display = "none";
      const said = core.getUtterance();
      return typeof said === "string" ? said : said.utterance;
    }}"""


def begin(seed: int, seconds: int) -> str:
    """Return an expression that begins a task; see `program`."""
    return f"({program(seconds)})({str(seed)!r})"


STATE = """typeof WOB_DONE_GLOBAL === "undefined" ? null
  : [WOB_DONE_GLOBAL, WOB_RAW_REWARD_GLOBAL, WOB_REWARD_REASON === "timed out"]"""
"""Whether the task is over, its reward without the discount for time, and whether time ran out."""

PASSWORDS = """(function typed(page) {
  return [...page.querySelectorAll("input[type=password], iframe")]
    .filter((element) => element.getClientRects().length)
    .flatMap((element) => element.contentDocument ? typed(element.contentDocument)
      : element.value ? [element.value] : []);
})(document)"""
"""What is typed into password fields that are shown, in the order of the page and its frames."""
DOT = "•"  # stands for each character of a password in a tree of elements
