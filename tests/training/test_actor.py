"""Another process acts while this one learns."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from palaestra.core.errors import InputError
from palaestra.store.run_folder import RunFolder
from palaestra.training.recipe import load
from palaestra.training.recipe_check import check_recipe
from tests.processes import children_with
from tests.training.runs import write_recipe
from tests.training.test_asynchronous import BOUND, GROUP, KEYS, STEPS, TASKS, execute_in


@pytest.mark.slow
def test_another_process_acts_with_the_weights_that_are_learned_here(tmp_path: Path) -> None:
    keys = ["rl.actor=process", "model.schedule=attained", "model.slots=4"]
    execute_in(tmp_path / "run", *keys, folder=tmp_path)
    with RunFolder.read(tmp_path / "run") as run:
        metrics = [m for _, m in run.database.metrics("rl")]
        assert len(metrics) == STEPS
        updates = 2  # per step
        assert 0 < max(m["stale"] for m in metrics) <= BOUND * updates
        episodes = [e for s in range(1, STEPS + 1) for e in run.database.episodes(f"rl/{s}")]
        assert len(episodes) == STEPS * TASKS * GROUP
        versions = {v for e in episodes for call in e.calls for v in call.token_versions}
        assert len(versions) > 2
        assert not (run.path / "acting").exists()


@pytest.mark.slow
@pytest.mark.parametrize("on_update", ["recompute", "keep"])
def test_a_process_that_is_killed_leaves_no_token_without_its_version(
    on_update: str, tmp_path: Path
) -> None:
    killed: list[int] = []
    killer = threading.Thread(target=_kill_actor, args=(tmp_path / "run", killed), daemon=True)
    killer.start()
    execute_in(tmp_path / "run", "rl.actor=process", f"rl.on_update={on_update}", folder=tmp_path)
    assert killed
    with RunFolder.read(tmp_path / "run") as run:
        metrics = [m for _, m in run.database.metrics("rl")]
        assert len(metrics) == STEPS and not any(m["unscored"] for m in metrics)
        updates = 2  # per step
        assert 0 < max(m["stale"] for m in metrics) <= BOUND * updates


def _kill_actor(path: Path, killed: list[int]) -> None:
    """As the kernel does where memory runs out; once a step has been learned."""
    while not (path / "checkpoints" / "rl-000001").exists():
        time.sleep(0.05)
    for child in children_with("palaestra.models.local.server"):
        killed.append(child.pid)
        child.kill()


@pytest.mark.slow
def test_step_by_step_it_has_the_learners_probabilities_and_cancels_the_slowest_of_a_group(
    tmp_path: Path,
) -> None:
    execute_in(
        tmp_path / "run",
        "rl.asynchronous=false", "rl.staleness=0", "rl.loss=ppo", "rl.steps=2", "rl.quorum=2",
        "rl.actor=process",
        folder=tmp_path,
    )  # fmt: skip
    with RunFolder.read(tmp_path / "run") as run:
        for step, figures in run.database.metrics("rl"):
            assert figures["gap_max"] < 1e-3  # the weights of this step, and no others
            groups: dict[int, list[bool]] = {}
            for episode in run.database.episodes(f"rl/{step}"):
                groups.setdefault(episode.key.group, []).append(episode.outcome.scored)
            assert len(groups) == TASKS
            assert all(len(group) == GROUP and sum(group) >= 2 for group in groups.values())
            assert not all(map(all, groups.values()))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["rl.actor=proces"], "Did you mean 'process'"),
        (["rl.actor=served:policy"], "served:MODEL@URL"),
        (["rl.actor=served:m@http://x", "model.schedule=attained"], "model.schedule"),
        (["rl.actor=process", "deterministic=true", "rl.asynchronous=false"], "rl.actor"),
        (
            ["rl.actor=process", "agent.reasoning_tokens=9"],
            "reasoning_tokens = 9 needs the learner",
        ),
        ([f"rl.quorum={GROUP}"], "rl.quorum"),
        (["rl.quorum=2", "deterministic=true", "rl.asynchronous=false"], "rl.quorum"),
        (["model.schedule=shortest"], "model.schedule"),
    ],
)
def test_what_cannot_be_is_reported(keys: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        check_recipe(load(str(write_recipe(tmp_path)), [*KEYS, *keys]))
