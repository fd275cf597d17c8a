"""A persistent shell in a sandbox: folder, variables and functions persist between commands.

One bash process runs all commands of an episode, so commands have no start-up cost. Its stdout and
stderr are returned as one text, in the order of writing. After each command the shell reports its
state, so that the state can be compared, saved, and restored in another shell; background jobs are
not part of it. A command that takes too long, or ends the shell, loses its changes of the state: a
new shell starts in the same folder, with the same variables as before the command.
"""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass, replace

from palaestra.core.errors import MissingSystemPart
from palaestra.sandbox.base import WORK, Ended, Program, Sandbox

LIFE = 3600.0  # longest lifetime of a shell in seconds
CUT = 4_000  # characters of an output that are kept from either end
LINES = 100_000  # most lines of one output that are kept
FLOOD = 8 * 2**20  # bytes of unread output after which the shell is killed
COMMAND = ("bash", "--noprofile", "--norc")
STATE = "declare -p; declare -f; alias; pwd"
VOLATILE = re.compile(
    r"^declare -[-A-Za-z]+ (?:_|BASH\w*|COLUMNS|DIRSTACK|EPOCH\w*|EUID|FUNCNAME|GROUPS|HISTCMD|"
    r"LINENO|LINES|OLDPWD|PIPESTATUS|PPID|PWD|RANDOM|SECONDS|SHELLOPTS|SHLVL|SRANDOM|UID)(?:=|$)"
)
"""Variables that the shell itself sets."""


@dataclass(frozen=True, slots=True)
class ShellState:
    """A shell's current folder, and what was defined in it."""

    folder: str = WORK  # as seen inside, whatever the sandbox calls it
    defined: str = ""  # definitions in bash's syntax

    def __str__(self) -> str:
        return f"{self.folder}\n{self.defined}"


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command."""

    output: str  # stdout and stderr; cut in the middle if it is long
    code: int | None  # None: it was stopped, or ended the shell
    ended: Ended = Ended.EXIT  # the reason if it was stopped


class Shell:
    """One shell; it starts with its first command, and again after it was lost."""

    def __init__(self, sandbox: Sandbox, *, seconds: float = 10.0) -> None:
        """Describe the shell; `seconds` is the time limit of each command."""
        self.sandbox, self.seconds = sandbox, seconds
        self.state = ShellState()
        self._program: Program | None = None
        self._root = WORK  # this sandbox's path of the work folder
        self._works = False  # whether a shell has ever started
        self._usual: frozenset[str] = frozenset()  # definitions of every new shell

    def run(self, command: str) -> CommandResult:
        """Run a command, which may have several lines.

        Raises:
            MissingSystemPart: the sandbox has no bash.
        """
        try:
            if self._program is None:
                self._start()
            output, code = self._execute(command, self.seconds)
        except TimeoutError:
            return self._lost(Ended.SECONDS)
        except (EOFError, BrokenPipeError):
            return self._lost(None)
        return CommandResult(self._named(output), code)

    def go(self, state: ShellState) -> None:
        """Continue from a state, in a new shell."""
        self.close()
        self.state = state

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
        wanted, self._root, self._usual = self.state, WORK, frozenset()
        try:
            self._execute('unset OLDPWD; export HOME="$PWD"', self.seconds)
            self._works = True
            self._root = self.state.folder
            self._usual = frozenset(self.state.defined.splitlines())
            self.state = ShellState()
            if wanted != self.state:
                self._execute(wanted.defined, self.seconds)
                inside = self._root + wanted.folder.removeprefix(WORK)
                self._execute(f"cd -- {_quoted(inside)}", self.seconds)
        except (EOFError, BrokenPipeError, TimeoutError):
            self.state = wanted
            if self._works:
                raise
            self.close()
            raise MissingSystemPart(
                f"The sandbox '{self.sandbox.name}' cannot run bash, which the shell needs; "
                "use the kind 'bubblewrap', and install bash."
            ) from None

    def _execute(self, command: str, seconds: float) -> tuple[str, int]:
        """Run a command and record the state; return its output and code.

        Raises:
            TimeoutError: the command takes longer.
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
        self._record(state)
        return "\n".join(head).removesuffix("\n"), int(code or 0)

    def _lines(self, mark: str, until: float) -> tuple[list[str], str]:
        """Return the lines before the mark, and the text after it."""
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

    def _record(self, state: list[str]) -> None:
        *defined, folder = state
        kept = [line for line in defined if line not in self._usual and not VOLATILE.match(line)]
        self.state = ShellState(self._named(folder), "\n".join(kept))

    def _named(self, text: str) -> str:
        """Replace the work folder's path by the one inside, and cut long text."""
        if self._root != WORK:
            text = text.replace(self._root, WORK)
        return text if len(text) <= 2 * CUT else f"{text[:CUT]}\n…\n{text[-CUT:]}"

    def _lost(self, ended: Ended | None) -> CommandResult:
        assert self._program is not None
        ran = self._program.close()
        self._program = None
        why = ended or ran.ended
        words = {Ended.SECONDS: f"Stopped after {self.seconds:g} s", Ended.EXIT: "The shell ended"}
        problem = words.get(why, f"The shell was ended (limit: {why})")
        return CommandResult(f"{problem}; a new one begins in {self.state.folder}.", None, why)


def _quoted(text: str) -> str:
    """Quote any text as one word of bash on one line."""
    plain = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return f"$'{plain}'".replace("\r", "\\r")
