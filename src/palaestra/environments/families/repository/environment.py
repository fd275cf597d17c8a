"""The repository environment: bugs in small real packages, to be found and fixed with a shell.

Ids: `repository/NAME` for each package of `packages.py` (one bug, and an example of its effect),
`repository/NAME-hard` (three bugs), `repository/mixed` and `repository/mixed-hard`. After SWE-bench
(Jimenez et al. 2024) and SWE-smith (Yang et al. 2025). The bugs are mutations (`mutation.py`); each
is verified to fail hidden tests. The splits share no bug sites.

The tests and the original source stay outside: the sandbox shows neither, nor the site-packages of
its Python. The system's `/usr` is visible and may hold another version of a package (an `unsafe`
sandbox sees the whole machine). Progress is the share of failing tests that pass again, less the
tests that were broken meanwhile.
"""

from __future__ import annotations

import random
import re
import shlex
import sys
import sysconfig
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from palaestra.core.environment import Action
from palaestra.core.errors import EnvironmentFault, InputError
from palaestra.core.task import Split, Task
from palaestra.environments.families.repository.examiner import Examiner, expressions, sources
from palaestra.environments.families.repository.packages import PACKAGES
from palaestra.environments.shared.challenge import Challenge
from palaestra.environments.shared.folder_archive import Entry, restore_command
from palaestra.environments.shared.folder_environment import HOW, SUBMIT, FolderEnvironment
from palaestra.environments.shared.mutation import Mutation, mutated
from palaestra.sandbox.base import WORK, Mount, Settings
from palaestra.sandbox.factory import open_sandbox
from palaestra.sandbox.interpreter import PYTHON

HARD, MANY = "-hard", 3  # number of bugs in a hard task
REMEMBERED = 256  # tasks cached in this process
SHOWN = 160  # characters of an example in the instruction
EDIT = re.compile(r"edit (\S+)\n<{7}[^\n]*\n(.*?)\n?={7}\n(.*?)\n?>{7}", re.DOTALL)
HOW_TO_EDIT = (
    "Besides commands there is one more action, which replaces text that occurs once in a file:\n"
    "edit PATH\n<<<<<<<\nold lines\n=======\nnew lines\n>>>>>>>"
)
SITES: dict[str, list[tuple[str, Mutation]]] = {}  # cache of possible bugs by package
BROKEN: dict[tuple[str, Split, int, bool], Broken] = {}


@dataclass(frozen=True, slots=True)
class Broken:
    """A package with bugs in it."""

    package: str
    bugs: tuple[tuple[str, Mutation], ...]
    files: dict[str, str]
    results: tuple[str, ...]  # of its expressions

    def failing(self, expected: Sequence[str]) -> list[int]:
        """Return the numbers of the hidden tests that fail."""
        pairs = zip(self.results, expected, strict=True)
        return [number for number, (result, right) in enumerate(pairs) if result != right]


class Repository(FolderEnvironment, id="repository", typical_turns=20):
    """A package with bugs, in a sandbox with a shell."""

    _examiner: Examiner | None = None
    _empty: tempfile.TemporaryDirectory[str] | None = None

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._known: dict[int, float] = {}  # cache of progress by a hash of the package

    @classmethod
    def names(cls) -> list[str]:
        return [name + level for name in [*PACKAGES, "mixed"] for level in ("", HARD)]

    @property
    def instructions(self) -> str:
        return f"You mend Python packages, with a shell. {HOW}\n{HOW_TO_EDIT}"

    def settings(self) -> Settings:
        """Hide the site-packages of the Python that runs inside."""
        usual = super().settings()
        if all(mount.inside != PYTHON for mount in usual.mounts):
            return usual
        self._empty = self._empty or tempfile.TemporaryDirectory(prefix="palaestra-nothing-")
        library = f"lib/python{sysconfig.get_python_version()}"
        masks = [
            Mount(Path(self._empty.name), f"{PYTHON}/{library}/{part}")
            for part in ("site-packages", "ensurepip/_bundled")
            if (Path(sys.base_prefix) / library / part).is_dir()
        ]
        return replace(usual, mounts=(*usual.mounts, *masks))

    def challenge(self, task: Task) -> Challenge:
        rng = random.Random(f"repository {self.kind} {task.seed}")
        name = self.kind.removesuffix(HARD)
        name = rng.choice(sorted(PACKAGES)) if name == "mixed" else name
        key = (name, task.split, task.seed, self.kind.endswith(HARD))
        examiner = self._examiner_of(name)
        if key not in BROKEN:
            if len(BROKEN) >= REMEMBERED:
                BROKEN.pop(next(iter(BROKEN)))
            BROKEN[key] = broken(examiner, task.split, rng, MANY if key[3] else 1)
        self._broken = BROKEN[key]
        self._known.clear()
        expected, results = examiner.expected(), self._broken.results
        shown = min(
            self._broken.failing(expected),
            key=lambda number: len(expressions(name)[number] + expected[number]),
        )
        mistakes = f"{len(self._broken.bugs)} mistakes" if key[3] else "a mistake"
        words = (
            f"The folder {name} holds a Python package with {mistakes} in it. For example, after\n"
            f"{examiner.package.setup.strip()}\n"
            f"the expression {expressions(name)[shown]} gives:\n{_short(results[shown])}\n"
            f"and should give:\n{_short(expected[shown])}\n"
            "Mend the package, so that all works as it did before; hidden tests will judge it."
        )
        files = {path: source.encode() for path, source in self._broken.files.items()}
        return Challenge(words, files, ())

    def graded(self) -> float:
        """Return the share of failing tests that pass now, less the tests broken meanwhile."""
        assert self._examiner is not None
        tops = {path.partition("/")[0] for path in self._broken.files}
        files = {
            path: entry.data.decode(errors="replace")
            for path, entry in self.folder.items()
            if path.endswith(".py") and path.partition("/")[0] in tops
        }
        key = hash(frozenset(files.items()))
        if key not in self._known:
            expected = self._examiner.expected()
            now = self._broken.results
            if files != self._broken.files:
                now = self._examiner.results(files)
            self._known[key] = fixed_share(set(self._broken.failing(expected)), now, expected)
        return self._known[key]

    def edited(self, command: str) -> str | None:
        """Run an edit action, which replaces text that occurs once in a file; None if not one."""
        found = EDIT.fullmatch(command)
        if found is None or self._sandbox is None:
            return None
        path, old, new = found.groups()
        try:
            text = self._sandbox.read(path).decode(errors="replace")
            if text.count(old) != 1:
                return f"The old text occurs {text.count(old)} times in {path}; it must occur once."
            self._sandbox.write(path, text.replace(old, new).encode())
        except InputError as error:
            return str(error)
        return f"Edited {path}."

    def oracle(self) -> Sequence[Action]:
        """Return commands that restore each mutated line, or whole files that were edited."""
        self._running()
        if self._over:
            return []
        original, plan = sources(self._broken.package), []
        for path in sorted(original) if self._share < 1.0 else ():
            entry = self.folder.get(path)
            now = entry.data.decode(errors="replace") if entry else None
            if now == self._broken.files[path]:
                bugs = [bug for where, bug in self._broken.bugs if where == path]
                plan += [_change(path, bug.line, now, original[path]) for bug in bugs]
            elif now != original[path]:
                plan.append(restore_command(path, Entry(original[path].encode(), 0o644)))
        assert self._shell is not None
        back = ["cd"] if plan and self._shell.state.folder != WORK else []
        return [Action(command) for command in (*back, *plan, SUBMIT)]

    def close(self) -> None:
        super().close()
        if self._empty is not None:
            self._empty.cleanup()
        self._empty = None

    def _examiner_of(self, package: str) -> Examiner:
        if self._examiner is None or self._examiner.package.name != package:
            self._examiner = Examiner(
                PACKAGES[package], lambda: open_sandbox(self._sandbox_kind, self.settings())
            )
        return self._examiner


