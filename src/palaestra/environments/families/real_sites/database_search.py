"""Search for the applications (a backend of Haystack) in the world's own rows; there is no index.

Worlds are small, so each object is compared. Django names the classes in its configuration.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from haystack import connections
from haystack.backends import BaseEngine, BaseSearchBackend, BaseSearchQuery, SearchNode
from haystack.constants import DEFAULT_ALIAS, DJANGO_CT, DJANGO_ID
from haystack.models import SearchResult


class DatabaseSearchBackend(BaseSearchBackend):
    """Finds objects that fit a query; nothing is stored, so nothing is updated."""

    def update(self, index: Any, iterable: Any, commit: bool = True) -> None:
        """Do nothing."""

    def remove(self, obj_or_string: Any, commit: bool = True) -> None:
        """Do nothing."""

    def clear(self, models: Any = None, commit: bool = True) -> None:
        """Do nothing."""

    def search(self, query_string: SearchNode, **options: Any) -> dict[str, Any]:
        """Return the results of a query and their number; facets are not counted."""
        found: list[_Indexed] = options["found"]
        if not found:
            found += [one for one in _objects(options.get("models")) if _fits(one, query_string)]
            for field in reversed(options.get("sort_by") or ()):
                name = field.removeprefix("-")
                found.sort(key=lambda one: _order(one.value(name)), reverse=field.startswith("-"))
        first, last = options.get("start_offset") or 0, options.get("end_offset")
        kind = options.get("result_class") or SearchResult
        return {"results": [one.result(kind) for one in found[first:last]], "hits": len(found)}


class _Indexed:
    """An object and the index that says what it is found by."""

    def __init__(self, index: Any, subject: Any) -> None:
        self.index, self.subject = index, subject

    def value(self, name: str) -> Any:
        """Return a field of the index; of `content` its text."""
        if name in ("content", "text"):
            return self.index.fields[self.index.get_content_field()].prepare(self.subject)
        if (own := getattr(self.index, f"prepare_{name}", None)) is not None:
            return own(self.subject)
        return self.index.fields[name].prepare(self.subject)

    def result(self, kind: Any) -> Any:
        """Return a result of that class, whose fields are found when one is asked for."""
        meta = self.subject._meta
        found = _late(kind)(meta.app_label, meta.model_name, self.subject.pk, 0)
        found._object, found._fields = self.subject, self._all_fields
        return found

    def _all_fields(self) -> dict[str, Any]:
        fields = self.index.full_prepare(self.subject)
        return {name: fields[name] for name in self.index.fields if name in fields}


@cache
def _late(kind: Any) -> Any:
    """Return a class of results with its fields to come: a page of goods asks for none."""

    class Late(kind):
        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            self.__dict__.update(self.__dict__.pop("_fields", dict)())
            return self.__dict__.get(name)

    return Late


def _objects(models: Iterable[Any] | None) -> Iterable[_Indexed]:
    indexed = connections["default"].get_unified_index()
    for model in models or indexed.get_indexed_models():
        index = indexed.get_index(model)
        for subject in index.read_queryset().order_by("pk"):
            yield _Indexed(index, subject)


def _fits(one: _Indexed, query: SearchNode) -> bool:
    if not query:
        return True
    parts = (
        _fits(one, child) if isinstance(child, SearchNode) else _holds(one, *child)
        for child in query.children
    )
    found = any(parts) if query.connector == "OR" else all(parts)
    return found != query.negated


def _holds(one: _Indexed, name: str, wanted: Any) -> bool:
    """Return whether a field fulfils a condition such as `category__in`."""
    field, _, kind = name.partition("__")
    if field in (DJANGO_CT, DJANGO_ID) or field not in {*one.index.fields, "content"}:
        return field in (DJANGO_CT, DJANGO_ID)
    value = one.value(field)
    if hasattr(wanted, "query_string"):  # what a person typed: all its words
        words = str(wanted.query_string).casefold().split()
        return all(word.strip('"') in str(value).casefold() for word in words)
    if kind == "in":
        held = value if isinstance(value, list) else [value]
        return not {str(some) for some in held}.isdisjoint(str(some) for some in wanted)
    if isinstance(value, bool):
        return str(value).lower() == str(wanted).lower()
    if kind in ("exact", "iexact"):
        return str(value).casefold() == str(wanted).casefold()
    return str(wanted).casefold() in str(value).casefold()


def _order(value: Any) -> tuple[bool, Any]:
    return (value is not None, value.casefold() if isinstance(value, str) else value)


class DatabaseSearchQuery(BaseSearchQuery):
    """A query as the tree of its conditions; the pages of its results are searched once."""

    def __init__(self, using: str = DEFAULT_ALIAS) -> None:
        super().__init__(using)
        self._found: list[_Indexed] = []

    def build_query(self) -> SearchNode:
        return self.query_filter

    def build_params(self, spelling_query: Any = None) -> dict[str, Any]:
        return {**super().build_params(spelling_query), "found": self._found}


class DatabaseSearchEngine(BaseEngine):
    """What Haystack asks for."""

    backend = DatabaseSearchBackend
    query = DatabaseSearchQuery
