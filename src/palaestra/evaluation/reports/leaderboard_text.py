"""A leaderboard as Markdown, HTML, CSV and JSON; names in it are always escaped."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from palaestra.core.errors import InputError
from palaestra.evaluation.reports.leaderboard import COSTS, Candidate, Leaderboard, Standing
from palaestra.evaluation.statistics import player_results
from palaestra.evaluation.statistics.intervals import Interval

HEADS = {
    "success": "success % (95 %)",
    "progress": "progress %",
    "reward": "reward",
    "turns": "turns",
    "invalid": "invalid %",
    "tokens": "tokens",
    "seconds": "seconds",
    "money": "money",
}
PERCENT = ("progress", "invalid")
RATED = "Who plays best: palaestra ratings RUN… (Elo of the policies that played each other)."
SMALL = 30  # tasks of an environment; with fewer, an interval is too wide for most questions

Table = tuple[list[str], list[list[str]]]  # header and rows


def overview(board: Leaderboard, cost: str) -> Table:
    """Make a table with one row per candidate: the mean over the suite."""
    front = _front(board, cost)
    metrics = [m for m in board.metrics if m == "success" or _known(board, m)]
    heads = ["", "agent, model", *(HEADS[metric] for metric in metrics), "environments", ""]
    rows = []
    for rank, candidate in enumerate(board.candidates, 1):
        note = "Pareto" if candidate in front else ""
        if candidate.reference or not candidate.ranked:
            note = "reference" if candidate.reference else "not ranked"
        rows.append(
            [
                str(rank) if candidate.ranked else "–",
                candidate.name,
                *(_metric(candidate, metric) for metric in metrics),
                f"{len(candidate.standings)}/{len(board.weights)}",
                note,
            ]
        )
    return heads, rows


def by_environment(board: Leaderboard) -> Table:
    """Make a table of success: one row per environment, one column per candidate."""
    heads = ["environment", "weight", "tasks", *(candidate.name for candidate in board.candidates)]
    rows = []
    for id, weight in board.weights.items():
        found = [candidate.standings.get(id) for candidate in board.candidates]
        tasks = max((len(standing.by_task) for standing in found if standing), default=0)
        rows.append([id, f"{weight:g}", str(tasks), *(_standing(one) for one in found)])
    return heads, rows


def games(board: Leaderboard) -> Table:
    """Make a table of games: one row per candidate, game and player."""
    rows = [
        [one.name, f"{one.environment}{'' if one.episodes >= one.planned else ' *'}", *row]
        for one in board.games
        for row in player_results.rows(one.players)
    ]
    return ["agent, model", "environment", *player_results.HEADS], rows


def remarks(board: Leaderboard) -> list[str]:
    """Return the caveats of the tables, one sentence each."""
    found = list(board.notes)
    for candidate in board.candidates:
        if candidate.missing:
            shown = "; ".join(candidate.missing[:4])
            more = len(candidate.missing) - 4
            shown += f"; and {more} more" if more > 0 else ""
            found.append(f"{candidate.name} is not ranked: {shown}")
    some = [id for id in board.weights if _progress(board, id)]
    if "progress" in board.metrics and 0 < len(some) < len(board.weights):
        found.append(f"progress is the mean over the {len(some)} environments that declare it")
    unpriced = [c.name for c in board.candidates if "money" not in c.means]
    if unpriced and len(unpriced) < len(board.candidates):
        found.append(
            f"the cost of {', '.join(unpriced)} in money is unknown: a model there has no price "
            "(see `palaestra eval --price`), or did not report its sampled tokens"
        )
    counts = [len(s.by_task) for c in board.candidates for s in c.standings.values()]
    if counts and min(counts) < SMALL:
        found.append(
            f"some environments have {min(counts)} tasks: their intervals are wide, and small "
            "differences on them are not meaningful"
        )
    for candidate in board.candidates:
        faults = sum(standing.faults for standing in candidate.standings.values())
        if faults:
            found.append(f"{candidate.name}: {faults} episodes broke and are not scored")
    return found


def markdown(board: Leaderboard, cost: str = "tokens") -> str:
    """Render the leaderboard as a Markdown page."""
    parts = [f"# {_title(board)}"]
    if board.candidates:
        parts += [_markdown(overview(board, cost)), _explained(board, cost)]
        parts += ["## By environment: success % (95 % interval)", _markdown(by_environment(board))]
    if board.games:
        parts += ["## Games: returns of each player", _markdown(games(board)), RATED]
    notes = remarks(board)
    if notes:
        parts.append("\n".join(f"- {_escaped(note)}" for note in notes))
    return "\n\n".join(parts) + "\n"


def page(board: Leaderboard, cost: str = "tokens") -> str:
    """Render one self-contained HTML page, readable without scripts."""
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in remarks(board))
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{html.escape(_title(board))}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem;
  padding: 0 1rem; }}
table {{ border-collapse: collapse; margin: 1rem 0; }}
th, td {{ border-bottom: 1px solid #8886; padding: .3rem .7rem; text-align: right; }}
th:nth-child(-n+2), td:nth-child(-n+2) {{ text-align: left; }}
figure {{ margin: 1rem 0; }} div {{ overflow-x: auto; }}
</style></head><body>
<h1>{html.escape(_title(board))}</h1>
{_candidates(board, cost)}
{_games(board)}
<ul>{notes}</ul>
</body></html>
"""


