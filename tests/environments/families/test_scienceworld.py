"""ScienceWorld keeps the contract, and equals the package's simulator except as documented."""

from __future__ import annotations

import gc
import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from palaestra.core.environment import Action, Environment, Transition
from palaestra.core.errors import EnvironmentFault, InputError, UnknownName
from palaestra.core.rare_capabilities import sample_action
from palaestra.core.task import ListedTasks, Split, Task

pytest.importorskip("scienceworld", reason="the package 'scienceworld' is not installed")
if shutil.which("java") is None:
    pytest.skip("there is no Java", allow_module_level=True)

import scienceworld.scienceworld as package

from palaestra.environments.base import refused
from palaestra.environments.conformance.clauses import (
    CLAUSES,
    a_closed_world_leaves_nothing,
    splits_share_no_task,
)
from palaestra.environments.conformance.oracle_clauses import the_oracle_leads_on
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.scienceworld.environment import VARIATIONS, ScienceWorld
from palaestra.environments.families.scienceworld.simulator import Simulator
from palaestra.environments.shared.java_process import OPTIONS, JavaProcess
from palaestra.environments.shared.text_commands import candidate_plans, parse_command, plain
from palaestra.rollout.guarded_environment import GuardedEnvironment

QUICK = "lifespan-longest-lived-then-shortest-lived"  # solved with four to six actions
STUDIO = 225  # the variation of find-plant that begins among six wood cups
FAULTY = {("grow-fruit", 78)}  # its solution leads to no fruit when it is repeated


class Pool:
    """New worlds with simulators that outlive a test, since starting Java takes a second.

    A clause of the contract never goes back to a world after it has made so many others.
    """

    size = 3

    def __init__(self) -> None:
        self.simulators: list[Simulator] = []
        self.taken = 0

    def take(self, name: str) -> ScienceWorld:
        number = self.taken % self.size
        if number == len(self.simulators):
            self.simulators.append(Simulator())
        if not self.simulators[number].alive:
            self.simulators[number] = Simulator()
        world = ScienceWorld(name)
        world._simulator = self.simulators[number]
        self.taken += 1
        return world

    def close(self) -> None:
        for simulator in self.simulators:
            simulator.close()


@pytest.fixture(scope="module")
def kept() -> Iterator[Pool]:
    pool = Pool()
    yield pool
    pool.close()


@pytest.fixture
def pool(kept: Pool) -> Pool:
    kept.taken = 0
    return kept


@pytest.fixture(scope="module")
def wrapper() -> Iterator[Any]:
    """The package's own wrapper, with our Java, and without asking for all valid actions."""
    launch = package.launch_gateway
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            package,
            "launch_gateway",
            lambda **given: launch(**given, javaopts=list(OPTIONS)),
        )
        env = package.ScienceWorldEnv(envStepLimit=10**9)
        patch.setattr(env, "get_valid_action_object_combinations", list)
        yield env
        env.close()
        env._gateway.java_process.wait()


def task(name: str, variation: int) -> Task:
    return Task("t", f"scienceworld/{name}", 0, parameters={"variation": variation})


def act(world: Environment, *commands: str) -> Transition:
    """The transition of the last command."""
    return [world.step(Action(command)) for command in commands][-1]


def follow(world: Environment, actions: Sequence[Action]) -> list[Transition]:
    return [world.step(action) for action in actions]


def subject(pool: Pool, name: str, clause: Callable[[Subject], None], steps: int) -> Subject:
    """Check one training and one test task; leave out clauses on all tasks or on Java."""
    tasks = ScienceWorld.tasks(f"scienceworld/{name}")
    assert isinstance(tasks, ListedTasks)
    if clause is not splits_share_no_task:
        rows = {split: tasks.rows[split][:1] for split in (Split.TRAIN, Split.TEST)}
        tasks = replace(tasks, rows=rows)
    fresh = clause is a_closed_world_leaves_nothing
    make = (lambda: ScienceWorld(name)) if fresh else (lambda: pool.take(name))
    return Subject(make, tasks, steps)


# ── the contract ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_the_contract_holds(pool: Pool, clause: Callable[[Subject], None]) -> None:
    clause(subject(pool, QUICK, clause, steps=3))


