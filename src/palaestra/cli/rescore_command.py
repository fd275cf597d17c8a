"""`palaestra rescore`: judge recorded episodes again, by the environments of today."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.cli.export_command import choose
from palaestra.core.errors import InputError

if TYPE_CHECKING:
    from palaestra.evaluation.running.rescoring import Rescored
    from palaestra.store.run_folder import RunFolder

EXAMPLE = "palaestra rescore runs/eval-apps-20260101-120000 --run runs/eval-apps-judged-again"
SHOWN = 20  # episodes whose verdict changed


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's folder or name; it stays as it is")
    parser.add_argument("--phase", action="append", default=[], metavar="PHASE", dest="phases")
    parser.add_argument(
        "--run", metavar="FOLDER", dest="into", help="write the episodes as judged now to a new run"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    from palaestra.environments.registry import make, spec, without_version
    from palaestra.evaluation.running.environment_versions import DOCUMENT
    from palaestra.evaluation.running.rescoring import rescore
    from palaestra.store.run_folder import RunFolder, run_path

    if options.into and Path(options.into).exists():
        raise InputError(f"{options.into} exists already; give a new folder to --run.")
    with RunFolder.read(run_path(options.run)) as opened:
        phases = choose(opened.database.phases(), options.phases)
        episodes = [one for phase in phases for one in opened.database.episodes(phase)]
        if not episodes:
            raise InputError(f"{opened.path} holds no finished episode; name another run.")
        recorded = opened.database.get(DOCUMENT) or {}
        environments = dict.fromkeys(episode.task.environment for episode in episodes)
        now = {id: spec(without_version(id)).version for id in environments}
        found = [
            asyncio.run(rescore(episode, lambda id: make(without_version(id))))
            for episode in episodes
        ]
        if options.into:
            _write(Path(options.into), opened, found, {**recorded, **now})
    versions = {id: [recorded.get(id), version] for id, version in now.items()}
    if options.json:
        print(json.dumps({"versions": versions, **_document(found)}))
    else:
        _show(versions, found, options.into)
    return 0


def _write(
    folder: Path, opened: RunFolder, found: Sequence[Rescored], versions: dict[str, str]
) -> None:
    """Write a run of the episodes that can be judged, with the documents of the old one."""
    from palaestra.evaluation.running.environment_versions import DOCUMENT
    from palaestra.store.run_folder import RunFolder

    judged = [one.judged for one in found if one.judged is not None]
    if not judged:
        raise InputError(f"None of the {len(found)} episodes can be judged now; no run was made.")
    documents = {**opened.database.documents(""), DOCUMENT: versions}
    recipe = {**documents.pop("recipe", {}), "rescored": str(opened.path)}
    try:
        with RunFolder.create(folder, recipe, documents=documents) as made:
            for episode in judged:
                made.database.finish(episode)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _document(found: Sequence[Rescored]) -> dict[str, Any]:
    return {
        "episodes": len(found),
        "gained": [_row(one) for one in found if _flip(one) > 0],
        "lost": [_row(one) for one in found if _flip(one) < 0],
        "changed": [_row(one) for one in found if one.changed],
        "left_out": [
            {"episode": str(one.recorded.key), "reason": one.reason}
            for one in found
            if one.judged is None
        ],
    }


def _flip(one: Rescored) -> int:
    if one.judged is None:
        return 0
    return int(one.judged.outcome.solved) - int(one.recorded.outcome.solved)


def _row(one: Rescored) -> dict[str, Any]:
    assert one.judged is not None
    return {
        "episode": str(one.recorded.key),
        "then": str(one.recorded.outcome),
        "now": str(one.judged.outcome),
        "reward": [one.recorded.reward, one.judged.reward],
        "progress": [one.recorded.progress, one.judged.progress],
    }


def _show(
    versions: dict[str, list[str | None]], found: Sequence[Rescored], into: str | None
) -> None:
    for id, (then, now) in versions.items():
        print(f"{id}: judged by version {then or '(not recorded)'}, now by version {now}")
    document = _document(found)
    for row in document["changed"][:SHOWN]:
        print(f"  {row['episode']}: was {row['then']}, is {row['now']}")
    if len(document["changed"]) > SHOWN:
        print(f"  and {len(document['changed']) - SHOWN} more (--json)")
    for one in document["left_out"][:SHOWN]:
        print(f"  {one['episode']} cannot be judged: {one['reason']}")
    print(
        f"{len(found)} episodes: {len(document['changed'])} are judged differently "
        f"({len(document['gained'])} solved only now, {len(document['lost'])} only then); "
        f"{len(document['left_out'])} cannot be judged"
    )
    if into:
        print(f"The episodes as judged now are in {into}; compare it with runs of this version.")
