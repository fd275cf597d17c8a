"""What `--on` and `[cluster]` mean, and what is refused before anything starts; without Ray."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import palaestra as pa
from palaestra.api.train_run import place_of
from palaestra.cli.resources import of_learners
from palaestra.cluster import ray_launcher
from palaestra.cluster.driver import worker_kind
from palaestra.cluster.engines import engine_kind
from palaestra.cluster.on_ray import OnRay
from palaestra.cluster.placement import Machine, lack, plan, room
from palaestra.core.errors import InputError, MissingPackage, RecipeError
from palaestra.training.recipe import load
from palaestra.training.recipe_check import check_recipe
from tests.api.worlds import Door
from tests.training.runs import palaestra


def test_on_names_a_cluster_or_the_usual_one() -> None:
    assert OnRay.parse("ray").address is None
    assert OnRay.parse("ray=10.0.0.1:6379").address == "10.0.0.1:6379"
    assert OnRay.parse("ray,wait=0") == OnRay(None, wait=0.0)
    assert OnRay.parse("ray=10.0.0.1:6379,wait=1.5") == OnRay("10.0.0.1:6379", wait=1.5)
    for wrong in ("Ray", "ray=", "slurm", "", "ray,wait=", "ray,wait=x"):
        with pytest.raises(InputError, match="write --on ray"):
            OnRay.parse(wrong)


def test_the_recipe_says_how_many_workers_of_which_size() -> None:
    recipe = load("quick", ["cluster.workers=[2, 16]", "cluster.worker_cpus=0.5"])
    assert place_of(recipe, "ray") == OnRay(None, worker_kind(2, 16, 0.5))
    assert place_of(load("quick"), "ray") == OnRay(None)
    assert place_of(load("quick"), None) is None


def test_a_cluster_section_without_on_is_refused() -> None:
    with pytest.raises(RecipeError, match="no effect without --on ray"):
        place_of(load("quick", ["cluster.workers=[2, 16]"]), None)


@pytest.mark.parametrize("key", ["shard=true", "learner_cpus=2", "learner_gpus=1"])
def test_a_key_of_learners_without_others_is_refused(key: str) -> None:
    name = key.partition("=")[0]
    with pytest.raises(RecipeError, match=rf"cluster\.{name} has no effect without cluster.learn"):
        load("quick", [f"cluster.{key}"])


def test_a_dry_run_shows_the_memory_of_a_learner_divided_and_not() -> None:
    large = ["model.tiny.width=512", "model.tiny.layers=8"]
    found = [
        of_learners(load("quick", [*large, "cluster.learners=4", f"cluster.shard={shard}"]))
        for shard in ("false", "true")
    ]
    numbers = [[float(n) for n in re.findall(r"about ([0-9.]+) GB", str(line))] for line in found]
    (whole, divided), other = numbers
    assert divided < whole and other == [divided, whole]
    assert "with cluster.shard = true" in str(found[0]) and "shard = false" in str(found[1])
    assert of_learners(load("quick")) is None
    where = place_of(load("quick", ["cluster.learners=4", "cluster.shard=true"]), "ray")
    assert where is not None and where.learners is not None
    assert where.learners.note == "each holds the weights and 1/4 of the optimiser's state"


def test_the_recipe_says_how_many_engines_of_which_size() -> None:
    keys = ["cluster.engines=2", "cluster.engine_cpus=4", "cluster.engine_gpus=1"]
    found = place_of(load("quick", keys), "ray")
    assert found == OnRay(None, engines=engine_kind(2, 4, 1))
    assert [kind.name for kind in found.kinds] == ["engine", "worker"]  # engines get room first


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (["cluster.engines=0"], "cluster.engines"),
        (["cluster.engine_gpus=1"], "cluster.engine_gpus has no effect without cluster.engines"),
        (["cluster.engine_cpus=2"], "cluster.engine_cpus has no effect without cluster.engines"),
        (["cluster.engine=resident"], "cluster.engine has no effect without cluster.engines"),
        (
            ["cluster.engines=2", "cluster.engine=vllm", "deterministic=true"],
            "whose replies depend",
        ),
        (["cluster.engines=2", "cluster.engine=vllm", "model.schedule=attained"], "reach vLLM"),
        (
            [
                *"cluster.engines=2 cluster.engine=vllm rl.on_update=keep".split(),
                "rl.staleness=1",
                "rl.asynchronous=true",
            ],
            "which weights sampled a token; use drain",
        ),
        (["cluster.engines=2", "rl.actor=process"], "both make the rollouts"),
        (["cluster.engines=2", "rl.steps=0"], "no effect with rl.steps = 0"),
        (["cluster.engines=2", "agent.reasoning_tokens=9"], "not cluster.engines; unset one"),
    ],
)
def test_engines_that_would_do_nothing_or_cannot_act_are_refused(
    keys: list[str], message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        check_recipe(load("quick", keys))


@pytest.mark.parametrize("workers", ["[0, 2]", "[3, 2]", "[1]", "2"])
def test_impossible_numbers_of_workers_are_refused(workers: str) -> None:
    with pytest.raises(RecipeError, match=r"cluster\.workers"):
        load("quick", [f"cluster.workers={workers}"])


def test_an_agent_that_remembers_is_refused_before_anything_starts(tmp_path: Path) -> None:
    arguments = ("--env", "babyai/GoToObjS4", "--model", "random", "--agent", "reflexion")
    found = palaestra("eval", *arguments, "--run", tmp_path / "run", "--on", "ray", check=2)
    assert "remembers earlier episodes" in found.stderr and not (tmp_path / "run").exists()


def test_a_class_that_only_this_process_has_is_refused_before_anything_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "Here", Door, raising=False)
    with pytest.raises(InputError, match="The class Here is defined in a script or notebook"):
        pa.evaluate("__main__:Here", model="null", on="ray", run=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_launcher, "ray", None)
    with pytest.raises(MissingPackage, match=r"pip install 'palaestra\[ray\]'"):
        OnRay(None).plan()


def test_a_worker_imports_neither_torch_nor_ray() -> None:
    program = (
        "import sys, palaestra.cluster.session_worker; print({'torch', 'ray'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.stdout.strip() == "set()", found.stderr


def test_a_plan_fills_the_machines_and_names_what_does_not_fit() -> None:
    machines = [Machine("10.0.0.1", 4), Machine("10.0.0.2", 1), Machine("10.0.0.3", 0)]
    fits = [room(machines, [kind], kind) for kind in (worker_kind(1, 99, n) for n in (1, 2, 0.1))]
    assert fits == [5, 2, 50]
    found = plan(machines, [worker_kind(1, 3, 2)], "learner")
    assert found == [
        "this process: learner",
        "10.0.0.1 (4 CPU): 2 workers (0.2 GB each without environments)",
        "10.0.0.2 (1 CPU): 0 workers",
        "10.0.0.3 (0 CPU): 0 workers",
        "1 of at most 3 workers do not fit; they start where machines join",
    ]
    both = [engine_kind(2, 1, 1), worker_kind(1, 2)]
    with_device = [Machine("10.0.0.1", 2, 1), Machine("10.0.0.2", 2)]
    assert plan(with_device, both, "")[1:] == [
        "10.0.0.1 (2 CPU, 1 GPU): 1 engines (each holds the weights and the cache of its sessions)"
        ", 1 workers (0.2 GB each without environments)",
        "10.0.0.2 (2 CPU): 0 engines, 1 workers (0.2 GB each without environments)",
        "does not fit: cluster.engines asks for at least 2 of 1 CPU and 1 GPU each, and the "
        "cluster has room for 1 (10.0.0.1 has 2 CPU, 1 GPU, 10.0.0.2 has 2 CPU); the run waits "
        "until machines join, or stop it and lower cluster.engines or what each reserves",
    ]
    too_many, two = worker_kind(3, 3, 2), worker_kind(2, 2, 2)
    assert plan(machines, [too_many], "")[-1].startswith("does not fit: cluster.workers asks")
    offered = "room for 2 (10.0.0.1 has 4 CPU, 10.0.0.2 has 1 CPU, 10.0.0.3 has 0 CPU)"
    assert offered in lack(machines, [too_many], too_many)
    assert "others use" in lack(machines, [two], two)
