"""The sequence chart of an episode with several players, as HTML and SVG.

A column per player and a row per step, with an arrow from the player who says something to those
that are shown it, and a row across all columns for each action that the environment takes. Colours
and sizes are classes of the style sheet; texts wrap, and the lines of the columns follow.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from markupsafe import Markup, escape

from palaestra.evaluation.statistics.conversation import DONE, Conversation, Line, Move
from palaestra.viewer.charts import COLOURS
from palaestra.viewer.texts import line as shortened

ROWS = 200  # steps of one chart
LONGEST = 240  # characters of a text
MIDDLE = 13  # pixels from the top of a row to its arrows
HEAD = 6  # pixels: the length of an arrow's head
NAMED = 8  # readers of a line that are named; more are counted


def sequence_chart(
    found: Conversation, link: Callable[[int], str], start: int = 0, stop: int | None = None
) -> Markup:
    """Draw some steps of a conversation.

    Args:
        found: of an episode with several players.
        link: the address of a step.
        start: the first step.
        stop: the step after the last one; None: the end.
    """
    columns = _Columns(found.players)
    lines: dict[int, list[Line]] = {}
    for line in found.lines:
        lines.setdefault(line.step, []).append(line)
    rows = [
        row
        for move in found.moves[start:stop]
        for row in _rows(move, lines.get(move.step, []), columns, link(move.step))
    ]
    return Markup(
        f'<div class="sequence"><div class="heads" aria-hidden="true">{columns.heads()}</div>'
        f'<ol class="steps">{"".join(rows)}</ol></div>'
    )


class _Columns:
    """The places of the players' columns."""

    def __init__(self, players: Sequence[str]) -> None:
        self.players = list(players)
        count = len(self.players)
        self.gap = 44 if count <= 6 else 28 if count <= 12 else 20
        self.width = self.gap * count

    def x(self, player: str) -> float:
        """Return the middle of a player's column."""
        return self.gap * (self.players.index(player) + 0.5)

    def colour(self, player: str) -> str:
        """Return the class of a player's colour."""
        return f"s{self.players.index(player) % COLOURS}"

    def heads(self) -> str:
        """Draw the names above the columns, slanted."""
        names = [shortened(name, 24) for name in self.players]
        slant = 6.0 * max(map(len, names)) + 22  # pixels: about 8.5 a letter, at 45 degrees
        height, width = math.ceil(slant), math.ceil(self.width + slant)
        parts = [f'<svg width="{width}" height="{height}">']
        for player, name in zip(self.players, names, strict=True):
            at = f"{self.x(player):.1f} {height - 6}"
            parts.append(
                f'<text class="head {self.colour(player)}" transform="translate({at}) rotate(-45)">'
                f"{escape(name)}</text>"
            )
        return "".join((*parts, "</svg>"))

    def picture(self, shapes: Sequence[str]) -> str:
        """Draw a row: the line of each column, and shapes above them."""
        lives = "".join(
            f'<line class="life" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="100%"/>'
            for x in map(self.x, self.players)
        )
        return f'<svg width="{self.width}" aria-hidden="true">{lives}{"".join(shapes)}</svg>'


def _rows(move: Move, lines: Sequence[Line], columns: _Columns, link: str) -> list[str]:
    """Return the row of a step, and one for what the environment did after another reply."""
    own = [line for line in lines if not line.team]
    acts = move.does == "act" and move.acted == move.text
    band = f'<rect class="band" width="{columns.width}" height="100%"/>'
    x, colour = columns.x(move.player), columns.colour(move.player)
    shapes = [band] * acts + [shape for line in own for shape in _arrows(line, columns)]
    shapes.append(f'<circle class="fill {colour}" cx="{x:.1f}" cy="{MIDDLE}" r="4.5"/>')
    text = own[0].text if own and own[0].channel else move.text
    words = [f"<b>{escape(shortened(move.player, 80))}</b> {_done(move, own)}"]
    if text.strip():
        words = [f"{words[0]}:", _quoted(text)]
    words += [_readers(line) for line in own]
    kind = "environment" if acts else "says"
    found = [_row(kind, link, move.step + 1, columns.picture(shapes), words)]
    for line in lines:
        if line.team:
            said = f"<b>{escape(shortened(line.team, 80))}</b>, as a team, {DONE[line.does]}:"
            words = [said, _quoted(line.text), _readers(line)]
            picture = columns.picture(_arrows(line, columns))
            found.append(_row("says", link, None, picture, words))
    voices = {line.team for line in lines}
    for team, decision in move.within.items():
        if team not in voices:  # nobody else was told, as of a vote
            words = [
                f"<b>{escape(shortened(team, 80))}</b>, as a team, replies:",
                _quoted(decision),
            ]
            found.append(_row("says", link, None, columns.picture([]), words))
    if move.acted is not None and not acts:
        words = [f"the environment takes: {_quoted(move.acted)}"]
        found.append(_row("environment", link, None, columns.picture([band]), words))
    return found


def _row(kind: str, link: str, number: int | None, picture: str, words: Sequence[str]) -> str:
    place = "" if number is None else f'<a href="{escape(link)}">{number}</a>'
    return (
        f'<li class="step {kind}"><span class="at">{place}</span>{picture}'
        f'<span class="what" dir="auto">{" ".join(filter(None, words))}</span></li>'
    )


def _done(move: Move, lines: Sequence[Line]) -> str:
    channels = [line.channel for line in lines if line.channel]
    if channels:
        return f"sent on {escape(shortened(channels[0], 80))}"
    return str(escape(DONE.get(move.does, move.does)))


def _quoted(text: str) -> str:
    return f"<q>{escape(shortened(text, LONGEST))}</q>"


def _readers(line: Line) -> str:
    """Return who was shown a line before which turn, and who never was."""
    shown = [f"{shortened(name, 80)} ({step + 2})" for name, step in line.shown.items()]
    never = [shortened(name, 80) for name in line.to if name not in line.shown]
    if len(shown) > NAMED:
        turns = sorted({step + 2 for step in line.shown.values()})
        last = f" to {turns[-1]}" if len(turns) > 1 else ""
        shown = [f"{len(shown)} players ({turns[0]}{last})"]
    if len(never) > NAMED:
        never = [f"{len(never)} players"]
    parts = [f"→ {', '.join(shown)}"] * bool(shown)
    parts += [f"never shown to {', '.join(never)}"] * bool(never)
    return f'<span class="faint">{escape("; ".join(parts))}</span>' if parts else ""


def _arrows(line: Line, columns: _Columns) -> list[str]:
    """Draw arrows to the readers of a line, and a broken line to each who was never shown it."""
    begin, colour = columns.x(line.speaker), columns.colour(line.speaker)
    parts = [
        f'<path class="line dashed {colour}" d="M{begin:.1f} {MIDDLE}H{columns.x(player):.1f}"/>'
        for player in line.to
        if player not in line.shown
    ]
    ends = [columns.x(player) for player in line.shown]
    shaft = (
        [f"M{begin:.1f} {MIDDLE}H{max(ends) - HEAD:.1f}"] if max(ends, default=0) > begin else []
    )
    shaft += [f"M{begin:.1f} {MIDDLE}H{min(ends) + HEAD:.1f}"] if ends and min(ends) < begin else []
    if shaft:
        heads = [f"M{end:.1f} {MIDDLE}l{-math.copysign(HEAD, end - begin):g} -4v8z" for end in ends]
        parts.append(f'<path class="line {colour}" d="{"".join(shaft)}"/>')
        parts.append(f'<path class="fill {colour}" d="{"".join(heads)}"/>')
    return parts
