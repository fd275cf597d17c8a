"""Renders a report: in the terminal, as Markdown, and as files in the run folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from palaestra.core.episode import Episode
from palaestra.core.outcome import Owner
from palaestra.evaluation.reports import transcript
from palaestra.evaluation.reports.learning_curves import learning_curve_png, learning_curve_text
from palaestra.evaluation.reports.report import Report, Stage, as_json, finite
from palaestra.evaluation.statistics import player_results
from palaestra.evaluation.statistics.conversation import talk_json, talk_rows
from palaestra.evaluation.statistics.intervals import Comparison, Interval, compared_policies
from palaestra.store.disk import replacing_file

SHOWN_TURNS = 10  # of each example episode; the store has all turns


def write(report: Report, folder: Path) -> list[Path]:
    """Write report.md, report.json and, if RL ran, learning_curve.png; each atomically.

    Args:
        report: the report.
        folder: the folder to write to; created if missing. The report itself names `report.run`.

    Returns:
        the written files.

    Raises:
        StorageFull: the disk is full; earlier versions of the files are intact.
    """
    text = json.dumps(as_json(report), indent=2, allow_nan=False) + "\n"
    writers: dict[str, Callable[[Path], object]] = {
        "report.md": lambda path: path.write_text(markdown(report), encoding="utf-8"),
        "report.json": lambda path: path.write_text(text, encoding="utf-8"),
        "learning_curve.png": lambda path: learning_curve_png(
            report.curve, path, held_out=report.success, title=_tasks(report.held_out)
        ),
    }
    folder.mkdir(parents=True, exist_ok=True)
    names = _files(report)
    for name in names:
        with replacing_file(folder / name) as partial:
            writers[name](partial)
    return [folder / name for name in names]


def render(report: Report, console: Console) -> None:
    """Print the report on a terminal, at the console's width."""
    console.rule("[bold]report")
    console.print(Text(headline(report)))
    for section in _results(report):
        _print(section, console)
    if report.curve and any("success" in row for _, row in report.curve):
        curve = learning_curve_text(report.curve, console.width, held_out=report.success)
        console.print()
        console.print(Text(curve), no_wrap=True, overflow="ignore", crop=False)
    for section in _transfer(report) + _general(report) + _alarms(report) + _costs(report):
        _print(section, console)
    if report.example:
        before, after = report.example
        console.print()
        console.print(Text(f"one held-out task, before and after: {_name(after)}", "bold"))
        console.print(transcript.table(before, after, limit=SHOWN_TURNS))
    _print(_paths(report), console)


def markdown(report: Report) -> str:
    """Render the report as a Markdown page that links to learning_curve.png beside it."""
    parts = ["# Report of a training run", headline(report)]
    if report.curve:
        parts.append("![Learning curve](learning_curve.png)")
    for section in (
        *_results(report),
        *_transfer(report),
        *_general(report),
        *_alarms(report),
        *_costs(report),
    ):
        parts += [f"## {section.title[0].upper()}{section.title[1:]}", _markdown_table(section)]
        if section.note:
            parts.append(section.note)
    if report.example:
        before, after = report.example
        parts += [
            "## One held-out task, before and after",
            f"{_name(after)}",
            transcript.side_by_side_markdown(before, after, limit=2 * SHOWN_TURNS),
        ]
    parts += ["## Files", _markdown_table(_paths(report))]
    for title, values in (("Recipe", report.recipe), ("Machine", report.machine)):
        if values:
            body = json.dumps(finite(values), indent=2, ensure_ascii=False)
            parts += [f"## {title}", f"```json\n{body}\n```"]
    return "\n\n".join(parts) + "\n"


def headline(report: Report) -> str:
    """Return the result in one or two sentences, with its missing parts and remarks on it."""
    return " ".join([_reached(report), *_missing(report), *report.remarks])


def _reached(report: Report) -> str:
    success = report.success
    if not success and report.players:
        return f"{_control(report)}{_returns(report)}"
    if not success:
        return "No evaluation has finished yet."
    rates = " → ".join(f"{_name_of(p)} {100 * i.mean:.1f} %" for p, i in success.items())
    text = f"{_control(report)}Success on {_tasks(report.held_out)}: {rates}."
    for a, b in compared_policies(report.policies):
        gain = report.held_out.paired.get(f"{a}_minus_{b}")
        if gain is not None:
            low, high = 100 * gain.low, 100 * gain.high
            return (
                f"{text} {_name_of(a)} changed it by {100 * gain.mean:+.1f} points over "
                f"{_name_of(b)} "
                f"(95 % interval over tasks {low:+.1f} to {high:+.1f}, {_verdict(gain)}; "
                f"of this training seed alone)."
            )
    return text


