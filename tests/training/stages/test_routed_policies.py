"""A policy with a router of calls acts outside of its run as within, or is refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import palaestra as pa
from palaestra.agents.registry import make_agent
from palaestra.cli.main import main
from palaestra.core.budget import Budget
from palaestra.core.environment import AsyncEnvironment
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError
from palaestra.core.model import Model, Sampling, adapter_role
from palaestra.core.task import Split
from palaestra.environments.registry import make, spec, tasks
from palaestra.models.local.resident import ResidentModel
from palaestra.models.local.routed_files import write_router
from palaestra.models.registry import check_model, prepare_models
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.rollout.runner import Job, Rollout
from palaestra.store.run_folder import RunFolder
from tests.training.stages.made import recipe_of, run_stages
from tests.training.stages.test_role_stages import PLAN, ROUTED, SHOWN
from tests.training.stages.test_stage_sections import stage

WORLD = "babyai/GoToObjS4"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_stages(tmp_path_factory.mktemp("routed"), ROUTED)[0]


def of_test(run: Path) -> list[Episode]:
    with RunFolder.read(run) as opened:
        return opened.database.episodes("test/rl")


def acted(model: Model, count: int) -> list[Episode]:
    """Test a model as the run tests its policy."""
    assert isinstance(model.host, ResidentModel)
    model.host.lockstep = True

    async def environment(name: str) -> AsyncEnvironment:
        return LocalEnvironment(make(name))

    rollout = Rollout(
        agent=make_agent("plan"),
        make_environment=environment,
        models={"agent": model},
        budget=Budget(turns=spec(WORLD).typical_turns, invalid_actions=3),
        sampling=Sampling(1.0, 12),
        seed=1,
        concurrency=8,
    )
    jobs = [
        Job(Key("test/rl", number), task)
        for number, task in enumerate(tasks(WORLD).take(Split.TEST, count))
    ]
    return asyncio.run(rollout.run(jobs))


def replies(episodes: list[Episode]) -> list[tuple[object, ...]]:
    return [
        (c.role, c.parent, c.prompt, c.completion, c.logprobs) for e in episodes for c in e.calls
    ]


def answered_by(episodes: list[Episode]) -> list[str]:
    """Return the adapter of each call; "agent": no cluster's and no role's."""
    return [adapter_role(c.policy, "agent") for e in episodes for c in e.calls]


@pytest.mark.slow
def test_a_loaded_policy_replies_bit_for_bit_as_in_its_runs_own_test(run: Path) -> None:
    before = of_test(run)
    policy = pa.load(run / "final", context=512, progress=False)
    after = acted(policy.model, len(before))
    assert replies(after) == replies(before)
    assert answered_by(after) == answered_by(before)
    assert {"cluster_1", "cluster_2"} & set(answered_by(after))
    assert "million parameters" in repr(policy)


@pytest.mark.slow
@pytest.mark.parametrize("planner", ["{}", "{frozen = true}"])
def test_roles_with_adapters_of_their_own_are_not_routed(planner: str, tmp_path: Path) -> None:
    own, _ = run_stages(tmp_path, ROUTED, f"training.adapters.planner={planner}")
    before = of_test(own)
    after = acted(pa.load(own, context=512, progress=False).model, len(before))
    assert replies(after) == replies(before)
    by_role = {(c.role, adapter_role(c.policy, "")) for e in after for c in e.calls}
    assert {by for role, by in by_role if role == "planner"} == {"planner"}


def test_an_evaluation_names_the_adapters_that_answered(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, done = str(run / "final"), tmp_path / "evaluated"
    asked = ["--env", WORLD, "--agent", "plan", "--model", model, "-n", "2", "--workers", "0"]
    priced = ["--max-tokens", "12", "--price", f"{model}=1/1", "--run", str(done), "--json"]
    assert main(["eval", *asked, *priced]) == 0
    assert json.loads(capsys.readouterr().out)["unpriced_calls"] == 0
    with RunFolder.read(done) as opened:
        episodes = [
            e for phase in opened.database.phases() for e in opened.database.episodes(phase)
        ]
    named = {c.policy for e in episodes for c in e.calls}
    assert named <= {model, f"{model}|adapter=cluster_1", f"{model}|adapter=cluster_2"}
    assert named - {model}


def test_the_general_model_alone_is_named_by_base_and_adapter(run: Path) -> None:
    final = run / "final"
    alone = pa.load(f"{final / 'base'}?adapter={final / 'adapter'}", context=512, progress=False)
    assert set(answered_by(acted(alone.model, 2))) == {"agent"}


def test_a_version_without_a_router_is_written_without_one(tmp_path: Path) -> None:
    plain, _ = run_stages(tmp_path, PLAN + stage(f"do = 'imitate'\n{SHOWN}"))
    assert not (plain / "final" / "router.json").exists()
    assert not (plain / "final" / "base").exists()


# ── what is refused ──────────────────────────────────────────────────────────


def test_no_new_run_goes_on_with_a_router(run: Path, tmp_path: Path) -> None:
    text = ROUTED.replace('name = "tiny"', f'name = "{run}"').replace(
        "[model.tiny]\nlayers = 2\nwidth = 64\n", ""
    )
    with pytest.raises(InputError, match="has a router over adapters") as refused:
        recipe_of(tmp_path, text)
    general = str(refused.value).split("'")[-2]
    assert general == f"{run / 'final' / 'base'}?adapter={run / 'final' / 'adapter'}"
    check_model(general)


def test_an_adapter_beside_a_router_is_refused(run: Path) -> None:
    with pytest.raises(InputError, match="has a router over its own; leave out adapter"):
        check_model(f"{run}?adapter={run / 'final' / 'adapter'}")


def test_a_router_of_adapters_without_files_is_refused(run: Path, tmp_path: Path) -> None:
    policy = pa.load(run, context=512, progress=False).model
    for file in (run / "final").iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    write_router(tmp_path, policy.router, {})
    with pytest.raises(InputError, match="for which there is no form in files"):
        prepare_models([str(tmp_path)], print)
    (tmp_path / "router.json").write_text("{")
    with pytest.raises(InputError, match=r"router.json' cannot be read .*; copy the folder again"):
        pa.load(tmp_path, progress=False)
