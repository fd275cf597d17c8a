"""`palaestra team`: what the members of a team contributed to a run, and what the team learned."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.cli.judge_command import episodes_of
from palaestra.cli.tables import table
from palaestra.core.errors import InputError
from palaestra.training.toml_text import toml_key, toml_value

if TYPE_CHECKING:
    from palaestra.core.episode import Episode
    from palaestra.environments.teams.team_file import Team

EXAMPLE = "palaestra team runs/round-1 --to round-2.toml"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run in which a team acted")
    parser.add_argument(
        "--phase", action="append", default=[], metavar="PHASE", dest="phases",
        help="only these (repeatable; default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--of", default="", metavar="MEMBER",
        help="the team in this member's place (default: the team that is in none)",
    )  # fmt: skip
    parser.add_argument(
        "--to", type=Path, metavar="FILE",
        help="write the team as it is after the run, with what its routing learned, to a new file",
    )  # fmt: skip
    parser.add_argument(
        "--without", action="append", default=[], metavar="MEMBER",
        help="with --to: take this member out of the team (repeatable)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    from palaestra.evaluation.reports.team_report import mean_importance, work_of

    if options.without and options.to is None:
        raise InputError("--without changes no file by itself; say where the team goes with --to.")
    episodes = [*episodes_of([options.run], options.phases)]
    name, team = _team_of(episodes, options.of)
    if options.to is not None:
        _write(options.to, team, episodes, options)
    rows: list[dict[str, Any]]
    if team.network is not None:
        importance = mean_importance(episodes, options.of)
        rows = [
            {"member": m, "importance": one.mean, "interval": [one.low, one.high]}
            for m, one in sorted(importance.items(), key=lambda item: -item[1].mean)
        ]
        if not rows:
            raise InputError("No turn of the network was decided in this run; name another one.")
    else:
        work = work_of(episodes, [*team.members], options.of)
        rows = [{"member": m, **one._asdict()} for m, one in work.items()]
    if options.json:
        print(json.dumps({"team": name, "members": rows}))
    else:
        _show(rows)
    return 0


def _show(rows: Sequence[dict[str, Any]]) -> None:
    from rich.console import Console

    console = Console(highlight=False)
    if "importance" in rows[0]:
        lines = [
            [row["member"], f"{row['importance']:.3f}", "{:.3f} to {:.3f}".format(*row["interval"])]
            for row in rows
        ]
        console.print(table(["member", "importance", "95 %"], lines))
        note = "The mean Agent Importance Score of a turn; the scores of one layer sum to 1."
    else:
        lines = [[str(value) for value in row.values()] for row in rows]
        console.print(table(["member", "held", "done", "solved"], lines))
        note = "Tasks and parts of tasks: held, done by the member itself, in solved episodes."
    console.print(note, style="dim", soft_wrap=True)


def _team_of(episodes: Sequence[Episode], place: str) -> tuple[str, Team]:
    """Return the team of episodes, or the one in a member's place there, and its name.

    Raises:
        InputError: there is none, there are several, or its protocol records nothing about members.
    """
    from palaestra.environments.teams.team_file import load
    from palaestra.environments.wrappers.knobs import split

    names = {split(episode.task.environment)[1].get("team") for episode in episodes}
    if len(names) > 1:
        raise InputError("The run has episodes of several teams; choose one with --phase.")
    name = names.pop()
    if name is None:
        raise InputError("No team acted in this run; evaluate one with `palaestra eval --team`.")
    team = load(name)
    for member in place.split(".") if place else ():
        if member not in team.inner:
            known = ", ".join(team.inner) or "none"
            raise InputError(
                f"No team is in the place of '{member}' (--of {place}); members of '{name}' that "
                f"are teams: {known}."
            )
        name, team = f"{name}, {member}", team.inner[member]
    if team.network is None and team.routing is None:
        inner = f" --of names one of its own: {', '.join(team.inner)}." if team.inner else ""
        raise InputError(
            f"The team '{name}' has neither [network] nor [routing], so it rates nobody and learns "
            f"nothing; name a run of a team that has one of them.{inner}"
        )
    return name, team


def _write(
    file: Path, team: Team, episodes: Sequence[Episode], options: argparse.Namespace
) -> None:
    """Write the team after a run.

    Raises:
        InputError: the team learns nothing, could not act without the removed members, or the file
            exists: runs of the team that is in it could not be resumed.
    """
    from palaestra.environments.teams.learned_routes import learned, without
    from palaestra.environments.teams.team_file import parse

    if team.routing is None:
        raise InputError("--to needs a team with [routing]; a network learns nothing.")
    if file.exists():
        raise InputError(f"'{file}' exists, and runs may depend on it; name a new file with --to.")
    team = learned(team, episodes, options.of)
    for member in options.without:
        team = without(team, member)
    text = team_text(team)
    parse(str(file), text)
    file.write_text(text, encoding="utf-8")


def team_text(team: Team) -> str:
    """Return a team with routing as TOML, one line for each past task."""
    assert team.routing is not None
    lines = []
    for name, member in team.members.items():
        lines.append(f"[members.{toml_key(name)}]")
        set_keys = member.model_dump(mode="json", exclude_defaults=True)
        lines += [f"{key} = {toml_value(value)}" for key, value in set_keys.items()]
    lines += ["", "[routing]", f"hops = {team.routing.hops}"]
    for source, targets in team.routing.edges.items():
        weights = {target: round(weight, 6) for target, weight in targets.items()}
        lines.append(f"edges.{toml_key(source)} = {toml_value(weights)}")
    for name, tasks in team.routing.past.items():
        rows = [f"  {toml_value([task, solved])},\n" for task, solved in tasks]
        lines.append(f"past.{toml_key(name)} = [\n{''.join(rows)}]")
    return "\n".join(lines) + "\n"
