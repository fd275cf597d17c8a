"""A peer: another project's software, in its own environment and its own process.

The environment lies below .peers/ and is made on first use. The worker is one process
that keeps its model loaded between questions; between them its whole process group is
stopped (SIGSTOP), so that no thread of it spins while palaestra is measured.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from provenance import ROOT, cores

SERVING = Path(__file__).with_name("serving.py")
CLOSING = 20.0  # seconds that a worker has to end by itself

# Prints the requirements (name==version) that are not met, and the unwanted packages.
_UNMET = """
import sys
from importlib.metadata import PackageNotFoundError, version
def have(name):
    try:
        return version(name).split("+")[0]
    except PackageNotFoundError:
        return None
wanted, unwanted = (text.split() for text in sys.argv[1:3])
for requirement in wanted:
    name, _, pinned = requirement.partition("==")
    if have(name.split("[")[0]) != pinned:
        print(requirement)
for name in unwanted:
    if have(name) is not None:
        print(name)
"""


class PeerUnavailable(Exception):
    """The peer cannot be installed or started, or broke; the message is one sentence."""


class Peer:
    """Use as a context: installed and started at its beginning, ended with it."""

    def __init__(
        self,
        name: str,
        requirements: Sequence[str],
        script: str,
        *,
        without: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Describe a peer; nothing is installed or started yet.

        Args:
            name: its folder below .peers/.
            requirements: exact pins, "name==version"; torch, where the peer needs it, first:
                what stands first is installed first, by itself.
            script: path from the root of the checkout; the file defines
                `answer(request: dict) -> dict`, which runs in the worker (see serving.py).
            without: packages that the peer's requirements bring along and that are removed.
            environment: variables of the installation and of the worker, besides this
                process's own.

        Raises:
            ValueError: a requirement without an exact version.
        """
        loose = [r for r in requirements if "==" not in r]
        if loose:
            raise ValueError(f"pin these requirements of the peer '{name}' exactly: {loose}")
        self.name, self.script = name, ROOT / script
        self.requirements, self.without = tuple(requirements), tuple(without)
        self.folder = ROOT / ".peers" / name
        self.python = self.folder / "bin" / "python"
        self.environment = dict(environment or {})
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Peer:
        self.install()
        self._start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send one request and wait for its answer; the worker runs only meanwhile.

        Raises:
            PeerUnavailable: the worker ended, or its script raised an exception.
        """
        process = self._process
        if process is None:
            raise PeerUnavailable(f"the peer '{self.name}' is not started; use it as a context")
        assert process.stdin is not None and process.stdout is not None
        self._signal(signal.SIGCONT)
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = process.wait()
            raise PeerUnavailable(f"the peer '{self.name}' ended with code {code}{self._words()}")
        self._signal(signal.SIGSTOP)
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerUnavailable(f"the peer '{self.name}' failed: {answer['error']}")
        return answer

    def close(self) -> None:
        """End the worker and all that it started."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        _signal_group(process.pid, signal.SIGCONT)
        try:
            process.stdin.close()
            process.wait(CLOSING)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            pass
        _signal_group(process.pid, signal.SIGKILL)  # what it started may still run
        process.wait()
        process.stdout.close()
        self._log.close()

    def install(self) -> None:
        """Make the environment, or add to it what is missing; does nothing where it fits.

        Raises:
            PeerUnavailable: pip failed.
        """
        self.folder.parent.mkdir(exist_ok=True)
        with (self.folder.parent / f".{self.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two benchmarks may want the same peer
            self._install()

    def _install(self) -> None:
        unmet = self._unmet()
        if unmet is not None and not unmet:
            return
        print(f"Installing {' '.join(self.requirements)} into {self.folder}.", file=sys.stderr)
        if unmet is None:
            self._run([sys.executable, "-m", "venv", "--clear", str(self.folder)])
        first, rest = self.requirements[:1], self.requirements[1:]
        self._pip("install", *first)
        if rest:
            self._pip("install", *rest, *first)  # the first once more: it is to stay
        if self.without:
            self._pip("uninstall", "--yes", *self.without)
        if self._unmet() != []:
            raise PeerUnavailable(
                f"the environment of the peer '{self.name}' does not hold what was installed"
            )

    def _unmet(self) -> list[str] | None:
        """Requirements that the environment does not meet; None where there is no environment."""
        arguments = ["-c", _UNMET, " ".join(self.requirements), " ".join(self.without)]
        try:
            done = subprocess.run([self.python, *arguments], capture_output=True, text=True)
        except OSError:
            return None
        return done.stdout.split() if done.returncode == 0 else None

    def _pip(self, verb: str, *arguments: str) -> None:
        extra = shlex.split(os.environ.get("PIP_ARGS", "")) if verb == "install" else []
        quiet = ["--no-input", "--quiet", "--disable-pip-version-check"]
        self._run([str(self.python), "-m", "pip", verb, *quiet, *extra, *arguments])

    def _run(self, command: list[str]) -> None:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            env={**os.environ, "PIP_USER": "0", **self.environment},
        )
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip() or "no reason").splitlines()
            errors = [line for line in said if line.startswith("ERROR")]  # hints follow them
            raise PeerUnavailable(
                f"the peer '{self.name}' could not be installed: {(errors or said)[-1]}"
            )

    def _start(self) -> None:
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - see `close`
        threads = os.environ.get("OMP_NUM_THREADS", str(cores()))
        self._process = subprocess.Popen(
            # -P: the script's folder is not searched, where a file may bear the peer's name
            [str(self.python), "-P", str(SERVING), str(self.script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": threads, **self.environment},
            # A group of its own, to be stopped as one. The kernel ends a stopped group whose
            # parent has died (SIGHUP), so none is left behind.
            process_group=0,
        )

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        _signal_group(self._process.pid, number)

    def _words(self) -> str:
        """The last line that the worker wrote."""
        self._log.seek(0)
        lines = self._log.read().strip().splitlines()
        return f": {lines[-1]}" if lines else ""


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return
