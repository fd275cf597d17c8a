"""The result of an evaluation as a table: in the terminal, as text, and in a notebook."""

from __future__ import annotations

import io
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

Row = dict[str, Any]

UNSCORED = ("environment", "infrastructure")  # owners of errors that are not the agent's
WIDE = 160  # characters of a line without a terminal


def render(result: Row, console: Console | None = None) -> None:
    """Print one cell in full, or several as a table."""
    from rich.console import Console

    console = console or Console()
    if not console.is_terminal:
        console = Console(file=console.file, width=WIDE)  # do not wrap in files
    console.print(_matrix(result) if "cells" in result else _cell(result))
    if result.get("compared"):
        console.print(_factor(result))


def as_text(result: Row) -> str:
    """Return the text that `render` prints."""
    from rich.console import Console

    text = io.StringIO()
    render(result, Console(file=text, force_terminal=False))
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def as_html(result: Row) -> str:
    """Return the result as an HTML table, for notebooks."""
    from palaestra.evaluation.statistics.player_results import HEADS

    if "cells" not in result:
        own = html_table("players", HEADS, players) if (players := _players(result)) else ""
        return html_table(result["summary"], (), _lines(result)) + own
    names, rows = _columns(result)
    page = html_table(_title(result), names, rows, _caption(result))
    if not result.get("compared"):
        return page
    from palaestra.evaluation.reports.factor_table import HEADS as COMPARED
    from palaestra.evaluation.reports.factor_table import texts

    return page + html_table(_compared(result), COMPARED, texts(result["compared"]["rows"]))


def html_table(
    title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str = ""
) -> str:
    """Return rows of text as an HTML table; escape HTML in them."""

    def line(cells: Sequence[str], kind: str) -> str:
        return f"<tr>{''.join(f'<{kind}>{escape(cell)}</{kind}>' for cell in cells)}</tr>"

    head = f"<thead>{line(heads, 'th')}</thead>" if heads else ""
    body = "".join(line(row, "td") for row in rows)
    note = f"<p>{escape(caption)}</p>" if caption else ""
    return f"<p><b>{escape(title)}</b></p><table>{head}<tbody>{body}</tbody></table>{note}"


def _cell(result: Row) -> Any:
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from palaestra.evaluation.statistics.player_results import HEADS

    table = Table(box=box.SIMPLE, show_header=False, title=result["summary"], title_justify="left")
    for row in _lines(result):
        table.add_row(*map(Text, row))
    if not (players := _players(result)):
        return table
    own = Table(box=box.SIMPLE_HEAD, header_style="bold")
    for name in HEADS:
        own.add_column(name, justify="left" if name in ("player", "forfeits") else "right")
    for cells in players:
        own.add_row(*map(Text, cells))
    return Group(table, own)


def _players(result: Row) -> list[list[str]]:
    """Return a row for each of several players; none for a single player."""
    from palaestra.evaluation.statistics.player_results import from_json, rows

    return rows(from_json(result.get("players") or {}))


def _strength(row: Row, run: str) -> list[str]:
    """Return the commands that measure how well the policies of a game play."""
    from palaestra.evaluation.statistics.player_results import strength_commands

    policies = len({row["model"], *row["roles"].values()})
    return strength_commands(row["environment"], run, policies=policies)


def _lines(result: Row) -> list[tuple[str, str]]:
    """Return the lines of a single cell: name and value."""
    from palaestra.evaluation.statistics.conversation import talk_rows

    game = bool(result.get("players"))
    rows = [] if game and result["success"] is None else [("success", _success(result))]
    if result["interval"] is not None and not game:
        rows.append(("mean reward", f"{result['reward']:.3f}"))
    if game and not rows:
        rows.append(("tasks", f"{result['tasks']}{_excluded(result)}"))
    if result["progress"] is not None:
        rows.append(("progress", f"{100 * result['progress']:.1f} %"))
    rows.append(("mean turns", f"{result['turns']:.1f}  of at most {result['turn_limit']}"))
    rows.append(("invalid actions", f"{100 * result['invalid_rate']:.1f} %"))
    faults = ", ".join(f"{owner} {count}" for owner, count in result["faults"].items())
    rows.append(("faults", faults))
    rows += talk_rows(result.get("talk"))
    rows.append(("outcomes", ", ".join(f"{k} {v}" for k, v in result["outcomes"].items())))
    rows.append(("tokens", f"{result['sampled_tokens']} sampled, {result['prompt_tokens']} read"))
    rows.append(("money", money(result)))
    rows.append(("seconds", f"{result['seconds']:.1f}"))
    if result["episodes"] < result["planned"]:
        rows.append(("episodes", f"{result['episodes']} of {result['planned']}"))
    if result["shard"]:
        rows.append(("shard", result["shard"]))
    rows.append(("episodes in", result["run"]))
    if game and (commands := _strength(result, result["run"])):
        rows.append(("who plays best", " or ".join(commands)))
    return rows


