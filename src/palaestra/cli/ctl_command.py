"""`palaestra ctl`: pause, retune or cancel an evaluation that another process works on."""

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
    parser.add_argument("number", nargs="?", type=int, metavar="N", help="episodes at once")
    parser.add_argument(
        "--wait", type=float, default=10.0, metavar="S",
        help="seconds to wait until it is obeyed (default: 10)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    from palaestra.experiment import control
    from palaestra.store.run import run_path

    if (options.number is not None) != (options.verb == "concurrency"):
        raise InputError("`concurrency` needs a number, and nothing else takes one.")
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
            f"Nobody works on {folder} ({before['state']}), so it cannot be controlled."
        )
    wishes: dict[str, dict[str, Any]] = {
        "pause": {"paused": True},
        "resume": {"paused": False},
        "cancel": {"cancelled": True},
        "concurrency": {"concurrency": options.number},
    }
    wish = control.change(folder, **wishes[options.verb])
    obeyed = working and _await(folder, wish.serial, options.wait)
    after = status(folder)
    _print(after, options.json)
    if working and not obeyed:
        raise PalaestraError(
            f"The wish is kept, but was not obeyed within {options.wait:g} s; see "
            f"`palaestra ctl {options.folder} status`."
        )
    return 0


def status(folder: Path) -> dict[str, Any]:
    """How an evaluation stands, and what is wished of it.

    Raises:
        InputError: there is no run, or it is no evaluation.
    """
    from palaestra.evaluation.plan import DOCUMENT, from_json
    from palaestra.experiment import control
    from palaestra.store.run import RunFolder

    with RunFolder.read(folder) as opened:
        made = from_json(opened.database.get(DOCUMENT), folder)
        ended = len(opened.database.summaries("eval/"))
        obeyed = opened.database.get(control.OBEYED) or {}
        totals = opened.database.get("totals") or {}
    wish = control.read(folder)
    worker = control.worker(folder)
    done = ended >= made.episodes
    if worker is None:
        state = "done" if done else "stopped"
    elif wish.cancelled:
        state = "stopping"
    elif wish.paused:
        state = "paused" if obeyed.get("paused") else "pausing"
    else:
        state = "running"
    return {
        "run": str(folder),
        "state": state,
        "worker": worker,
        "episodes": ended,
        "planned": made.episodes,
        "seconds": totals.get("seconds", 0.0),
        "paused": wish.paused,
        "concurrency": wish.concurrency,
        "obeyed": obeyed.get("serial", 0) >= wish.serial,
    }


def _await(folder: Path, serial: int, seconds: float) -> bool:
    """Whether the worker has obeyed the wish in time, or has ended."""
    from palaestra.experiment import control
    from palaestra.store.run import RunFolder

    until = time.monotonic() + seconds
    with RunFolder.read(folder) as opened:
        while time.monotonic() < until:
            obeyed = opened.database.get(control.OBEYED) or {}
            if obeyed.get("serial", 0) >= serial or control.worker(folder) is None:
                return True
            time.sleep(LOOK_EVERY)
    return False


def _print(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(found))
        return
    print(
        f"{found['run']}: {found['state']}, {found['episodes']} of {found['planned']} episodes, "
        f"{found['seconds']:.0f} s of work"
    )
    if found["paused"] and found["worker"] is None:
        print("It is to be paused when it is gone on with.")
    if found["concurrency"] is not None:
        print(f"Episodes at once: {found['concurrency']}")
