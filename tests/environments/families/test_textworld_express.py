"""TextWorld-Express holds the contract, and plays the package's games as its wrapper does."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from palaestra.core.environment import Action, Environment, Transition
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.rare_capabilities import sample_action, signals_of
from palaestra.core.task import Split, Task

pytest.importorskip("textworld_express", reason="'textworld-express' is not installed")
if shutil.which("java") is None:
    pytest.skip("there is no Java", allow_module_level=True)

import textworld_express.textworld_express as package

from palaestra.environments.conformance.clauses import CLAUSES, a_closed_world_leaves_nothing
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.textworld_express.environment import (
    COMMANDS,
    TURNS,
    TextWorldExpress,
)
from palaestra.environments.shared.java_process import OPTIONS, JavaProcess
from palaestra.environments.shared.text_commands import plain

GAMES = TextWorldExpress.names()
FOLDS = {Split.TRAIN: "train", Split.VALIDATION: "dev", Split.TEST: "test"}

FAULTY = {  # as are 55 of the 1000 to validate: of two things of one name the wrong one is taken
    ("peckingorder", Split.VALIDATION, index) for index in (22, 42)
}


@pytest.fixture(scope="module")
def java() -> Iterator[JavaProcess]:
    """One for nearly all worlds of this file: each has a simulator of its own in it.

    Which does for all games but "sorting".
    """
    process = JavaProcess(package.JAR_PATH, 256)
    yield process
    process.close()


@pytest.fixture(scope="module")
def wrapper() -> Iterator[Any]:
    """The package's own wrapper with our Java."""
    launch = package.launch_gateway
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            package, "launch_gateway", lambda **given: launch(**{**given, "javaopts": [*OPTIONS]})
        )
        env = package.TextWorldExpressEnv(envStepLimit=10**9)
        yield env
        env.close()
        env._gateway.java_process.wait()


def made(name: str, java: JavaProcess) -> TextWorldExpress:
    world = TextWorldExpress(name)
    world._java, world._server = java, java.jvm.textworldexpress.runtime.PythonInterface()
    world._server.load(name, "")
    return world


def task(name: str, index: int = 0, split: Split = Split.TRAIN) -> Task:
    return TextWorldExpress.tasks(f"textworld-express/{name}").task(split, index)


def act(world: Environment, *commands: str) -> Transition:
    """The transition of the last command."""
    return [world.step(Action(command)) for command in commands][-1]


# ── the contract ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("name", ["cookingworld", "mapreader", "peckingorder"])
def test_the_contract_holds(
    name: str, clause: Callable[[Subject], None], java: JavaProcess
) -> None:
    fresh = clause is a_closed_world_leaves_nothing
    make = (lambda: TextWorldExpress(name)) if fresh else (lambda: made(name, java))
    clause(Subject(make, TextWorldExpress.tasks(f"textworld-express/{name}"), 15, per_split=1))


@pytest.mark.slow
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("name", GAMES)
def test_the_contract_holds_in_every_game(name: str, clause: Callable[[Subject], None]) -> None:
    worlds: list[TextWorldExpress] = []

    def make() -> TextWorldExpress:
        worlds.append(TextWorldExpress(name))
        return worlds[-1]

    clause(Subject(make, TextWorldExpress.tasks(f"textworld-express/{name}"), per_split=1))
    for world in worlds:
        world.close()


def test_the_tasks_are_the_packages_seeds(wrapper: Any) -> None:
    assert sorted(wrapper.getGameNames()) == sorted(GAMES) == sorted(TURNS) == sorted(COMMANDS)
    published = {
        Split.TRAIN: wrapper.getValidSeedsTrain(),
        Split.VALIDATION: wrapper.getValidSeedsDev(),
        Split.TEST: wrapper.getValidSeedsTest(),
    }
    tasks = TextWorldExpress.tasks("textworld-express/coin")
    for split, seeds in published.items():
        rows = [task.parameters for task in tasks.take(split, tasks.count(split) or 0)]
        assert rows == [{"fold": FOLDS[split], "seed": seed} for seed in seeds]


