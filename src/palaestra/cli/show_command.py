"""`palaestra show`: what a run holds, or one of its episodes turn by turn."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.cli.tables import table
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError, UnknownName

if TYPE_CHECKING:
    from rich.console import Console

    from palaestra.core.graph import Call
    from palaestra.store.database import Database
    from palaestra.store.run import RunFolder

EXAMPLE = "palaestra show runs/default-20260101-120000 test/rl/17.0 --tokens"
RL_COLUMNS = ("success", "reward", "turns", "invalid", "entropy", "kl", "seconds")
Row = dict[str, Any]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="RUN", help="a run's folder, or its name")
    parser.add_argument("episode", nargs="?", metavar="EPISODE", help="e.g. test/rl/17.0")
    parser.add_argument(
        "--tokens", action="store_true", help="with EPISODE: each sampled token's log-probability"
    )
    parser.add_argument(
        "--metrics", action="store_true", help="every measure of its episodes, by phase"
    )
    parser.add_argument(
        "--drift", action="store_true", help="how its turns change from early to late in episodes"
    )
    parser.add_argument(
        "--context", type=int, metavar="TOKENS",
        help="with --metrics: also how full a context of so many tokens was",
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
        raise InputError("--tokens shows the tokens of an episode; name one after the run.")
    measuring = options.metrics or options.drift
    if measuring and options.episode is not None:
        raise InputError("--metrics and --drift measure phases of a run; leave the episode out.")
    if (options.by or options.context is not None) and not options.metrics:
        raise InputError("--by and --context are for --metrics; add it, or leave them out.")
    if options.phases and not measuring:
        raise InputError("--phase is for --metrics and --drift; add one, or leave it out.")
    if options.context is not None and options.context < 1:
        raise InputError(f"--context {options.context} holds nothing; give 1 or more tokens.")
    from palaestra.cli.console import Console
    from palaestra.store.run import RunFolder, run_path

    console = Console(highlight=False)
    with RunFolder.read(run_path(options.folder)) as opened:
        if options.episode is not None:
            episode = find_episode(opened.database, options.episode)
            pieces = _pieces(opened) if options.tokens else None
            if options.json:
                print(_record(episode, pieces))
            else:
                _show_episode(episode, pieces, console)
        elif measuring:
            _show_measures(options, opened.database, console)
        elif options.json:
            print(json.dumps(summary(opened)))
        else:
            _show_run(summary(opened), console)
    return 0


def parse_key(text: str) -> Key | None:
    """The key that prints as `text`, e.g. test/rl/17.0; without a member, the first one's."""
    match = re.fullmatch(r"(.+)/(\d+)(?:\.(\d+))?", text)
    return Key(match[1], int(match[2]), int(match[3] or 0)) if match else None


def find_episode(database: Database, name: str) -> Episode:
    """The finished episode of that printed key; raises UnknownName, with near ones."""
    key = parse_key(name)
    episode = database.episode(key) if key else None
    if episode is None:
        phase = key.phase if key and key.phase in database.phases() else ""
        known = [str(found.key) for found in database.summaries(phase)]
        raise UnknownName("episode", name, known)
    return episode


