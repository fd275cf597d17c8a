"""Models beside the policy: critics of replies, refreshed reward models, action values."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from palaestra.core.errors import InputError
from palaestra.store import checkpoint
from palaestra.store.run_folder import RunFolder
from tests.training.runs import recorded_episodes, weights_hash
from tests.training.stages.interrupted import stopped
from tests.training.stages.made import HEAD, IMITATE, resumed, run_stages
from tests.training.stages.test_pipeline import REWARDED
from tests.training.stages.test_stage_sections import refusal


def without_steps(run: Path, *steps: int) -> None:
    """As if the process had been killed before these last steps of RL were learned."""
    for step in steps:
        shutil.rmtree(run / "checkpoints" / f"rl-{step:06d}", ignore_errors=True)
    with RunFolder.open(run) as opened:
        rows = [row for row in opened.database.get("stages") or [] if row["name"] != "rl"]
        opened.database.put("stages", rows)


ARCHER = (
    HEAD
    + IMITATE
    + """
[[stage]]
do = "reinforce"
algorithm = "archer"
steps = 4
tasks = 3
group = 2
learning_rate = 1e-3
utterance_critic = {updates = 2, batch = 8, warmup = 1}
"""
)


@pytest.mark.slow
def test_a_critic_of_replies_and_its_replay_are_resumed(tmp_path: Path) -> None:
    run, _ = run_stages(tmp_path, ARCHER)
    with RunFolder.read(run) as opened:
        steps = [row for _, row in opened.database.metrics("rl")]
    assert "loss" not in steps[0] and all("loss" in row for row in steps[1:])
    held = [row["archer_replay"] for row in steps]
    assert held == sorted(held) and held[-1] > held[0] > 0  # earlier rollouts stay
    assert all(row["archer_tokens"] >= 2 * 8 for row in steps)  # one fresh reply each at least
    before = weights_hash(run)
    without_steps(run, 4, 3)
    resumed(run)
    assert weights_hash(run) == before


@pytest.mark.slow
def test_a_reward_model_is_refreshed_and_resumed(tmp_path: Path) -> None:
    text = REWARDED.replace("{kind}", "success").replace("steps = 2", "steps = 4")
    frozen, _ = run_stages(tmp_path / "frozen", text)
    often = "reward_refresh = {every = 2, updates = 2}\n"
    run, _ = run_stages(tmp_path / "refreshed", text + often)
    rows = []
    for path in (frozen, run):
        with RunFolder.read(path) as opened:
            rows.append([row for _, row in opened.database.metrics("rl")])
    same, refreshed = rows
    assert ["reward_loss" in row for row in refreshed] == [False, True, False, True]
    assert not any("reward_loss" in row for row in same)
    scores = [[row["modelled_reward"] for row in of] for of in rows]
    assert scores[0][:2] == scores[1][:2] and scores[0][2] != scores[1][2]
    assert refreshed[3]["reward_rollouts"] - refreshed[1]["reward_rollouts"] == 2 * 3 * 4
    ranked = [row["modelled_accuracy"] for row in refreshed if "modelled_accuracy" in row]
    assert ranked and all(0 <= share <= 1 for share in ranked)
    before = weights_hash(run)
    without_steps(run, 4, 3)
    resumed(run)
    assert weights_hash(run) == before


@pytest.mark.slow
def test_a_reward_model_of_another_run_is_taken_if_it_reads_the_same_tokens(
    tmp_path: Path,
) -> None:
    text = REWARDED.replace("{kind}", "preference")
    first, _ = run_stages(tmp_path / "first", text, "stage.reinforce.steps=1")
    taken = (
        IMITATE
        + f"""