def _candidates(board: Leaderboard, cost: str) -> str:
    if not board.candidates:
        return ""
    return f"""<div>{_html(overview(board, cost))}</div>
<p>{html.escape(_explained(board, cost))}</p>
{_picture(board, cost)}
<h2>By environment: success % (95 % interval)</h2>
<div>{_html(by_environment(board))}</div>"""


def _games(board: Leaderboard) -> str:
    if not board.games:
        return ""
    return f"""<h2>Games: returns of each player</h2>
<div>{_html(games(board))}</div>
<p>{html.escape(RATED)}</p>"""


def table(board: Leaderboard) -> str:
    """Render CSV, one line per candidate and environment, and one per candidate in all (`*`)."""
    metrics = [metric for metric in HEADS if metric != "success"]
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    heads = ["name", "agent", "model", "environment", "ranked", "episodes", "planned", "faults"]
    writer.writerow([*heads, "tasks", "success", "low", "high", *metrics])
    for candidate in board.candidates:
        names = [candidate.name, candidate.agent, candidate.model]
        of = list(candidate.standings.values())
        sums = [sum(getattr(s, n) for s in of) for n in ("episodes", "planned", "faults")]
        whole = [*names, "*", candidate.ranked, *sums, *_numbers(candidate.success)]
        writer.writerow([*whole, *(candidate.means.get(metric, "") for metric in metrics)])
        for one in of:
            line = [*names, one.environment, "", one.episodes, one.planned, one.faults]
            line += [*_numbers(one.success), *(one.means.get(metric, "") for metric in metrics)]
            writer.writerow(line)
    return stream.getvalue()


def as_json(board: Leaderboard, cost: str = "tokens") -> dict[str, Any]:
    """Return the leaderboard as a JSON object."""
    front = _front(board, cost)
    return {
        "suite": board.suite.title if board.suite else None,
        "hash": board.suite.hash if board.suite else None,
        "weights": board.weights,
        "cost": cost,
        "front": [candidate.name for candidate in front],
        "contenders": [
            {
                "name": candidate.name,
                "agent": candidate.agent,
                "model": candidate.model,
                "ranked": candidate.ranked,
                "missing": candidate.missing,
                "success": asdict(candidate.success) if candidate.success else None,
                "means": _all(candidate.means),
                "worlds": {
                    id: {
                        "success": asdict(standing.success) if standing.success else None,
                        "means": _all(standing.means),
                        "by_task": standing.by_task,
                        "episodes": standing.episodes,
                        "planned": standing.planned,
                        "faults": standing.faults,
                    }
                    for id, standing in candidate.standings.items()
                },
            }
            for candidate in board.candidates
        ],
        **({"games": [asdict(one) for one in board.games]} if board.games else {}),
        "notes": remarks(board),
    }


# ── details ──────────────────────────────────────────────────────────────────


def _front(board: Leaderboard, cost: str) -> list[Candidate]:
    """Return the Pareto front; empty if the cost is unknown for a candidate."""
    if cost not in COSTS:
        return board.front(cost)  # raises
    try:
        return board.front(cost)
    except InputError:
        return []


def _title(board: Leaderboard) -> str:
    if board.suite is not None:
        return f"Suite {board.suite.title}"
    count = len(board.weights) + len({one.environment for one in board.games})
    return f"{count} environment{'s' if count > 1 else ''}, without a suite"


