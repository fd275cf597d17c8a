"""The printed results of `palaestra explain`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Found = dict[str, Any]
LONGEST = 60  # characters of an action in a table


def episode(result: Found) -> None:
    """Print one failed episode: the verdict, other verdicts, then the turns with their values."""
    from rich.console import Console

    console = Console(highlight=False)
    head = f"{result['episode']}  task {result['task']} of {result['environment']}"
    console.print(f"{head}: {result['outcome']}", markup=False)
    console.print(_verdict(result), markup=False, soft_wrap=True, style="bold")
    if others := _others(result):
        console.print(others, markup=False, soft_wrap=True)
    for why in result["unable"]:
        console.print(f"(not applied: {why})", markup=False, soft_wrap=True)
    if result["ignored"]:
        console.print(f"parts of the task never used: {', '.join(result['ignored'])}", markup=False)
    known = {name: share for name, share in result["stages"].items() if share is not None}
    if known:
        shares = ", ".join(f"{name} {share:.2f}" for name, share in known.items())
        console.print(f"by stages, the share of turns in order: {shares}", markup=False)
    console.print(_turns(result))


def failures(result: Found) -> None:
    """Print one line per failed episode."""
    rows = []
    for one in result["episodes"]:
        best = one["verdict"]
        turn = _place(best) if best else "?"
        did = one["turns"][best["turn"]]["did"] if best and best["turn"] is not None else ""
        method = best["method"] if best else ""
        rows.append([one["episode"], one["outcome"], turn, _cut(did), method])
    _print(_table(["episode", "outcome", "lost at turn", "action", "by"], rows))
    left = result["failed"] - len(result["episodes"])
    if not result["failed"]:
        print("No episode failed.")
    elif left > 0:
        print(f"{left} more failed; -n {result['failed']} explains all.")


def shortcuts(result: Found) -> None:
    """Print findings, and how many episodes they concern."""
    rows = [
        [f["detector"], f["episode"] or "the run", _turn(f["turn"]), _cut(f["what"], 90)]
        for f in result["findings"]
    ]
    if rows:
        _print(_table(["detector", "episode", "turn", "what"], rows))
    flagged = len({f["episode"] for f in result["findings"] if f["episode"]})
    print(f"{flagged} of {result['episodes']} episodes are suspicious; look at them.")


def robustness(result: Found) -> None:
    """Print one row per factor."""
    rows = [
        [
            factor["name"],
            _bounds(factor["success"]),
            _bounds(factor["difference"]),
            _bounds(factor["robustness"]),
            f"{factor['turns']:.1f}",
        ]
        for factor in result["factors"]
    ]
    title = f"{result['agent']} with {result['model']} on {result['environment']}"
    print(f"{title}, {result['tasks']} tasks")
    _print(_table(["factor", "success", "difference", "robustness", "turns"], rows))


def planted(result: Found) -> None:
    """Print one row per method."""
    rows = [
        [name, _bounds(of["right"]), _bounds(of["near"]), str(of["silent"])]
        for name, of in result["methods"].items()
    ]
    print(f"{result['planted']} faults planted in {result['tasks']} tasks of "
          f"{result['environment']}")  # fmt: skip
    _print(_table(["method", "names the turn", "or one beside it", "names none"], rows))


# ── details ──────────────────────────────────────────────────────────────────


def _verdict(result: Found) -> str:
    """Return one sentence: the losing turn, the reason and the method."""
    found = result["verdict"]
    if found is None:
        return "verdict: no method can say which turn lost it"
    by = f"(by {found['method']}, {'exact' if found['exact'] else 'estimated'})"
    if found["turn"] is None:
        return f"verdict: {_place(found)}: {found['reason']} {by}"
    who = f" ({found['agent']})" if found["agent"] else ""
    did = _cut(result["turns"][found["turn"]]["did"])
    return f"verdict: lost at turn {found['turn'] + 1}{who}, '{did}': {found['reason']} {by}"


def _others(result: Found) -> str:
    """Return the verdicts of the other methods."""
    best = result["verdict"]
    others = [found for found in result["attributions"] if found != best]
    if best is None or not others:
        return ""
    verdicts = []
    for found in others:
        if _place(found) == _place(best):
            verdicts.append(f"{found['method']} agrees")
        elif found["turn"] is not None:
            verdicts.append(f"{found['method']} guesses turn {found['turn'] + 1}")
        else:
            verdicts.append(f"{found['method']}: {_place(found)}")
    return f"besides: {', '.join(verdicts)}"


def _place(found: Found) -> str:
    if found["turn"] is not None:
        return str(found["turn"] + 1)
    return {"start": "before the first", "gave up": "it gave up"}.get(found["ending"], "unknown")


def _turns(result: Found) -> Any:
    shown = [found for found in result["attributions"] if found["scores"]]
    rows = []
    for index, turn in enumerate(result["turns"]):
        scores = [_score(found["scores"], index) for found in shown]
        label = result["labels"][index] if index < len(result["labels"]) else ""
        marks = [found["method"] for found in result["attributions"] if found["turn"] == index]
        lost = f"← {', '.join(marks)}" if marks else ""
        rows.append([_turn(index), _cut(turn["did"] or "(nothing)"), *scores, label, lost])
    names = [found["method"] for found in shown]
    return _table(["turn", "action", *names, "label", "lost"], rows)


def _score(scores: Sequence[float | None], index: int) -> str:
    value = scores[index] if index < len(scores) else None
    return "" if value is None else f"{value:.2f}"


def _turn(index: int | None) -> str:
    return "" if index is None else str(index + 1)


def _bounds(found: Found | None) -> str:
    if found is None:
        return ""
    return f"{found['mean']:.2f} ({found['low']:.2f} to {found['high']:.2f})"


def _cut(text: str, longest: int = LONGEST) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _table(columns: list[str], rows: list[list[str]]) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold")
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _print(table: Any) -> None:
    from rich.console import Console

    Console(highlight=False).print(table)
