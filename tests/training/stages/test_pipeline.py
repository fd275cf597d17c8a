"""Pipelines: stages read what earlier ones wrote, and survive being stopped anywhere."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from palaestra.cli.main import main
from palaestra.core.errors import InputError
from palaestra.evaluation.judges import stored_verdicts
from palaestra.store import checkpoint
from palaestra.store.run_folder import RunFolder
from palaestra.training import run_context
from palaestra.training.recipe import load
from tests.chosen import mostly_slow
from tests.training.runs import (
    RECIPE,
    palaestra,
    recorded_episodes,
    weights_hash,
)
from tests.training.stages.interrupted import killed, stopped
from tests.training.stages.made import HEAD, IMITATE, ROUNDS, resumed, run_stages, written


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_stages(tmp_path_factory.mktemp("whole"), ROUNDS)[0]


def documents(run: Path, name: str) -> Any:
    with RunFolder.read(run) as opened:
        return opened.database.get(name)


def same_run(a: Path, b: Path) -> None:
    assert weights_hash(a) == weights_hash(b)
    assert recorded_episodes(a) == recorded_episodes(b)
    assert documents(a, "lineage") == documents(b, "lineage")


# ── the same as without stages ───────────────────────────────────────────────


@pytest.mark.slow
def test_two_stages_give_the_weights_of_the_two_tables(tmp_path: Path) -> None:
    keys = ("environment.transfer=", "environment.workers=0", "rl.steps=2", "evaluation.tasks=2")
    tables, _ = run_stages(tmp_path / "tables", RECIPE, *keys)
    recipe = load(str(written(tmp_path / "tables", RECIPE)), keys).model_dump(mode="json")
    rl = {k: v for k, v in recipe["rl"].items() if v is not None}
    stages = [
        {
            "do": "imitate",
            "from": {"speaker": "expert", "demonstrations": 64},
            "epochs": 4,
            "learning_rate": 3e-3,
        },
        {"do": "reinforce", **rl},
    ]
    staged = recipe | {"imitation": None, "rl": None, "stage": stages}
    from palaestra.cli.dry_run import toml
    from palaestra.training.recipe import check

    made = check({key: value for key, value in staged.items() if value is not None})
    run, _ = run_stages(tmp_path / "stages", toml(made))
    assert weights_hash(run) == weights_hash(tables)

    def learned_from(path: Path) -> list[tuple[object, ...]]:
        found = recorded_episodes(path)
        return [one for one in found if not str(one[0]).startswith("test/imitation")]

    assert learned_from(run) == learned_from(tables)


# ── being stopped ────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("cut", mostly_slow([1, 4, 7, 9, 12, 14, 17], 9))
def test_a_run_stopped_at_a_checkpoint_or_an_account_ends_the_same(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    stopped(tmp_path, ROUNDS, cut, monkeypatch)
    resumed(tmp_path / "run")
    same_run(tmp_path / "run", undisturbed)


@pytest.mark.slow
def test_without_any_checkpoint_all_stages_learn_again_from_the_record(
    undisturbed: Path, tmp_path: Path
) -> None:
    shutil.copytree(undisturbed, tmp_path / "run")
    for part in ("checkpoints", "final"):
        shutil.rmtree(tmp_path / "run" / part)
    said = resumed(tmp_path / "run")
    assert "no valid checkpoint after keep-2 is left" in said
    same_run(tmp_path / "run", undisturbed)


def test_a_finished_run_is_resumed_without_learning_anything_again(undisturbed: Path) -> None:
    before = weights_hash(undisturbed)
    said = resumed(undisturbed)
    assert "updates" not in said and "episodes" not in said
    assert weights_hash(undisturbed) == before


@pytest.fixture(scope="module")
def whole_process(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `undisturbed`, in a process like those that are killed: bits depend on its threads."""
    folder = tmp_path_factory.mktemp("whole_process")
    palaestra("train", written(folder, ROUNDS), "--run", folder / "run", "--json")
    return folder / "run"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_a_run_killed_at_random_moments_ends_the_same(
    whole_process: Path, tmp_path: Path, seed: int
) -> None:
    run = killed(tmp_path, ROUNDS, seed)
    same_run(run, whole_process)


# ── versions ─────────────────────────────────────────────────────────────────


def test_only_versions_that_are_still_read_keep_their_checkpoints(undisturbed: Path) -> None:
    assert set(checkpoint.names(undisturbed / "checkpoints")) == {"rl-000001", "rl-000002"}


