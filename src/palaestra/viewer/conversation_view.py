"""A conversation as the page of an episode shows it: a table, graphs, and a part of the chart."""

from __future__ import annotations

from typing import Any

from palaestra.evaluation.statistics.conversation import MEMBER_HEADS, Conversation, member_rows
from palaestra.viewer.sequence_chart import ROWS, sequence_chart
from palaestra.viewer.speech_graph import speech_graphs
from palaestra.viewer.texts import line


def conversation_view(found: Conversation, here: str, turn: int) -> dict[str, Any]:
    """Return the values of `talk.html`.

    Args:
        found: of an episode with several players.
        here: the address of the episode's page.
        turn: a turn that the chart shows, from 1; the nearest one if there is no such turn.
    """
    start = max(0, min(turn, len(found.moves)) - 1) // ROWS * ROWS

    def link(step: int) -> str:
        return f"{here}?turn={step + 1}#turn-{step + 1}"

    return {
        "found": found,
        "heads": MEMBER_HEADS,
        "rows": [[line(cell, 400) for cell in row] for row in member_rows(found)],
        "lines": len(found.lines),
        "graphs": speech_graphs(found),
        "chart": sequence_chart(found, link, start, start + ROWS),
        "start": start,
        "parts": range(0, len(found.moves), ROWS),
        "size": ROWS,
    }
