"""Observations made of an environment's elements and its picture (`observation=tree+picture`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from palaestra.core.element import Element
from palaestra.core.element_compaction import merged, with_tables
from palaestra.core.element_text import flat, mark_list, tree
from palaestra.core.environment import (
    Action,
    Capability,
    Environment,
    Observation,
    Spec,
    Transition,
)
from palaestra.core.gestures.element_words import words_of
from palaestra.core.message import Image
from palaestra.core.rare_capabilities import caption_of, elements_of, picture_of
from palaestra.environments.shared.marked_picture import with_marks
from palaestra.environments.wrappers.word_targets import WordTargets
from palaestra.environments.wrappers.wrapper import (
    Wrapper,
    require_capability,
    require_one_player,
)

VIEWS = ("tree", "text", "changes", "marks", "picture")
PICTURED = frozenset(("marks", "picture"))  # views that have an image
COMPACTIONS: Mapping[str, Callable[[Sequence[Element]], Sequence[Element]]] = {
    "tables": with_tables,
    "merged": merged,
}
"""What may stand behind a view of words (`tree,merged,tables`), in the order in which it is done.
"""

ABOUT = {
    "tree": "You see a page as its tree of elements{}.",
    "text": "You see the words of a page, and what can be acted on{}.",
    "changes": (
        "You see the words of a page, and what can be acted on{}; after each gesture "
        "only what the page did not show before."
    ),
    "marks": "You see a picture of a page, in which what can be acted on has a #number.",
    "picture": "You see a picture of a page.",
}


class View(Wrapper):
    """Views of a page in place of the environment's own text.

    `tree` and `text` are texts, `changes` is the lines of `text` that were not there before the
    gesture, `picture` is an image, and `marks` an image with numbers and their list; several are
    joined by "+". Behind a view of words, `,merged` joins its texts and `,tables` writes its tables
    as Markdown. Before them stands what no view shows: the goal, or what came of the last gesture.
    An invalid action is answered in words only. With `targets=words`, texts show no id of what
    words name.
    """

    def __init__(self, inner: Environment, value: str = "tree") -> None:
        super().__init__(inner, value)
        self._views = [_parts(view) for view in value.split("+")]
        self._by_words = isinstance(inner, WordTargets)
        self._before: set[str] = set()  # the lines before the gesture

    @classmethod
    def adapt_spec(cls, spec: Spec, value: str) -> Spec:
        require_one_player(spec, f"observation={value}")
        pictured = any(_parts(view)[0] in PICTURED for view in value.split("+"))
        needed = [Capability.ELEMENTS, *([Capability.PICTURE] if pictured else [])]
        for capability in needed:
            require_capability(spec, capability, f"observation={value}")
        return replace(spec, images=True) if pictured else spec

    @property
    def instructions(self) -> str:
        ids = "" if self._by_words else " with its [id]"
        about = (ABOUT[view].format(ids) for view, _ in self._views)
        return "\n".join([self.inner.instructions, *about])

    def step(self, action: Action) -> Transition:
        for view, compactions in self._views:
            if view == "changes":
                text = self._as_text(flat, elements_of(self.inner), compactions)
                self._before = set(text.split("\n"))
        return super().step(action)

    def after_reset(self, observation: Observation) -> Observation:
        self._before = set()
        return self._seen(observation)

    def after_step(self, transition: Transition) -> Transition:
        seen = self._seen(transition.observation)
        return replace(super().after_step(transition), observation=seen)

    def _seen(self, observation: Observation) -> Observation:
        elements = elements_of(self.inner)
        pictured = any(view in PICTURED for view, _ in self._views)
        picture = picture_of(self.inner) if pictured else b""
        texts, images = [caption_of(self.inner)], []
        for view, compactions in self._views:
            match view:
                case "tree":
                    texts.append(self._as_text(tree, elements, compactions))
                case "text":
                    texts.append(self._as_text(flat, elements, compactions))
                case "changes":
                    lines = self._as_text(flat, elements, compactions).split("\n")
                    texts += [line for line in lines if line not in self._before]
                case "marks":
                    texts.append(mark_list(elements))
                    images.append(Image.of(with_marks(picture, elements)))
                case "picture":
                    images.append(Image.of(picture))
        text = "\n".join(filter(None, texts))
        return replace(observation, text=text, images=tuple(images))

    def _as_text(
        self, view: Callable[..., str], elements: Sequence[Element], compactions: Sequence[str]
    ) -> str:
        words = words_of(elements) if self._by_words else None  # of all: a gesture names one of all
        return view(_compacted(elements, compactions), words=words)


def is_view(value: str) -> bool:
    """Return whether a value of the knob names views, each once, with compactions of words."""
    views = [_parts(view) for view in value.split("+")]
    names = [view for view, _ in views]
    return len(set(names)) == len(names) and all(
        view in VIEWS
        and set(asked) <= COMPACTIONS.keys()
        and len(set(asked)) == len(asked)
        and not (asked and view in PICTURED)
        for view, asked in views
    )


def _parts(view: str) -> tuple[str, list[str]]:
    """Return a view and its compactions: `tree` and `merged`, `tables` of `tree,merged,tables`."""
    name, *compactions = view.split(",")
    return name, compactions


def _compacted(elements: Sequence[Element], asked: Sequence[str]) -> Sequence[Element]:
    for name, compaction in COMPACTIONS.items():
        if name in asked:
            elements = compaction(elements)
    return elements