@pytest.mark.slow
def test_a_merge_is_the_mean_of_its_versions(tmp_path: Path) -> None:
    text = (
        HEAD
        + IMITATE
        + """
[[stage]]
do = "imitate"
name = "other"
start = "base"
from = {speaker = "expert", demonstrations = 16}
learning_rate = 1e-2

[[stage]]
do = "merge"
from = ["imitate", "other"]

[[stage]]
do = "reinforce"
steps = 1
tasks = 2
"""
    )
    kept: dict[str, dict[str, torch.Tensor]] = {}
    real = checkpoint.save

    def keep(folder: Path, name: str, tensors: Any, state: Any) -> Path:
        kept[name] = {key: tensor.clone() for key, tensor in tensors["weights"].items()}
        return real(folder, name, tensors, state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_context.checkpoint, "save", keep)
        run, _ = run_stages(tmp_path, text)
    for name, tensor in kept["merge"].items():
        mean = (kept["imitation"][name].double() + kept["other"][name].double()) / 2
        assert torch.equal(tensor, mean.float()), name
    begun = {one["version"]: one["start"] for one in documents(run, "lineage")}
    assert begun == {
        "imitation": ["base"],
        "other": ["base"],
        "merge": ["imitation", "other"],
        "rl": ["merge"],
    }


@pytest.mark.slow
def test_a_stage_that_starts_at_the_base_does_not_see_what_was_learned(tmp_path: Path) -> None:
    again = IMITATE.replace('do = "imitate"', 'do = "imitate"\nname = "{0}"\nstart = "base"')
    merge = '[[stage]]\ndo = "merge"\nfrom = ["a", "b"]\n'
    text = HEAD + again.replace("{0}", "a") + again.replace("{0}", "b") + merge
    run, _ = run_stages(tmp_path, text)
    assert [one["start"] for one in documents(run, "lineage")] == [["base"], ["base"], ["a", "b"]]
    before = weights_hash(run)
    assert "updates" not in resumed(run)  # the merge is there, what it averaged is forgotten
    assert weights_hash(run) == before


# ── rounds ───────────────────────────────────────────────────────────────────

VALIDATED = """
[[stage]]
do = "repeat"
name = "improve"
rounds = 4
until = {{stage = "check", {rule}}}
stages = [
  {{do = "explore", tasks = 6}},
  {{do = "imitate", name = "keep", from = "explore", learning_rate = 1e-9, epochs = 1}},
  {{do = "evaluate", name = "check", split = "validation", tasks = 4}},
]
"""


@pytest.mark.parametrize("rule", mostly_slow(["patience = 1", "success = 0.01"], "success = 0.01"))
def test_a_rule_on_validation_ends_the_rounds(tmp_path: Path, rule: str) -> None:
    text = HEAD + IMITATE + VALIDATED.format(rule=rule)
    run, said = run_stages(tmp_path, text)  # rounds that change nothing
    ended = 2 if "patience" in rule else 1
    assert f"improve ends after round {ended} of 4: check found" in said
    with RunFolder.read(run) as opened:
        phases = opened.database.phases()
    assert [p for p in phases if p.startswith("validation/")] == [
        f"validation/keep-{n + 1}" for n in range(ended)
    ]
    assert phases[-1] == f"test/keep-{ended}"
    before = recorded_episodes(run)
    resumed(run)
    assert recorded_episodes(run) == before


def test_rounds_without_success_end_with_what_was_learned(tmp_path: Path) -> None:
    text = HEAD + VALIDATED.format(rule="success = 0.9")  # the base has learned nothing yet
    run, said = run_stages(tmp_path, text, "stage.explore.tasks=2", "environment.turns=2")
    assert "keep-1 found nothing to learn from; the policy stays as it is" in said
    assert "improve ends after round 1 of 4: nothing was found to learn from" in said
    assert documents(run, "lineage")[0]["rows"] == {}


def test_pairs_without_a_loser_teach_nothing(tmp_path: Path) -> None:
    text = (
        HEAD
        + IMITATE
        + """
[[stage]]
do = "explore"
speaker = "expert"
tasks = 4
group = 2

[[stage]]
do = "prefer"
from = "explore"
"""
    )
    _, said = run_stages(tmp_path, text)
    assert "prefer found nothing to learn from" in said


# ── models beside the policy ─────────────────────────────────────────────────