def summary(opened: RunFolder) -> Row:
    """The run as one JSON object."""
    database = opened.database
    phases: dict[str, Row] = {}
    for found in database.summaries():
        row = phases.setdefault(found.key.phase, {"episodes": 0, "scored": 0, "solved": 0})
        row["episodes"] += 1
        row["scored"] += found.outcome.scored
        row["solved"] += found.outcome.solved
    for row in phases.values():
        row["success"] = row["solved"] / row["scored"] if row["scored"] else None
    return {
        "path": str(opened.path),
        "created": opened.record.created.isoformat(timespec="seconds"),
        "palaestra": opened.record.palaestra,
        "recipe": database.get("recipe"),
        "machine": database.get("machine"),
        "totals": database.get("totals"),
        "stages": database.get("stages") or [],
        "rl": [{"step": step, **values} for step, values in database.metrics("rl")],
        "alarms": database.get("alarms/rl"),
        "phases": phases,
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


# ── a run ────────────────────────────────────────────────────────────────────


def _show_run(run: Row, console: Console) -> None:
    recipe = run["recipe"] or {}
    console.print(run["path"], markup=False, style="bold", soft_wrap=True)
    console.print(recipe.get("summary", ""), markup=False)
    console.print(f"created {run['created']} by palaestra {run['palaestra']}")
    if run["totals"]:
        peak = run["totals"]["peak_memory_bytes"] / 1e9
        console.print(f"{run['totals']['seconds']:.0f} s in all, peak memory {peak:.2f} GB")
    console.print(table(["recipe", "value"], [[k, _short(v)] for k, v in _flat(recipe)]))
    if run["stages"]:
        stages = [
            [
                stage["name"],
                _percent(run["phases"].get(stage["name"], {}).get("success")),
                f"{stage['seconds']:.0f}",
                str(stage["sampled_tokens"]),
                str(stage["trained_tokens"]),
            ]
            for stage in run["stages"]
        ]
        console.print(table(["stage", "success", "seconds", "sampled", "trained"], stages))
    if run["rl"]:
        columns = [name for name in RL_COLUMNS if any(name in row for row in run["rl"])]
        steps = [
            [str(row["step"]), *(f"{row[c]:.3f}" if c in row else "" for c in columns)]
            for row in run["rl"]
        ]
        console.print(table(["RL step", *columns], steps))
    _show_alarms(run, console)
    if run["phases"]:
        console.print(table(["phase", "episodes", "success"], _phases(run["phases"])))
        console.print("An episode: palaestra show RUN PHASE/TASK.MEMBER", style="dim")


def _show_alarms(run: Row, console: Console) -> None:
    """The alarms that monitors raised while the run was made."""
    if run["alarms"] is None and run["rl"]:
        console.print("No record of alarms: the run is older than that.", style="dim")
    for alarm in run["alarms"] or []:
        stood = f" (stood at {alarm['steps']} steps, the last time at step {alarm['last']})"
        text = f"{alarm['name']}: {alarm['message']}{stood if alarm['steps'] > 1 else ''}"
        console.print("[yellow]alarm[/yellow]", end=" ")
        console.print(text, markup=False, soft_wrap=True)


def _phases(phases: dict[str, Row]) -> list[list[str]]:
    """One line per phase; the many numbered ones of RL share a line."""
    rows: list[list[str]] = []
    numbered = [name for name in phases if re.fullmatch(r"rl/\d+", name)]
    for name, row in phases.items():
        if name in numbered[1:]:
            continue
        if name in numbered and len(numbered) > 1:
            of = [phases[other] for other in numbered]
            row = {part: sum(one[part] for one in of) for part in ("episodes", "scored", "solved")}
            row["success"] = row["solved"] / row["scored"] if row["scored"] else None
            name = f"{name} to {numbered[-1]}"
        rows.append([name, str(row["episodes"]), _percent(row["success"])])
    return rows


def _flat(data: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in data.items():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{name}.")
        elif value is not None and prefix + name != "summary":
            found.append((prefix + name, value))
    return found


# ── an episode ───────────────────────────────────────────────────────────────


def _show_episode(
    episode: Episode, pieces: Callable[[Call], list[str]] | None, console: Console
) -> None:
    from palaestra.evaluation.transcript import plain, turns

    console.print(str(episode.key), markup=False, style="bold", end="")
    console.print(f"  task {episode.task.id} of {episode.task.environment}", markup=False)
    used = episode.usage
    console.print(
        f"{episode.agent}: {episode.outcome}, reward {episode.reward:g}, {used.turns} turns, "
        f"{f'{used.tried} tried, ' if used.tried else ''}{used.sampled_tokens} tokens sampled, "
        f"{used.seconds:.1f} s\n",
        markup=False,
    )
    if episode.outcome.detail:
        console.print(plain(episode.outcome.detail), markup=False)
    chosen: dict[int, list[Call]] = {}
    for call in episode.calls:
        acted = (s.index for s in episode.steps if s.call is not None and s.call >= call.index)
        chosen.setdefault(next(acted, len(episode.steps)), []).append(call)
    for number, turn in enumerate(turns(episode)):
        console.print(f"sees   {turn.observation}", markup=False, style="dim", soft_wrap=True)
        if number < len(episode.steps):
            notes = [f"reward {turn.reward:g}"] if turn.reward else []
            notes += [] if turn.valid else ["not understood"]
            note = f"   ({', '.join(notes)})" if notes else ""
            said = f"{number + 1:4}   {turn.action}{note}"
            console.print(said, markup=False, style="bold" if turn.valid else "red", soft_wrap=True)
        for call in chosen.get(number, []) if pieces else []:
            _show_tokens(call, pieces(call) if pieces else [], console)
    console.print(f"\nend: {episode.outcome}", markup=False)


def _show_tokens(call: Call, pieces: Sequence[str], console: Console) -> None:
    head = f"       call {call.index}: {call.policy} version {call.version}, {call.finish}"
    console.print(head, markup=False, style="cyan")
    if not pieces:
        console.print("       (no tokens were recorded)", style="dim")
    entropies = call.entropies or (None,) * len(call.logprobs)
    for piece, logprob, entropy in zip(pieces, call.logprobs, entropies, strict=False):
        said = "" if entropy is None else f"  entropy {entropy:.3f}"
        console.print(f"       {logprob:8.3f}{said}  {piece!r}", markup=False)


def _pieces(opened: RunFolder) -> Callable[[Call], list[str]]:
    """How a call's tokens read: by the run's tokenizer, else as their ids."""
    from palaestra.models.registry import renderer_of

    folder = _tokenizer_folder(opened)
    renderer = renderer_of(folder) if folder else None

    def read(call: Call) -> list[str]:
        if renderer is None:
            return [str(token) for token in call.completion]
        return renderer.pieces(call.completion)

    return read


def _tokenizer_folder(opened: RunFolder) -> Path | None:
    from palaestra.models.weights import ready

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
    except InputError:  # the expert, a remote model, a folder that has gone
        return None


def _record(episode: Episode, pieces: Callable[[Call], list[str]] | None) -> str:
    from palaestra.store.codec import to_json

    record = json.loads(to_json(episode))
    if pieces is not None:
        for call, found in zip(episode.calls, record["calls"], strict=True):
            found["pieces"] = pieces(call)
    return json.dumps(record)


# ── details ──────────────────────────────────────────────────────────────────


def _short(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"
