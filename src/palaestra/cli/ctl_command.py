"""`palaestra ctl`: pause, adjust or cancel an evaluation that another process runs."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from palaestra.core.errors import InputError, PalaestraError

EXAMPLE = "palaestra ctl runs/eval-small-20260101-120000 concurrency 8"
VERBS = ("status", "pause", "resume", "cancel", "concurrency")
LOOK_EVERY = 0.05  # seconds


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="RUN", help="an eval run's folder, or its name")
    parser.add_argument("verb", choices=VERBS, metavar="VERB", help=", ".join(VERBS))
    parser.add_argument("number", nargs="?", type=int, metavar="N", help="concurrent episodes")
    parser.add_argument(
        "--wait", type=float, default=10.0, metavar="S",
        help="seconds to wait for the effect (default: 10)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    from palaestra.evaluation.running import desired_state
    from palaestra.store.run_folder import run_path

    if (options.number is not None) != (options.verb == "concurrency"):
        raise InputError(
            "Only `concurrency` takes a number, and needs one; add it, or leave it out."
        )
    if options.number is not None and options.number < 1:
        raise InputError(f"concurrency {options.number} leaves nothing to do; give 1 or more.")
    folder = run_path(options.folder)
    before = status(folder)
    if options.verb == "status":
        _print(before, options.json)
        return 0
    working = before["worker"] is not None
    if not working and (options.verb == "cancel" or before["state"] == "done"):
        raise PalaestraError(
            f"{folder} cannot be controlled: no process works on it ({before['state']})."
        )
    changes: dict[str, dict[str, Any]] = {
        "pause": {"paused": True},
        "resume": {"paused": False},
        "cancel": {"cancelled": True},
        "concurrency": {"concurrency": options.number},
    }
    desired = desired_state.change(folder, **changes[options.verb])
    obeyed = working and _await(folder, desired.serial, options.wait)
    after = status(folder)
    _print(after, options.json)
    if working and not obeyed:
        raise PalaestraError(
            f"The change is stored, but had no effect within {options.wait:g} s; see "
            f"`palaestra ctl {options.folder} status`."
        )
    return 0


def status(folder: Path) -> dict[str, Any]:
    """Return the progress of an evaluation, and its desired state.

    Raises:
        InputError: the run does not exist, or is no evaluation.
    """
    from palaestra.evaluation.running import desired_state
    from palaestra.evaluation.running.evaluation_plan import DOCUMENT, from_json
    from palaestra.store import liveness
    from palaestra.store.run_folder import RunFolder

    with RunFolder.read(folder) as opened:
        made = from_json(opened.database.get(DOCUMENT), folder)
        ended, steps = len(opened.database.summaries("eval/")), opened.database.steps()
        obeyed = opened.database.get(desired_state.APPLIED) or {}
        totals = opened.database.get("totals") or {}
    desired = desired_state.read(folder)
    working = liveness.worker(folder)
    done = ended >= made.episodes
    if working is None:
        state = "done" if done else "stopped"
    elif desired.cancelled:
        state = "stopping"
    elif desired.paused:
        state = "paused" if obeyed.get("paused") else "pausing"
    else:
        state = "running"
    return {
        "run": str(folder),
        "state": state,
        "worker": working,
        "episodes": ended,
        "planned": made.episodes,
        "steps": steps,
        "seconds": totals.get("seconds", 0.0),
        "paused": desired.paused,
        "concurrency": desired.concurrency,
        "obeyed": obeyed.get("serial", 0) >= desired.serial,
    }


def _await(folder: Path, serial: int, seconds: float) -> bool:
    """Return whether the worker has applied the desired state in time, or has ended."""
    from palaestra.evaluation.running import desired_state
    from palaestra.store import liveness
    from palaestra.store.run_folder import RunFolder

    until = time.monotonic() + seconds
    with RunFolder.read(folder) as opened:
        while time.monotonic() < until:
            obeyed = opened.database.get(desired_state.APPLIED) or {}
            if obeyed.get("serial", 0) >= serial or liveness.worker(folder) is None:
                return True
            time.sleep(LOOK_EVERY)
    return False


def _print(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(found))
        return
    print(
        f"{found['run']}: {found['state']}, {found['episodes']} of {found['planned']} episodes, "
        f"{found['steps']:,} steps, {found['seconds']:.0f} s of work"
    )
    if found["paused"] and found["worker"] is None:
        print("It will be paused when it is resumed.")
    if found["concurrency"] is not None:
        print(f"Concurrent episodes: {found['concurrency']}")