[[stage]]
do = "reinforce"
reward_model = {{run = "{first}"}}
steps = 1
tasks = 2
"""
    )
    run, _ = run_stages(tmp_path / "same", HEAD + taken)
    with RunFolder.read(run) as opened:
        assert "modelled_reward" in opened.database.metrics("rl")[0][1]
    with pytest.raises(InputError, match="reads other tokens than the policy: its vocabulary"):
        run_stages(tmp_path / "seed", HEAD + taken, "seed=2")
    assert checkpoint.names(tmp_path / "seed" / "run" / "checkpoints") == []  # nothing ran
    with pytest.raises(InputError, match="is a network of another size"):
        run_stages(tmp_path / "size", HEAD + taken, "model.tiny.width=32")
    with pytest.raises(InputError, match=r"reward model in '.*' 'score'.*reward"):
        run_stages(tmp_path / "name", HEAD + taken, "stage.reinforce.reward_model.stage=score")
    with pytest.raises(InputError, match="it began as 'tiny', the policy as 'smollm2-135m'"):
        run_stages(tmp_path / "model", HEAD + taken, "model.name=smollm2-135m", "model.tiny=")


# ── action values ────────────────────────────────────────────────────────────

VALUED = (
    HEAD
    + """
[[stage]]
do = "explore"
speaker = "random"
tasks = 48

[[stage]]
do = "value"
from = "explore"
updates = 3
batch = 8
learning_rate = 3e-3

[[stage]]
do = "imitate"
from = "explore"
examples_options = {least = 0.0}
epochs = 1
advantages = {beta = 8.0}
"""
)


@pytest.mark.slow
def test_tokens_are_imitated_by_their_advantages(tmp_path: Path) -> None:
    run, _ = run_stages(tmp_path / "weighed", VALUED)
    with RunFolder.read(run) as opened:
        assert len(opened.database.metrics("value")) == 3
    alike = VALUED.replace("advantages = {beta = 8.0}", "")
    unused = alike[alike.index('[[stage]]\ndo = "value"') : alike.index('[[stage]]\ndo = "imitate')]
    plain, _ = run_stages(tmp_path / "plain", alike.replace(unused, ""))
    before = weights_hash(run)
    assert before != weights_hash(plain)
    for part in ("checkpoints", "final"):
        shutil.rmtree(run / part)
    resumed(run)  # learns action values, and by them the policy, from what was recorded
    assert weights_hash(run) == before


STEERED = (
    VALUED.replace("advantages = {beta = 8.0}", "")
    + """
[[stage]]
do = "evaluate"
steer = {beta = 32.0}
"""
)


@pytest.mark.slow
def test_evaluations_are_steered_by_action_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, said = run_stages(tmp_path / "steered", STEERED)
    assert "of 4, steered by action values" in said
    nearly, _ = run_stages(tmp_path / "nearly", STEERED, "stage.evaluate.steer={beta=1e-9}")
    unused = STEERED[
        STEERED.index('[[stage]]\ndo = "value"') : STEERED.index('[[stage]]\ndo = "im')
    ]
    alone = STEERED.replace("steer = {beta = 32.0}\n", "").replace(unused, "")
    plain, _ = run_stages(tmp_path / "plain", alone)

    def replied(path: Path, phase: str) -> list[tuple[int, ...]]:
        with RunFolder.read(path) as opened:
            return [c.completion for e in opened.database.episodes(phase) for c in e.calls]

    last = "test/imitation"
    assert replied(run, last) != replied(plain, last) == replied(nearly, last)
    assert replied(run, "test/base") == replied(plain, "test/base")
    assert weights_hash(run) == weights_hash(plain)  # the policy itself stays as it is
    stopped(tmp_path / "cut", STEERED, 6, monkeypatch)
    resumed(tmp_path / "cut" / "run")
    assert recorded_episodes(tmp_path / "cut" / "run") == recorded_episodes(run)


def test_an_evaluation_is_steered_by_values_that_are_there(tmp_path: Path) -> None:
    assert "'values'" in refusal(tmp_path, STEERED.replace("{beta", "{stage = 'values', beta"))
    twice = STEERED + '[[stage]]\ndo = "evaluate"\nname = "again"\n'
    assert "or another steer" in refusal(tmp_path, twice)


def test_episodes_that_earned_the_same_have_no_action_values(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="all 4 episodes earned the same"):
        run_stages(tmp_path, VALUED, "stage.explore.tasks=4", "environment.turns=1")