@pytest.mark.slow
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("name", ["power-component", "chemistry-mix-paint-secondary-color"])
def test_the_contract_holds_elsewhere(
    pool: Pool, name: str, clause: Callable[[Subject], None]
) -> None:
    clause(subject(pool, name, clause, steps=15))


def test_an_oracle_asked_at_every_step_arrives(pool: Pool) -> None:
    """Where the package's solution has capitals in it ("unknown substance B"), too."""
    the_oracle_leads_on(subject(pool, "use-thermometer", the_oracle_leads_on, steps=3))


def test_the_tasks_and_their_sets_are_the_packages(wrapper: Any) -> None:
    assert ScienceWorld.names() == wrapper.task_names
    assert sorted(ScienceWorld.names()) == sorted(wrapper.get_task_names())
    assert {name: wrapper.get_max_variations(name) for name in VARIATIONS} == VARIATIONS
    for name in VARIATIONS:
        wrapper.load(name)
        tasks = ScienceWorld.tasks(f"scienceworld/{name}")
        published = {
            Split.TRAIN: wrapper.get_variations_train(),
            Split.VALIDATION: wrapper.get_variations_dev(),
            Split.TEST: wrapper.get_variations_test(),
        }
        for split, numbers in published.items():
            listed = tasks.take(split, tasks.count(split) or 0)
            assert [task.parameters["variation"] for task in listed] == numbers


# ── the package's own game ───────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "variation"), [("find-plant", STUDIO), ("chemistry-mix-paint-tertiary-color", 35)]
)
def test_episodes_are_the_wrappers(pool: Pool, wrapper: Any, name: str, variation: int) -> None:
    """Words, rewards and ends of a solution with detours and nonsense, of failure and chance."""
    world = pool.take(name)
    world.reset(task(name, variation))
    gold = [action.text for action in world.oracle()]
    rng = random.Random(0)
    detours = [*gold[:2], "inventory", "open sesame", "0", *gold[2:]]
    failure = ["look around", "focus on agent"]
    world.reset(task(name, variation))
    chance = []
    for _ in range(5):
        chance.append(sample_action(world, rng).text)
        act(world, chance[-1])
    for script in (detours, failure, chance):
        wrapper.load(name, variation, "")
        look, info = wrapper.reset()
        seen = world.reset(task(name, variation))
        assert seen.text == plain(f"{wrapper.get_task_description()}\n{look}")
        for command in script:
            output, reward, over, info = wrapper.step(command)
            shown = act(world, command)
            assert shown.observation.text == plain(output)
            assert (shown.reward, shown.terminated) == (float(reward), over)
            assert shown.success == (info["score"] == 100)
            assert world.progress() == max(0, info["score"]) / 100
            if over:
                break
        assert over or script is chance


def test_the_wrong_thing_costs_a_hundred_points_and_ends_the_task(pool: Pool) -> None:
    world = pool.take("find-plant")
    world.reset(task("find-plant", STUDIO))
    failed = act(world, "focus on agent")
    assert failed.reward == -100 and failed.terminated and failed.valid and not failed.success
    assert world.progress() == 0 and world.oracle() == [] and world.admissible() == []
    after = act(world, "look around")
    assert after == refused(world.OVER)


# ── the oracle ───────────────────────────────────────────────────────────────

SHORT = ("power-component", "lifespan-longest-lived")


def solve(world: ScienceWorld, variation: int) -> bool:
    """Follow the oracle; return whether it has a plan, which must solve with rising progress."""
    world.reset(task(world.spec.name, variation))
    path = world.oracle()
    shown, progress = [], [world.progress()]
    for action in path:
        shown.append(world.step(action))
        progress.append(world.progress())
    if not path:
        return False
    assert all(transition.valid for transition in shown)
    assert shown[-1].success
    assert sum(transition.reward for transition in shown) == 100 - round(100 * progress[0])
    assert progress == sorted(progress) and progress[-1] == 1 > progress[-2]
    return True


@pytest.mark.parametrize("name", SHORT)
def test_the_oracle_solves(pool: Pool, name: str) -> None:
    assert solve(pool.take(name), VARIATIONS[name] - 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIATIONS)