# ── the package's own games ──────────────────────────────────────────────────


@pytest.mark.parametrize("split", list(Split))
@pytest.mark.parametrize("name", GAMES)
def test_episodes_are_the_wrappers(
    name: str, split: Split, java: JavaProcess, wrapper: Any
) -> None:
    """Words, valid actions, rewards and ends: of the package's solution, and of random actions."""
    world, rng = made(name, java), random.Random(7)
    for index, solving in ((0, True), (1, False)):
        this = task(name, index, split)
        text, info = wrapper.reset(
            seed=this.parameters["seed"],
            gameFold=this.parameters["fold"],
            gameName=name,
            gameParams="",
            generateGoldPath=True,
        )
        assert world.reset(this).text == plain(f"{info['taskDescription']}\n{text}")
        gold = wrapper.getGoldActionSequence()
        for turn in range(len(gold) if solving else 30):
            valid = sorted(set(info["validActions"]))
            assert world.admissible() == valid
            command = gold[turn] if solving else rng.choice([*valid, "help", "open sesame"])
            text, reward, over, info = wrapper.step(command)
            shown = act(world, command)
            assert shown.observation.text == plain(text)
            assert (shown.reward, shown.terminated) == (reward, over)
            assert shown.success == info["tasksuccess"]
            assert shown.valid == (command in valid or command == "help")
            if over:
                break
        assert over or not solving


@pytest.mark.parametrize("name", GAMES)
def test_the_oracle_solves_with_rising_progress_and_the_whole_score(
    name: str, java: JavaProcess
) -> None:
    world = made(name, java)
    for split in Split:
        for index in range(2, 5):
            world.reset(task(name, index, split))
            path, progress, reward = world.oracle(), [world.progress()], 0.0
            for action in path:
                last = world.step(action)
                assert last.valid
                progress.append(world.progress())
                reward += last.reward
            assert last.success and reward == pytest.approx(1)
            assert progress == sorted(progress) and progress[-1] == 1 > progress[-2]
            assert not world.oracle() and not world.admissible()
            assert not act(world, "look around").valid


@pytest.mark.slow
@pytest.mark.parametrize("name", GAMES)
def test_the_oracle_solves_fifty_games_of_each_set_and_most_after_a_detour(
    name: str, java: JavaProcess
) -> None:
    world, rng = made(name, java), random.Random(0)
    open_still, known = 0, 0
    for split in Split:
        for index in range(50):
            world.reset(task(name, index, split))
            path = world.oracle()
            assert bool(path) == ((name, split, index) not in FAULTY)
            assert not path or [world.step(action) for action in path][-1].success
            world.reset(task(name, index, split))
            if any(world.step(sample_action(world, rng)).terminated for _ in range(5)):
                continue
            open_still += 1
            path = world.oracle()
            known += bool(path)
            assert not path or [world.step(action) for action in path][-1].success
    assert known >= 0.8 * open_still


def test_the_packages_solution_of_a_faulty_game_loses_it(wrapper: Any) -> None:
    for name, split, index in FAULTY:
        parameters = task(name, index, split).parameters
        seed, fold = parameters["seed"], parameters["fold"]
        wrapper.reset(seed, fold, gameName=name, gameParams="", generateGoldPath=True)
        gold = wrapper.getGoldActionSequence()
        first_end = next(info for info in (wrapper.step(c)[3] for c in gold) if info["done"])
        assert first_end["taskfailure"] and not first_end["tasksuccess"]


def test_rooms_of_a_game_have_different_names(java: JavaProcess) -> None:
    """Check that the observation determines the place, as the state key assumes."""
    for name in ("coin", "cookingworld", "twc", "mapreader"):
        world = made(name, java)
        for index in range(4):
            world.reset(task(name, index))
            path: dict[tuple[str, str], str] = {}
            rng = random.Random(index)
            for _ in range(60):
                before = world._state.room
                doors = [
                    output for output in world.admissible() if output.startswith(("move", "open d"))
                ]
                if not doors:
                    break
                command = rng.choice(doors)
                act(world, command)
                after = world._state.room
                if after != before:
                    assert path.setdefault((before, command), after) == after


