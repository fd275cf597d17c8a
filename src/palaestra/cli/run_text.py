"""A run as `palaestra show` prints it: results first, configuration last."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from posixpath import commonpath
from typing import TYPE_CHECKING, Any

from palaestra.cli.tables import table
from palaestra.training.stage_lines import besides_stages, stage_lines

if TYPE_CHECKING:
    from rich.console import Console

    from palaestra.store.database import Database
    from palaestra.store.header import EpisodeSummary

RL_COLUMNS = ("success", "reward", "turns", "invalid", "entropy", "kl", "seconds")
Row = dict[str, Any]


def phases_of(database: Database) -> dict[str, Row]:
    """Return the results of each phase, in the order of the first episodes.

    Phases of games have `players`, and success only if all players share it.
    """
    of: dict[str, list[EpisodeSummary]] = {}
    for found in database.summaries():
        of.setdefault(found.key.phase, []).append(found)
    return {phase: _standing(database, phase, episodes) for phase, episodes in of.items()}


def show_run(run: Row, console: Console) -> None:
    """Print the summary of a run."""
    recipe = run["recipe"] or {}
    console.print(run["path"], markup=False, style="bold", soft_wrap=True)
    console.print(recipe.get("summary", ""), markup=False)
    for line in headline(run):
        console.print(line, markup=False, style="bold", soft_wrap=True)
    if run["phases"]:
        heads, rows = _phases(run["phases"])
        start = _common_start([row[0] for row in rows])
        if start:  # of many environments: what tells them apart would be cut off
            console.print(f"phases, without their common '{start}'", markup=False, soft_wrap=True)
        console.print(table(heads, [[row[0][len(start) :], *row[1:]] for row in rows]))
        _show_players(run, console)
        console.print("An episode: palaestra show RUN PHASE/TASK.MEMBER", style="dim")
    _show_alarms(run, console)
    if run["stages"]:
        stages = [
            [
                stage["name"],
                f"{stage['seconds']:.0f}",
                str(stage["sampled_tokens"]),
                str(stage["trained_tokens"]),
            ]
            for stage in run["stages"]
        ]
        console.print(table(["stage", "seconds", "sampled", "trained"], stages))
    if run["lineage"]:
        lines = ["lineage:", *map(_version, run["lineage"])]
        console.print("\n".join(lines), markup=False, soft_wrap=True)
    if run["general_loss"]:
        losses = [f"{version} {loss:.3f}" for version, loss in run["general_loss"].items()]
        line = f"loss on held-out general text, nats per token: {' → '.join(losses)}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if run["rl"]:
        returns = {name: None for row in run["rl"] for name in row if name.startswith("return/")}
        shown = [*RL_COLUMNS[:1], *returns, *RL_COLUMNS[1:]]
        columns = [name for name in shown if any(name in row for row in run["rl"])]
        steps = [
            [str(row["step"]), *(f"{row[c]:.3f}" if c in row else "" for c in columns)]
            for row in run["rl"]
        ]
        console.print(table(["RL step", *columns], steps))
    console.print(f"created {run['created']} by palaestra {', then '.join(run['versions'])}")
    for model in {**run["revisions"], **run["runs_by"]}:
        revision, way = run["revisions"].get(model), run["runs_by"].get(model)
        known = [f"revision {revision}"] * bool(revision) + [f"runs by: {way}"] * bool(way)
        if known:
            line = f"model {model}: {', '.join(known)}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    if run["totals"]:
        peak = run["totals"]["peak_memory_bytes"] / 1e9
        console.print(f"{run['totals']['seconds']:.0f} s in total, peak memory {peak:.2f} GB")
    if recipe.get("stage"):
        lines = ["stages, with the keys that differ from their defaults:"]
        lines += [f"  {line}" for line in stage_lines(recipe)]
        console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)
    tables = [[key, _short(value)] for key, value in _flat(besides_stages(recipe))]
    console.print(table(["recipe", "value"], tables))


def headline(run: Row) -> list[str]:
    """Return the run's last tested success with its interval, or returns of players; and faults."""
    from palaestra.viewer.facts import main_phase

    judged = [name for name in run["phases"] if not _practised(name)]
    if not judged:
        return ["No episode outside of training has finished yet."]
    found = []
    if len([name for name in judged if name.startswith("eval")]) < 2:  # else show each separately
        name = main_phase(judged)
        row = run["phases"][name]
        if row["success"] is None and row.get("players"):
            found.append(f"{name}: mean returns {_returns(row)} on {row['tasks']} tasks")
        elif row["success"] is None:
            found.append(f"{name}: no episode has a result")
        else:
            bounds = f", 95 % interval over tasks {_bounds(row)}" if row["interval"] else ""
            reached = f"success {_percent(row['success'])} of {row['tasks']} tasks"
            found.append(f"{name}: {reached}{bounds}")
    return [*found, _broken(run)]