def _control(report: Report) -> str:
    """Return a sentence about a control run, whose reward is not the task's; else empty."""
    arm = (report.recipe.get("rl") or {}).get("control")
    if arm is None:
        return ""
    return f"Control run: RL learned from {_ARMS[arm]} in place of the reward. "


def _missing(report: Report) -> list[str]:
    """Return which tasks have no result, and the command that reruns them."""
    found, rerunnable = [], 0
    for where, comparison in (("", report.held_out), ("transfer ", report.transfer)):
        for policy, score in comparison.scores.items():
            for owner, count in score.missing.items():
                found.append(
                    f"{count} of {score.tasks} {where}tasks under {_name_of(policy)} ({owner})"
                )
            rerunnable += score.missing.get(Owner.INFRASTRUCTURE, 0)
    if not found:
        return []
    text = f"Without a result, through no fault of the agent: {', '.join(found)}."
    if rerunnable:
        text += f" Rerun what infrastructure broke: palaestra train --resume {report.run}"
    return [text]


def _returns(report: Report) -> str:
    """Return a sentence with the mean returns of players, by policy."""
    found = [
        f"{_name_of(policy)} {player_results.line(score.players)}"
        for policy, score in report.held_out.scores.items()
        if score.players
    ]
    return f"Mean returns on {_tasks(report.held_out)}: {'; '.join(found)}."


# ── tables, the same in the terminal and in Markdown ─────────────────────────

_ARMS = {"coin": "a fair coin", "constant": "a constant", "inverted": "the inverted reward"}


def _name_of(policy: str) -> str:
    return "RL" if policy == "rl" else policy


@dataclass(frozen=True, slots=True)
class _Section:
    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    note: str = ""


def _results(report: Report) -> list[_Section]:
    own = _players(f"players on {_tasks(report.held_out)}", report.held_out, report.run)
    own += _talk(report)
    if own and not report.success:
        return own
    rates = _success(f"success on {_tasks(report.held_out)}", report.held_out, report.policies)
    if not report.held_out.paired:
        return [rates, *own]
    note = (
        "Paired bootstrap over tasks: it covers other tasks, never other training seeds. To "
        "separate the reward's effect from drift, train several seeds, and others with "
        "--control coin: `palaestra aggregate RUNS --against CONTROLS`."
    )
    title = "differences on the same tasks"
    return [rates, *own, _paired(title, report.held_out, report.policies, note)]


def _transfer(report: Report) -> list[_Section]:
    if not report.transfer.scores:
        return []
    title = f"transfer to {_tasks(report.transfer)}, never trained on"
    own = _players(f"players in the {title}", report.transfer, report.run)
    if own and not report.transfer.success:
        return own
    rates = _success(title, report.transfer, report.policies)
    if not report.transfer.paired:
        return [rates, *own]
    title = "transfer, differences on the same tasks"
    return [rates, *own, _paired(title, report.transfer, report.policies)]


def _players(title: str, comparison: Comparison, run: Path) -> list[_Section]:
    """Return the results of each player under each policy; nothing for a single player."""
    rows = [
        (_name_of(policy), *row)
        for policy, score in comparison.scores.items()
        for row in player_results.rows(score.players)
    ]
    if not rows:
        return []
    commands = player_results.strength_commands(comparison.environment, str(run), policies=1)
    note = "Where one policy plays all players, returns compare the seats with each other"
    note += f"; how well it plays: {' and '.join(commands)}." if commands else "."
    return [_Section(title, ("policy", *player_results.HEADS), rows, note)]


def _talk(report: Report) -> list[_Section]:
    """Return what players said to each other in the last test; nothing if they said nothing."""
    rows = talk_rows(talk_json(report.talk).get("talk"))
    title = "what players said in the last test"
    return [_Section(title, ("measure", "what"), rows)] if rows else []


def _success(title: str, comparison: Comparison, policies: Sequence[str]) -> _Section:
    rows: list[tuple[str, ...]] = []
    for policy in policies:
        score = comparison.scores.get(policy)
        if score is None:
            rows.append((_name_of(policy), "not run", "", "", "", "", ""))
            continue
        rate = score.success
        rows.append(
            (
                _name_of(policy),
                f"{100 * rate.mean:.1f} %" if rate else "no result",
                f"{100 * rate.low:.1f} to {100 * rate.high:.1f}" if rate else "",
                str(rate.n) if rate else "0",
                f"{100 * score.invalid_rate:.1f} %",
                f"{score.turns:.1f}",
                str(score.faults),
            )
        )
    header = ("policy", "success", "95 % interval", "tasks", "invalid actions", "turns", "faults")
    faults = any(score.faults for score in comparison.scores.values())
    note = "Faults of environment or infrastructure are not scored."
    return _Section(title, header, rows, note if faults else "")


