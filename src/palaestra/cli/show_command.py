"""`palaestra show`: show a run, or one of its episodes turn by turn."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError, UnknownName

if TYPE_CHECKING:
    from rich.console import Console

    from palaestra.core.graph import Call
    from palaestra.store.database import Database
    from palaestra.store.run_folder import RunFolder

EXAMPLE = "palaestra show runs/default-20260101-120000 test/rl/17.0 --tokens"
Row = dict[str, Any]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="RUN", help="a run's folder, or its name")
    parser.add_argument("episode", nargs="?", metavar="EPISODE", help="e.g. test/rl/17.0")
    parser.add_argument(
        "--tokens", action="store_true", help="with EPISODE: each sampled token's log-probability"
    )
    parser.add_argument(
        "--metrics", action="store_true", help="all metrics of its episodes, by phase"
    )
    parser.add_argument(
        "--drift", action="store_true", help="how turns change from early to late in episodes"
    )
    parser.add_argument(
        "--context", type=int, metavar="TOKENS",
        help="with --metrics: also the use of a context of that many tokens",
    )  # fmt: skip
    parser.add_argument(
        "--by", metavar="NAME",
        help="with --metrics: success by a label or task parameter, or by environment or agent",
    )  # fmt: skip
    parser.add_argument(
        "--phase", action="append", default=[], metavar="PHASE", dest="phases",
        help="with --metrics or --drift: only these (repeatable; default: all)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print the record as JSON")


def run(options: argparse.Namespace) -> int:
    if options.tokens and options.episode is None:
        raise InputError("--tokens needs an episode; name one after the run.")
    measuring = options.metrics or options.drift
    if measuring and options.episode is not None:
        raise InputError(
            "--metrics and --drift have no effect on an episode; leave the episode out."
        )
    if (options.by or options.context is not None) and not options.metrics:
        raise InputError("--by and --context need --metrics; add it, or leave them out.")
    if options.phases and not measuring:
        raise InputError("--phase needs --metrics or --drift; add one, or leave it out.")
    if options.context is not None and options.context < 1:
        raise InputError(f"--context {options.context} is too small; give 1 or more tokens.")
    from palaestra.cli.console import Console
    from palaestra.cli.run_text import show_run
    from palaestra.store.run_folder import RunFolder, run_path

    console = Console(highlight=False)
    with RunFolder.read(run_path(options.folder)) as opened:
        if options.episode is not None:
            episode = find_episode(opened.database, options.episode)
            tokens = _token_texts(opened) if options.tokens else None
            if options.json:
                print(_record(episode, tokens))
            else:
                from palaestra.api.episode_text import show_episode

                show_episode(episode, tokens, console)
        elif measuring:
            _show_measures(options, opened.database, console)
        elif options.json:
            print(json.dumps(summary(opened)))
        else:
            show_run(summary(opened), console)
    return 0


def parse_key(text: str) -> Key | None:
    """Parse a printed key such as test/rl/17.0; the default member is the first."""
    match = re.fullmatch(r"(.+)/(\d+)(?:\.(\d+))?", text)
    return Key(match[1], int(match[2]), int(match[3] or 0)) if match else None


def find_episode(database: Database, name: str) -> Episode:
    """Return the finished episode of that printed key; raise UnknownName with similar keys."""
    key = parse_key(name)
    episode = database.episode(key) if key else None
    if episode is None:
        phase = key.phase if key and key.phase in database.phases() else ""
        known = [str(found.key) for found in database.summaries(phase)]
        raise UnknownName("episode", name, known)
    return episode


def summary(opened: RunFolder) -> Row:
    """Return the run as one JSON object."""
    from palaestra.cli.run_text import phases_of
    from palaestra.evaluation.reports.learning_curves import curve_stage
    from palaestra.evaluation.reports.report import GENERAL_LOSS
    from palaestra.models.registry import REVISIONS, RUNS_BY
    from palaestra.training.lineage import LINEAGE

    database = opened.database
    learning = curve_stage(database.metric_phases(), database.metrics)
    return {
        "path": str(opened.path),
        "created": opened.record.created.isoformat(timespec="seconds"),
        "palaestra": opened.record.palaestra,
        "versions": database.get("versions") or [opened.record.palaestra],
        "recipe": database.get("recipe"),
        "revisions": database.get(REVISIONS) or {},
        "runs_by": database.get(RUNS_BY) or {},
        "machine": database.get("machine"),
        "totals": database.get("totals"),
        "stages": database.get("stages") or [],
        "rl": [{"step": step, **values} for step, values in database.metrics(learning)],
        "alarms": database.get(f"alarms/{learning}"),
        "lineage": database.get(LINEAGE) or [],
        "general_loss": database.get(GENERAL_LOSS) or {},
        "phases": phases_of(database),
    }


def _show_measures(options: argparse.Namespace, database: Database, console: Console) -> None:
    from palaestra.cli import measures
    from palaestra.cli.export_command import choose

    found: dict[str, Row] = {}
    for phase in choose(database.phases(), options.phases):
        episodes = database.episodes(phase)
        row = found[phase] = {}
        if options.metrics:
            row |= measures.measured(episodes, options.by, options.context)
            if not options.json:
                measures.show(phase, row, options.by, console)
        if options.drift:
            row["drift"] = measures.moved(episodes)
            if not options.json:
                measures.show_moved(phase, row["drift"], console)
    if options.json:
        print(json.dumps(found))


# ── an episode ───────────────────────────────────────────────────────────────


def _token_texts(opened: RunFolder) -> Callable[[Call], list[str]]:
    """Return a function from a call to its token texts, or ids without a tokenizer."""
    from palaestra.models.registry import renderer_of

    folder = _tokenizer_folder(opened)
    renderer = renderer_of(folder) if folder else None

    def read(call: Call) -> list[str]:
        if renderer is None:
            return [str(token) for token in call.completion]
        return renderer.token_strings(call.completion)

    return read


def _tokenizer_folder(opened: RunFolder) -> Path | None:
    from palaestra.models.local.weights import ready

    for folder in (opened.path / "final", opened.path / "vocabulary"):
        if (folder / "tokenizer.json").is_file():
            return folder
    model = (opened.database.get("recipe") or {}).get("model")
    name = model.get("name") if isinstance(model, dict) else model
    if not isinstance(name, str):
        return None
    if (Path(name) / "final" / "tokenizer.json").is_file():
        return Path(name) / "final"
    try:
        return ready(name)
    except InputError:  # the expert, a remote model, a missing folder
        return None


def _record(episode: Episode, tokens: Callable[[Call], list[str]] | None) -> str:
    from palaestra.store.codec import to_json

    record = json.loads(to_json(episode))
    if tokens is not None:
        for call, found in zip(episode.calls, record["calls"], strict=True):
            found["pieces"] = tokens(call)
    return json.dumps(record)
