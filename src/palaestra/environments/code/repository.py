"""The repository world: bugs in small real packages, to be found and mended with a shell.

Ids: `repository/NAME` for each package of `packages.py` (one bug, and an example of what it does),
`repository/NAME-hard` (three bugs), `repository/mixed` and `repository/mixed-hard`. After SWE-bench
(Jimenez et al. 2024) and SWE-smith (Yang et al. 2025); the bugs are those of `mutation.py`, each
verified: the hidden tests fail with it. No place of a bug belongs to two splits.

Tests and the original live outside: the sandbox shows neither, nor what is installed beside the
Python that runs inside. What the system itself has under `/usr`, which may hold another version of
a package, is seen (and by an `unsafe` sandbox all of this machine). Progress is the share of
failing tests that pass again, less those that were broken meanwhile.
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
from palaestra.environments.code.challenge import Challenge
from palaestra.environments.code.examiner import Examiner, expressions, sources
from palaestra.environments.code.folder import Entry, rebuilt
from palaestra.environments.code.folder_world import HOW, SUBMIT, FolderWorld
from palaestra.environments.code.mutation import Mutation, mutated
from palaestra.environments.code.packages import PACKAGES
from palaestra.safety.interpreter import PYTHON
from palaestra.safety.opening import open_sandbox
from palaestra.safety.sandbox import WORK, Mount, Settings

HARD, MANY = "-hard", 3  # bugs of a hard task
REMEMBERED = 256  # tasks of this process
SHOWN = 160  # characters of an example in the task's words
EDIT = re.compile(r"edit (\S+)\n<{7}[^\n]*\n(.*?)\n?={7}\n(.*?)\n?>{7}", re.DOTALL)
HOW_TO_EDIT = (
    "Besides commands there is one more action, which replaces text that occurs once in a file:\n"
    "edit PATH\n<<<<<<<\nold lines\n=======\nnew lines\n>>>>>>>"
)
PLACES: dict[str, list[tuple[str, Mutation]]] = {}  # package to where bugs can be, once known
BROKEN: dict[tuple[str, Split, int, bool], Broken] = {}


@dataclass(frozen=True, slots=True)
class Broken:
    """A package with bugs in it."""

    package: str
    bugs: tuple[tuple[str, Mutation], ...]
    files: dict[str, str]
    given: tuple[str, ...]  # what its expressions give

    def failing(self, sound: Sequence[str]) -> list[int]:
        """Numbers of the hidden tests that fail."""
        return [
            n for n, (one, right) in enumerate(zip(self.given, sound, strict=True)) if one != right
        ]


class Repository(FolderWorld):
    """Packages with bugs."""

    _examiner: Examiner | None = None
    _nothing: tempfile.TemporaryDirectory[str] | None = None

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._known: dict[int, float] = {}  # share by what the package is

    @classmethod
    def names(cls) -> list[str]:
        return [name + level for name in [*PACKAGES, "mixed"] for level in ("", HARD)]

    @property
    def instructions(self) -> str:
        return f"You mend Python packages, with a shell. {HOW}\n{HOW_TO_EDIT}"

    @property
    def typical_turns(self) -> int:
        return 20

    def settings(self) -> Settings:
        """Without what is installed beside the Python that runs inside."""
        usual = super().settings()
        if all(mount.inside != PYTHON for mount in usual.mounts):
            return usual
        self._nothing = self._nothing or tempfile.TemporaryDirectory(prefix="palaestra-nothing-")
        library = f"lib/python{sysconfig.get_python_version()}"
        masks = [
            Mount(Path(self._nothing.name), f"{PYTHON}/{library}/{part}")
            for part in ("site-packages", "ensurepip/_bundled")
            if (Path(sys.base_prefix) / library / part).is_dir()
        ]
        return replace(usual, mounts=(*usual.mounts, *masks))

    def challenge(self, task: Task) -> Challenge:
        dice = random.Random(f"repository {self.kind} {task.seed}")
        name = self.kind.removesuffix(HARD)
        name = dice.choice(sorted(PACKAGES)) if name == "mixed" else name
        key = (name, task.split, task.seed, self.kind.endswith(HARD))
        examiner = self._examined(name)
        if key not in BROKEN:
            if len(BROKEN) >= REMEMBERED:
                BROKEN.pop(next(iter(BROKEN)))
            BROKEN[key] = broken(examiner, task.split, dice, MANY if key[3] else 1)
        self._broken = BROKEN[key]
        self._known.clear()
        sound, given = examiner.sound(), self._broken.given
        shown = min(self._broken.failing(sound), key=lambda n: len(expressions(name)[n] + sound[n]))
        mistakes = f"{len(self._broken.bugs)} mistakes" if key[3] else "a mistake"
        words = (
            f"The folder {name} holds a Python package with {mistakes} in it. For example, after\n"
            f"{examiner.package.setup.strip()}\n"
            f"the expression {expressions(name)[shown]} gives:\n{_short(given[shown])}\n"
            f"and should give:\n{_short(sound[shown])}\n"
            "Mend the package, so that all works as it did before; hidden tests will judge it."
        )
        files = {path: source.encode() for path, source in self._broken.files.items()}
        return Challenge(words, files, ())

    def graded(self) -> float:
        """The share of failing tests that pass now, less those that fail now and did not."""
        assert self._examiner is not None
        tops = {path.partition("/")[0] for path in self._broken.files}
        files = {
            path: entry.data.decode(errors="replace")
            for path, entry in self.folder.items()
            if path.endswith(".py") and path.partition("/")[0] in tops
        }
        key = hash(frozenset(files.items()))
        if key not in self._known:
            sound = self._examiner.sound()
            now = self._broken.given
            if files != self._broken.files:
                now = self._examiner.given(files)
            self._known[key] = mended(set(self._broken.failing(sound)), now, sound)
        return self._known[key]

    def edited(self, command: str) -> str | None:
        """Replace text that occurs once in a file of the folder."""
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
        """Put each changed line back; where a file is not as it was, the whole of it."""
        self._running()
        if self._over:
            return []
        original, way = sources(self._broken.package), []
        for path in sorted(original) if self._share < 1.0 else ():
            entry = self.folder.get(path)
            now = entry.data.decode(errors="replace") if entry else None
            if now == self._broken.files[path]:
                bugs = [bug for where, bug in self._broken.bugs if where == path]
                way += [_change(path, bug.line, now, original[path]) for bug in bugs]
            elif now != original[path]:
                way.append(rebuilt(path, Entry(original[path].encode(), 0o644)))
        assert self._shell is not None
        back = ["cd"] if way and self._shell.place.folder != WORK else []
        return [Action(command) for command in (*back, *way, SUBMIT)]

    def close(self) -> None:
        super().close()
        if self._nothing is not None:
            self._nothing.cleanup()
        self._nothing = None

    def _examined(self, package: str) -> Examiner:
        if self._examiner is None or self._examiner.package.name != package:
            self._examiner = Examiner(
                PACKAGES[package], lambda: open_sandbox(self._sandbox_kind, self.settings())
            )
        return self._examiner


def broken(examiner: Examiner, split: Split, dice: random.Random, many: int) -> Broken:
    """A package with bugs of that split, each of which some hidden test finds."""
    name, original, sound = examiner.package.name, sources(examiner.package.name), examiner.sound()
    if name not in PLACES:
        PLACES[name] = examiner.sites()
    places = [place for place in PLACES[name] if _split(place) is split]
    dice.shuffle(places)
    bugs: list[tuple[str, Mutation]] = []
    for path, bug in places:
        if any(path == other and bug.line == known.line for other, known in bugs):
            continue
        given = examiner.given({**original, path: mutated(original[path], bug)})
        if given == sound or given[0].endswith("on import"):
            continue  # nobody would notice, or everybody at once
        bugs.append((path, bug))
        if len(bugs) < many:
            continue
        files = dict(original)
        for where, one in bugs:
            files[where] = mutated(files[where], one)
        found = Broken(name, tuple(bugs), files, examiner.given(files))
        if _rises(examiner, found):
            return found
        bugs.pop()  # they hide each other
    raise EnvironmentFault("reset", f"no {many} bugs of the split '{split}' can be put in '{name}'")


def _rises(examiner: Examiner, found: Broken) -> bool:
    """Whether each bug that is mended, in the oracle's order, leaves less to do, or no more."""
    original, sound, files = sources(found.package), examiner.sound(), dict(found.files)
    failed = set(found.failing(sound))
    last = 0.0
    for path, bug in sorted(found.bugs, key=lambda place: place[0])[:-1] if failed else ():
        lines = files[path].splitlines(keepends=True)
        lines[bug.line - 1] = original[path].splitlines(keepends=True)[bug.line - 1]
        files[path] = "".join(lines)
        share = mended(failed, examiner.given(files), sound)
        if share < last or share >= 1.0:
            return False
        last = share
    return bool(failed)


def mended(failed: set[int], now: Sequence[str], sound: Sequence[str]) -> float:
    """The share of failed tests that pass now, less those that fail now and did not."""
    wrong = {n for n, (one, right) in enumerate(zip(now, sound, strict=True)) if one != right}
    return max(0.0, (len(failed - wrong) - len(wrong - failed)) / len(failed))


def _split(place: tuple[str, Mutation]) -> Split:
    """Which split a place belongs to: one in five each is kept for validation and for test."""
    path, bug = place
    number = zlib.crc32(f"{path}:{bug.line}".encode()) % 5
    return (Split.VALIDATION, Split.TEST)[number] if number < 2 else Split.TRAIN


def _change(path: str, line: int, now: str, wanted: str) -> str:
    """A command that changes one line of a file."""
    old, new = now.splitlines()[line - 1], wanted.splitlines()[line - 1]
    pattern = re.sub(r"([][\\.*^$/])", r"\\\1", old)
    instead = re.sub(r"([\\&/])", r"\\\1", new)
    return f"sed -i {shlex.quote(f'{line}s/^{pattern}$/{instead}/')} {shlex.quote(path)}"


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else text[:SHOWN] + " …"
