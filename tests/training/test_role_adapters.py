"""Adapters of roles: some learn while others stay frozen, together or in turns, on one base."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import palaestra as pa
from palaestra.cli.main import main
from palaestra.core.model import adapted
from palaestra.models.local.adapter_config import CONFIG, WEIGHTS
from palaestra.models.local.networks import load_network
from palaestra.store import checkpoint
from palaestra.store.run_folder import RunFolder
from palaestra.training.run_context import RunContext
from tests.models.local.checkpoints import write_checkpoint
from tests.models.local.test_architectures import logits_of
from tests.training.test_trained_adapters import ROWS, trained

PLANNER = adapted("policy", "planner")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("roles") / "base"
    write_checkpoint(folder)
    return folder


@pytest.fixture(scope="module")
def run(base: Path) -> pa.Run:
    """A run of the direct agent, whose adapter others begin with."""
    return trained(str(base), base.parent / "run")


LEARNS_ANYWAY = {"algorithm": "grpo", "entropy": {"bonus": 0.01}}
"""An RL step that moves weights also where all rewards of a group are equal."""


def planning(base: Path, name: str, model: str = "", **training: Any) -> pa.Run:
    return trained(
        model or str(base),
        base.parent / name,
        agent={"name": "plan"},
        rl=LEARNS_ANYWAY | training.pop("rl", {}),
        deterministic=True,
        **training,
    )


def calls_of(run: pa.Run) -> set[tuple[str, str, int]]:
    """Return who replied with which weights in the test after RL."""
    with RunFolder.read(run.path) as opened:
        found = opened.database.episodes("test/rl")
    return {(call.role, call.policy, call.version) for one in found for call in one.calls}


def weights_after(run: pa.Run, name: str) -> dict[str, torch.Tensor]:
    return dict(checkpoint.load(run.path / "checkpoints", name).tensors["weights"])


def moved(before: dict[str, torch.Tensor], after: dict[str, torch.Tensor]) -> set[str]:
    """Return the adapters whose weights differ."""
    names = [name for name in after if not torch.equal(before[name], after[name])]
    return {name.rpartition(".")[2] for name in names}


# ── frozen beside learning ───────────────────────────────────────────────────


@pytest.mark.slow
def test_a_frozen_planner_acts_from_its_folder_while_the_agent_learns(
    base: Path, run: pa.Run
) -> None:
    frozen = str(run.final / "adapter")
    done = planning(
        base, "frozen-planner", adapters={"planner": {"folder": frozen, "frozen": True}}
    )
    calls = calls_of(done)
    assert {(role, policy) for role, policy, _ in calls} == {
        ("planner", f"{base}?adapter={frozen}"),
        ("agent", "policy"),
    }
    assert {version for role, _, version in calls if role == "planner"} == {0}  # never updated
    assert all(version > 0 for role, _, version in calls if role == "agent")
    assert not (done.final / "adapters").exists()  # it is where it was
    learned = load_file(done.final / "adapter" / WEIGHTS)
    assert any(float(t.abs().max()) > 0 for name, t in learned.items() if "lora_B" in name)
    assert set(weights_after(done, "rl-000001")) == {
        name for name in weights_after(done, "rl-000001") if name.endswith(".default")
    }


@pytest.mark.parametrize("adapter", [True, False])
def test_a_frozen_agent_acts_while_the_planner_learns(
    base: Path, run: pa.Run, adapter: bool
) -> None:
    model = f"{base}?adapter={run.path}" if adapter else str(base)
    done = planning(
        base,
        f"frozen-agent-{adapter}",
        model=model,
        adapters={"planner": {}, "agent": {"frozen": True}},
        imitation={"demonstrations": 0},
    )
    calls = calls_of(done)
    assert {(role, policy) for role, policy, _ in calls} == {
        ("planner", PLANNER),
        ("agent", model),
    }
    assert {version for role, _, version in calls if role == "agent"} == {0}
    assert not (done.final / "adapter").exists()
    learned = load_file(done.final / "adapters" / "planner" / WEIGHTS)
    assert any(float(t.abs().max()) > 0 for name, t in learned.items() if "lora_B" in name)
    start = load_network(run.final if adapter else base, torch.float32)
    agent = load_network(done.final, torch.float32)
    for now, before in zip(logits_of(agent, ROWS), logits_of(start, ROWS), strict=True):
        torch.testing.assert_close(now, before, atol=1e-5, rtol=1e-5)


@pytest.mark.slow
def test_a_role_goes_on_from_an_adapter_of_its_own(base: Path, run: pa.Run) -> None:
    folder = str(run.final / "adapter")
    done = planning(base, "goes-on", adapters={"planner": {"folder": folder}})
    first = load_file(run.final / "adapter" / WEIGHTS)
    second = load_file(done.final / "adapters" / "planner" / WEIGHTS)
    change = max(float((second[name] - first[name]).abs().max()) for name in first)
    assert 0 < change < max(float(tensor.abs().max()) for tensor in first.values())


# ── in turns ─────────────────────────────────────────────────────────────────


def in_turns(base: Path, name: str) -> pa.Run:
    return planning(base, name, adapters=["planner"], alternate=1, rl={"steps": 3, "group": 3})


@pytest.fixture(scope="module")
def turns(base: Path) -> pa.Run:
    return in_turns(base, "turns")


@pytest.mark.slow
def test_adapters_learn_in_turns_and_the_others_stay_bit_for_bit(turns: pa.Run) -> None:
    second, third = (weights_after(turns, f"rl-00000{step}") for step in (2, 3))
    assert moved(weights_after(turns, "imitation"), second) == {"default", "planner"}
    assert moved(second, third) == {"default"}
    with RunFolder.read(turns.path) as opened:
        metrics = [values for _, values in opened.database.metrics("rl")]
        imitated = [values for _, values in opened.database.metrics("imitation")]
    learned = [{n for n in values if n.startswith("tokens/")} for values in metrics]
    assert learned == [{"tokens/agent"}, {"tokens/planner"}, {"tokens/agent"}]
    assert all(values["tokens"] == sum(values[n] for n in own) for values, own in zip(
        metrics, learned, strict=True))  # fmt: skip
    assert {"entropy/agent", "entropy/planner"} <= set().union(*imitated)


def test_a_resumed_run_goes_on_with_the_turn_that_was_next(
    base: Path, turns: pa.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = RunContext.save

    def stopping(self: RunContext, name: str, *rest: Any) -> None:
        save(self, name, *rest)
        if name == "rl-000001":
            raise KeyboardInterrupt

    monkeypatch.setattr(RunContext, "save", stopping)
    with pytest.raises(KeyboardInterrupt):
        in_turns(base, "stopped")
    monkeypatch.undo()
    resumed = pa.Run(base.parent / "stopped").resume(progress=False)
    for file in (f"adapter/{WEIGHTS}", f"adapters/planner/{WEIGHTS}"):
        one, other = load_file(turns.final / file), load_file(resumed.final / file)
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert calls_of(resumed) == calls_of(turns)


# ── what is said and what is refused ─────────────────────────────────────────


def test_a_dry_run_says_which_adapters_learn(
    base: Path, run: pa.Run, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(*more: str) -> str:
        settings = [
            f"model.name={base}?adapter={run.path}", "environment.id=babyai/GoToObjS4",
            "agent.name=deps", "training.weights=lora", "training.lora_rank=4",
            "training.top_layers=", "model.context=512", *more,
        ]  # fmt: skip
        sets = [part for setting in settings for part in ("--set", setting)]
        assert main(["train", "default", "--dry-run", *sets]) == 0
        return capsys.readouterr().out

    adapter = run.final / "adapter"
    text = shown(
        "training.adapters.planner.frozen=true",
        f"training.adapters.selector.folder={adapter}",
        "training.alternate=2",
    )
    assert f"# learns: agent (adapter of {adapter}), selector (adapter of {adapter}), in turns of" \
        in text  # fmt: skip
    assert "in turns of 2 RL steps\n# frozen: planner (the base alone)\n" in text
    assert "# learns: agent (adapter of" in shown()


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"adapters": {"agent": {"frozen": True}}}, "are frozen, so nothing learns"),
        ({"adapters": {"agent": {"frozen": True}, "planner": {}}}, "shows how to act"),
        ({"adapters": {"agent": {"folder": "x", "frozen": True}}}, "write NAME.adapter=FOLDER"),
        ({"adapters": {"planner": {"folder": "nowhere"}}}, "names no adapter"),
        ({"adapters": {"planner": {"foldr": "x"}}}, r"no recipe key 'training\.adapters\.planner"),
        ({"adapters": ["planner", "planner"]}, "a role is named twice"),
        ({"alternate": 1}, "has no effect unless two adapters learn"),
        ({"adapters": {"planner": {"frozen": True}}, "alternate": 1}, "unless two adapters learn"),
        (
            {"adapters": ["planner"], "rl": {"loss": "loop", "loss_options": {"unit": "rollout"}}},
            r"set training\.alternate",
        ),
        ({"rl": {"reference": "base"}}, "the loss has no reference policy"),
        (
            {"weights": "full", "lora_rank": None,
             "rl": {"reference": "base", "algorithm": "grpo", "loss_options": {"beta": 0.1}}},
            r"needs training\.weights = 'lora'",
        ),
    ],
)  # fmt: skip
def test_what_cannot_act_or_learn_is_refused(
    sections: dict[str, Any], message: str, base: Path
) -> None:
    with pytest.raises(pa.PalaestraError, match=message):
        planning(base, "refused", **sections)
    assert not (base.parent / "refused").exists()


def test_a_frozen_adapter_that_changed_is_not_gone_on_with(
    base: Path, run: pa.Run, tmp_path: Path
) -> None:
    frozen = tmp_path / "frozen"
    frozen.mkdir()
    for name in (CONFIG, WEIGHTS):
        (frozen / name).write_bytes((run.final / "adapter" / name).read_bytes())
    done = trained(
        str(base), tmp_path / "run", agent={"name": "plan"},
        adapters={"planner": {"folder": str(frozen), "frozen": True}},
    )  # fmt: skip
    config = json.loads((frozen / CONFIG).read_text())
    (frozen / CONFIG).write_text(json.dumps(config | {"lora_alpha": 2 * config["lora_alpha"]}))
    with pytest.raises(pa.PalaestraError, match="no longer the one that the run began with"):
        done.resume(progress=False)


def test_the_base_as_reference_learns_like_a_copy_of_it(base: Path) -> None:
    """Without imitation RL begins at the base, so that both references are one policy."""
    runs = []
    for reference in ("start", "base"):
        rl = LEARNS_ANYWAY | {"loss_options": {"beta": 0.5}, "reference": reference}
        runs.append(
            trained(
                str(base), base.parent / f"reference-{reference}", deterministic=True,
                rl=rl | {"steps": 2}, agent={}, imitation={"demonstrations": 0},
            )
        )  # fmt: skip
    first, second = (load_file(run.final / "adapter" / WEIGHTS) for run in runs)
    assert any(float(t.abs().max()) > 0 for name, t in first.items() if "lora_B" in name)
    assert all(torch.equal(first[name], second[name]) for name in first)
