"""An agent with a memory learns: its summaries are trained like its actions, on what was sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from palaestra.learning.data.rows import rows_of
from tests.training.learning import train, weights

BUDGET = 330


@pytest.mark.slow
def test_reinforcement_trains_summaries_within_their_budget(start: Path, tmp_path: Path) -> None:
    name = f"agent.name=summary?budget={BUDGET}&length=8"
    with train(start, tmp_path, name, "agent.max_tokens=6") as run:
        episodes = [e for n in (1, 2) for e in run.database.episodes(f"rl/{n}")]
    asked = [call for episode in episodes for call in episode.calls if call.role == "memory"]
    assert asked
    for episode in episodes:
        for call in episode.calls:
            path = episode.graph.path(call.index)
            sent = sum(len(c.prompt) + len(c.completion) for c in path) - len(call.completion)
            assert sent <= BUDGET
        sampled = sum(call.sampled for call in episode.calls)
        assert sum(row.trained for row in rows_of(episode, episode.calls[0].policy)) == sampled
    assert weights(tmp_path / "run" / "final") != weights(start)
