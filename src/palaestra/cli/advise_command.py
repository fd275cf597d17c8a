"""`palaestra advise`: the best agent and model under constraints, and how certain that is."""

from __future__ import annotations

import argparse
import json

from palaestra.cli.leaderboard_command import add_runs, board_of

EXAMPLE = "palaestra advise runs/eval-small-* --max-tokens-per-task 2000 --min-success 0.5"


def configure(parser: argparse.ArgumentParser) -> None:
    add_runs(parser)
    for cost in ("tokens", "seconds", "money"):
        parser.add_argument(
            f"--max-{cost}-per-task", type=float, metavar="X", help="on average over the suite"
        )
    parser.add_argument("--min-success", type=float, metavar="SHARE", help="0 to 1")
    parser.add_argument(
        "--cost", default="tokens", help="cost to minimize: tokens, seconds, turns or money"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    from palaestra.evaluation.reports.advice import Constraints, Fit, advise, as_json

    constraints = Constraints(
        options.max_tokens_per_task,
        options.max_seconds_per_task,
        options.max_money_per_task,
        options.min_success,
    )
    board = board_of(options)
    advice = advise(board, constraints, options.cost)
    if options.json:
        print(json.dumps(as_json(advice)))
    else:
        print("\n".join(advice.sentences))
        for verdict in advice.verdicts:
            if verdict.fit is Fit.FAILS and advice.best is not None:
                print(f"Out: {verdict.candidate.name}: {', '.join(verdict.reasons)}.")
        for note in board.notes:
            print(f"Note: {note}.")
    return 0 if advice.best is not None else 1