def test_the_oracle_solves_two_variations_of_each_task(pool: Pool, name: str) -> None:
    world = pool.take(name)
    for variation in (0, VARIATIONS[name] * 5 // 8):
        assert solve(world, variation) == ((name, variation) not in FAULTY)


@pytest.mark.slow
def test_the_packages_solution_of_a_faulty_task_does_not_solve_it(wrapper: Any) -> None:
    for name, variation in FAULTY:
        wrapper.load(name, variation, "", generateGoldPath=True)
        gold = wrapper.get_gold_action_sequence()
        wrapper.reset()
        assert not any(wrapper.step(command)[2] for command in gold)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["find-plant", "grow-plant"])
def test_a_solution_and_its_game_are_the_same_in_every_java(name: str) -> None:
    """By default the solutions differ from load to load, in the first item and in what grows."""
    runs = []
    for _ in range(2):
        world = ScienceWorld(name)
        world.reset(task(name, 0))
        assert world._simulator is not None
        gold = [world._simulator.gold(name, 0) for _ in range(3)]
        assert gold[0] == gold[1] == gold[2]
        world.reset(task(name, 0))
        runs.append([gold[0], follow(world, [Action(command) for command in gold[0]])])
        world.close()
    assert runs[0] == runs[1] and runs[0][1][-1].success


def test_after_a_detour_the_oracle_goes_back_or_on(pool: Pool) -> None:
    world = pool.take("chemistry-mix-paint-tertiary-color")
    world.reset(task(world.spec.name, 0))
    gold = [action.text for action in world.oracle()]
    moved = 1 + next(i for i, output in enumerate(gold) if output.startswith("go to "))
    act(world, *gold[:moved], "look around")
    assert [action.text for action in world.oracle()] == gold[moved:]
    act(world, "wait1")
    assert [action.text for action in world.oracle()] == gold[moved:]
    world.reset(task(world.spec.name, 0))
    act(world, "open door to kitchen", "go to kitchen")
    assert follow(world, world.oracle())[-1].success


# ── questions ────────────────────────────────────────────────────────────────


@pytest.fixture
def studio(pool: Pool) -> ScienceWorld:
    """Where three wood cups stand."""
    world = pool.take("find-plant")
    world.reset(task("find-plant", STUDIO))
    return world


def moves(world: ScienceWorld) -> int:
    assert world._simulator is not None
    return world._simulator.moves()


def test_an_ambiguous_command_is_a_question_that_a_number_answers(studio: ScienceWorld) -> None:
    asked = act(studio, "pick up wood cup")
    assert asked.valid and asked.observation.text.startswith("Ambiguous request")
    assert studio.admissible() == ["0", "1", "2"] and moves(studio) == 0
    assert act(studio, "1").observation.text == "You move the wood cup to the inventory."
    assert "wood cup" in act(studio, "inventory").observation.text and moves(studio) == 1
    assert not act(studio, "1").valid


def test_what_does_not_answer_a_question_leaves_it_open(studio: ScienceWorld) -> None:
    question = act(studio, "pick up wood cup").observation.text
    key = studio.state_key()
    for output in ("", "the red one, please", "3", "9" * 50, "-1"):
        shown = act(studio, output)
        assert not shown.valid and shown.reward == 0 and studio.state_key() == key
    assert question in act(studio, "7").observation.text
    assert studio.admissible() == ["0", "1", "2"] and moves(studio) == 0
    assert act(studio, "0").observation.text == "You move the wood cup to the inventory."


def test_another_command_withdraws_the_question_and_takes_its_own_time(
    studio: ScienceWorld,
) -> None:
    act(studio, "pick up wood cup")
    assert act(studio, "open door to hallway").observation.text == "The door is now open."
    assert moves(studio) == 1 and not act(studio, "0").valid
    copy = studio.snapshot()
    act(studio, "pick up wood cup", "2")
    key, text = studio.state_key(), act(studio, "inventory").observation.text
    studio.restore(copy)
    act(studio, "pick up wood cup", "2")
    assert (studio.state_key(), act(studio, "inventory").observation.text) == (key, text)


# ── what is asked beside the game ────────────────────────────────────────────


def test_asking_for_actions_throws_no_rng_and_names_nothing_hidden(studio: ScienceWorld) -> None:
    simulator = studio._simulator
    assert simulator is not None
    before = simulator._rng_state()
    closed = studio.admissible()
    assert simulator._rng_state() == before
    assert "open cupboard" in closed and not any(
        output.endswith("in cupboard") for output in closed
    )
    act(studio, "open cupboard")
    assert any(output.endswith("in cupboard") for output in studio.admissible())


