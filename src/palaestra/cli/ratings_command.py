"""`palaestra ratings`: rate players from recorded games between them."""

from __future__ import annotations

import argparse
import json
from typing import Any

from palaestra.cli.judge_command import episodes_of
from palaestra.cli.tables import table
from palaestra.core.errors import InputError

EXAMPLE = "palaestra ratings runs/game-1 runs/game-2"
Row = dict[str, Any]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="folders or names of runs with games in them"
    )
    parser.add_argument(
        "--phase", action="append", default=[], metavar="PHASE", dest="phases",
        help="only these (repeatable; default: all)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    from palaestra.evaluation.statistics.ratings import bradley_terry, elo, game_of

    games, others = [], 0
    for episode in episodes_of(options.runs, options.phases):
        game = game_of(episode)
        others += game is None
        games += [] if game is None else [game]
    if not games:
        raise InputError(
            f"None of the {others} episodes is a game between two policies; evaluate a game of two "
            "players with a model for each, such as `palaestra eval --role player_1=MODEL`."
        )
    ratings, sequential = bradley_terry(games), elo(games)
    found: Row = {"games": len(games), "left_out": others, "players": []}
    for player in ratings.players:
        strength = ratings.elo(player)
        own = [g.score if g.first == player else 1 - g.score
               for g in games if player in (g.first, g.second)]  # fmt: skip
        found["players"].append(
            {
                "player": player,
                "games": len(own),
                "score": sum(own) / len(own),
                "elo": [strength.mean, strength.low, strength.high],
                "sequential_elo": sequential[player],
            }
        )
    if options.json:
        print(json.dumps(found))
    else:
        _show(found)
    return 0


def _show(found: Row) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    more = f"; {found['left_out']} other episodes left out" if found["left_out"] else ""
    console.print(f"{found['games']} games{more}")
    rows = [
        [
            row["player"],
            str(row["games"]),
            f"{100 * row['score']:.1f} %",
            f"{row['elo'][0]:.0f}",
            f"{row['elo'][1]:.0f} to {row['elo'][2]:.0f}",
            f"{row['sequential_elo']:.0f}",
        ]
        for row in found["players"]
    ]
    console.print(table(["player", "games", "score", "Elo", "95 %", "Elo game by game"], rows))
    console.print(
        "Elo is fitted to all games at once (Bradley-Terry; 1500 is the average player); the last "
        "column updates game by game, in order.",
        style="dim", soft_wrap=True,
    )  # fmt: skip
