"""A shell that persists within a sandbox: folder, variables, functions live on between commands.

One bash process serves all commands of an episode, so a command costs what it does itself. What it
writes to stdout and stderr comes back as one text, in the order of writing. After each command the
shell tells its own state, so that it can be compared, saved, and taken up by another shell; jobs in
the background are no part of it. A command that takes too long, or ends the shell, costs the state:
a new shell begins in the same folder, with the same variables as before the command.
"""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass, replace

from palaestra.core.errors import MissingSystemPart
from palaestra.safety.sandbox import WORK, Ended, Program, Sandbox

LIFE = 3600.0  # seconds that a shell lives at most
CUT = 4_000  # characters of an output that are kept from either end
LINES = 100_000  # of one output that are kept at most
FLOOD = 8 * 2**20  # bytes that may wait to be read, before the shell is ended
COMMAND = ("bash", "--noprofile", "--norc")
STATE = "declare -p; declare -f; alias; pwd"
VOLATILE = re.compile(
    r"^declare -[-A-Za-z]+ (?:_|BASH\w*|COLUMNS|DIRSTACK|EPOCH\w*|EUID|FUNCNAME|GROUPS|HISTCMD|"
    r"LINENO|LINES|OLDPWD|PIPESTATUS|PPID|PWD|RANDOM|SECONDS|SHELLOPTS|SHLVL|SRANDOM|UID)(?:=|$)"
)
"""Variables that the shell itself keeps."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a shell is, and what was defined in it."""

    folder: str = WORK  # as programs inside are told it, whatever the sandbox calls it
    defined: str = ""  # in the shell's own language

    def __str__(self) -> str:
        return f"{self.folder}\n{self.defined}"


@dataclass(frozen=True, slots=True)
class Replied:
    """What came of a command."""

    output: str  # stdout and stderr; cut in the middle where it is long
    code: int | None  # None: it was stopped, or ended the shell
    ended: Ended = Ended.EXIT  # why, where it was stopped


class Shell:
    """One shell; it starts with its first command, and again after it was lost."""

    def __init__(self, sandbox: Sandbox, *, seconds: float = 10.0) -> None:
        """`seconds` is for each command."""
        self.sandbox, self.seconds = sandbox, seconds
        self.place = Place()
        self._program: Program | None = None
        self._root = WORK  # as this sandbox calls its work folder
        self._works = False  # whether one has ever begun
        self._usual: frozenset[str] = frozenset()  # what every shell here defines

    def run(self, command: str) -> Replied:
        """Run a command, which may be of several lines.

        Raises:
            MissingSystemPart: the sandbox has no bash.
        """
        try:
            if self._program is None:
                self._start()
            output, code = self._asked(command, self.seconds)
        except TimeoutError:
            return self._lost(Ended.SECONDS)
        except (EOFError, BrokenPipeError):
            return self._lost(None)
        return Replied(self._named(output), code)

    def go(self, place: Place) -> None:
        """Be as a shell was, in a new one."""
        self.close()
        self.place = place

    def close(self) -> None:
        """End the shell and everything that it started; the sandbox stays."""
        if self._program is not None:
            self._program.close()
        self._program = None

    # ── details ──────────────────────────────────────────────────────────────

    def _start(self) -> None:
        limits = self.sandbox.settings.limits
        life = replace(limits, seconds=LIFE, cpu_seconds=LIFE, output_bytes=FLOOD)
        self._program = self.sandbox.start(COMMAND, limits=life)
        wanted, self._root, self._usual = self.place, WORK, frozenset()
        try:
            self._asked('unset OLDPWD; export HOME="$PWD"', self.seconds)
            self._works = True
            self._root = self.place.folder
            self._usual = frozenset(self.place.defined.splitlines())
            self.place = Place()
            if wanted != self.place:
                self._asked(wanted.defined, self.seconds)
                inside = self._root + wanted.folder.removeprefix(WORK)
                self._asked(f"cd -- {_quoted(inside)}", self.seconds)
        except (EOFError, BrokenPipeError, TimeoutError):
            self.place = wanted
            if self._works:
                raise
            self.close()
            raise MissingSystemPart(
                f"In the sandbox '{self.sandbox.name}' bash does not run, which this needs; "
                "use the kind 'bubblewrap', and install bash."
            ) from None

    def _asked(self, command: str, seconds: float) -> tuple[str, int]:
        """What a command wrote and its code; the place is taken down.

        Raises:
            TimeoutError: it takes longer.
            EOFError, BrokenPipeError: the shell has ended.
        """
        assert self._program is not None
        mark = secrets.token_hex(16)
        self._program.send(
            f"eval {_quoted(command)} </dev/null 2>&1; "
            f"printf '\\n{mark} %s\\n' $?; {{ {STATE}; }} 2>/dev/null; printf '{mark}\\n'"
        )
        until = time.monotonic() + seconds
        head, code = self._lines(mark, until)
        state, _ = self._lines(mark, until)
        self._take_down(state)
        return "\n".join(head).removesuffix("\n"), int(code or 0)

    def _lines(self, mark: str, until: float) -> tuple[list[str], str]:
        """The lines before the mark, and what stands behind it."""
        assert self._program is not None
        found: list[str] = []
        while True:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError  # also where lines come without end
            line = self._program.receive(left)
            if line.startswith(mark):
                return found, line.removeprefix(mark).strip()
            if len(found) < LINES:
                found.append(line)

    def _take_down(self, state: list[str]) -> None:
        *defined, folder = state
        kept = [line for line in defined if line not in self._usual and not VOLATILE.match(line)]
        self.place = Place(self._named(folder), "\n".join(kept))

    def _named(self, text: str) -> str:
        """With the work folder as programs are told it, and cut where it is long."""
        if self._root != WORK:
            text = text.replace(self._root, WORK)
        return text if len(text) <= 2 * CUT else f"{text[:CUT]}\n…\n{text[-CUT:]}"

    def _lost(self, ended: Ended | None) -> Replied:
        assert self._program is not None
        ran = self._program.close()
        self._program = None
        why = ended or ran.ended
        words = {Ended.SECONDS: f"Stopped after {self.seconds:g} s", Ended.EXIT: "The shell ended"}
        told = words.get(why, f"The shell was ended (limit: {why})")
        return Replied(f"{told}; a new one begins in {self.place.folder}.", None, why)


def _quoted(text: str) -> str:
    """The text as one word of bash on one line, whatever is in it."""
    plain = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"$'{plain}'".replace("\r", "\\r")
