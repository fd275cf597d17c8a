"""A persistent Python interpreter in a sandbox: variables persist from cell to cell.

Code as action (CodeAct, Wang et al. 2024): an agent sees what a cell prints, its last expression
and its traceback. Functions can be offered to the code by name. A call of one is returned as
`Asked`, and the cell waits for the answer, so the caller controls what is executed:

    event = interpreter.begin("print(look('north'))", ["look"])
    while isinstance(event, Asked):
        event = interpreter.answer(world.look(*event.args))

`interpreter_program.py` runs inside. Code can lie about what it printed or called, but it cannot
access more than its sandbox allows; the caller must check what an `Asked` requests.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from palaestra.core.errors import InputError
from palaestra.sandbox.base import Limits, Mount, Program, Sandbox, Settings

INSIDE = Path(__file__).with_name("interpreter_program.py")
LIFE = 3600.0  # longest lifetime of an interpreter in seconds
PYTHON = "/python"  # its path inside
GRACE = 3.0  # seconds beyond a cell's own limit, before the interpreter is killed from outside
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LC_ALL": "C.UTF-8",
    "PYTHONHASHSEED": "0",  # equal programs, equal orders of sets
    "PYTHONDONTWRITEBYTECODE": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A call of an offered function, for whose result the cell waits."""

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a cell."""

    output: str  # what it wrote; cut in the middle if it is long
    value: str | None = None  # of its last expression: a text as it is, anything else as `repr`
    error: str | None = None  # a traceback, or why it was stopped
    called: tuple[str, ...] = ()  # watched names that were called and returned, in order
    lost: bool = False  # the interpreter ended: variables are gone, files are not

    def __str__(self) -> str:
        """Return all of it, as an agent sees it."""
        parts = [self.output.rstrip("\n"), self.value, self.error]
        return "\n".join(part for part in parts if part) or "(no output)"


class Interpreter:
    """One interpreter; it starts with its first cell, and again after it was lost."""

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        seconds: float = 10.0,
        watch: Sequence[str] = (),
        seed: int = 0,
        program: Program | None = None,
    ) -> None:
        """Describe the interpreter; nothing is started yet.

        Args:
            sandbox: where it runs.
            seconds: for each cell, without the time it waits for answers.
            watch: names whose calls `Done.called` lists.
            seed: of its `random`.
            program: a program that `command` already started in the sandbox, such as a pool's.
        """
        self.sandbox, self.seconds = sandbox, seconds
        self._watch, self._seed = list(watch), seed
        self._program, self._new = program, True

    def begin(self, source: str, functions: Sequence[str] = ()) -> Asked | Done:
        """Start a cell that can call the functions of those names, such as `look`, `mail.send`.

        Raises:
            InputError: a name is no identifier, nor several with full stops between them.
        """
        for name in functions:
            if not all(part.isidentifier() for part in name.split(".")):
                raise InputError(f"'{name}' cannot be called from Python; give an identifier.")
        asked: dict[str, Any] = {"cell": source, "seconds": self.seconds}
        asked |= {"functions": list(functions), "watch": self._watch}
        if self._program is None:
            limits = self.sandbox.settings.limits
            life = replace(limits, seconds=LIFE, cpu_seconds=LIFE)
            self._program, self._new = self.sandbox.start(command(), limits=life), True
        if self._new:
            asked["seed"], self._new = self._seed, False
        return self._exchange(asked)

    def answer(self, value: Any, functions: Sequence[str] = ()) -> Asked | Done:
        """Return a JSON-serializable value from a waiting call; from now on offer `functions`."""
        return self._exchange({"value": value, "functions": list(functions)})

    def refuse(self, why: str) -> Asked | Done:
        """Make a waiting call raise a RuntimeError."""
        return self._exchange({"error": why})

    def run(self, source: str) -> Done:
        """Run a cell that calls no outside function."""
        event = self.begin(source)
        while isinstance(event, Asked):  # code can send a call without an offered function
            event = self.refuse(f"there is no function '{event.name}'")
        return event

    def close(self) -> None:
        """End the interpreter and everything that it started; the sandbox stays."""
        if self._program is not None:
            self._program.close()
        self._program = None

    # ── details ──────────────────────────────────────────────────────────────

    def _exchange(self, message: dict[str, Any]) -> Asked | Done:
        program = self._program
        assert program is not None
        try:
            program.send(json.dumps(message))
            return _parsed(program.receive(self.seconds + GRACE))
        except TimeoutError:
            why = f"Stopped after {self.seconds:g} s"
        except (EOFError, BrokenPipeError):
            why = "The interpreter ended"
        except (ValueError, KeyError, TypeError):
            why = "The interpreter spoke rubbish"
        ran = program.close()
        self._program = None
        return Done(ran.stderr[-2000:], error=f"{why}; variables are lost.", lost=True)


def command() -> list[str]:
    """Return the command that starts an interpreter, which waits for its first cell."""
    return ["python3", "-s", "-u", "-c", INSIDE.read_text(encoding="utf-8")]


def settings(kind: str, limits: Limits, mounts: Sequence[Mount] = ()) -> Settings:
    """Return settings of a sandbox of that kind in which `python3` is this process's base Python.

    In an isolating sandbox it is mounted without its installed packages' paths.
    """
    prefix = Path(sys.base_prefix).resolve()
    path, more = ENVIRONMENT["PATH"], {}
    if kind == "unsafe":
        path = f"{prefix / 'bin'}:{path}"
    elif prefix != Path("/usr"):
        mounts = (Mount(prefix, PYTHON), *mounts)
        path, more = f"{PYTHON}/bin:{path}", {"LD_LIBRARY_PATH": f"{PYTHON}/lib"}
    return Settings(limits, tuple(mounts), environment={**ENVIRONMENT, **more, "PATH": path})


def _parsed(line: str) -> Asked | Done:
    found = json.loads(line)
    if "call" in found:
        return Asked(str(found["call"]), tuple(found["args"]), dict(found["kwargs"]))
    return Done(
        _without_addresses(str(found["out"])),
        None if found["value"] is None else _without_addresses(str(found["value"])),
        None if found["error"] is None else _without_addresses(str(found["error"])),
        tuple(map(str, found["called"])),
    )


def _without_addresses(text: str) -> str:
    """Replace memory addresses, which differ from run to run."""
    return re.sub(r"\bat 0x[0-9a-fA-F]+", "at 0x…", text)
