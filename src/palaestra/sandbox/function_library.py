"""A library of functions that agents wrote: versioned, tested, and reused in later episodes.

Source: Nguyen et al. 2024 (DynaSaur: actions that an agent writes are kept), Qiu et al. 2025
(Alita: a tool is tested before it is kept). A version is a source and a test, identified by their
hash; its parent is the version of the same name that it replaces. The library is append-only. The
first prompt of an episode lists the versions it uses, so an interrupted episode is replayed with
the same versions (`Session.first_recorded_call`), even if the library has changed.
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

VERSION_COMMENT = re.compile(r"  # version ([0-9a-f]{12})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Function:
    """One version of a function."""

    name: str
    source: str  # with its imports and helpers
    test: str  # assertions, which have passed
    parent: str | None = None  # the version that it replaces

    @property
    def version(self) -> str:
        """Return the hash of name, source and test: equal functions have equal versions."""
        text = json.dumps([self.name, self.source, self.test])
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def signature(self) -> str:
        """Return its signature, the first line of its docstring, and its version, on one line."""
        found = definition(self.source, self.name)
        arguments = ast.unparse(found.args) if found else "…"
        summary = ((found and ast.get_docstring(found)) or "").partition("\n")[0]
        docstring = f'  """{summary}"""' if summary else ""
        return f"{self.name}({arguments}){docstring}  # version {self.version}"


class Library:
    """A file of function versions, in the order in which they were added."""

    def __init__(self, file: str | Path) -> None:
        """Open the file; raises InputError if its folder is missing, or it is not a library."""
        self._file = Path(file).expanduser()
        if not self._file.absolute().parent.is_dir():
            raise InputError(f"library={file}: its folder does not exist; create it first.")
        self.versions()

    def versions(self) -> list[Function]:
        """Return all versions, the oldest first."""
        if not self._file.exists():
            return []
        try:
            lines = self._file.read_text(encoding="utf-8").splitlines()
            return [Function(**json.loads(line)) for line in lines]
        except (OSError, ValueError, TypeError) as error:
            raise InputError(
                f"library={self._file} is not a library ({error}); name another file."
            ) from None

    def latest(self) -> list[Function]:
        """Return the newest version of each name."""
        return list({function.name: function for function in self.versions()}.values())

    def with_versions(self, versions: Iterable[str]) -> list[Function]:
        """Return the functions of these versions, in that order.

        Raises:
            InputError: a version is missing, so this is a different library.
        """
        known = {function.version: function for function in self.versions()}
        wanted = list(versions)
        for version in wanted:
            if version not in known:
                raise InputError(
                    f"The library {self._file} has no version {version}, which an interrupted "
                    "episode uses; give the library with which the episode began."
                )
        return [known[version] for version in wanted]

    def keep(self, name: str, source: str, test: str) -> Function:
        """Add a version that has passed its test, unless it exists."""
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


def last_function(cell: str) -> tuple[str, str] | None:
    """Return the name of the function that a cell defines last, and the source to keep.

    The source is all imports and definitions of the cell. Returns None if the cell defines no
    function or is not Python.
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
    """Return whether a test asserts something about that function."""
    try:
        asserts = [node for node in ast.walk(ast.parse(test)) if isinstance(node, ast.Assert)]
    except (SyntaxError, ValueError):
        return False
    used = (part for one in asserts for part in ast.walk(one.test))
    return any(isinstance(part, ast.Name) and part.id == name for part in used)


def definition(source: str, name: str) -> ast.FunctionDef | None:
    """Return the definition of that name in a source, without executing it."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    return None
