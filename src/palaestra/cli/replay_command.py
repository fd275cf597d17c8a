"""`palaestra replay`: repeat recorded actions, and report where the environment differs."""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from palaestra.cli.export_command import choose
from palaestra.cli.show_command import find_episode
from palaestra.core.errors import InputError

if TYPE_CHECKING:
    from palaestra.evaluation.running.trajectory_verification import Verification

EXAMPLE = "palaestra replay runs/eval-umbrella-4-20260101-120000 eval/test/3.0"
SHOWN = 8  # differences of one episode; the first mostly causes the others


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's folder or name")
    parser.add_argument(
        "episode", nargs="?", metavar="EPISODE", help="e.g. eval/test/3.0; default: all of them"
    )
    parser.add_argument("--phase", action="append", default=[], metavar="PHASE", dest="phases")
    parser.add_argument("-n", type=int, metavar="N", help="only the first N episodes")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    from palaestra.environments.registry import make
    from palaestra.evaluation.running.trajectory_verification import verify
    from palaestra.store.run_folder import RunFolder, run_path

    if options.n is not None and options.n < 1:
        raise InputError(f"-n {options.n} leaves nothing to do; give 1 or more.")
    if options.episode and (options.phases or options.n):
        raise InputError("--phase and -n have no effect with a named episode; drop them.")
    with RunFolder.read(run_path(options.run)) as opened:
        if options.episode:
            episodes = [find_episode(opened.database, options.episode)]
        else:
            phases = choose(opened.database.phases(), options.phases)
            episodes = [e for phase in phases for e in opened.database.episodes(phase)]
    found, skipped = [], 0
    for episode in episodes[: options.n]:
        if episode.observation is None and not options.episode:
            skipped += 1  # its environment broke before the start
            continue
        found.append(asyncio.run(verify(episode, make)))
        if not options.json:
            _show(found[-1])
    same = sum(one.same for one in found)
    if options.json:
        rows = [_row(one) for one in found]
        print(json.dumps({"episodes": rows, "same": same, "skipped": skipped}, default=str))
    else:
        never = f"; {skipped} never began" if skipped else ""
        print(f"\n{same} of {len(found)} episodes are the same{never}")
    return 0 if same == len(found) else 1


def _show(replayed: Verification) -> None:
    episode = replayed.episode
    verdict = "the same" if replayed.same else f"{len(replayed.differences)} differences"
    caveat = "" if replayed.deterministic else "; this environment is not deterministic"
    print(
        f"{episode.key}  {episode.agent}: {episode.outcome}, {replayed.turns} turns: "
        f"{verdict}{caveat}"
    )
    for difference in replayed.differences[:SHOWN]:
        print(f"    {difference}")
    if len(replayed.differences) > SHOWN:
        print(f"    … and {len(replayed.differences) - SHOWN} more")


def _row(replayed: Verification) -> dict[str, Any]:
    return {
        "episode": str(replayed.episode.key),
        "agent": replayed.episode.agent,
        "environment": replayed.episode.task.environment,
        "outcome": str(replayed.episode.outcome),
        "turns": replayed.turns,
        "same": replayed.same,
        "deterministic": replayed.deterministic,
        "differences": [asdict(difference) for difference in replayed.differences],
    }
