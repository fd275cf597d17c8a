"""A library of functions that agents wrote: versioned, tested, and used again in later episodes.

Source: Nguyen et al. 2024 (DynaSaur: actions that an agent writes are kept), Qiu et al. 2025
(Alita: a tool is tested before it is kept). A version is its source and its test, named by their
hash, and knows its parent, the version of the same name that it replaces. Versions are only ever
added. An episode tells in its first prompt which versions it knows, so one that was cut off is
lived again with the same ones (`Session.begun`), whatever the library holds by now.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from palaestra.core.errors import InputError

TELLS = re.compile(r"  # version ([0-9a-f]{12})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Function:
    """One version of a function."""

    name: str
    source: str  # with the imports and helpers that were written with it
    test: str  # asserts that it passed
    parent: str | None = None  # the version that it replaces

    @property
    def version(self) -> str:
        """Of source and test alone: equal functions have equal versions."""
        text = json.dumps([self.name, self.source, self.test])
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def told(self) -> str:
        """Its head, what it says of itself, and its version, on one line."""
        found = definition(self.source, self.name)
        head = ast.unparse(found.args) if found else "…"
        words = ((found and ast.get_docstring(found)) or "").partition("\n")[0]
        said = f'  """{words}"""' if words else ""
        return f"{self.name}({head}){said}  # version {self.version}"


class Library:
    """All versions, in the order in which they were kept, in one file."""

    def __init__(self, file: str | Path) -> None:
        """Raises InputError if the file's folder is missing, or it is no library."""
        self._file = Path(file).expanduser()
        if not self._file.absolute().parent.is_dir():
            raise InputError(f"library={file}: its folder does not exist; make it first.")
        self.versions()

    def versions(self) -> list[Function]:
        """Everything that was ever kept, the oldest first."""
        if not self._file.exists():
            return []
        try:
            lines = self._file.read_text(encoding="utf-8").splitlines()
            return [Function(**json.loads(line)) for line in lines]
        except (OSError, ValueError, TypeError) as error:
            raise InputError(
                f"library={self._file} is no library ({error}); name another."
            ) from None

    def latest(self) -> list[Function]:
        """The newest version of each name."""
        return list({function.name: function for function in self.versions()}.values())

    def those(self, versions: Iterable[str]) -> list[Function]:
        """The functions of these versions, in that order.

        Raises:
            InputError: one is not here; the library is not the one that named it.
        """
        known = {function.version: function for function in self.versions()}
        wanted = list(versions)
        for version in wanted:
            if version not in known:
                raise InputError(
                    f"The library {self._file} has no version {version}, which an interrupted "
                    "episode was told of; give the library that it was lived with."
                )
        return [known[version] for version in wanted]

    def keep(self, name: str, source: str, test: str) -> Function:
        """Add a version that has passed its test; one that is there already stays as it is."""
        found = Function(name, source, test)
        versions = self.versions()
        same = next((one for one in versions if one.version == found.version), None)
        if same is not None:
            return same
        parents = [one.version for one in versions if one.name == name]
        found = Function(name, source, test, parents[-1] if parents else None)
        line = (json.dumps(asdict(found)) + "\n").encode()
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(descriptor, line)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return found


def written(cell: str) -> tuple[str, str] | None:
    """The function that a cell defines last, and the source to keep: imports and definitions.

    Returns None where the cell defines none, or is no Python.
    """
    try:
        tree = ast.parse(cell)
    except (SyntaxError, ValueError):
        return None
    kept = [
        node
        for node in tree.body
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef))
    ]
    names = [node.name for node in kept if isinstance(node, ast.FunctionDef)]
    parts = [ast.get_source_segment(cell, node) or "" for node in kept]
    return (names[-1], "\n\n".join(parts)) if names else None


def checks(test: str, name: str) -> bool:
    """Whether a text asserts anything with that function in it."""
    try:
        asserts = [node for node in ast.walk(ast.parse(test)) if isinstance(node, ast.Assert)]
    except (SyntaxError, ValueError):
        return False
    used = (part for one in asserts for part in ast.walk(one.test))
    return any(isinstance(part, ast.Name) and part.id == name for part in used)


def definition(source: str, name: str) -> ast.FunctionDef | None:
    """The definition of that name in a source, without running it."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    return None
