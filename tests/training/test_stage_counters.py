"""What the terminal says of a step is kept with the run."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from rich.console import Console

from palaestra.cli.main import main
from palaestra.learning.loop.alarms import stored_alarms
from palaestra.runtime.progress import Reporter
from palaestra.store.run_folder import RunFolder
from palaestra.training.recipe import load
from palaestra.training.stage_counters import StepCounter


def made(run: RunFolder, gaps: dict[int, float]) -> str:
    """Make steps with these gaps between engine and learner; return the progress messages."""
    output = io.StringIO()
    reporter = Reporter(Console(file=output, width=400))
    context = SimpleNamespace(
        recipe=load("quick"),
        store=run.database,
        reporter=reporter,
        add_metrics=run.database.add_metrics,
        record="rl",
        accounts=SimpleNamespace(count_time=lambda: None),
    )
    with reporter.stage("rl", len(gaps), "steps") as shown:
        counter = StepCounter(cast(Any, context), shown)
        for step, gap in gaps.items():
            metrics = {"gap": gap, "sampled_tokens": 1.0, "prompt_tokens": 1.0, "seconds": 1.0}
            counter.add(cast(Any, SimpleNamespace(step=step, metrics=metrics)))
    return output.getvalue()


def test_a_step_without_an_update_shows_no_entropy(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "a", {"summary": "a small one"}) as run:
        output = made(run, {1: 0.0})
    assert "entropy – (no update)" in output
    assert "entropy 0.00" not in output


def test_an_alarm_of_the_terminal_is_the_one_that_is_kept_and_shown(
    tmp_path: Path, capsys: Any
) -> None:
    with RunFolder.create(tmp_path / "a", {"summary": "a small one"}) as run:
        assert "alarm" not in made(run, {1: 0.0, 2: 0.0})
        assert stored_alarms(run.database, "rl") == {}
        output = made(run, {3: 0.2, 4: 0.2, 5: 0.2})  # a process that went on
        (raised,) = (stored_alarms(run.database, "rl") or {}).values()
        assert raised.first.message in output
        assert (raised.first.step, raised.last, raised.steps) == (3, 5, 3)
    main(["show", str(tmp_path / "a")])
    assert raised.first.message in capsys.readouterr().out