# ── details ──────────────────────────────────────────────────────────────────


def _version(one: Row) -> str:
    """Return a line on a version of the policy: what it began with, and what it learned."""
    counted: dict[tuple[str, str, str], int] = {}
    for phase, of in one["rows"].items():
        stage = re.sub(r"/\d+$", "", phase)  # the steps of a stage together
        what = "rows" if "rows" in of else "rollouts"
        by = f" by {of['agent']}" if "agent" in of else ""
        key = (what, of["speaker"] + by, stage)
        counted[key] = counted.get(key, 0) + (of["rows"] if "rows" in of else of["episodes"])
    learned = [
        f"{count} {what}{'' if whose == 'text' else f' of the {whose}'} in {stage}"
        for (what, whose, stage), count in counted.items()
    ]
    line = f"  {one['version']} from {' and '.join(one['start'])}"
    if teacher := one.get("teacher"):
        line += f", taught by {teacher}"
    if learned:
        of_levels, of_models = one.get("levels", {}), one.get("models", {})
        licences = {one["environment"]: one["licence"], **of_levels, **of_models}
        source = "; ".join(f"{of}, {given or 'licence unknown'}" for of, given in licences.items())
        line += f": {', '.join(learned)} ({source})"
    return line


def _standing(database: Database, phase: str, episodes: Sequence[EpisodeSummary]) -> Row:
    from palaestra.evaluation.statistics import player_results
    from palaestra.evaluation.statistics.conversation import talk_json
    from palaestra.evaluation.statistics.intervals import success_interval
    from palaestra.viewer import facts

    games = facts.games_by_phase(database, phase).get(phase, facts.NO_GAMES)
    players = games.players
    environments = {episode.environment for episode in episodes}
    one = all(player_results.has_success(id, players) for id in environments)
    tasks: dict[int, list[bool]] = {}
    for episode in episodes:
        if episode.outcome.scored:
            tasks.setdefault(episode.key.group, []).append(episode.outcome.solved)
    solved, scored = (sum(map(count, tasks.values())) for count in (sum, len))
    interval = success_interval([sum(of) / len(of) for of in tasks.values()])
    unscored = [e.outcome for e in episodes if not e.outcome.scored]
    faults = Counter("cancelled" if o.was_cancelled else str(o.owner) for o in unscored)
    return {
        "episodes": len(episodes),
        "scored": scored,
        "solved": solved if one else None,
        "success": solved / scored if scored and one else None,
        "interval": [interval.low, interval.high] if interval and one else None,
        "tasks": len(tasks),
        "faults": dict(faults),
        **({"players": player_results.as_json(players)} if players else {}),
        **talk_json(games.talk),
    }


def _broken(run: Row) -> str:
    """Return the faults of all phases by owner, and the command that runs them again."""
    recipe = run["recipe"] or {}
    faults: Counter[str] = Counter()
    for row in run["phases"].values():
        faults.update(row["faults"])
    if not faults:
        return "faults: none"
    text = f"faults: {_counts(faults)} (these episodes have no result)"
    command = "train" if "rl" in recipe else recipe.get("command")
    tested = [row for name, row in run["phases"].items() if not _practised(name)]
    if command in ("train", "eval") and any("infrastructure" in row["faults"] for row in tested):
        text += "; run tests again that infrastructure broke with: "
        text += f"palaestra {command} --resume {run['path']}"
    return text


def _practised(phase: str) -> bool:
    """Return whether a phase is of training, and no test of the policy."""
    return phase.partition("/")[0] not in ("test", "transfer", "validation", "eval")


