"""`palaestra leaderboard`: compare agents and models of any number of eval runs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from palaestra.core.errors import InputError

if TYPE_CHECKING:
    from palaestra.evaluation.reports.leaderboard import Leaderboard

EXAMPLE = "palaestra leaderboard runs/eval-small-* --to leaderboard.md --to leaderboard.html"
FORMS = (".md", ".html", ".csv", ".json")


def configure(parser: argparse.ArgumentParser) -> None:
    add_runs(parser)
    parser.add_argument(
        "--cost", default="tokens", help="of the Pareto front: tokens, seconds, turns or money"
    )
    parser.add_argument(
        "--to", action="append", default=[], metavar="FILE",
        help="also write it to a .md, .html, .csv or .json file (repeatable)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def add_runs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="folders or names of eval runs")
    parser.add_argument("--suite", metavar="FILE", help="the suite (default: that of the runs)")


def run(options: argparse.Namespace) -> int:
    for file in options.to:
        if Path(file).suffix not in FORMS:
            endings = ", ".join(FORMS)
            raise InputError(f"--to {file} has an unknown ending; its name must end in {endings}.")
    from palaestra.evaluation.reports import leaderboard_text as text
    from palaestra.evaluation.reports.leaderboard import COSTS

    if options.cost not in COSTS:
        raise InputError(f"There is no cost '{options.cost}'; choose one of {', '.join(COSTS)}.")
    board = board_of(options)
    for file in options.to:
        forms = {
            ".md": lambda: text.markdown(board, options.cost),
            ".html": lambda: text.page(board, options.cost),
            ".csv": lambda: text.table(board),
            ".json": lambda: json.dumps(text.as_json(board, options.cost), indent=2) + "\n",
        }
        try:
            Path(file).write_text(forms[Path(file).suffix](), encoding="utf-8")
        except OSError as error:
            raise InputError(f"--to {file} cannot be written: {error.strerror}.") from None
    if options.json:
        print(json.dumps(text.as_json(board, options.cost)))
    else:
        print(text.markdown(board, options.cost), end="")
    return 0


def board_of(options: argparse.Namespace) -> Leaderboard:
    """Build the leaderboard of the runs on the command line."""
    from palaestra.evaluation.reports.cell_samples import read
    from palaestra.evaluation.reports.leaderboard import build
    from palaestra.evaluation.running.suite import load
    from palaestra.store.run_folder import run_path

    suite = None if options.suite is None else load(options.suite)
    paths = list(dict.fromkeys(run_path(name).absolute() for name in options.runs))
    return build([part for path in paths for part in read(path)], suite)
