"""Worlds in which one works in a folder with a shell, and is judged by what the folder becomes.

The folder lives in a sandbox. Each action is a shell command, run by one shell that persists for
the whole episode; `submit` ends the task. Nothing that judges is inside: after each command the
folder is saved as an archive, which is examined here. `boxed.py` says which sandbox it is.

A task's folder at its start depends on the task alone, so equal commands give equal episodes as far
as the commands themselves do: a clock, a process id or a random number is the agent's own doing.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from palaestra.core.environment import Action, Capability, Observation, Transition
from palaestra.core.errors import InputError
from palaestra.core.task import Split, Task
from palaestra.environments.code.boxed import Boxed
from palaestra.environments.code.challenge import Challenge
from palaestra.environments.code.folder import listed
from palaestra.environments.snapshots import opened, sealed
from palaestra.safety import interpreter
from palaestra.safety.opening import open_sandbox
from palaestra.safety.sandbox import WORK, Limits, Sandbox, Settings
from palaestra.safety.shell import Place, Shell

SUBMIT = "submit"
VERSION = "1"  # of what snapshots hold
BEFORE = 0.9  # the most progress before all is submitted
SECONDS = 10.0  # of one command
LIMITS = Limits(file_bytes=16 * 2**20, disk_bytes=32 * 2**20)
QUIET = "(no output)"
FENCED = re.compile(r"```[a-z]*\n(.*?)```", re.DOTALL)
HOW = (
    "Reply with one bash command and nothing else; you see what it prints. The working directory "
    f"and variables last from one command to the next. When all is done, reply: {SUBMIT}"
)
LOOKS = (
    "ls",
    "ls -R",
    "pwd",
    "find . -type f | sort | head",
    "cat {0}",
    "wc -l {0}",
    "head -3 {0}",
)
DEEDS = ("mkdir -p notes", "echo done > done.txt", "cp {0} copy.txt", "rm {0}", SUBMIT)


class FolderWorld(Boxed):
    """A folder, a shell, and what is to be done there. Subclasses say what: `challenge`."""

    capabilities = frozenset(
        {Capability.STATE_KEY, Capability.SNAPSHOT, Capability.PROGRESS, Capability.ORACLE}
    )
    _shell: Shell | None = None

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._task: Task | None = None

    @property
    def typical_turns(self) -> int:
        return 12

    @abstractmethod
    def challenge(self, task: Task) -> Challenge:
        """What a task is; equal tasks, equal challenges."""

    def settings(self) -> Settings:
        """What the sandbox is made with."""
        usual = interpreter.settings(self._sandbox_kind, LIMITS)
        quiet = {**usual.environment, "TIME_STYLE": "+"}  # `ls -l` without times
        return Settings(usual.limits, usual.mounts, environment=quiet)

    def graded(self) -> float:
        """How much of the task is done in the present folder, in [0, 1]."""
        return self._challenge.share(self.folder)

    def reset(self, task: Task) -> Observation:
        self._begin(task)
        self._look()
        self._start = self.folder
        self._started = self._saved
        return Observation(self._challenge.words)

    def step(self, action: Action) -> Transition:
        shell = self._running()
        command = command_of(action.text)
        if self._over:
            return Transition(Observation("The task is over."), terminated=True, valid=False)
        if not command or "\0" in command:
            return Transition(Observation(HOW), valid=False)
        if command == SUBMIT:
            return self._submitted()
        edited = self.edited(command)
        if edited is None:
            replied = shell.run(command)
            code = f"\n[exit code {replied.code}]" if replied.code else ""
            edited = (replied.output + code).strip("\n")
        self._look()
        return Transition(Observation(edited if edited.strip() else QUIET))

    def edited(self, command: str) -> str | None:
        """What an edit that is no shell command led to; None: it is a command."""
        return None

    def close(self) -> None:
        """End the shell and the sandbox."""
        for part in (self._shell, self._sandbox):
            if part is not None:
                part.close()
        self._shell = self._sandbox = None

    def state_key(self) -> str:
        """Of the task, the folder, and the state of the shell."""
        shell = self._running()
        assert self._task is not None
        parts = f"{self._task.seed}\n{self._over}\n{shell.place}\n".encode()
        return hashlib.blake2b(parts + self._saved, digest_size=16).hexdigest()

    def snapshot(self) -> bytes:
        """The folder and the state of the shell; jobs in its background are left out."""
        shell = self._running()
        assert self._task is not None
        head: dict[str, Any] = {"task": asdict(self._task), "place": asdict(shell.place)}
        head |= {"over": self._over, "solved": self._solved}
        return sealed(self._id, VERSION, json.dumps(head).encode() + b"\n" + self._saved)

    def restore(self, snapshot: bytes) -> None:
        """Go on from there; raises InputError if it is another world's or version's."""
        line, _, saved = opened(snapshot, self._id, VERSION).partition(b"\n")
        head = json.loads(line)
        task = Task(**{**head["task"], "split": Split(head["task"]["split"])})
        if task != self._task:
            self.reset(task)
        sandbox, shell = self._opened()
        sandbox.restore(saved)
        shell.go(Place(**head["place"]))
        self._over, self._solved = head["over"], head["solved"]
        self._look()

    def progress(self) -> float:
        self._running()
        if self._over:
            return 1.0 if self._solved else BEFORE * self._share
        return BEFORE * self._share

    def oracle(self) -> Sequence[Action]:
        """Repair what was damaged, do what is missing, submit."""
        shell = self._running()
        if self._over:
            return []
        way = self._challenge.way(self.folder, self._start)
        back = ["cd"] if way and shell.place.folder != WORK else []
        return [Action(command) for command in (*back, *way, SUBMIT)]

    def sample_action(self, dice: random.Random) -> Action:
        """Mostly a look at something, at times a deed."""
        self._running()
        pool = LOOKS if dice.random() < 0.7 else DEEDS
        paths = [path for path in sorted(self.folder) if re.fullmatch(r"[\w./-]+", path)]
        return Action(dice.choice(pool).format(dice.choice(paths) if paths else "nothing"))

    # ── details ──────────────────────────────────────────────────────────────

    def _begin(self, task: Task) -> None:
        """Lay out the folder of a task, for a new shell."""
        self._challenge = self.challenge(task)
        sandbox, _ = self._opened()
        if self._task == task:
            sandbox.restore(self._started)
        else:
            for path, data in self._challenge.files.items():
                sandbox.write(path, data)
            if self._challenge.setup:
                sandbox.run(["bash", "-c", self._challenge.setup])
        self._task, self._over, self._solved = task, False, False

    def _opened(self) -> tuple[Sandbox, Shell]:
        """A sandbox and a shell in which nobody was: not all that one can do is in the folder."""
        FolderWorld.close(self)
        self._sandbox = open_sandbox(self._sandbox_kind, self.settings())
        self._shell = Shell(self._sandbox, seconds=SECONDS)
        return self._sandbox, self._shell

    def _look(self) -> None:
        """Save the folder, and judge it, if it has changed."""
        assert self._sandbox is not None
        self._saved = self._sandbox.save()
        self.folder = listed(self._saved)
        self._share = self.graded()

    def _submitted(self) -> Transition:
        assert self._shell is not None
        self._over = True
        self._shell.close()  # what nobody will use need not be looked after
        whole = self._share >= 1.0
        self._solved = whole and self._challenge.intact(self.folder, self._start)
        said = "Submitted: all is as it should be." if self._solved else "Submitted: not solved."
        return Transition(
            Observation(said), float(self._solved), terminated=True, success=self._solved
        )

    def _running(self) -> Shell:
        if self._task is None or self._shell is None:
            raise InputError(f"The world '{self._id}' has no task yet; call reset with one first.")
        return self._shell


def command_of(reply: str) -> str:
    """The command in a reply: what is fenced, where something is, else all of it.

    Nothing, if it is no text that could be written to a file.
    """
    fenced = FENCED.search(reply)
    found = (fenced.group(1) if fenced else reply).strip()
    try:
        found.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return ""
    return found
