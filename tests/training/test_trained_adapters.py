"""An adapter from training to its use: exported apart, named on its base, trained further."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import palaestra as pa
from palaestra.core.errors import InputError
from palaestra.core.model import adapted
from palaestra.models.local.adapter_config import WEIGHTS
from palaestra.models.local.checkpoint_format import write_network
from palaestra.models.local.networks import load_network
from palaestra.store.run_folder import RunFolder
from tests.models.local.checkpoints import write_checkpoint
from tests.models.local.test_architectures import logits_of

ROWS = [[5, 9, 13, 2, 77], [5, 9, 40, 41]]
WORLD = "babyai/GoToObjS4"


def trained(
    model: str,
    run: Path,
    *,
    agent: dict[str, Any] | None = None,
    rl: dict[str, Any] | None = None,
    imitation: dict[str, Any] | None = None,
    quantise: str | None = None,
    deterministic: bool = False,
    **training: Any,
) -> pa.Run:
    sections: dict[str, Any] = {
        "model": {"name": model, "context": 512, "precision": "fp32", "quantise": quantise},
        "environment": {"workers": 0, "transfer": None},
        "imitation": {"demonstrations": 2, "epochs": 1, "batch": 2} | (imitation or {}),
        "training": {"weights": "lora", "lora_rank": 4, "top_layers": None} | training,
        "agent": agent or {},
        "rl": {"steps": 1, "tasks": 2, "group": 2} | (rl or {}),
        "evaluation": {"tasks": 1},
        "minutes": None,
        "deterministic": deterministic,
        "checkpoint_every": 1,
    }
    return pa.train("default", env=WORLD, run=run, progress=False, **sections)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters") / "base"
    write_checkpoint(folder)
    return folder


@pytest.fixture(scope="module")
def run(base: Path) -> pa.Run:
    return trained(str(base), base.parent / "run")


@torch.no_grad()
def test_a_trained_adapter_is_written_apart_and_named_on_its_base(base: Path, run: pa.Run) -> None:
    policy = pa.load(f"{base}?adapter={run.path}", progress=False)
    network = policy.model.network
    assert network.adapters is not None
    with network.adapters.used(policy.model.adapter):
        found = logits_of(network, ROWS)
    start = logits_of(load_network(base, torch.float32), ROWS)
    merged = logits_of(load_network(run.final, torch.float32), ROWS)
    for with_adapter, whole, before in zip(found, merged, start, strict=True):
        torch.testing.assert_close(with_adapter, whole, atol=1e-4, rtol=1e-4)
        assert not torch.allclose(whole, before, atol=1e-4)
    reply = {"max_tokens": 8, "temperature": 0.0}
    assert policy.reply("left?", **reply) == pa.load(run.final, progress=False).reply(
        "left?", **reply
    )


def test_training_goes_on_from_an_adapter(base: Path, run: pa.Run) -> None:
    again = trained(f"{base}?adapter={run.path}", base.parent / "again")
    file = "adapter/adapter_model.safetensors"
    first, second = load_file(run.final / file), load_file(again.final / file)
    assert first.keys() == second.keys()
    moved = max(float((second[name] - first[name]).abs().max()) for name in first)
    most = max(float(tensor.abs().max()) for tensor in first.values())
    assert 0 < moved < most  # it began where the first run ended, not at random


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"lora_rank": 8}, r"is of rank 4, and the recipe has training\.lora_rank = 8"),
        ({"weights": "full", "lora_rank": None}, r"trained further with training\.weights=lora"),
    ],
)
def test_what_cannot_go_on_from_an_adapter_is_refused(
    training: dict[str, Any], message: str, base: Path, run: pa.Run
) -> None:
    with pytest.raises((InputError, pa.PalaestraError), match=message):
        trained(f"{base}?adapter={run.path}", base.parent / "refused", **training)
    assert not (base.parent / "refused").exists()


def test_an_adapter_of_another_base_is_refused_before_anything_starts(
    base: Path, run: pa.Run, tmp_path: Path
) -> None:
    with torch.no_grad():
        other = write_checkpoint(tmp_path / "other")
        other.norm.mul_(1.5)
    write_network(other, tmp_path / "other")
    name = f"{tmp_path / 'other'}?adapter={run.path}"
    with pytest.raises(pa.PalaestraError, match="was trained on another base"):
        trained(name, tmp_path / "run")
    with pytest.raises(pa.PalaestraError, match="was trained on another base"):
        pa.evaluate(WORLD, model=name, n=1, workers=0, run=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_roles_learn_adapters_of_their_own_which_act_apart(base: Path) -> None:
    run = trained(str(base), base.parent / "roles", adapters=["planner"], agent={"name": "plan"})
    files = [run.final / one / WEIGHTS for one in ("adapter", "adapters/planner")]
    agent, planner = (load_file(file) for file in files)
    assert agent.keys() == planner.keys()
    for adapter in (agent, planner):  # B began at zero
        assert any(float(t.abs().max()) > 0 for name, t in adapter.items() if "lora_B" in name)
    assert any(not torch.equal(agent[name], planner[name]) for name in agent)
    found = pa.evaluate(
        WORLD, agent="plan", model=f"{base}?adapter={run.path}",
        roles={"planner": f"{base}?adapter={run.final / 'adapters' / 'planner'}"},
        n=2, workers=0, progress=False, run=base.parent / "both",
    )  # fmt: skip
    assert len({call.policy for one in found.episodes for call in one.calls}) == 2
    with RunFolder.read(run.path) as opened:
        calls = [call for one in opened.database.episodes("test/rl") for call in one.calls]
    assert {(call.role, call.policy) for call in calls} == {
        ("agent", "policy"),
        ("planner", adapted("policy", "planner")),
    }


@pytest.mark.slow
def test_roles_with_adapters_learn_the_same_in_equal_deterministic_runs(base: Path) -> None:
    """A session waits for one reply of all its adapters at a time, so lockstep must not wait."""
    runs = [
        trained(
            str(base), base.parent / f"lockstep-{n}", adapters=["planner"],
            agent={"name": "plan"}, deterministic=True,
        )
        for n in (1, 2)
    ]  # fmt: skip
    for file in (f"adapter/{WEIGHTS}", f"adapters/planner/{WEIGHTS}"):
        first, second = (load_file(run.final / file) for run in runs)
        assert first.keys() == second.keys()
        assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"adapters": ["plannr"], "agent": {"name": "plan"}}, "Did you mean 'planner'"),
        ({"adapters": ["agent"]}, "'agent' has an adapter already"),
        ({"adapters": ["planner"], "weights": "full", "lora_rank": None}, "needs training.weights"),
        (
            {"adapters": ["planner"], "agent": {"name": "plan"}, "rl": {"actor": "process"}},
            r"not rl\.actor",
        ),
    ],
)
def test_roles_that_cannot_have_adapters_are_refused(
    sections: dict[str, Any], message: str, base: Path
) -> None:
    with pytest.raises(pa.PalaestraError, match=message):
        trained(str(base), base.parent / "refused", **sections)
    assert not (base.parent / "refused").exists()
