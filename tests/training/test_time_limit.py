"""The time limit of a run: RL ends early enough for the tests that follow it."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from palaestra.core.errors import RecipeError
from palaestra.runtime.progress import Reporter
from palaestra.store.run_folder import RunFolder
from palaestra.training.accounting import Accounts
from palaestra.training.recipe import load
from palaestra.training.run import execute
from palaestra.training.time_limit import seconds_left, used_up
from tests.training.learning import SMALL
from tests.training.runs import write_recipe

TASKS, TRANSFER_TASKS = 40, 10


def context(run: RunFolder, clock: list[float], *keys: str) -> Any:
    """Return what the limit reads of a run: its recipe, its record and its time so far."""
    recipe = load(
        "default",
        [f"evaluation.tasks={TASKS}", f"evaluation.transfer_tasks={TRANSFER_TASKS}", *keys],
    )

    class Context:
        store = run.database

        def __init__(self) -> None:
            self.recipe, self.record = recipe, "rl"
            self.accounts = Spent(run.database, None)

    class Spent(Accounts):
        @property
        def seconds(self) -> float:
            return clock[0]

    return Context()


def step(run: RunFolder, number: int, seconds: float, tokens: float = 100.0) -> None:
    values = {"seconds": seconds, "sampled_tokens": tokens, "prompt_tokens": 0.0}
    run.database.add_metrics("rl", number, values)


@settings(
    deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    minutes=st.floats(0.5, 30),
    test=st.floats(1, 300),
    transfer=st.booleans(),
    duration=st.floats(1, 90),
)
@pytest.mark.slow
def test_a_run_of_even_steps_ends_within_its_minutes(
    tmp_path_factory: pytest.TempPathFactory,
    minutes: float,
    test: float,
    transfer: bool,
    duration: float,
) -> None:
    keys = [f"minutes={minutes}"] + ([] if transfer else ["environment.transfer="])
    with RunFolder.create(tmp_path_factory.mktemp("runs") / "a", {}) as run:
        run.database.put("stages", [{"name": "test/base", "seconds": test}])
        clock = [test]
        made = context(run, clock, *keys)
        number = 0
        while not used_up(made, number):
            number += 1
            clock[0] += duration
            step(run, number, duration)
        tests = test * (1 + (TRANSFER_TASKS / TASKS if transfer else 0))
        if number > 1:  # the first step's length is unknown before it
            assert clock[0] + tests <= 60 * minutes + 1e-6
        if number:  # no time is left unused either
            assert clock[0] + duration + tests > 60 * minutes - 1e-6


def test_the_time_left_is_that_of_the_minutes_or_of_the_tokens(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "a", {}) as run:
        run.database.put("stages", [{"name": "test/imitation", "seconds": 60.0}])
        made = context(run, [100.0], "minutes=10", "environment.transfer=", "rl.tokens=1000")
        assert seconds_left(made) == 600 - 100 - 60
        step(run, 1, 20.0, tokens=200)  # 10 tokens a second: 80 seconds for the other 800
        assert seconds_left(made) == 80
        free = context(run, [100.0], "minutes=", "rl.tokens=")
        assert seconds_left(free) is None
        assert not used_up(free, 1)


def test_progress_never_promises_more_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palaestra.runtime.progress.LINE_EVERY", 0.0)
    output = io.StringIO()
    with Reporter(Console(file=output, width=200)).stage("rl", 1_000_000, "steps") as shown:
        shown._started -= 100  # a step has taken so long
        shown.show(1, {}, most=75.0)
    assert "1:15 left" in output.getvalue()


def test_a_run_without_time_for_rl_says_so_and_ends_with_its_tests(tmp_path: Path) -> None:
    report, said = _run(tmp_path, "minutes=0.0001", "rl.steps=50")
    assert "leaves no time for RL beside the tests; raise it" in said
    with RunFolder.read(tmp_path / "run") as run:
        assert run.database.metrics("rl") == []
        assert set(run.database.phases()) == {"test/base", "test/rl"}
    assert report is not None


def test_a_run_ends_before_its_steps_where_its_minutes_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Accounts.seconds.fget
    assert real is not None
    slow = property(lambda self: real(self) + 300 * len(self._store.metrics("rl")))
    monkeypatch.setattr(Accounts, "seconds", slow)  # as if each step had taken five minutes
    _run(tmp_path, "minutes=12", "rl.steps=50")
    with RunFolder.read(tmp_path / "run") as run:
        assert [number for number, _ in run.database.metrics("rl")] == [1, 2, 3]
        assert "test/rl" in run.database.phases()


def test_minutes_do_not_go_with_determinism_nor_under_rl() -> None:
    with pytest.raises(RecipeError, match="impossible with minutes; unset one"):
        load("quick", ["deterministic=true", "minutes=3"])
    with pytest.raises(RecipeError, match="renamed; use 'minutes'"):
        load("quick", ["rl.minutes=3"])


def _run(folder: Path, *keys: str) -> tuple[Any, str]:
    """Run a small recipe; return its report and what it said."""
    output = io.StringIO()
    recipe = load(str(write_recipe(folder)), [*SMALL, "deterministic=false", *keys])
    with RunFolder.create(folder / "run", recipe.model_dump(mode="json")) as run:
        report = asyncio.run(execute(recipe, run, Reporter(Console(file=output, width=400))))
    return report, output.getvalue()
