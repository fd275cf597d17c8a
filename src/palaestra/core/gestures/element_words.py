"""The words that name an element, such that `locating.element_of` finds it and no other one.

These are its name; else its name and role ('Buy button'), or its role alone if it has no name; of
up to nine that share them, its order, too ('second Buy button').
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from palaestra.core.bm25 import words
from palaestra.core.element import Element
from palaestra.core.element_text import is_interactive
from palaestra.core.gestures.locating import ORDINALS, role_words, spoken, without_articles

Key = tuple[str, ...]


class _Index:
    """Elements by what they are called exactly, and by their names and roles."""

    def __init__(self, elements: Sequence[Element]) -> None:
        self.by_name: dict[Key, list[str]] = defaultdict(list)
        self.by_role: dict[Key, list[str]] = defaultdict(list)
        for element in elements:
            self.by_name[tuple(words(element.name))].append(element.id)
            for key in spoken(element):
                self.by_role[key].append(element.id)

    def has(self, asked: Key) -> bool:
        """Return whether words are a name, or a name and a role."""
        return asked in self.by_name or tuple(without_articles(asked)) in self.by_role


def words_of(elements: Sequence[Element]) -> dict[str, str]:
    """Return the id of each element that words name, and these words; linear in the elements."""
    everything = _Index(elements)
    acted_on = _Index([element for element in elements if is_interactive(element)])
    named = {}
    for element in elements:
        if is_interactive(element):
            found = _of_acted_on(element, acted_on, everything)
        else:
            found = _of_other(element, acted_on, everything)
        if found is not None:
            named[element.id] = found
    return named


def _of_other(element: Element, acted_on: _Index, everything: _Index) -> str | None:
    """Return the words for an element that is not to act on: its name, if that is its alone."""
    asked = tuple(words(element.name))
    alone = asked and asked not in acted_on.by_name and everything.by_name[asked] == [element.id]
    return " ".join(element.name.split()) if alone else None


def _of_acted_on(element: Element, acted_on: _Index, everything: _Index) -> str | None:
    """Return the words for an element to act on; `locating` finds these before all others."""
    name = " ".join(element.name.split())
    asked = tuple(words(name))
    if asked and acted_on.by_name[asked] == [element.id]:
        return name
    full = f"{name} {role_words(element)[0]}".strip()
    asked = tuple(words(full))
    plain = tuple(without_articles(asked))
    if asked in everything.by_name or plain in everything.by_name:
        return None
    same = acted_on.by_role.get(plain, [])
    if same == [element.id]:
        return full
    few = dict(zip(same, ORDINALS, strict=False))  # as many as have an ordinal
    ordinal = few.get(element.id)
    if ordinal is None or everything.has((ordinal, *asked)):
        return None
    return f"{ordinal} {full}"
