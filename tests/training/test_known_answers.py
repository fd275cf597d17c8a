"""Probes of a known answer in a run: recorded beside the rollout, without a trace in it."""

from __future__ import annotations

import asyncio
import io
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from palaestra.core.episode import Episode
from palaestra.core.errors import InputError
from palaestra.core.graph import Call
from palaestra.learning.credit.turn_rewards import belief, gains
from palaestra.learning.data.rewards import Shaping
from palaestra.learning.data.rows import rows_of
from palaestra.runtime.progress import Reporter
from palaestra.store import checkpoint
from palaestra.store.run_folder import RunFolder
from palaestra.training.recipe import check, load
from palaestra.training.recipe_check import check_recipe
from palaestra.training.run import execute
from tests.training.learning import train, weights
from tests.training.runs import write_recipe

WORLD = ["environment.id=questions/things-2", "rl.algorithm=igpo"]


def without_answers(call: Call) -> Call:
    return replace(call, answer_logprobs=(), seconds=0.0, computed_tokens=0)


def sampled(episodes: list[Episode]) -> list[list[Call]]:
    return [[without_answers(call) for call in episode.calls] for episode in episodes]


def test_probes_change_no_token_and_no_log_probability(start: Path, tmp_path: Path) -> None:
    first = [*WORLD, "rl.steps=1"]  # its rollouts are those of the same weights
    for folder in ("with", "without"):
        (tmp_path / folder).mkdir()
    with train(start, tmp_path / "with", *first) as run:
        probed = run.database.episodes("rl/1")
    with train(start, tmp_path / "without", *first, "rl.algorithm=grpo", "rl.filter=all") as run:
        plain = run.database.episodes("rl/1")
    assert all(call.answer_logprobs for e in probed for call in e.calls)
    assert not any(call.answer_logprobs for e in plain for call in e.calls)
    assert sampled(probed) == sampled(plain)
    rows = [[rows_of(e, "policy") for e in every] for every in (probed, plain)]
    assert rows[0] == rows[1]


def test_the_belief_after_a_turn_is_that_before_the_next_one(start: Path, tmp_path: Path) -> None:
    with train(start, tmp_path, *WORLD, "rl.steps=1") as run:
        episodes = run.database.episodes("rl/1")
    longest = max(episodes, key=lambda e: len(e.calls))
    assert len(longest.calls) > 1
    trajectory = Shaping(most_turns=5).trajectory(longest, "policy")
    measured = [belief(call.answer_logprobs) for call in longest.calls]
    assert trajectory.belief == measured[0]
    assert [turn.belief for turn in trajectory.turns] == [*measured[1:], None]
    wanted = [after - before for before, after in pairwise(measured)]
    assert gains(trajectory) == pytest.approx([*wanted, trajectory.outcome])


def test_a_killed_run_has_the_same_beliefs_and_ends_with_the_same_weights(
    start: Path, tmp_path: Path
) -> None:
    with train(start, tmp_path, *WORLD) as run:
        path, whole = run.path, weights(run.path / "final")
        before = run.database.episodes("rl/2")
    with RunFolder.open(path) as run:
        stages = [row for row in run.database.get("stages") or [] if "rl" not in row["name"]]
        run.database.put("stages", stages)
        checkpoint.remove(run.checkpoints, "rl-000002")
        kept = before[: len(before) // 2]  # the other half was under way
        for episode in before[len(kept) :]:
            run.database.forget(episode.key)
        shutil.rmtree(path / "final")
        recipe = check(dict(run.database.get("recipe") or {}))
        asyncio.run(execute(recipe, run, Reporter(Console(file=io.StringIO()))))
        after = run.database.episodes("rl/2")
    assert weights(path / "final") == whole
    assert [[c.answer_logprobs for c in e.calls] for e in after] == [
        [c.answer_logprobs for c in e.calls] for e in before
    ]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["rl.algorithm=igpo"], "needs beliefs, but 'babyai/GoToObjS4' does not declare 'answer'"),
        (
            [*WORLD, "deterministic=false", "rl.actor=process"],
            "needs the learner's process to act, not rl.actor",
        ),
        (
            [*WORLD, 'rl.curriculum.levels=["babyai/GoToObjS4"]'],
            "'babyai/GoToObjS4' does not declare 'answer'",
        ),
    ],
)
def test_what_cannot_be_measured_is_reported_before_anything_starts(
    keys: list[str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        check_recipe(load(str(write_recipe(tmp_path)), keys))
