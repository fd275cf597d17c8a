"""A run as `palaestra show` tells it: how it did first, what it was at the end."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from palaestra.cli.tables import table

if TYPE_CHECKING:
    from rich.console import Console

    from palaestra.store.database import Database
    from palaestra.store.header import EpisodeSummary

RL_COLUMNS = ("success", "reward", "turns", "invalid", "entropy", "kl", "seconds")
Row = dict[str, Any]


def phases_of(database: Database) -> dict[str, Row]:
    """How the episodes of each phase did, in the order of their first one."""
    of: dict[str, list[EpisodeSummary]] = {}
    for found in database.summaries():
        of.setdefault(found.key.phase, []).append(found)
    return {phase: _standing(episodes) for phase, episodes in of.items()}


def show_run(run: Row, console: Console) -> None:
    """Print what `summary` says of a run."""
    recipe = run["recipe"] or {}
    console.print(run["path"], markup=False, style="bold", soft_wrap=True)
    console.print(recipe.get("summary", ""), markup=False)
    for line in headline(run):
        console.print(line, markup=False, style="bold", soft_wrap=True)
    if run["phases"]:
        heads = ["phase", "success", "95 %", "tasks", "episodes", "faults"]
        console.print(table(heads, _phases(run["phases"])))
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
    if run["rl"]:
        columns = [name for name in RL_COLUMNS if any(name in row for row in run["rl"])]
        steps = [
            [str(row["step"]), *(f"{row[c]:.3f}" if c in row else "" for c in columns)]
            for row in run["rl"]
        ]
        console.print(table(["RL step", *columns], steps))
    console.print(f"created {run['created']} by palaestra {', then '.join(run['versions'])}")
    if run["totals"]:
        peak = run["totals"]["peak_memory_bytes"] / 1e9
        console.print(f"{run['totals']['seconds']:.0f} s in all, peak memory {peak:.2f} GB")
    console.print(table(["recipe", "value"], [[k, _short(v)] for k, v in _flat(recipe)]))


def headline(run: Row) -> list[str]:
    """How the run did: success where it was tested last, its interval, and what broke."""
    from palaestra.viewer.facts import telling

    judged = [name for name in run["phases"] if not _practised(name)]
    if not judged:
        return ["No episode outside of training has finished yet."]
    found = []
    if len([name for name in judged if name.startswith("eval")]) < 2:  # else each for itself
        name = telling(judged)
        row = run["phases"][name]
        if row["success"] is None:
            found.append(f"{name}: no episode has a result")
        else:
            bounds = f", 95 % interval over tasks {_bounds(row)}" if row["interval"] else ""
            reached = f"success {_percent(row['success'])} of {row['tasks']} tasks"
            found.append(f"{name}: {reached}{bounds}")
    return [*found, _broken(run)]


# ── details ──────────────────────────────────────────────────────────────────


def _standing(episodes: Sequence[EpisodeSummary]) -> Row:
    from palaestra.evaluation.statistics import success_interval

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
        "solved": solved,
        "success": solved / scored if scored else None,
        "interval": [interval.low, interval.high] if interval else None,
        "tasks": len(tasks),
        "faults": dict(faults),
    }


def _broken(run: Row) -> str:
    """What has no result in all phases, by whose fault, and what lives it again."""
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
        text += "; tests that infrastructure broke are lived again by: "
        text += f"palaestra {command} --resume {run['path']}"
    return text


def _practised(phase: str) -> bool:
    """Whether it is of training, so that it does not say how the policy does."""
    return phase == "demonstrations" or re.fullmatch(r"rl/\d+", phase) is not None


def _phases(phases: dict[str, Row]) -> list[list[str]]:
    """One line per phase; the many numbered ones of RL share a line."""
    rows: list[list[str]] = []
    numbered = [name for name in phases if re.fullmatch(r"rl/\d+", name)]
    for name, row in phases.items():
        if name in numbered[1:]:
            continue
        if name in numbered and len(numbered) > 1:
            of = [phases[other] for other in numbered]
            row = {p: sum(one[p] for one in of) for p in ("episodes", "scored", "solved", "tasks")}
            row["success"] = row["solved"] / row["scored"] if row["scored"] else None
            row["faults"] = sum((Counter(one["faults"]) for one in of), Counter())
            row["interval"] = None
            name = f"{name} to {numbered[-1]}"
        rows.append(
            [
                name,
                _percent(row["success"]),
                _bounds(row),
                str(row["tasks"]),
                str(row["episodes"]),
                _counts(row["faults"]),
            ]
        )
    return rows


def _show_alarms(run: Row, console: Console) -> None:
    """The alarms that monitors raised while the run was made."""
    if run["alarms"] is None and run["rl"]:
        console.print("No record of alarms: the run is older than that.", style="dim")
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
