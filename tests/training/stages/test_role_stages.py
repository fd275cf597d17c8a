"""Stages that train the adapters of some roles, or of clusters of calls, while the others act."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from palaestra.core.episode import Episode
from palaestra.core.errors import InputError
from palaestra.core.model import adapted
from palaestra.learning.loop.learner import Learner
from palaestra.store import checkpoint
from palaestra.store.run_folder import RunFolder
from palaestra.training import run_context
from tests.chosen import mostly_slow
from tests.training.runs import recorded_episodes
from tests.training.stages.interrupted import stopped
from tests.training.stages.made import HEAD, recipe_of, resumed, run_stages
from tests.training.stages.test_stage_sections import refusal, stage

PLAN = (
    HEAD.replace("tasks = 4", "tasks = 2")
    + """
[agent]
name = "plan"
max_tokens = 12

[training]
weights = "lora"
lora_rank = 4
"""
)
SHOWN = "from = {speaker = 'expert', demonstrations = 4}\nlearning_rate = 1e-2\n"
RL = (
    "do = 'reinforce'\nsteps = 2\ntasks = 2\ngroup = 2\nentropy = {bonus = 0.01}\n"
    "learning_rate = 1e-2\n"
)
PLANNER = PLAN + stage(f"do = 'imitate'\n{SHOWN}train = {{planner = 'lora'}}")
TWO = PLANNER + stage(f"{RL}train = {{agent = 'lora', planner = 'frozen'}}")
ROUTED = (
    PLAN
    + stage(f"do = 'imitate'\nname = 'general'\n{SHOWN}train = {{agent = 'lora'}}")
    + stage(f"do = 'imitate'\nname = 'special'\n{SHOWN}adapters = {{clusters = 2, fallback = 0.2}}")
    + stage(RL)
)

Saved = dict[str, dict[str, torch.Tensor]]


@pytest.fixture(scope="module")
def saved() -> Iterator[Saved]:
    """The weights of every checkpoint that is written, by its name, of the latest run."""
    kept: Saved = {}
    real = checkpoint.save

    def keep(folder: Path, name: str, tensors: Any, state: Any) -> Path:
        kept[name] = {key: tensor.clone() for key, tensor in tensors["weights"].items()}
        return real(folder, name, tensors, state)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_context.checkpoint, "save", keep)
        yield kept


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, saved: Saved) -> tuple[Path, Saved]:
    run, _ = run_stages(tmp_path_factory.mktemp("two"), TWO)
    return run, dict(saved)


@pytest.fixture(scope="module")
def routed(tmp_path_factory: pytest.TempPathFactory, saved: Saved) -> tuple[Path, Saved, str]:
    run, said = run_stages(tmp_path_factory.mktemp("routed"), ROUTED)
    return run, dict(saved), said


def moved(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    """Return the adapters whose weights differ in one bit at least."""
    assert before.keys() == after.keys()  # each version holds all adapters
    return {n.rpartition(".")[2] for n in after if not torch.equal(before[n], after[n])}


def episodes(run: Path, phase: str) -> list[Episode]:
    with RunFolder.read(run) as opened:
        return opened.database.episodes(phase)


def policies(run: Path, phase: str) -> set[tuple[str, str]]:
    return {(c.role, c.policy) for e in episodes(run, phase) for c in e.calls}


# ── roles ────────────────────────────────────────────────────────────────────


def test_a_stage_trains_its_roles_and_leaves_the_others_bit_for_bit(
    two: tuple[Path, Saved],
) -> None:
    run, kept = two
    first, last = kept["imitation"], kept["rl-000002"]
    names = {name.rpartition(".")[2] for name in first}
    assert names == {"default", "planner"}
    assert all(not t.any() for n, t in first.items() if "lora_B" in n and n.endswith(".default"))
    assert any(t.any() for n, t in first.items() if "lora_B" in n and n.endswith(".planner"))
    assert moved(first, kept["rl-000001"]) == {"default"}
    assert moved(first, last) == {"default"}
    with RunFolder.read(run) as opened:
        metrics = [values for _, values in opened.database.metrics("rl")]
    assert all("tokens/agent" in v and "tokens/planner" not in v for v in metrics)


def test_frozen_roles_act_in_the_live_loop_with_their_adapters(two: tuple[Path, Saved]) -> None:
    run, _ = two
    for phase in ("rl/1", "test/rl"):
        assert policies(run, phase) == {
            ("agent", "policy"),
            ("planner", adapted("policy", "planner")),
        }


def test_adapters_leave_the_log_probabilities_of_other_roles_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from palaestra.learning.data.rows import rows_of
    from palaestra.learning.loop.batch import imitated_rows
    from palaestra.learning.losses.aggregation import Aggregation

    found: list[list[list[float]]] = []
    close = Learner.close
    text = PLAN + stage("do = 'explore'\ntasks = 4")
    text += stage("do = 'imitate'\nname = 'a'\nfrom = 'explore'\nexamples_options = {least = 0.0}\n"
                  "learning_rate = 1e-1\ntrain = {planner = 'lora'}")  # fmt: skip

    def measured(learner: Learner) -> None:
        made = episodes(tmp_path / "run", "explore")
        rows = [r for e in made for r in rows_of(e, "policy") if r.roles == {"agent"}]
        trained = imitated_rows(rows, Aggregation.TOKEN_MEAN)
        found.append(learner.logprobs(trained))
        for name, parameter in learner.model.network.named_parameters():
            if "lora_B" in name and name.endswith(".planner"):
                assert parameter.any()
                parameter.data.zero_()  # as it began
        found.append(learner.logprobs(trained))
        close(learner)

    monkeypatch.setattr(Learner, "close", measured)
    run_stages(tmp_path, text)
    after, before = found
    assert sum(map(len, after)) > 0 and after == before


@pytest.mark.slow
def test_training_all_roles_in_one_stage_is_training_without_the_key(
    tmp_path: Path, saved: Saved
) -> None:
    both = "train = {agent = 'lora', planner = 'lora'}"
    run_stages(tmp_path / "a", PLAN + stage(f"do = 'imitate'\n{SHOWN}{both}"))
    named = dict(saved)
    run_stages(
        tmp_path / "b", PLAN + stage(f"do = 'imitate'\n{SHOWN}"), "training.adapters=['planner']"
    )
    assert not moved(named["imitation"], saved["imitation"])


def test_preferences_move_the_adapter_of_their_role_alone(tmp_path: Path, saved: Saved) -> None:
    text = PLAN + stage("do = 'explore'\nname = 'expert'\nspeaker = 'expert'\ntasks = 4")
    text += stage("do = 'explore'\nlike = 'expert'\ntasks = 4")
    text += stage(
        "do = 'imitate'\nname = 'first'\nfrom = 'expert'\ntrain = {agent = 'lora'}"
    ) + stage(
        "do = 'prefer'\nfrom = ['expert', 'explore']\nexamples = 'contrastive-pairs'\n"
        "learning_rate = 1e-2\ntrain = {planner = 'lora'}"
    )
    run_stages(tmp_path, text)
    assert moved(saved["first"], saved["prefer"]) == {"planner"}


@pytest.mark.slow
def test_distillation_moves_the_adapter_of_its_role_alone(
    tmp_path: Path, saved: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    bases: list[dict[str, torch.Tensor]] = []
    close = Learner.close

    def noted(learner: Learner) -> None:
        named = learner.model.network.named_parameters()
        bases.append({n: p.detach().clone() for n, p in named if "lora_" not in n})
        close(learner)

    monkeypatch.setattr(Learner, "close", noted)
    text = PLAN + stage(f"do = 'imitate'\nname = 'teacher'\n{SHOWN}")
    text += stage("do = 'explore'\ntasks = 4") + stage(
        "do = 'distil'\nstart = 'base'\nteacher = 'teacher'\nfrom = 'explore'\nepochs = 6\n"
        "learning_rate = 1e-2\ntrain = {planner = 'lora'}"
    )
    run, _ = run_stages(tmp_path, text)
    assert moved(saved["base"], saved["teacher"]) == {"default", "planner"}
    assert moved(saved["base"], saved["distil"]) == {"planner"}
    before, after = bases
    assert all(torch.equal(before[name], after[name]) for name in before)
    with RunFolder.read(run) as opened:
        losses = [values["loss"] for _, values in opened.database.metrics("distil")]
        rows = opened.database.get("rows/distil")["explore"]["tokens"]
    assert 0 < losses[-1] < 0.7 * losses[0]
    calls = [c for e in episodes(run, "explore") for c in e.calls if c.role == "planner"]
    assert rows == sum(len(call.completion) for call in calls)


def test_a_teacher_with_other_clusters_is_refused(tmp_path: Path) -> None:
    text = ROUTED.replace(stage(RL), stage("do = 'explore'\ntasks = 2")) + stage(
        "do = 'distil'\nstart = 'general'\nteacher = 'special'\nfrom = 'explore'"
    )
    with pytest.raises(InputError, match="'special', whose adapters belong to other clusters"):
        run_stages(tmp_path, text)


# ── clusters ─────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_each_cluster_learns_its_calls_and_the_general_adapter_stays(
    routed: tuple[Path, Saved, str],
) -> None:
    _, kept, said = routed
    assert moved(kept["general"], kept["special"]) == {"cluster_1", "cluster_2"}
    assert "calls in 2 clusters (cluster_1 " in said
    assert "calls answered by " in said and "tokens per success" in said


def test_the_router_answers_from_then_on_and_all_that_answered_learn(
    routed: tuple[Path, Saved, str],
) -> None:
    run, kept, _ = routed
    before = {policy for _, policy in policies(run, "test/base")}
    after = {policy for _, policy in policies(run, "test/rl")}
    assert before == {"policy"}
    clusters = {adapted("policy", name) for name in ("cluster_1", "cluster_2")}
    assert after & clusters and after <= clusters | {"policy"}
    answered = {policy for _, policy in policies(run, "rl/1")} | {
        policy for _, policy in policies(run, "rl/2")
    }
    names = {"policy": "default"} | {adapted("policy", n): n for n in ("cluster_1", "cluster_2")}
    assert moved(kept["special"], kept["rl-000002"]) <= {names[one] for one in answered}
    assert moved(kept["special"], kept["rl-000002"])


def test_what_clusters_are_is_recorded(routed: tuple[Path, Saved, str]) -> None:
    with RunFolder.read(routed[0]) as opened:
        found = opened.database.get("clusters/special")
    assert set(found) == {"cluster_1", "cluster_2", "none"}
    calls = sum(one["calls"] for one in found.values())
    shown = episodes(routed[0], "special/demonstrations")
    assert calls == sum(len(episode.calls) for episode in shown)
    assert found["none"]["calls"] <= 0.2 * calls
    assert found["cluster_1"]["messages"] and set(found["cluster_1"]["roles"]) <= {
        "agent",
        "planner",
    }


def test_a_version_before_the_clusters_has_no_router(tmp_path: Path) -> None:
    text = ROUTED.replace(stage(RL), stage("do = 'explore'\ntasks = 2")) + stage(
        "do = 'imitate'\nname = 'again'\nstart = 'general'\nfrom = 'explore'\n"
        "examples_options = {least = 0.0}\ntrain = {agent = 'lora'}"
    )
    run, _ = run_stages(tmp_path, text)
    assert {policy for _, policy in policies(run, "test/again")} == {"policy"}


# ── being stopped ────────────────────────────────────────────────────────────


def last(run: Path) -> dict[str, torch.Tensor]:
    name = sorted(checkpoint.names(run / "checkpoints"))[-1]
    return dict(checkpoint.load(run / "checkpoints", name).tensors["weights"])


@pytest.mark.slow
@pytest.mark.parametrize("cut", mostly_slow([2, 4, 5], 5))
def test_a_run_stopped_anywhere_ends_with_the_same_adapters(
    routed: tuple[Path, Saved, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    cut: int,
) -> None:
    stopped(tmp_path, ROUTED, cut, monkeypatch)
    resumed(tmp_path / "run")
    assert not moved(last(routed[0]), last(tmp_path / "run"))
    assert recorded_episodes(tmp_path / "run") == recorded_episodes(routed[0])


def test_without_checkpoints_clusters_and_adapters_are_found_again(
    routed: tuple[Path, Saved, str], tmp_path: Path
) -> None:
    shutil.copytree(routed[0], tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    resumed(tmp_path / "run")
    assert not moved(last(routed[0]), last(tmp_path / "run"))


# ── what is refused ──────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("stages", "words"),
    [
        (stage(f"do = 'imitate'\n{SHOWN}train = {{planer = 'lora'}}"), "role or player 'planer'"),
        (stage(f"do = 'imitate'\n{SHOWN}train = {{planner = 'frozen'}}"), "no role learns"),
        (stage(f"do = 'imitate'\n{SHOWN}train = {{planner = 'full'}}"), "cannot be 'full'"),
        (
            stage("do = 'explore'")
            + stage("do = 'distil'\nfrom = 'explore'\nteacher = 'base'\n"
                    "train = {agent = 'frozen'}"),
            "no role learns",
        ),
        (
            stage(
                f"do = 'imitate'\n{SHOWN}train = {{planner = 'lora'}}\n"
                "adapters = {clusters = 2}"
            ),
            "adapters trains those of its clusters, and train others",
        ),
        (stage(f"do = 'imitate'\n{SHOWN}adapters = {{clusters = 1}}"), "cannot be 1"),
        (stage(f"do = 'imitate'\n{SHOWN}adapters = {{clusters = 2, fallback = 1}}"), "cannot be 1"),
        (
            stage(f"do = 'imitate'\n{SHOWN}adapters = {{clusters = 2}}")
            + stage(f"do = 'imitate'\nname = 'b'\n{SHOWN}adapters = {{clusters = 3}}"),
            "different numbers of clusters (imitate 2 and b 3)",
        ),
        (
            stage(
                f"do = 'imitate'\n{SHOWN}train = {{planner = 'lora'}}\n"
                "general = {files = ['LICENSE'], share = 0.2}"
            ),
            "learns text, which trains the agent's adapter, and that is frozen there",
        ),
        (
            stage(f"{RL}loss = 'loop'\nloss_options = {{unit = 'rollout'}}\n"
                  "train = {agent = 'lora', planner = 'lora'}"),
            "impossible with a loss over whole rollouts",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_is_refused_before_the_start(
    stages: str, words: str, tmp_path: Path
) -> None:
    assert words in refusal(tmp_path, PLAN + stages)


def test_one_role_learns_by_a_loss_over_whole_rollouts(tmp_path: Path) -> None:
    loss = "loss = 'loop'\nloss_options = {unit = 'rollout'}\n"
    recipe_of(tmp_path, PLAN + stage(f"{RL}{loss}train = {{planner = 'lora'}}"))


def test_turns_need_a_stage_that_reinforces_two_adapters(tmp_path: Path) -> None:
    alone = PLAN + stage(f"{RL}train = {{planner = 'lora'}}")
    key = "training.alternate=1"
    assert "no stage reinforces two adapters" in refusal(tmp_path, alone, key)
    recipe_of(tmp_path, alone.replace("planner = 'lora'", "planner = 'lora', agent = 'lora'"), key)


def test_without_lora_no_stage_chooses_adapters(tmp_path: Path) -> None:
    text = HEAD + stage(f"do = 'imitate'\n{SHOWN}train = {{agent = 'lora'}}")
    assert "set training.weights = 'lora' and training.lora_rank" in refusal(tmp_path, text)


def test_an_adapter_that_is_frozen_for_the_run_is_trained_by_no_stage(tmp_path: Path) -> None:
    key = "training.adapters={planner = {frozen = true}}"
    assert "unset training.adapters.planner.frozen" in refusal(tmp_path, PLANNER, key)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        (PLANNER.replace("planner", "agent"), "what 'imitation' reads"),
        (PLAN + stage(f"{RL}train = {{agent = 'lora'}}"), "the first rollouts of 'rl'"),
    ],
)
def test_a_role_that_never_spoke_is_named_with_who_did(
    text: str, where: str, tmp_path: Path
) -> None:
    """Without questions, the plan's lines are the actions, and the executor says nothing."""
    with pytest.raises(InputError, match="'agent' never spoke") as refused:
        run_stages(tmp_path, text, "agent.name=plan?ask=false", "training.adapters=['planner']")
    message = str(refused.value)
    assert where in message and "(who spoke: planner)" in message and "leave 'agent' out" in message


def test_fewer_kinds_of_calls_than_clusters_are_named(tmp_path: Path) -> None:
    text = PLAN + stage(
        "do = 'imitate'\nfrom = {speaker = 'expert', demonstrations = 1}\n"
        "adapters = {clusters = 64}"
    )
    with pytest.raises(InputError, match="clusters = 64, and the"):
        run_stages(tmp_path, text)