def _matrix(result: Row) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD,
        header_style="bold",
        title=_title(result),
        title_justify="left",
        caption=_caption(result),
        caption_justify="left",
    )
    names, rows = _columns(result)
    for name in names:
        is_text = name in ("environment", "agent, model")
        table.add_column(name, justify="left" if is_text else "right", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _compared(result: Row) -> str:
    of = result["compared"]
    return f"what '{of['factor']}' changes: the difference from {of['base']}, task by task"


def _factor(result: Row) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from palaestra.evaluation.reports.factor_table import HEADS, texts

    table = Table(
        box=box.SIMPLE_HEAD, header_style="bold", title=_compared(result), title_justify="left"
    )
    for name in HEADS:
        is_text = name in ("environment", "agent, model")
        table.add_column(name, justify="left" if is_text else "right", overflow="fold")
    for row in texts(result["compared"]["rows"]):
        table.add_row(*map(Text, row))
    return table


def _title(result: Row) -> str:
    left = "" if result["complete"] else f": stopped because {result['stopped']}"
    return f"{result['summary']}{left}"


def _caption(result: Row) -> str:
    of = f"{result['episodes']} of {result['planned']} episodes in {result['run']}"
    games = [cell for cell in result["cells"] if cell.get("players")]
    compared = [f"palaestra leaderboard {result['run']}"]
    compared += [command for cell in games for command in _strength(cell, result["run"])]
    commands = ", ".join(dict.fromkeys(compared))
    return f"{of}, {result['seconds']:.1f} s; money: {money(result)}. Compare: {commands}"


def _columns(result: Row) -> tuple[list[str], list[list[str]]]:
    """Return the names of non-empty columns, and their values for each cell."""
    rows = [_row(cell) for cell in result["cells"]]
    names = [name for name in rows[0] if any(row[name] for row in rows)]
    if len({cell["seed"] for cell in result["cells"]}) == 1:
        names.remove("seed")
    return names, [[row[name] for name in names] for row in rows]


def _row(cell: Row) -> dict[str, str]:
    """Return the columns of one cell; empty texts for missing values."""
    faults = [f"{cell['faults'][owner]} {owner}" for owner in UNSCORED if cell["faults"][owner]]
    tokens = cell["prompt_tokens"] + cell["sampled_tokens"]
    left = cell["planned"] - cell["episodes"]
    bounds = cell["interval"]
    least = "≥ " if cell["unpriced_calls"] or cell["unknown_calls"] else ""
    return {
        "environment": cell["environment"],
        "agent, model": f"{cell['agent']}, {cell['model']}",
        "seed": str(cell["seed"]),
        "success %": "" if cell["success"] is None else f"{100 * cell['success']:.1f}",
        "95 %": "" if bounds is None else f"{100 * bounds[0]:.0f} to {100 * bounds[1]:.0f}",
        "return (95 %)": _returns(cell),
        "tasks": str(cell["tasks"]),
        "turns": f"{cell['turns']:.1f}",
        "tokens": str(tokens) if tokens else "",
        "money": "" if cell["money"] is None else f"{least}{cell['money']:.4f}",
        "excluded": ", ".join(faults),
        "left": str(left) if left else "",
    }


def _returns(cell: Row) -> str:
    """Return the mean returns of several players, one a line; empty for a single player."""
    return "\n".join(
        f"{name} {mean}{f' ({bounds})' if bounds else ''}{f'; {forfeits}' if forfeits else ''}"
        for name, mean, bounds, *_, forfeits in _players(cell)
    )


def _success(result: Row) -> str:
    excluded = _excluded(result)
    if result["interval"] is None:
        none = "no episode could be scored" if not result["scored"] else "one task: no interval"
        return none + excluded
    low, high = result["interval"]
    return (
        f"{100 * result['success']:.1f} %  (95 % interval {100 * low:.1f} to "
        f"{100 * high:.1f} %, {result['tasks']} tasks){excluded}"
    )


def _excluded(result: Row) -> str:
    """Return how many episodes the success excludes, and their outcomes; empty if none."""
    unscored = [f", {owner})" for owner in UNSCORED]
    why = [f"{n} {how}" for how, n in result["outcomes"].items() if how.endswith(tuple(unscored))]
    count = result["episodes"] - result["scored"]
    return f"; {count} of {result['episodes']} episodes excluded: {', '.join(why)}" if why else ""


def money(result: Row) -> str:
    """Return the cost as far as it is known, and the calls that it leaves out."""
    if result["money"] is None:
        return "not known (no model that was asked has a price)"
    left = []
    if result["unpriced_calls"]:
        left.append(f"{result['unpriced_calls']} calls to models without a price")
    if result["unknown_calls"]:
        left.append(f"{result['unknown_calls']} calls that did not say what they sampled")
    least = f"at least {result['money']:.4f}, without " + " and ".join(left)
    return least if left else f"{result['money']:.4f}"
