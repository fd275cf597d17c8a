"""C code compiled for this machine on first use, and kept in the user's cache folder."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from palaestra.core.paths import cache_folder

FLAGS = ("-O3", "-fopenmp", "-shared", "-fPIC", "-w")
_X86 = ("-march=native", "-mprefer-vector-width=512")
_ARM = ("-mcpu=native",)


def compiled(source: Path, flags: Sequence[str] = ()) -> ctypes.CDLL | None:
    """Compile and load a C file; return None without a compiler with OpenMP.

    The user's CC and CFLAGS hold, such as CFLAGS=-march=haswell.

    Args:
        source: one file; it may include headers from its folder.
        flags: of the compiler, besides the common ones.
    """
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    chosen = shlex.split(os.environ.get("CFLAGS", ""))  # after ours, so that they win
    command = [compiler, *flags_of(platform.machine()), *flags, *chosen]
    key = hashlib.blake2b(source.read_bytes(), digest_size=12)
    for header in sorted(source.parent.glob("*.h")):
        key.update(header.read_bytes())
    key.update(" ".join([*command, _processor()]).encode())
    library = cache_folder() / "native" / f"{source.stem}-{key.hexdigest()}.so"
    try:
        if not library.is_file():
            library.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=library.parent) as folder:
                made = Path(folder) / "made.so"
                subprocess.run(
                    [*command, "-o", str(made), str(source), "-lm"],
                    check=True,
                    capture_output=True,
                    timeout=120,
                )
                made.replace(library)  # atomically: other processes may compile it now
        return ctypes.CDLL(str(library))
    except (OSError, subprocess.SubprocessError):
        return None  # no OpenMP, no room in the cache folder, another runtime


def flags_of(machine: str) -> tuple[str, ...]:
    """Return the compiler's flags for a kind of machine, as `platform.machine` names it.

    Kinds other than x86 and 64-bit ARM get no flags of their own.
    """
    own = {"x86_64": _X86, "amd64": _X86, "aarch64": _ARM, "arm64": _ARM}
    return (*FLAGS, *own.get(machine.lower(), ()))


def _processor() -> str:
    """Return a description of the CPU, on which `-march=native` depends."""
    file = Path("/proc/cpuinfo")
    if file.is_file():
        lines = file.read_text().partition("\n\n")[0].splitlines()
        return "\n".join(line for line in lines if line.startswith(("model name", "flags")))
    return platform.platform() + platform.processor()
