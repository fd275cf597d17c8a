"""DiscoveryWorld satisfies the contract, and equals the package's API on its scenarios."""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from palaestra.core.environment import Action
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.task import Split, Task
from palaestra.core.tool import parse_call

pytest.importorskip("discoveryworld", reason="'discoveryworld' is not installed")

from discoveryworld.DiscoveryWorldAPI import DiscoveryWorldAPI

from palaestra.environments import registry
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.discoveryworld.environment import SCENARIOS, DiscoveryWorld
from palaestra.environments.families.discoveryworld.game import seeded
from palaestra.environments.families.discoveryworld.words import TOOLS, as_json, in_order


def task(name: str, split: Split = Split.TRAIN, index: int = 0) -> Task:
    return registry.tasks(f"discoveryworld/{name}").task(split, index)


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_a_skill_keeps_the_contract(clause: Callable[[Subject], None]) -> None:
    clause(Subject.of("discoveryworld/skills-dialog", steps=4, per_split=1))


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_keeps_the_contract(name: str) -> None:
    for clause in CLAUSES:
        clause(Subject.of(f"discoveryworld/{name}", steps=4, per_split=1))


def alike(name: str, index: int, steps: int) -> None:
    """Require that the package's API, which draws, and ours give equal random episodes."""
    ours, direct = DiscoveryWorld(name), DiscoveryWorldAPI(threadID=7)
    asked = task(name, index=index)
    ours.reset(asked)
    scenario, difficulty = SCENARIOS[name]
    with contextlib.redirect_stdout(io.StringIO()), seeded():
        random.seed(asked.parameters["variation"])
        assert direct.loadScenario(scenario, difficulty, asked.parameters["variation"], 1)
        rng = random.Random(index)
        for _ in range(steps):
            seen = direct.getAgentObservation(0)["ui"]
            assert ours._game is not None
            assert json.dumps(seen, sort_keys=True) == json.dumps(ours._game.seen, sort_keys=True)
            assert direct.getTaskScorecard() == ours._game.tasks
            action = ours.sample_action(rng)
            transition = ours.step(action)
            assert transition.valid
            direct.performAgentAction(0, as_json(in_order(parse_call(action.text, TOOLS))))
            direct.tick()
            ended = direct.getAgentObservation(0) and direct.areTasksComplete()
            assert transition.terminated == ended
            direct.getTaskScorecard()
            if ended:
                break


@pytest.mark.parametrize("name", ["skills-dialog", "skills-pick-and-give"])
def test_an_episode_is_the_packages(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the package writes its pictures here
    alike(name, 1, 6)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_episodes_of_every_scenario_are_the_packages(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    alike(name, 0, 20)


def test_a_talk_is_held_by_choosing_options() -> None:
    world = DiscoveryWorld("skills-dialog")
    first = world.reset(task("skills-dialog"))
    sally = re.search(r"Sally \[(\d+)\]", first.text)
    assert sally is not None
    assert not world.step(Action("choose_dialog_option(option=1)")).valid
    world.step(Action('move_direction(direction="east")'))
    world.step(Action('rotate_direction(direction="north")'))
    reply = world.step(Action(f"talk(object={sally[1]})"))
    assert "You are in a talk" in reply.observation.text and "option 1:" in reply.observation.text
    assert not world.step(Action('move_direction(direction="north")')).valid
    assert world.step(Action("choose_dialog_option(option=1)")).valid


def test_nothing_is_written_and_the_global_rng_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = random.getstate()
    world = DiscoveryWorld("skills-doors")
    world.reset(task("skills-doors"))
    world.step(Action('move_direction(direction="north")'))
    assert random.getstate() == before and not list(tmp_path.iterdir())


def test_variations_are_split_once() -> None:
    sampled = registry.tasks("discoveryworld/tutorial")
    counts = [sampled.count(split) for split in Split]
    assert counts == [3, 1, 1] and len(DiscoveryWorld.names()) == 35


def test_wrong_names_and_tasks_are_reported() -> None:
    with pytest.raises(UnknownName, match="plant-nutrients-easy"):
        registry.make("discoveryworld/plant-nutrients-eazy")
    with pytest.raises(InputError, match="names no variation"):
        DiscoveryWorld("tutorial").reset(Task("t", "discoveryworld/tutorial", 0))
