"""What `palaestra eval` prints of its result."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]

UNSCORED = ("environment", "infrastructure")  # whose errors are no result of the agent
WIDE = 160  # characters of a line where there is no terminal


def render(result: Row) -> None:
    """Print one cell in full, or several as a table."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDE)  # nothing is gained by wrapping into a file
    console.print(_matrix(result) if "cells" in result else _cell(result))


def _cell(result: Row) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, show_header=False, title=result["summary"], title_justify="left")
    table.add_row("success", _success(result))
    if result["interval"] is not None:
        table.add_row("mean reward", f"{result['reward']:.3f}")
    if result["progress"] is not None:
        table.add_row("progress", f"{100 * result['progress']:.1f} %")
    table.add_row("mean turns", f"{result['turns']:.1f}  of at most {result['turn_limit']}")
    table.add_row("invalid actions", f"{100 * result['invalid_rate']:.1f} %")
    faults = ", ".join(f"{owner} {count}" for owner, count in result["faults"].items())
    table.add_row("faults", faults)
    table.add_row("outcomes", ", ".join(f"{k} {v}" for k, v in result["outcomes"].items()))
    table.add_row("tokens", f"{result['sampled_tokens']} sampled, {result['prompt_tokens']} read")
    table.add_row("money", money(result))
    table.add_row("seconds", f"{result['seconds']:.1f}")
    if result["episodes"] < result["planned"]:
        table.add_row("episodes", f"{result['episodes']} of {result['planned']}")
    if result["shard"]:
        table.add_row("shard", result["shard"])
    table.add_row("episodes in", result["run"])
    return table


def _matrix(result: Row) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    left = "" if result["complete"] else f": stopped because {result['stopped']}"
    of = f"{result['episodes']} of {result['planned']} episodes in {result['run']}"
    table = Table(
        box=box.SIMPLE_HEAD,
        header_style="bold",
        title=f"{result['summary']}{left}",
        title_justify="left",
        caption=f"{of}, {result['seconds']:.1f} s; money: {money(result)}. Compare: palaestra "
        f"leaderboard {result['run']}",
        caption_justify="left",
    )
    rows = [_row(cell) for cell in result["cells"]]
    names = [name for name in rows[0] if any(row[name] for row in rows)]
    if len({cell["seed"] for cell in result["cells"]}) == 1:
        names.remove("seed")
    for name in names:
        words = name in ("environment", "agent, model")
        table.add_column(name, justify="left" if words else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[name]) for name in names))
    return table


def _row(cell: Row) -> dict[str, str]:
    """The columns of one cell; nothing where there is nothing to say."""
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
        "tasks": str(cell["tasks"]),
        "turns": f"{cell['turns']:.1f}",
        "tokens": str(tokens) if tokens else "",
        "money": "" if cell["money"] is None else f"{least}{cell['money']:.4f}",
        "excluded": ", ".join(faults),
        "left": str(left) if left else "",
    }


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
    """How many episodes the success leaves out, and how those ended; nothing where it has all."""
    unscored = [f", {owner})" for owner in UNSCORED]
    why = [f"{n} {how}" for how, n in result["outcomes"].items() if how.endswith(tuple(unscored))]
    count = result["episodes"] - result["scored"]
    return f"; {count} of {result['episodes']} episodes excluded: {', '.join(why)}" if why else ""


def money(result: Row) -> str:
    """What it cost, as far as that is known, and what is not."""
    if result["money"] is None:
        return "not known (no model that was asked has a price; see --price)"
    left = []
    if result["unpriced_calls"]:
        left.append(f"{result['unpriced_calls']} calls to models without a price")
    if result["unknown_calls"]:
        left.append(f"{result['unknown_calls']} calls that did not say what they sampled")
    least = f"at least {result['money']:.4f}, without " + " and ".join(left)
    return least if left else f"{result['money']:.4f}"