def _explained(board: Leaderboard, cost: str) -> str:
    front = _front(board, cost)
    if not front:
        choices = [candidate for candidate in board.ranked if not candidate.reference]
        lacking = f"the {cost} of some are unknown" if choices else "no candidate is ranked"
        return f"There is no Pareto front: {lacking}."
    return (
        f"Pareto: no other has at least this success for fewer {cost} per task "
        f"({', '.join(candidate.name for candidate in front)}). Success is the mean of the "
        "environments by weight; each environment's interval is clustered by task."
    )


def _all(means: Mapping[str, float]) -> dict[str, float | None]:
    """Return every metric besides success, null if unknown."""
    return {metric: means.get(metric) for metric in HEADS if metric != "success"}


def _known(board: Leaderboard, metric: str) -> bool:
    return any(metric in candidate.means for candidate in board.candidates)


def _progress(board: Leaderboard, environment: str) -> bool:
    found = (candidate.standings.get(environment) for candidate in board.candidates)
    return any(standing is not None and "progress" in standing.means for standing in found)


def _metric(candidate: Candidate, metric: str) -> str:
    if metric == "success":
        return _interval(candidate.success)
    value = candidate.means.get(metric)
    if value is None:
        return "–"
    if metric in PERCENT:
        return f"{100 * value:.1f}"
    return (
        f"{value:.4f}" if metric == "money" else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
    )


def _standing(standing: Standing | None) -> str:
    if standing is None:
        return "–"
    return _interval(standing.success) + ("" if standing.complete else " *")


def _interval(rate: Interval | None) -> str:
    if rate is None:
        return "–"
    return f"{100 * rate.mean:.1f} ({100 * rate.low:.0f} to {100 * rate.high:.0f})"


def _numbers(rate: Interval | None) -> list[Any]:
    return [0, "", "", ""] if rate is None else [rate.n, rate.mean, rate.low, rate.high]


def _escaped(text: str) -> str:
    for letter in "\\|<>`*_":
        text = text.replace(letter, f"\\{letter}")
    return text.replace("\n", " ")


def _markdown(table: Table) -> str:
    heads, rows = table
    lines = ["| " + " | ".join(map(_escaped, heads)) + " |"]
    lines.append("|" + " --- |" * 2 + " ---: |" * (len(heads) - 2))
    lines += ["| " + " | ".join(map(_escaped, row)) + " |" for row in rows]
    return "\n".join(lines)


def _html(table: Table) -> str:
    heads, rows = table
    top = "".join(f'<th scope="col">{html.escape(head)}</th>' for head in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(value)}</td>" for value in row) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _picture(board: Leaderboard, cost: str) -> str:
    """Draw success over cost of the ranked candidates, with the Pareto front as a line."""
    front = _front(board, cost)
    if not front:
        return ""
    most = max(candidate.means[cost] for candidate in board.ranked) or 1.0
    across: Callable[[float], float] = lambda value: 60 + 560 * value / most  # noqa: E731
    up: Callable[[float], float] = lambda value: 260 - 240 * value  # noqa: E731
    marks = []
    for candidate in board.ranked:
        rate = candidate.success
        if rate is None:
            continue
        x, name = across(candidate.means[cost]), html.escape(candidate.name)
        low, high = up(max(0.0, rate.low)), up(min(1.0, rate.high))
        marks.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}" '
            'stroke="currentColor" opacity=".4"/>'
            f'<circle cx="{x:.1f}" cy="{up(rate.mean):.1f}" r="5" fill="#36c"/>'
            f'<text x="{x + 9:.1f}" y="{up(rate.mean) - 6:.1f}">{name}</text>'
        )
    line = " ".join(
        f"{across(c.means[cost]):.1f},{up(c.success.mean):.1f}" for c in front if c.success
    )
    return (
        '<figure><svg viewBox="0 0 760 300" width="760" role="img" fill="currentColor" '
        f'font-size="12"><title>success against {html.escape(cost)} per task</title>'
        '<path d="M60 20V260H620" fill="none" stroke="currentColor"/>'
        f'<text x="8" y="24">100 %</text><text x="22" y="264">0 %</text>'
        f'<text x="560" y="284">{most:.3g} {html.escape(cost)}</text>'
        f'<polyline points="{line}" fill="none" stroke="#36c"/>{"".join(marks)}</svg></figure>'
    )