def broken(examiner: Examiner, split: Split, rng: random.Random, many: int) -> Broken:
    """Sample a package with `many` bugs of that split, each of which fails a hidden test.

    Raises:
        EnvironmentFault: the split has too few such bugs.
    """
    name, expected = examiner.package.name, examiner.expected()
    original = sources(name)
    if name not in SITES:
        SITES[name] = examiner.sites()
    sites = [site for site in SITES[name] if _split(site) is split]
    rng.shuffle(sites)
    bugs: list[tuple[str, Mutation]] = []
    for path, bug in sites:
        if any(path == other and bug.line == known.line for other, known in bugs):
            continue
        results = examiner.results({**original, path: mutated(original[path], bug)})
        if results == expected or results[0].endswith("on import"):
            continue  # no test fails, or the import does
        bugs.append((path, bug))
        if len(bugs) < many:
            continue
        files = dict(original)
        for where, chosen in bugs:
            files[where] = mutated(files[where], chosen)
        found = Broken(name, tuple(bugs), files, examiner.results(files))
        if _rises(examiner, found):
            return found
        bugs.pop()  # the bugs mask each other
    raise EnvironmentFault("reset", f"no {many} bugs of the split '{split}' can be put in '{name}'")


def _rises(examiner: Examiner, found: Broken) -> bool:
    """Return whether progress never falls, and stays below 1, as the oracle fixes bug after bug."""
    original, expected, files = sources(found.package), examiner.expected(), dict(found.files)
    failed = set(found.failing(expected))
    last = 0.0
    for path, bug in sorted(found.bugs, key=lambda site: site[0])[:-1] if failed else ():
        lines = files[path].splitlines(keepends=True)
        lines[bug.line - 1] = original[path].splitlines(keepends=True)[bug.line - 1]
        files[path] = "".join(lines)
        share = fixed_share(failed, examiner.results(files), expected)
        if share < last or share >= 1.0:
            return False
        last = share
    return bool(failed)


def fixed_share(failed: set[int], now: Sequence[str], expected: Sequence[str]) -> float:
    """Return the share of failed tests that pass now, less the tests broken meanwhile."""
    pairs = zip(now, expected, strict=True)
    wrong = {number for number, (result, right) in enumerate(pairs) if result != right}
    return max(0.0, (len(failed - wrong) - len(wrong - failed)) / len(failed))


def _split(site: tuple[str, Mutation]) -> Split:
    """Return the split of a bug site: a fifth for validation, a fifth for test."""
    path, bug = site
    number = zlib.crc32(f"{path}:{bug.line}".encode()) % 5
    return (Split.VALIDATION, Split.TEST)[number] if number < 2 else Split.TRAIN


def _change(path: str, line: int, now: str, wanted: str) -> str:
    """Return a command that changes one line of a file."""
    old, new = now.splitlines()[line - 1], wanted.splitlines()[line - 1]
    pattern = re.sub(r"([][\\.*^$/])", r"\\\1", old)
    instead = re.sub(r"([\\&/])", r"\\\1", new)
    return f"sed -i {shlex.quote(f'{line}s/^{pattern}$/{instead}/')} {shlex.quote(path)}"


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else text[:SHOWN] + " …"