# ── keys and oracles off the way ─────────────────────────────────────────────


def test_walking_in_a_circle_and_looking_lead_to_the_same_state(java: JavaProcess) -> None:
    world = made("mapreader", java)
    world.reset(task("mapreader"))
    start = world.state_key()
    assert act(world, "move north").valid and world.state_key() != start
    act(world, "move south", "look around", "inventory", "task", "help", "open sesame")
    assert world.state_key() == start
    act(world, "read map")
    assert world.state_key() != start


def test_after_a_detour_the_oracle_goes_on_or_back(java: JavaProcess) -> None:
    world = made("mapreader", java)
    world.reset(task("mapreader", 3))
    gold = [action.text for action in world.oracle()]
    act(world, gold[0])
    assert [action.text for action in world.oracle()] == gold[1:]
    world.reset(task("mapreader"))
    assert "move north" in world.admissible()
    act(world, "move north", "move south", "move north")
    path = [action.text for action in world.oracle()]
    assert act(world, *path).success


def test_a_mistake_ends_the_game_and_takes_the_score_back(java: JavaProcess) -> None:
    world = made("sorting", java)
    world.reset(task("sorting"))
    right = [action.text for action in world.oracle()]
    good = act(world, *right[:2])
    assert 0 < good.reward == world.progress() < 1
    bad = act(world, *right[-2:])
    assert bad.terminated and not bad.success and bad.reward == -1 - good.reward
    assert world.progress() == 0 and world.oracle() == [] and world.admissible() == []


# ── commands, Java and bad input ─────────────────────────────────────────────


def test_commands_are_understood_in_any_case(java: JavaProcess) -> None:
    world = made("arithmetic", java)
    for index in range(40):
        world.reset(task("arithmetic", index))
        act(world, "Take  Math Problem.")
        if "put math problem in TV stand" in world.admissible():
            break
    assert act(world, "> put math problem in tv stand").valid
    copy = TextWorldExpress("arithmetic")
    copy._java, copy._server = java, made("arithmetic", java)._server
    copy.restore(world.snapshot())
    assert signals_of(copy) == signals_of(world) and copy.admissible() == world.admissible()


def test_java_starts_with_the_first_task_and_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    before = set(psutil.Process().children(recursive=True))
    world = TextWorldExpress("coin")
    assert set(psutil.Process().children(recursive=True)) == before
    world.reset(task("coin"))
    [process] = set(psutil.Process().children(recursive=True)) - before
    world.reset(task("coin", 1))
    assert set(psutil.Process().children(recursive=True)) - before == {process}
    world.close()
    assert not process.is_running() and capfd.readouterr() == ("", "")
    with pytest.raises(InputError, match="call reset"):
        world.step(Action("look around"))
    assert world.reset(task("coin")).text
    world.close()


def test_before_the_first_task_every_use_says_so() -> None:
    world = TextWorldExpress("coin")
    for use in (world.state_key, world.snapshot, world.progress, world.oracle, world.admissible):
        with pytest.raises(InputError, match="call reset"):
            use()


def test_tasks_without_a_fold_and_a_seed_are_refused() -> None:
    world = TextWorldExpress("coin")
    for parameters in ({}, {"fold": "train"}, {"fold": "valid", "seed": 1}, {"seed": 1}):
        with pytest.raises(InputError, match="needs the parameters 'fold'"):
            world.reset(Task("t", "babyai/GoToLocal", 0, parameters=parameters))


def test_a_wrong_name_and_a_snapshot_of_another_game_are_refused(java: JavaProcess) -> None:
    with pytest.raises(UnknownName, match="Did you mean 'cookingworld'"):
        TextWorldExpress("cooking-world")
    world = made("coin", java)
    world.reset(task("coin"))
    with pytest.raises(InputError, match="snapshot of 'textworld-express/coin'"):
        TextWorldExpress("twc").restore(world.snapshot())
