"""What the terminal says of a step is kept with the run."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from rich.console import Console

from palaestra.cli.main import main
from palaestra.experiment.counters import StepCounter
from palaestra.experiment.progress import Reporter
from palaestra.learning.alarms import kept
from palaestra.store.run import RunFolder


def made(run: RunFolder, gaps: dict[int, float]) -> str:
    """Make steps with these gaps between engine and learner; returns what was said."""
    said = io.StringIO()
    reporter = Reporter(Console(file=said, width=400))
    setting = SimpleNamespace(store=run.database, reporter=reporter, count_time=lambda: None)
    with reporter.stage("rl", len(gaps), "steps") as shown:
        counter = StepCounter(cast(Any, setting), shown)
        for step, gap in gaps.items():
            metrics = {"gap": gap, "sampled_tokens": 1.0, "prompt_tokens": 1.0}
            counter.add(cast(Any, SimpleNamespace(step=step, metrics=metrics)))
    return said.getvalue()


def test_a_step_without_an_update_shows_no_entropy(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "a", {"summary": "a small one"}) as run:
        said = made(run, {1: 0.0})
    assert "entropy – (no update)" in said
    assert "entropy 0.00" not in said


def test_an_alarm_of_the_terminal_is_the_one_that_is_kept_and_shown(
    tmp_path: Path, capsys: Any
) -> None:
    with RunFolder.create(tmp_path / "a", {"summary": "a small one"}) as run:
        assert "alarm" not in made(run, {1: 0.0, 2: 0.0})
        assert kept(run.database, "rl") == {}
        said = made(run, {3: 0.2, 4: 0.2, 5: 0.2})  # a process that went on
        (raised,) = (kept(run.database, "rl") or {}).values()
        assert raised.first.message in said
        assert (raised.first.step, raised.last, raised.steps) == (3, 5, 3)
    main(["show", str(tmp_path / "a")])
    assert raised.first.message in capsys.readouterr().out
