"""Knowledge files: what is known of a subject, as entries that people read and extend.

    [[entry]]
    when = ["wheezing", "cough at night"]
    say = "department: pulmonology; diagnosis: asthma"

`palaestra.core.knowledge` has the files that come with palaestra.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from palaestra.core.errors import InputError, UnknownName

BUNDLED = files("palaestra.core") / "knowledge"


@dataclass(frozen=True, slots=True)
class Entry:
    """One piece of knowledge, and the phrases that call for it."""

    when: tuple[str, ...]
    say: str

    def matches(self, text: str) -> int:
        """Return how many of its phrases are in a text, in any case of letters."""
        lower = text.casefold()
        return sum(phrase.casefold() in lower for phrase in self.when)


def load_entries(name: str) -> list[Entry]:
    """Return the entries of a bundled file by its name, or of a TOML file.

    Raises:
        UnknownName: there is no such file.
        InputError: the file cannot be used.
    """
    bundled, path = BUNDLED / f"{name}.toml", Path(name)
    if bundled.is_file():
        text = bundled.read_text(encoding="utf-8")
    elif path.is_file():
        text = path.read_text(encoding="utf-8", errors="replace")
    else:
        known = [one.name.removesuffix(".toml") for one in BUNDLED.iterdir()]
        raise UnknownName("knowledge file", name, known)
    try:
        read = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"The file '{name}' is no TOML: {error}; correct it.") from None
    entries = read.get("entry")
    if set(read) != {"entry"} or not isinstance(entries, list) or not entries:
        raise InputError(f"The file '{name}' must consist of [[entry]] tables; write at least one.")
    return [_entry(name, number, one) for number, one in enumerate(entries, 1)]


def best_entries(entries: list[Entry], text: str) -> list[Entry]:
    """Return the entries with the most phrases in a text, if at least half of theirs are there."""
    counts = [entry.matches(text) for entry in entries]
    most = max(counts)
    return [
        entry
        for entry, count in zip(entries, counts, strict=True)
        if count == most and 2 * count >= len(entry.when)
    ]


def _entry(name: str, number: int, table: object) -> Entry:
    match table:
        case {"when": [str(), *_] as when, "say": str(say), **rest} if not rest and say.strip():
            if all(isinstance(phrase, str) and phrase.strip() for phrase in when):
                return Entry(tuple(when), say)
    raise InputError(
        f"Entry {number} of the file '{name}' is none; give it `when`, a list of phrases, and `say`"
        ", a text."
    )