def _paired(
    title: str, comparison: Comparison, policies: Sequence[str], note: str = ""
) -> _Section:
    rows = []
    for a, b in compared_policies(policies):
        gain = comparison.paired.get(f"{a}_minus_{b}")
        if gain is not None:
            interval = f"{100 * gain.low:+.1f} to {100 * gain.high:+.1f}"
            points = f"{100 * gain.mean:+.1f} points"
            name = f"{_name_of(a)} − {_name_of(b)}"
            rows.append((name, points, interval, str(gain.n), _verdict(gain)))
    header = ("difference", "success", "95 % interval", "pairs", "interval is")
    return _Section(title, header, rows, note)


def _general(report: Report) -> list[_Section]:
    """Return the loss on held-out general text; nothing if it was not measured."""
    rows = [(_name_of(version), f"{loss:.3f}") for version, loss in report.general_loss.items()]
    note = "It rises where training forgets; its paragraphs are never learned."
    header = ("policy", "nats per token")
    return [_Section("loss on held-out general text", header, rows, note)] if rows else []


def _alarms(report: Report) -> list[_Section]:
    """Return the alarms that monitors raised during training; nothing if there were none."""
    rows = [
        (alarm["name"], str(alarm["step"]), str(alarm["steps"]), alarm["message"])
        for alarm in report.alarms or ()
    ]
    header = ("monitor", "since step", "steps", "what")
    return [_Section("alarms while training", header, rows)] if rows else []


def _costs(report: Report) -> list[_Section]:
    if not report.stages:
        return []
    rows = [_cost(stage) for stage in report.stages]
    whole = Stage(
        name="total",
        seconds=report.seconds,
        sampled_tokens=sum(stage.sampled_tokens for stage in report.stages),
        prompt_tokens=sum(stage.prompt_tokens for stage in report.stages),
        trained_tokens=sum(stage.trained_tokens for stage in report.stages),
        peak_memory_bytes=report.peak_memory_bytes,
    )
    rows.append(_cost(whole))
    header = ("stage", "time", "read", "sampled", "trained on", "tokens/s", "peak memory")
    note = "Read, sampled, trained on: in tokens; tokens/s counts all three."
    if report.seconds_setup is not None:
        note += f" Set-up took {_time(report.seconds_setup)}."
    return [_Section("cost", header, rows, note)]


def _cost(stage: Stage) -> tuple[str, ...]:
    memory = stage.peak_memory_bytes
    return (
        stage.name,
        _time(stage.seconds),
        _count(stage.prompt_tokens),
        _count(stage.sampled_tokens),
        _count(stage.trained_tokens),
        f"{stage.tokens_per_second:,.0f}",
        f"{memory / 1e9:.2f} GB" if memory else "",
    )


def _paths(report: Report) -> _Section:
    rows = [("run folder", str(report.run))]
    if report.model is not None:
        rows.append(("final model", str(report.model)))
    rows += [(name, str(report.run / name)) for name in _files(report)]
    return _Section("files", ("what", "where"), rows)


def _print(section: _Section, console: Console) -> None:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for index, name in enumerate(section.header):
        left = index == 0 or name in ("interval is", "where", "what", "player", "forfeits")
        table.add_column(name, justify="left" if left else "right", overflow="fold")
    for row in section.rows:
        table.add_row(*(Text(cell, _COLOURS.get(cell, "")) for cell in row))
    console.print()
    console.print(Text(section.title, "bold"))
    console.print(table)
    if section.note:
        console.print(Text(section.note, "dim"))


_COLOURS = {"above zero": "green", "below zero": "red", "not run": "dim", "no result": "red"}


def _markdown_table(section: _Section) -> str:
    lines = [section.header, tuple("---" for _ in section.header), *section.rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# ── details ──────────────────────────────────────────────────────────────────


def _tasks(comparison: Comparison) -> str:
    least, most = comparison.counted
    count = f"{most}" if least == most else f"{least} to {most}"
    return f"{count} held-out tasks of {comparison.environment or 'the environment'}"


def _files(report: Report) -> list[str]:
    return ["report.md", "report.json", *(["learning_curve.png"] if report.curve else [])]


def _name(episode: Episode) -> str:
    return f"{episode.task.environment}, {episode.task.id} (seed {episode.task.seed})"


def _verdict(gain: Interval) -> str:
    if gain.above_zero:
        return "above zero"
    return "below zero" if gain.below_zero else "includes zero"


def _time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"


def _count(tokens: int) -> str:
    if tokens < 10_000:
        return f"{tokens:,}"
    return f"{tokens / 1e6:.2f} M" if tokens >= 1e6 else f"{tokens / 1e3:.0f} k"
