"""Environments in which an agent works in a folder with a shell and is graded on the final folder.

The folder is in a sandbox. Each action is a shell command, run by one shell that persists for the
whole episode; `submit` ends the task. No grader runs inside the sandbox: after each command the
folder is saved as an archive, which is graded here. `sandboxed.py` selects the sandbox.

The initial folder depends on the task alone, so equal commands give equal episodes if the commands
themselves are deterministic; a command that reads a clock, a process id or a random number is not.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict

from palaestra.core.environment import Action, Observation, Transition
from palaestra.core.errors import InputError
from palaestra.core.rare_capabilities import Sampling
from palaestra.core.task import Task
from palaestra.environments.base import refused
from palaestra.environments.shared.challenge import Challenge
from palaestra.environments.shared.folder_archive import read_archive
from palaestra.environments.shared.sandboxed import SandboxedEnvironment
from palaestra.sandbox import interpreter
from palaestra.sandbox.base import WORK, Limits, Sandbox, Settings
from palaestra.sandbox.factory import open_sandbox
from palaestra.sandbox.shell import Shell, ShellState

SUBMIT = "submit"
VERSION = "1"  # of the snapshot format
BEFORE = 0.9  # the largest progress before submission
SECONDS = 10.0  # limit of one command
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


class FolderEnvironment(
    SandboxedEnvironment,
    Sampling,
    capabilities={"state_key", "snapshot", "progress", "oracle"},
    typical_turns=12,
):
    """A folder, a shell, and a task to do there. Subclasses define the task in `challenge`."""

    _shell: Shell | None = None
    _laid: Task | None = None  # the task whose initial folder is in `_started`

    @abstractmethod
    def challenge(self, task: Task) -> Challenge:
        """Return the challenge of a task; equal tasks give equal challenges."""

    def settings(self) -> Settings:
        """Return the settings of the sandbox."""
        usual = interpreter.settings(self._sandbox_kind, LIMITS)
        quiet = {**usual.environment, "TIME_STYLE": "+"}  # `ls -l` without times
        return Settings(usual.limits, usual.mounts, environment=quiet)

    def graded(self) -> float:
        """Return the share of the task that is done in the current folder, in [0, 1]."""
        return self._challenge.share(self.folder)

    def _begin(self, task: Task) -> Observation:
        self._lay_out(task)
        self._look()
        self._start = self.folder
        self._started = self._archive
        return Observation(self._challenge.words)

    def _act(self, action: Action) -> Transition:
        shell = self._running()
        command = command_of(action.text)
        if action.call is not None or not command or "\0" in command:
            return refused(HOW)  # there are no tools to call: in a shell, a call is an error
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
        """Return the result of an edit that is not a shell command; None for a shell command."""
        return None

    def close(self) -> None:
        """Close the shell and the sandbox."""
        for part in (self._shell, self._sandbox):
            if part is not None:
                part.close()
        self._shell = self._sandbox = None

    def state_key(self) -> str:
        """Hash the task, the folder, and the state of the shell."""
        shell = self._running()
        parts = f"{self._current().seed}\n{self._over}\n{shell.state}\n".encode()
        return hashlib.blake2b(parts + self._archive, digest_size=16).hexdigest()

    def snapshot(self) -> bytes:
        """Save the folder and the state of the shell; background jobs are not saved."""
        head = json.dumps([asdict(self._running().state), self._solved]).encode()
        return self._saved(head + b"\n" + self._archive, VERSION)

    def restore(self, snapshot: bytes) -> None:
        """Restore a snapshot; raises InputError for another environment or version."""
        line, _, archive = self._loaded(snapshot, VERSION).partition(b"\n")
        place, solved = json.loads(line)
        over, task = self._over, self._current()
        if task != self._laid:
            self.reset(task)
        sandbox, shell = self._opened()
        sandbox.restore(archive)
        shell.go(ShellState(**place))
        self._over, self._solved = over, solved
        self._look()

    def progress(self) -> float:
        self._running()
        if self._over:
            return 1.0 if self._solved else BEFORE * self._share
        return BEFORE * self._share

    def oracle(self) -> Sequence[Action]:
        """Restore damaged files, do what is missing, then submit."""
        shell = self._running()
        if self._over:
            return []
        plan = self._challenge.plan(self.folder, self._start)
        back = ["cd"] if plan and shell.state.folder != WORK else []
        return [Action(command) for command in (*back, *plan, SUBMIT)]

    def sample_action(self, rng: random.Random) -> Action:
        """Sample a command: mostly one that reads, sometimes one that writes."""
        self._running()
        pool = LOOKS if rng.random() < 0.7 else DEEDS
        paths = [path for path in sorted(self.folder) if re.fullmatch(r"[\w./-]+", path)]
        return Action(rng.choice(pool).format(rng.choice(paths) if paths else "nothing"))

    # ── details ──────────────────────────────────────────────────────────────

    def _lay_out(self, task: Task) -> None:
        """Create the folder of a task for a new shell."""
        self._challenge = self.challenge(task)
        sandbox, _ = self._opened()
        if self._laid == task:
            sandbox.restore(self._started)
        else:
            for path, data in self._challenge.files.items():
                sandbox.write(path, data)
            if self._challenge.setup:
                sandbox.run(["bash", "-c", self._challenge.setup])
        self._laid, self._solved = task, False

    def _opened(self) -> tuple[Sandbox, Shell]:
        """Open a fresh sandbox and shell: some effects of commands are outside the folder."""
        FolderEnvironment.close(self)
        self._sandbox = open_sandbox(self._sandbox_kind, self.settings())
        self._shell = Shell(self._sandbox, seconds=SECONDS)
        return self._sandbox, self._shell

    def _look(self) -> None:
        """Save the folder and grade it."""
        assert self._sandbox is not None
        self._archive = self._sandbox.save()
        self.folder = read_archive(self._archive)
        self._share = self.graded()

    def _submitted(self) -> Transition:
        assert self._shell is not None
        self._shell.close()  # it is not used again
        whole = self._share >= 1.0
        self._solved = whole and self._challenge.intact(self.folder, self._start)
        text = "Submitted: all is as it should be." if self._solved else "Submitted: not solved."
        return Transition(
            Observation(text), float(self._solved), terminated=True, success=self._solved
        )

    def _running(self) -> Shell:
        self._current()
        if self._shell is None:
            raise InputError(f"The environment '{self.spec.id}' is closed; call reset first.")
        return self._shell


def command_of(reply: str) -> str:
    """Return the command in a reply: the first fenced block if there is one, else all of it.

    Return "" for text that cannot be encoded as UTF-8.
    """
    fenced = FENCED.search(reply)
    found = (fenced.group(1) if fenced else reply).strip()
    try:
        found.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return ""
    return found
