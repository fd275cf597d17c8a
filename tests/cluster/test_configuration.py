"""What `--on` and `[cluster]` mean, and what is refused before anything starts; without Ray."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import palaestra as pa
from palaestra.api.train_run import place_of
from palaestra.cluster import ray_launcher
from palaestra.cluster.on_ray import OnRay
from palaestra.cluster.placement import Machine, lack, plan, room
from palaestra.core.errors import InputError, MissingPackage, RecipeError
from palaestra.training.recipe import load
from tests.api.worlds import Door
from tests.training.runs import palaestra


def test_on_names_a_cluster_or_the_usual_one() -> None:
    assert OnRay.parse("ray").address is None
    assert OnRay.parse("ray=10.0.0.1:6379").address == "10.0.0.1:6379"
    for wrong in ("Ray", "ray=", "slurm", ""):
        with pytest.raises(InputError, match="write --on ray"):
            OnRay.parse(wrong)


def test_the_recipe_says_how_many_workers_of_which_size() -> None:
    recipe = load("quick", ["cluster.workers=[2, 16]", "cluster.worker_cpus=0.5"])
    assert place_of(recipe, "ray") == OnRay(None, least=2, most=16, cpus=0.5)
    assert place_of(load("quick"), "ray") == OnRay(None)
    assert place_of(load("quick"), None) is None


def test_a_cluster_section_without_on_is_refused() -> None:
    with pytest.raises(RecipeError, match="no effect without --on ray"):
        place_of(load("quick", ["cluster.workers=[2, 16]"]), None)


@pytest.mark.parametrize("key", ["engines", "engine", "engine_gpus", "learners", "shard", "copies"])
def test_a_key_that_is_not_built_is_refused(key: str) -> None:
    with pytest.raises(RecipeError, match=f"There is no recipe key 'cluster.{key}'"):
        load("quick", [f"cluster.{key}=1"])


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


def test_a_judge_refuses_a_cluster(tmp_path: Path) -> None:
    found = palaestra("judge", tmp_path, "--judge", "said:x", "--on", "ray", check=2)
    assert "--on ray has no effect on a judge" in found.stderr


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
    assert room(machines, 1) == 5 and room(machines, 2) == 2 and room(machines, 0.1) == 50
    found = plan(machines, 2, least=1, most=3)
    assert found[1:] == [
        "10.0.0.1 (4 CPU): 2 workers, 0.4 GB without environments",
        "10.0.0.2 (1 CPU): 0 workers, 0.0 GB without environments",
        "10.0.0.3 (0 CPU): 0 workers, 0.0 GB without environments",
        "1 of at most 3 workers do not fit; they start where machines join",
    ]
    assert plan(machines, 2, least=3, most=3)[-1].startswith("does not fit: cluster.workers asks")
    assert "room for 2 (10.0.0.1 has 4, 10.0.0.2 has 1, 10.0.0.3 has 0)" in lack(machines, 2, 3)
    assert "others use" in lack(machines, 2, 2)
