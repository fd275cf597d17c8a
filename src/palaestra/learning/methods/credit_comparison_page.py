"""The page of a comparison: heat maps of every rule, side by side, in one HTML file.

The file loads nothing from the network. It holds the comparison as JSON; tables are plain
HTML, the maps are drawn from the JSON. Rows are rollouts, columns their turns; pointing
at a turn, or moving there with the arrow keys, shows it in all maps at once. Colours
follow the reader's light or dark scheme, and differ without red and green.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from palaestra.learning.methods.credit_comparison_maps import MAPS, SCRIPT, STYLE

DISPUTES = 20  # rows of the table of disputed turns
REPLY = "reply"  # the only column of text
MINUS = "−"
ComparisonJSON = Mapping[str, Any]


def page(comparison: ComparisonJSON) -> str:
    """Return the page.

    Args:
        comparison: the result of `comparison.as_json`, with `trace`, `phase`, `environment`,
            `skipped` (rule and reason), and with `observation` and `reply` of each turn.
    """
    title = f"Credit on {comparison['phase']} of {comparison['trace']}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p class=lead>{escape(_lead(comparison))}</p>",
        _rules(comparison),
        MAPS,
        _pairs(
            comparison, "opposite", "Opposite signs", "share of the turns to which both give a sign"
        ),
        _pairs(comparison, "spearman", "Rank correlation", "Spearman, over all turns"),
        _disputes(comparison),
        _skipped(comparison),
        NOTES,
    ]
    # "<" could end the script element early, wherever it occurs in a model's reply
    data = json.dumps(comparison).replace("<", "\\u003c")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in parts if part)
        + '\n</main>\n<div id="tip" role="status" aria-live="polite" hidden></div>\n'
        f'<script type="application/json" id="data">{data}</script>\n'
        f"<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def _lead(comparison: ComparisonJSON) -> str:
    text = (
        f"{comparison['environment']}: {comparison['rollouts']} rollouts in "
        f"{comparison['groups']} groups, {comparison['turns']} turns, "
        f"{comparison['tokens']} sampled tokens."
    )
    truth = comparison["truth"]
    if truth:
        text += (
            f" Truth: {truth['turns']} turns measured by rolling out from them "
            f"{truth['samples']} times with the policy of {truth['policy']}"
        )
        known = truth["reliability"] is not None
        text += f"; {truth['reliability']:.0%} of its variance is signal." if known else "."
    return text


def _rules(comparison: ComparisonJSON) -> str:
    head = ["rule", "mean", "variance", "within rollouts", "zero turns", "zero tokens"]
    head += ["silent groups", *(["truth", "wrong sign"] if comparison["truth"] else [])]
    rows = []
    for rule in comparison["rules"]:
        row = [_name(rule["name"]), _cell(rule["mean"], "+.4f"), _cell(rule["variance"], ".4f")]
        row += [_bar(rule["within"])]
        row += [_bar(rule[name]) for name in ("zero_turns", "zero_tokens", "silent_groups")]
        if comparison["truth"]:
            row += [_cell(rule["truth"]["spearman"], "+.2f"), _bar(rule["truth"]["opposite"])]
        rows.append(row)
    return _section("What each rule does", "", _table(head, rows))


def _pairs(comparison: ComparisonJSON, figure: str, title: str, note: str) -> str:
    if not comparison["pairs"]:
        return ""
    found = {tuple(pair["rules"]): pair[figure] for pair in comparison["pairs"]}
    names = [rule["name"] for rule in comparison["rules"]]
    rows = []
    for name in names:
        values = [found.get((name, other), found.get((other, name))) for other in names]
        cells = [
            "<td class=self></td>" if name == other else _shade(value, figure)
            for other, value in zip(names, values, strict=True)
        ]
        rows.append([_name(name), *cells])
    return _section(title, note, _table(["", *names], rows))


def _disputes(comparison: ComparisonJSON) -> str:
    rules = [rule["name"] for rule in comparison["rules"]]
    rows = []
    for dispute in comparison["disputes"][:DISPUTES]:
        i, k = dispute["rollout"], dispute["turn"]
        trajectory = comparison["trajectories"][i]
        turn = trajectory["turns"][k]
        place = f"{trajectory['key']}, turn {k + 1}"
        link = f'<a href="#maps" data-i="{i}" data-k="{k}">{escape(place)}</a>'
        row = [
            f"<th scope=row>{link}</th>",
            f"<td class=reply>{escape(turn.get('reply', ''))}</td>",
        ]
        row += [_cell(turn["reward"], "+.3g")]
        row += [_cell(rule["advantages"][i][k], "+.3f") for rule in comparison["rules"]]
        if comparison["truth"]:
            measured = comparison["truth"]["advantages"][i][k]
            row.append(_cell(measured and measured["mean"], "+.3f"))
        rows.append(row)
    if not rows:
        return ""
    head = ["turn", REPLY, "reward", *rules, *(["truth"] if comparison["truth"] else [])]
    several = len(rules) > 1
    return _section(
        "Most disputed turns" if several else "Strongest turns",
        "one of each rollout; the maps show the turn that you choose",
        _table(head, rows),
    )


def _skipped(comparison: ComparisonJSON) -> str:
    if not comparison["skipped"]:
        return ""
    items = "".join(f"<li>{escape(row['reason'])}</li>" for row in comparison["skipped"])
    return _section("Not run", "", f"<ul>{items}</ul>")


# ── HTML ─────────────────────────────────────────────────────────────────────


def _section(title: str, note: str, body: str) -> str:
    about = f"<p class=note>{escape(note)}</p>" if note else ""
    return f"<section><h2>{escape(title)}</h2>{about}{body}</section>"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; `head` is text, the cells of `rows` are HTML."""
    top = ""
    for name in head:
        kind = " class=reply" if name == REPLY else ""
        top += f"<th scope=col{kind}>{escape(name)}</th>"
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return (
        f"<div class=wide><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _name(name: str) -> str:
    return f"<th scope=row>{escape(name)}</th>"


def _cell(value: float | None, form: str) -> str:
    text = "–" if value is None else format(value, form) if value else "0"
    return f"<td>{text.replace('-', MINUS)}</td>"


def _bar(share: float | None) -> str:
    if share is None:
        return "<td>–</td>"
    return f'<td class=bar style="--v:{share:.4f}">{100 * share:.1f} %</td>'


def _shade(value: float | None, figure: str) -> str:
    if value is None:
        return "<td>–</td>"
    kind = "against" if figure == "opposite" or value < 0 else "along"
    text = f"{100 * value:.1f} %" if figure == "opposite" else f"{value:+.2f}".replace("-", MINUS)
    return f'<td class={kind} style="--v:{abs(value):.4f}">{text}</td>'


NOTES = """<section class=notes><h2>How to read this</h2><dl>
<dt>advantage of a turn</dt><dd>the mean over the turn's sampled tokens</dd>
<dt>within rollouts</dt><dd>share of the variance between turns of the same rollout: 0 % for a rule
that gives all turns of a rollout the same</dd>
<dt>zero turns, zero tokens</dt><dd>share whose advantage is zero: they pull no weight</dd>
<dt>silent groups</dt><dd>groups in which nothing has an advantage: rolled out in vain</dd>
<dt>truth</dt><dd>what the turn added to the expected return, measured by rolling out from the
states before and after it with the policy named above, which need not be the one that acted; the
figure is Spearman's correlation with it, which noise lowers for every rule</dd>
<dt>wrong sign</dt><dd>share of turns whose sign differs from the truth's, where the truth lies more
than two standard errors from zero</dd>
<dt>disputed</dt><dd>the spread between rules, each measured in its root mean square</dd>
</dl></section>"""