def test_actions_sampled_at_random_are_understood(studio: ScienceWorld) -> None:
    rng = random.Random(1)
    sampled = [studio.step(sample_action(studio, rng)) for _ in range(6)]
    assert all(transition.valid for transition in sampled)


def test_looking_around_leads_to_the_same_state_and_waiting_does_not(
    studio: ScienceWorld,
) -> None:
    key = studio.state_key()
    act(studio, "look around", "inventory", "task", "help")
    assert studio.state_key() == key
    act(studio, "wait1")
    assert studio.state_key() != key


# ── the Java behind it ───────────────────────────────────────────────────────


def test_java_starts_with_the_first_task_is_kept_and_ends_with_the_world(
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = set(psutil.Process().children(recursive=True))
    world = ScienceWorld(QUICK)
    assert set(psutil.Process().children(recursive=True)) == before
    world.reset(task(QUICK, 0))
    [java] = set(psutil.Process().children(recursive=True)) - before
    world.reset(task(QUICK, 1))
    assert set(psutil.Process().children(recursive=True)) - before == {java}

    child = os.fork()  # a child must neither use nor end its parent's Java
    if child == 0:
        assert world._simulator is not None
        alive = world._simulator.alive
        world.close()
        os._exit(alive)
    assert os.waitpid(child, 0)[1] == 0
    assert act(world, "look around").valid

    del world
    gc.collect()
    assert not java.is_running()
    assert capfd.readouterr() == ("", "")


def test_a_world_whose_java_has_died_starts_another(pool: Pool) -> None:
    world = pool.take(QUICK)
    world.reset(task(QUICK, 0))
    assert world._simulator is not None
    process = world._simulator._java._process
    process.kill()
    process.wait()
    with pytest.raises(EnvironmentFault):
        GuardedEnvironment(world, "world").step(Action("look around"))
    assert world.reset(task(QUICK, 0)).text
    pool.simulators[0] = world._simulator


def test_a_java_that_does_not_start_is_an_error_of_the_world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "java").write_text("#!/bin/sh\necho no memory\nexit 1\n")
    (tmp_path / "java").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(EnvironmentFault, match="Java did not start"):
        JavaProcess(package.JAR_PATH, 64)


# ── commands and bad input ───────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("output", "command"),
    [
        ("Open Door to Kitchen.", "open door to kitchen"),
        ("\n  > look around \nand then I wait", "look around"),
        ("`pick up  metal pot`", "pick up metal pot"),
        ("0", "0"),
        ("走 \ud800", ""),
        (" \n ", ""),
    ],
)
def test_free_text_becomes_one_command(output: str, command: str) -> None:
    assert parse_command(output) == command


def test_the_ways_to_try_go_on_or_back() -> None:
    assert candidate_plans("abc", "", []) == [["a", "b", "c"]]
    assert candidate_plans("abc", "axb", ["<"]) == [["c"], ["<", "a", "b", "c"]]


def test_tasks_without_a_variation_of_this_world_are_refused() -> None:
    world = ScienceWorld(QUICK)
    for parameters in ({}, {"variation": 125}, {"variation": "0"}, {"variation": 0, "seed": 1}):
        with pytest.raises(InputError, match="needs the parameter 'variation' from 0 to 124"):
            world.reset(Task("t", "babyai/GoToLocal", 0, parameters=parameters))


def test_a_world_without_a_task_reports_it_and_a_wrong_name_is_an_error(pool: Pool) -> None:
    world = ScienceWorld("boil")
    uses = (world.state_key, world.snapshot, world.progress, world.oracle, world.admissible)
    for call in (lambda: act(world, "wait"), *uses):
        with pytest.raises(InputError, match="call reset"):
            call()
    with pytest.raises(UnknownName, match="Did you mean 'boil'"):
        ScienceWorld("boils")


def test_a_snapshot_of_another_task_is_refused(studio: ScienceWorld) -> None:
    with pytest.raises(InputError, match="snapshot of 'scienceworld/find-plant'"):
        ScienceWorld("boil").restore(studio.snapshot())
