"""A comparison of credit rules on the terminal: figures, disagreements, disputed turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

DISPUTES = 5  # turns shown
SQUARE = 8  # rules up to which every two are shown as a square; of more, the most opposite pairs
Said = Mapping[str, Any]


def render(said: Said, console: Console) -> None:
    """Print what `palaestra compare --json` would say, as far as a reader can take it in."""
    _print(
        console,
        f"{said['trace']}, {said['phase']}: {said['rollouts']} rollouts in {said['groups']} "
        f"groups on {said['environment']}, {said['turns']} turns, {said['tokens']} tokens",
        "bold",
    )
    if said["left_out"]:
        count = said["left_out"]
        _print(console, f"{count} episodes left out: no valid result, no tokens, or no siblings")
    silent = _silent(said)
    if silent:
        _print(console, silent, "yellow")
    if not silent.startswith("All"):
        _compared(said, console)
    for row in said["skipped"]:
        _print(console, f"not run: {row['reason']}")


def _compared(said: Said, console: Console) -> None:
    """Figures, disagreements and disputed turns, which would be zeros where all is silent."""
    console.print(_figures(said))
    if said["truth"]:
        _print(console, _truth(said["truth"]))
    if len(said["rules"]) > SQUARE:
        console.print(_most_opposite(said))
    elif said["pairs"]:
        console.print(_square("opposite signs, of turns to which both give one", "opposite", said))
        console.print(_square("rank correlation over turns (Spearman)", "spearman", said))
    _disputes(said, console)


def _silent(said: Said) -> str:
    """One line where the rollouts of groups ended alike; empty where none did."""
    if said["rules"] and all(rule["silent_groups"] == 1 for rule in said["rules"]):
        return (
            f"All {said['groups']} groups are silent: every advantage is 0 under "
            f"{', '.join(rule['name'] for rule in said['rules'])}, as where rollouts of a group "
            "have equal returns; choose another --phase, or a rule that compares with more."
        )
    returns: dict[str, list[float]] = {}
    for trajectory in said["trajectories"]:
        returns.setdefault(trajectory["group"], []).append(trajectory["return"])
    alike = sum(len(own) > 1 and len(set(own)) == 1 for own in returns.values())
    if not alike:
        return ""
    return (
        f"In {alike} of {said['groups']} groups all rollouts have the same return: rules that "
        "compare returns within groups are silent there."
    )


def _figures(said: Said) -> Table:
    columns = ["rule", "mean", "variance", "within", "zero turns", "zero tokens", "silent groups"]
    if said["truth"]:
        columns += ["truth", "wrong sign"]
    rows = []
    for rule in said["rules"]:
        row = [rule["name"], f"{rule['mean']:.4f}", f"{rule['variance']:.4f}"]
        shares = ("within", "zero_turns", "zero_tokens", "silent_groups")
        row += [_percent(rule[name]) for name in shares]
        if said["truth"]:
            row += [_signed(rule["truth"]["spearman"]), _percent(rule["truth"]["opposite"])]
        rows.append(row)
    return _table(
        "what each rule does (over turns; within: variance inside rollouts)", columns, rows
    )


def _truth(truth: Said) -> str:
    text = (
        f"truth: rank correlation with {truth['turns']} turns measured by the policy of "
        f"{truth['policy']}, {truth['samples']} episodes per state"
    )
    known = truth["reliability"] is not None
    return text + (f"; {truth['reliability']:.0%} of their variance is signal" if known else "")


def _square(title: str, figure: str, said: Said) -> Table:
    """A rule per row, the same rules by number per column."""
    names = [rule["name"] for rule in said["rules"]]
    found = {tuple(pair["rules"]): pair[figure] for pair in said["pairs"]}
    write: Callable[[float | None], str] = _percent if figure == "opposite" else _signed
    rows = []
    for number, name in enumerate(names, 1):
        cells = [
            "" if name == other else write(found.get((name, other), found.get((other, name))))
            for other in names
        ]
        rows.append([f"{number} {name}", *cells])
    return _table(title, ["rule", *(str(i + 1) for i in range(len(names)))], rows)


def _most_opposite(said: Said) -> Table:
    pairs = sorted(said["pairs"], key=lambda pair: -(pair["opposite"] or 0.0))[:SQUARE]
    rows = [
        [" / ".join(pair["rules"]), _percent(pair["opposite"]), _signed(pair["spearman"])]
        for pair in pairs
    ]
    columns = ["rules", "opposite signs", "rank correlation"]
    return _table("pairs that disagree most (--json and --html have all)", columns, rows)


def _disputes(said: Said, console: Console) -> None:
    if not said["disputes"]:
        return
    several = len(said["rules"]) > 1
    _print(console, "most disputed turns" if several else "strongest turns", "bold")
    for dispute in said["disputes"][:DISPUTES]:
        i, k = dispute["rollout"], dispute["turn"]
        trajectory = said["trajectories"][i]
        turn = trajectory["turns"][k]
        end = "solved" if trajectory["success"] else "not solved"
        place = f"{trajectory['key']}, turn {k + 1} of {len(trajectory['turns'])}"
        _print(console, f"{place} ({end}, return {trajectory['return']:.3f})", "")
        _print(console, f"  sees  {turn['seen']}")
        reward = f"   (reward {turn['reward']:.3g})" if turn["reward"] else ""
        _print(console, f"  says  {turn['said']}{reward}", "")
        credit = [f"{rule['name']} {rule['advantages'][i][k]:+.3f}" for rule in said["rules"]]
        measured = said["truth"]["advantages"][i][k] if said["truth"] else None
        if measured:
            credit.append(f"truth {measured['mean']:+.3f} ± {measured['error']:.3f}")
        _print(console, f"        {', '.join(credit)}\n", "")


# ── pieces ───────────────────────────────────────────────────────────────────


def _print(console: Console, text: str, style: str = "dim") -> None:
    """A line as it is: what a model said may look like markup."""
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
