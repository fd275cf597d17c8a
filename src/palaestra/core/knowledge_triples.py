"""Triples: what a document says, checked against a knowledge file before the file takes it.

An extractor writes down a document in one line. Its parts are those that the entries of the file
say, of which the last one is the subject, and signs:

    department: pulmonology; diagnosis: asthma; sign-1: wheezing; sign-2: cough at night

These are the triples (asthma, department, pulmonology), (asthma, sign, wheezing) and (asthma, sign,
cough at night). A subject may have many signs, and one object of each other relation. In the file
the signs are an entry's phrases.
Source: Zuo et al. 2024 (KG4Diagnosis: entities and relations extracted into a graph of diseases).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from palaestra.core.errors import InputError
from palaestra.core.knowledge_file import Entry

SIGN = "sign"


class Triple(NamedTuple):
    """One statement of a document."""

    subject: str
    relation: str
    object: str


def relations_of(entries: Sequence[Entry]) -> tuple[str, ...]:
    """Return the parts that all entries say, in their order; the last one is the subject.

    Raises:
        InputError: entries say other things than parts, or different ones.
    """
    first = tuple(dict(_parts(entries[0].say)))
    for entry in entries:
        if len(first) < 2 or tuple(dict(_parts(entry.say))) != first:
            raise InputError(
                f"The entry '{entry.say}' does not say the parts of the first one; write all "
                "entries such as 'department: …; diagnosis: …'."
            )
    return first


def triples_in(text: str, relations: Sequence[str]) -> list[Triple]:
    """Return the triples of a line about the subject that it names; empty if it names none."""
    subject = dict(_parts(text)).get(relations[-1], "")
    return [
        Triple(subject, relation, value)
        for relation, value in _parts(text)
        if subject and value and relation != relations[-1]
    ]


def refusal(text: str, entries: Sequence[Entry]) -> str | None:
    """Return why a file does not take what a line says; None: it does.

    That is a relation that the file does not know, a part that is missing or said twice, or a
    contradiction: the file says something else of the same subject.
    """
    relations = relations_of(entries)
    *others, named = relations
    parts = _parts(text)
    for relation, _ in parts:
        if relation not in (*relations, SIGN):
            known = ", ".join((*relations, SIGN))
            return f"'{relation}' is no relation of the file; use {known}."
    for relation in (*relations, SIGN):
        values = {_plain(value) for name, value in parts if name == relation and value}
        if not values:
            return f"{relation} is missing."
        if len(values) > 1 and relation != SIGN:
            return f"{relation} is said twice; say one."
    given = dict(parts)
    for entry in entries:
        known_parts = dict(_parts(entry.say))
        if _plain(known_parts[named]) != _plain(given[named]):
            continue
        for relation in others:
            if _plain(known_parts[relation]) != _plain(given[relation]):
                return (
                    f"{relation}; the file says {known_parts[relation]} of {given[named]}, not "
                    f"{given[relation]}."
                )
    return None


def added(entries: Sequence[Entry], text: str) -> list[Entry]:
    """Return the entries with what a line says, which `refusal` has not refused.

    The signs of a subject that the file knows join its entry.
    """
    relations = relations_of(entries)
    triples = triples_in(text, relations)
    signs = [one.object for one in triples if one.relation == SIGN]
    subject, found = triples[0].subject, list(entries)
    for place, entry in enumerate(found):
        if _plain(dict(_parts(entry.say))[relations[-1]]) == _plain(subject):
            known = {_plain(sign) for sign in entry.when}
            new = [sign for sign in signs if _plain(sign) not in known]
            found[place] = Entry((*entry.when, *new), entry.say)
            return found
    said = {**{one.relation: one.object for one in triples}, relations[-1]: subject}
    say = "; ".join(f"{relation}: {said[relation]}" for relation in relations)
    return [*found, Entry(tuple(dict.fromkeys(signs)), say)]


def file_text(entries: Sequence[Entry]) -> str:
    """Return a knowledge file with these entries (strings of JSON are strings of TOML)."""
    tables = [
        f"[[entry]]\nwhen = {json.dumps(entry.when, ensure_ascii=False)}\n"
        f"say = {json.dumps(entry.say, ensure_ascii=False)}\n"
        for entry in entries
    ]
    return "".join(tables)


def _parts(text: str) -> list[tuple[str, str]]:
    """Return relation and object of each part of a line; several signs are numbered."""
    found = []
    for part in re.split(r"; |\n", text.strip()):
        key, _, value = part.partition(":")
        relation = re.sub(rf"^{SIGN}-\d+$", SIGN, key.strip().casefold())
        found.append((relation, value.strip().rstrip(";")))
    return found


def _plain(text: str) -> str:
    """Return a value as it is compared with others: without case, spaces and end marks."""
    return " ".join(text.casefold().split()).strip(" .")
