"""A comparison of credit rules on the terminal: statistics, disagreements, disputed turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

DISPUTES = 5  # turns shown
SQUARE = 8  # maximum rules for a square of all pairs
Compared = Mapping[str, Any]


def render(result: Compared, console: Console) -> None:
    """Print the main results of `palaestra compare --json`."""
    _print(
        console,
        f"{result['trace']}, {result['phase']}: {result['rollouts']} rollouts in "
        f"{result['groups']} groups on {result['environment']}, {result['turns']} turns, "
        f"{result['tokens']} tokens",
        "bold",
    )
    if result["left_out"]:
        count = result["left_out"]
        _print(console, f"{count} episodes left out: no valid result, no tokens, or no siblings")
    silent = _silent(result)
    if silent:
        _print(console, silent, "yellow")
    if not silent.startswith("All"):
        _compared(result, console)
    for row in result["skipped"]:
        _print(console, f"not run: {row['reason']}")


def _compared(result: Compared, console: Console) -> None:
    """Print statistics, disagreements and disputed turns."""
    console.print(_figures(result))
    if result["truth"]:
        _print(console, _truth(result["truth"]))
    if len(result["rules"]) > SQUARE:
        console.print(_most_opposite(result))
    elif result["pairs"]:
        console.print(
            _square("opposite signs, of turns to which both give one", "opposite", result)
        )
        console.print(_square("rank correlation over turns (Spearman)", "spearman", result))
    _disputes(result, console)


def _silent(result: Compared) -> str:
    """Return a line about groups with equal returns; empty if there are none."""
    if result["rules"] and all(rule["silent_groups"] == 1 for rule in result["rules"]):
        return (
            f"All {result['groups']} groups are silent: every advantage is 0 under "
            f"{', '.join(rule['name'] for rule in result['rules'])}, as when rollouts of a group "
            "have equal returns; choose another --phase, or a rule with a wider comparison."
        )
    returns: dict[str, list[float]] = {}
    for trajectory in result["trajectories"]:
        returns.setdefault(trajectory["group"], []).append(trajectory["return"])
    alike = sum(len(own) > 1 and len(set(own)) == 1 for own in returns.values())
    if not alike:
        return ""
    return (
        f"In {alike} of {result['groups']} groups all rollouts have the same return: rules that "
        "compare returns within groups are silent there."
    )


def _figures(result: Compared) -> Table:
    columns = ["rule", "mean", "variance", "within", "zero turns", "zero tokens", "silent groups"]
    if result["truth"]:
        columns += ["truth", "wrong sign"]
    rows = []
    for rule in result["rules"]:
        row = [rule["name"], f"{rule['mean']:.4f}", f"{rule['variance']:.4f}"]
        shares = ("within", "zero_turns", "zero_tokens", "silent_groups")
        row += [_percent(rule[name]) for name in shares]
        if result["truth"]:
            row += [_signed(rule["truth"]["spearman"]), _percent(rule["truth"]["opposite"])]
        rows.append(row)
    return _table(
        "what each rule does (over turns; within: variance inside rollouts)", columns, rows
    )


def _truth(truth: Compared) -> str:
    text = (
        f"truth: rank correlation with {truth['turns']} turns measured by the policy of "
        f"{truth['policy']}, {truth['samples']} episodes per state"
    )
    known = truth["reliability"] is not None
    return text + (f"; {truth['reliability']:.0%} of their variance is signal" if known else "")


def _square(title: str, figure: str, result: Compared) -> Table:
    """Return a table with a rule per row, and the same rules by number per column."""
    names = [rule["name"] for rule in result["rules"]]
    found = {tuple(pair["rules"]): pair[figure] for pair in result["pairs"]}
    write: Callable[[float | None], str] = _percent if figure == "opposite" else _signed
    rows = []
    for number, name in enumerate(names, 1):
        cells = [
            "" if name == other else write(found.get((name, other), found.get((other, name))))
            for other in names
        ]
        rows.append([f"{number} {name}", *cells])
    return _table(title, ["rule", *(str(i + 1) for i in range(len(names)))], rows)


def _most_opposite(result: Compared) -> Table:
    pairs = sorted(result["pairs"], key=lambda pair: -(pair["opposite"] or 0.0))[:SQUARE]
    rows = [
        [" / ".join(pair["rules"]), _percent(pair["opposite"]), _signed(pair["spearman"])]
        for pair in pairs
    ]
    columns = ["rules", "opposite signs", "rank correlation"]
    return _table("pairs that disagree most (--json and --html have all)", columns, rows)


def _disputes(result: Compared, console: Console) -> None:
    if not result["disputes"]:
        return
    several = len(result["rules"]) > 1
    _print(console, "most disputed turns" if several else "strongest turns", "bold")
    for dispute in result["disputes"][:DISPUTES]:
        i, k = dispute["rollout"], dispute["turn"]
        trajectory = result["trajectories"][i]
        turn = trajectory["turns"][k]
        end = "solved" if trajectory["success"] else "not solved"
        head = f"{trajectory['key']}, turn {k + 1} of {len(trajectory['turns'])}"
        _print(console, f"{head} ({end}, return {trajectory['return']:.3f})", "")
        _print(console, f"  sees  {turn['observation']}")
        reward = f"   (reward {turn['reward']:.3g})" if turn["reward"] else ""
        _print(console, f"  says  {turn['reply']}{reward}", "")
        credit = [f"{rule['name']} {rule['advantages'][i][k]:+.3f}" for rule in result["rules"]]
        measured = result["truth"]["advantages"][i][k] if result["truth"] else None
        if measured:
            credit.append(f"truth {measured['mean']:+.3f} ± {measured['error']:.3f}")
        _print(console, f"        {', '.join(credit)}\n", "")


# ── details ───────────────────────────────────────────────────────────────────


def _print(console: Console, text: str, style: str = "dim") -> None:
    """Print a line without markup: the output of a model may look like markup."""
    console.print(text, markup=False, highlight=False, style=style, soft_wrap=True)


def _table(title: str, columns: list[str], rows: list[list[str]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for column in columns:
        first = column == columns[0]
        table.add_column(column, justify="left" if first else "right", no_wrap=first)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}"