REWARDED = (
    HEAD
    + IMITATE
    + """
[[stage]]
do = "explore"
tasks = 16
group = 4

[[stage]]
do = "reward"
from = "explore"
kind = "{kind}"
updates = 3
batch = 4
held_out = 0.4

[[stage]]
do = "reinforce"
reward_model = "reward"
steps = 2
tasks = 3
group = 4
"""
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", mostly_slow(["success", "preference"], "success"))
def test_a_reward_model_takes_the_place_of_the_outcome(tmp_path: Path, kind: str) -> None:
    run, said = run_stages(tmp_path, REWARDED.replace("{kind}", kind))
    tested = documents(run, "reward/reward")
    assert tested["rollouts"] > 0 and ("brier_turns" in tested) == (kind == "success")
    assert "reward: on" in said and "held-out rollouts" in said
    with RunFolder.read(run) as opened:
        steps = opened.database.metrics("rl")
        assert all({"modelled_reward", "success"} <= row.keys() for _, row in steps)
        assert len(opened.database.metrics("reward")) == 3
    before = weights_hash(run)
    shutil.rmtree(run / "checkpoints" / "rl-000002")
    with RunFolder.open(run) as opened:  # as if it had been killed in its second step
        rows = [row for row in opened.database.get("stages") or [] if row["name"] != "rl"]
        opened.database.put("stages", rows)
    resumed(run)
    assert weights_hash(run) == before


def test_a_reward_model_needs_something_to_tell_apart(tmp_path: Path) -> None:
    text = REWARDED.replace("{kind}", "success").replace(IMITATE, "")
    with pytest.raises(InputError, match="ended alike, so a reward model cannot tell them apart"):
        run_stages(tmp_path, text, "environment.turns=1")


JUDGED = """
[[stage]]
do = "explore"
tasks = 8
group = 2

[[stage]]
do = "judge"
from = "explore"
judge = "called:right"

[[stage]]
do = "imitate"
name = "keep"
from = {stage = "explore", judged = "judge"}
"""

PREDICTED = """
[[stage]]
do = "explore"
tasks = 8
group = 4

[[stage]]
do = "reward"
from = "explore"
updates = 2

[[stage]]
do = "imitate"
name = "keep"
from = {stage = "explore", judged = "reward"}
"""


def test_a_judges_verdicts_take_the_place_of_outcomes(tmp_path: Path) -> None:
    run, said = run_stages(tmp_path, HEAD + IMITATE + JUDGED)
    assert "judge: called:right agrees with" in said
    with RunFolder.read(run) as opened:
        agreement = opened.database.get("agreement/judge")
        episodes = opened.database.episodes("explore")
        given = stored_verdicts.verdicts(opened.database, "called:right")
    passed = {key for key, verdict in given.items() if verdict["value"] == 1.0}
    assert set(given) == {str(e.key) for e in episodes}
    right = [(str(e.key) in passed) == e.outcome.solved for e in episodes]
    assert (agreement["agreed"], agreement["episodes"]) == (sum(right), len(right))
    assert agreement["passed"] == len(passed)
    assert passed != {str(e.key) for e in episodes if e.outcome.solved} and passed
    (learned,) = (one for one in documents(run, "lineage") if one["version"] == "keep")
    assert learned["rows"]["explore"]["rows"] == len(passed)  # each episode is one row here


@pytest.mark.slow
def test_a_learned_predictor_judges_too(tmp_path: Path) -> None:
    run, said = run_stages(tmp_path, HEAD + IMITATE + PREDICTED)
    assert "keep: reward agrees with" in said
    assert [one["version"] for one in documents(run, "lineage")] == ["imitation", "keep"]


PROGRESS = (
    HEAD
    + IMITATE
    + """
[[stage]]
do = "reinforce"
algorithm = "spa"
steps = 3
tasks = 3
group = 4
progress_model = {updates = 2, warmup = 1}
"""
)


@pytest.mark.slow
def test_a_progress_model_that_learns_beside_the_policy_is_resumed(tmp_path: Path) -> None:
    run, _ = run_stages(tmp_path, PROGRESS)
    with RunFolder.read(run) as opened:
        steps = [row for _, row in opened.database.metrics("rl")]
    assert "loss" not in steps[0] and "loss" in steps[1]  # first only the model learns
    assert all("progress_error" in row for row in steps)
    before = weights_hash(run)
    for name in ("rl-000003", "rl-000002"):
        shutil.rmtree(run / "checkpoints" / name, ignore_errors=True)
    with RunFolder.open(run) as opened:
        rows = [row for row in opened.database.get("stages") or [] if row["name"] != "rl"]
        opened.database.put("stages", rows)
    resumed(run)
    assert weights_hash(run) == before


# ── lineage ──────────────────────────────────────────────────────────────────


def test_lineage_names_rows_speakers_and_licence(
    undisturbed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(undisturbed), "--json"]) == 0
    lineage = {one["version"]: one for one in json.loads(capsys.readouterr().out)["lineage"]}
    assert lineage["imitation"]["rows"]["demonstrations"]["speaker"] == "expert"
    assert set(lineage["keep-2"]["rows"]) == {"explore-1", "explore-2"}
    assert lineage["prefer-1"]["start"] == ["imitation"]
    assert lineage["rl"]["rows"] == {"rl": {"speaker": "policy", "episodes": 24}}
    assert {one["licence"] for one in lineage.values()} == {"Apache-2.0"}
    assert main(["show", str(undisturbed)]) == 0
    shown = capsys.readouterr().out
    assert "lineage" in shown and "48 rows of the expert in demonstrations" in shown