def _phases(phases: dict[str, Row]) -> tuple[list[str], list[list[str]]]:
    """Return one line per phase under its heads; the numbered phases of RL share a line."""
    heads = ["phase", "success", "95 %", "returns", "tasks", "episodes", "faults"]
    rows: list[list[str]] = []
    numbered = [name for name in phases if re.fullmatch(r"rl/\d+", name)]
    for name, row in phases.items():
        if name in numbered[1:]:
            continue
        if name in numbered and len(numbered) > 1:
            row = _together([phases[other] for other in numbered])
            name = f"{name} to {numbered[-1]}"
        rows.append(
            [
                name,
                _percent(row["success"]),
                _bounds(row),
                row["returns"] if "returns" in row else _returns(row),
                str(row["tasks"]),
                str(row["episodes"]),
                _counts(row["faults"]),
            ]
        )
    kept = [k for k, head in enumerate(heads) if head != "returns" or any(row[k] for row in rows)]
    if not any(row[1] for row in rows):  # games alone
        kept = [k for k in kept if heads[k] not in ("success", "95 %")] if 3 in kept else kept
    return [heads[k] for k in kept], [[row[k] for k in kept] for row in rows]


def _common_start(names: Sequence[str]) -> str:
    """Return the folders that several phases begin with, if their names are long; else nothing."""
    shared = commonpath([name.rpartition("/")[0] for name in names]) + "/" if names else ""
    return shared if len(names) > 1 and shared.count("/") > 2 else ""


def _together(steps: Sequence[Row]) -> Row:
    """Return the sums of the numbered phases of a stage, and means of success and returns."""
    row: Row = {p: sum(one[p] or 0 for one in steps) for p in ("episodes", "scored", "tasks")}
    solved = [one["solved"] for one in steps]
    row["success"] = sum(solved) / row["scored"] if row["scored"] and None not in solved else None
    row["faults"] = sum((Counter(one["faults"]) for one in steps), Counter())
    row["interval"] = None
    sums: dict[str, list[float]] = {}  # of returns, and the number of episodes
    for one in steps:
        for player, score in (one.get("players") or {}).items():
            known = sums.setdefault(player, [0.0, 0])
            known[0] += score["mean"] * score["episodes"]
            known[1] += score["episodes"]
    row["returns"] = ", ".join(f"{p} {total / count:+.2f}" for p, (total, count) in sums.items())
    return row


def _show_players(run: Row, console: Console) -> None:
    """Print the results of each of several players in each phase outside of training."""
    from palaestra.evaluation.statistics import player_results
    from palaestra.evaluation.statistics.conversation import talk_rows

    rows = [
        [phase, *line]
        for phase, row in run["phases"].items()
        if not _practised(phase) and row.get("players")
        for line in player_results.rows(player_results.from_json(row["players"]))
    ]
    if not rows:
        return
    console.print(table(["phase", *player_results.HEADS], rows))
    for phase, row in run["phases"].items():
        for name, text in () if _practised(phase) else talk_rows(row.get("talk")):
            console.print(f"{phase}: {name}: {text}", markup=False, soft_wrap=True)
    recipe = run["recipe"] or {}
    found = recipe.get("environment") or ""
    environment = str(found.get("id", "") if isinstance(found, dict) else found)
    policies = 2 if recipe.get("roles") else 1
    commands = player_results.strength_commands(environment, run["path"], policies=policies)
    if commands:
        text = f"Who plays best: {' or '.join(commands)}"
        console.print(text, style="dim", markup=False, soft_wrap=True)


def _returns(row: Row) -> str:
    from palaestra.evaluation.statistics import player_results

    return player_results.line(player_results.from_json(row.get("players") or {}))


def _show_alarms(run: Row, console: Console) -> None:
    """Print the alarms that monitors raised during the run."""
    if run["alarms"] is None and run["rl"]:
        console.print("No record of alarms: an older version made this run.", style="dim")
    for alarm in run["alarms"] or []:
        stood = f" (stood at {alarm['steps']} steps, the last time at step {alarm['last']})"
        text = f"{alarm['name']}: {alarm['message']}{stood if alarm['steps'] > 1 else ''}"
        console.print("[yellow]alarm[/yellow]", end=" ")
        console.print(text, markup=False, soft_wrap=True)


def _flat(data: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in data.items():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{name}.")
        elif value is not None and prefix + name != "summary":
            found.append((prefix + name, value))
    return found


def _counts(faults: dict[str, int]) -> str:
    return ", ".join(f"{owner} {count}" for owner, count in faults.items() if count)


def _bounds(row: Row) -> str:
    if not row["interval"]:
        return ""
    low, high = (100 * bound for bound in row["interval"])
    return f"{low:.1f} to {high:.1f} %"


def _short(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"
