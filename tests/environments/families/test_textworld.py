"""TextWorld keeps the contract: generated games with brief texts, played in free text."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.core.environment import Action, Transition
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.rare_capabilities import signals_of
from palaestra.core.task import Split, Task, TaskSet
from palaestra.environments import registry

pytest.importorskip("textworld", reason="needs a C compiler to install; see scripts/setup.sh")
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.textworld.environment import LONGEST, TextWorld, parse
from palaestra.environments.families.textworld.games import LEVELS, story_file
from tests.chosen import mostly_slow, without

WORDS = (
    *("go north", "go south", "go east", "go west", "north"),
    *("look", "inventory", "examine cookbook", "examine table", "jump"),
    *("take coin", "open chest", "take knife", "drop knife", "close fridge", "take all"),
)


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One cache of games for all tests of this file."""
    folder = tmp_path_factory.mktemp("games")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PALAESTRA_CACHE", str(folder))
        yield folder


def task(name: str, seed: int = 0) -> Task:
    return Task(f"train/{seed}", f"textworld/{name}", seed)


def started(name: str, seed: int = 0) -> TextWorld:
    world = TextWorld(name)
    world.reset(task(name, seed))
    return world


def act(world: TextWorld, *commands: str) -> Transition:
    """The transition of the last command."""
    return [world.step(Action(command)) for command in commands][-1]


def solve(world: TextWorld) -> list[Transition]:
    return [world.step(action) for action in world.oracle()]


def wander(world: TextWorld, seed: int, steps: int) -> list[Transition]:
    """Random admissible commands and nonsense, until the game ends."""
    rng, seen = random.Random(seed), []
    for _ in range(steps):
        seen.append(act(world, rng.choice([*world.admissible(), *WORDS])))
        if seen[-1].terminated:
            break
    return seen


# ── the contract ─────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize(
    "clause", without(CLAUSES, "equal_tasks_give_equal_worlds"), ids=lambda clause: clause.__name__
)
@pytest.mark.parametrize("name", mostly_slow(["rooms", "treasure-easy", "cooking-easy"], "rooms"))
def test_the_contract_holds(name: str, clause: Callable[[Subject], None]) -> None:
    id = f"textworld/{name}"
    clause(Subject(lambda: registry.make(id), TaskSet(id, size=2), steps=15))


@pytest.mark.slow
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("name", LEVELS)
def test_the_contract_holds_on_every_level(name: str, clause: Callable[[Subject], None]) -> None:
    id = f"textworld/{name}"
    clause(Subject.of(id))


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(LEVELS, "coin-easy"))
def test_the_oracle_solves_with_rising_progress_and_the_whole_score(name: str) -> None:
    world = TextWorld(name)
    for seed in range(2):
        _solve_and_check(world, name, seed)


@pytest.mark.slow
@pytest.mark.parametrize("name", LEVELS)
def test_the_oracle_solves_six_games_of_each_level_also_after_detours(name: str) -> None:
    world = TextWorld(name)
    for seed in range(6):
        _solve_and_check(world, name, seed)
        for walk in range(4):
            world.reset(task(name, seed))
            last = 0.0
            steps = wander(world, walk, 20)
            if not steps[-1].terminated:
                last = world.progress()
                steps = solve(world)
                assert steps[-1].success
            assert world.progress() >= last
            assert (world.progress() == 1) == steps[-1].success


def _solve_and_check(world: TextWorld, name: str, seed: int) -> None:
    world.reset(task(name, seed))
    progress, keys, rewards = [world.progress()], [world.state_key()], []
    for action in world.oracle():
        transition = world.step(action)
        assert transition.valid, (action, transition)
        progress.append(world.progress())
        keys.append(world.state_key())
        rewards.append(transition.reward)
    assert transition.success and transition.terminated
    assert progress == sorted(progress) and progress[0] == 0.0
    assert progress[-1] == 1.0 and all(p < 1 for p in progress[:-1])
    assert sum(rewards) == (3.0 if name == "cooking-easy" else 1.0)
    read_only = name == "cooking-easy"  # reading the recipe changes no fact
    assert len(set(keys)) == len(keys) - read_only


# ── games and their cache ────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_seed_gives_the_same_game_in_another_process_with_another_cache(
    tmp_path: Path,
) -> None:
    script = """
import json
from tests.environments.families.test_textworld import solve, started
for name in ("cooking-easy", "rooms"):
    world = started(name, 3)
    key = world.state_key()
    print(json.dumps([key, [t.observation.text for t in solve(world)], world.state_key()]))
"""
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env={
                **os.environ,
                "PALAESTRA_CACHE": str(tmp_path / hash_seed),
                "PYTHONHASHSEED": hash_seed,
            },
            cwd=Path(__file__).parents[3],
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed in ("1", "2")
    ]
    shown = [[json.loads(line) for line in run.communicate()[0].splitlines()] for run in runs]
    assert shown[0] == shown[1] and len(shown[0]) == 2


@pytest.mark.parametrize("name", mostly_slow(["coin-easy", "rooms"], "rooms"))
def test_different_seeds_give_different_games(name: str) -> None:
    world = TextWorld(name)
    tales = set()
    for seed in range(4):
        opening = world.reset(task(name, seed)).text
        tales.add((opening, *(t.observation.text for t in solve(world))))
    assert len(tales) == 4


@pytest.mark.slow
def test_processes_that_want_the_same_new_game_all_get_it(cache: Path) -> None:
    script = (
        "from palaestra.environments.families.textworld.games import LEVELS, story_file\n"
        "print(story_file(LEVELS['treasure-easy'], 77))"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    paths = {process.communicate()[0].strip() for process in processes}
    assert all(process.returncode == 0 for process in processes)
    assert paths == {str(story_file(LEVELS["treasure-easy"], 77))}
    folder = Path(paths.pop()).parent
    assert {file.name for file in folder.iterdir()} == {"game.z8", "game.json"}
    assert not list(folder.parent.glob(".making-*"))
    assert folder.is_relative_to(cache)


def test_a_generation_that_fails_leaves_nothing_in_the_cache(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFORM_HOME", "/nonexistent")
    with pytest.raises(Exception, match="could not compile the game of seed 99"):
        started("treasure-easy", 99)
    assert not list(cache.glob("textworld/*/*/.making-*"))
    monkeypatch.undo()
    assert started("treasure-easy", 99).oracle()


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    world = started("rooms", 5)
    wander(world, 0, 10)
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_worlds_of_several_threads_do_not_disturb_each_other() -> None:
    won: list[bool] = []

    def play(seed: int) -> None:
        won.append(solve(started("coin-easy", seed))[-1].success)

    threads = [threading.Thread(target=play, args=(seed,)) for seed in (0, 1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [True] * 4


# ── what the agent reads and says ────────────────────────────────────────────


def test_the_first_observation_holds_goal_and_room_and_nothing_else() -> None:
    opening = TextWorld("coin-easy").reset(task("coin-easy")).text
    assert opening == (
        "Goal: Find the coin and take it.\nYou are in the office.\nThere is an exit to the north."
    )


@pytest.mark.parametrize("name", mostly_slow(LEVELS, "coin-easy"))
def test_observations_carry_no_titles_scores_prompts_or_blank_lines(name: str) -> None:
    world = started(name, 1)
    for transition in [act(world, "look"), act(world, "inventory"), *solve(world)]:
        text = transition.observation.text
        assert text and not {"-=", "***", ">", "[", "score", "RESTART"} & set(text.split())
        assert text == "\n".join(line.strip() for line in text.splitlines() if line.strip())


def test_instructions_are_short() -> None:
    for name in LEVELS:
        assert len(TextWorld(name).instructions.split()) <= 60


@pytest.mark.parametrize(
    ("output", "command"),
    [
        ("Go North.", "go north"),
        ("\n  > take coin \nand then I will rest", "take coin"),
        ("`open chest`", "open chest"),
        ('"take  the   coin!" he said', "take the coin"),
        ("go north then go south", "go north"),
        ("go north. go south. go north", "go north"),
        ("unlock Henderson's chest with key", "unlock henderson's chest with key"),
        ("\\kedvent \\x\\", "kedvent x"),  # the interpreter asks about such for ever
        (" \n ", ""),
    ],
)
def test_free_text_becomes_one_command(output: str, command: str) -> None:
    assert parse(output) == command


@given(st.text())
def test_parsing_is_idempotent_and_gives_short_plain_lower_case(output: str) -> None:
    command = parse(output)
    assert parse(command) == command
    assert command.isascii() and command == command.lower() and len(command) <= LONGEST
    assert "\\" not in command


@pytest.mark.slow
@pytest.mark.parametrize(
    "output",
    [
        "",
        "I think I should look for the coin",
        "take unicorn",
        "\\kedvent",
        "take",
        "go",
        "!!!",
        "走",
        "x" * 5000,
        "take knife and cookbook",
        *("save", "restore", "quit", "restart", "undo", "script", "tw-print version", "g"),
    ],
)
def test_what_is_not_a_command_is_answered_in_words_and_changes_nothing(
    output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    world, other = started("cooking-easy", 5), started("cooking-easy", 5)
    before = world.state_key()
    transition = act(world, output)
    assert not transition.valid and not transition.terminated and transition.reward == 0
    assert transition.observation.text.strip()
    assert world.state_key() == before
    assert act(world, "cookbook") == act(other, "cookbook")  # no question is left open
    assert solve(world) == solve(other)
    assert not list(tmp_path.iterdir())


def test_an_understood_command_that_fails_is_valid() -> None:
    transition = act(started("coin-easy"), "go south")
    assert transition.valid and transition.observation.text == "You can't go that way."


def test_the_game_s_own_synonyms_are_understood() -> None:
    world, other = started("coin-easy"), started("coin-easy")
    assert act(world, "n") == act(other, "go north")
    assert world.state_key() == other.state_key()


def test_every_admissible_command_is_understood() -> None:
    for name in ("cooking-easy", "rooms"):
        world = started(name, 2)
        start = world.snapshot()
        for command in world.admissible():
            world.restore(start)
            assert act(world, command).valid, command


# ── state ────────────────────────────────────────────────────────────────────


def test_keys_are_equal_after_equal_actions_and_after_a_way_back() -> None:
    world, other = started("coin-easy"), started("coin-easy")
    start = world.state_key()
    act(world, "go north")
    assert world.state_key() != start == other.state_key()
    act(other, "look", "go north")
    assert world.state_key() == other.state_key()
    act(world, "go south")
    assert world.state_key() == start
    assert world.state_key() != started("coin-easy", 1).state_key()


def test_a_detour_lengthens_the_oracle_and_keeps_the_progress() -> None:
    world = started("coin-easy")
    path = [action.text for action in world.oracle()]
    act(world, *path[:2])
    far = world.progress()
    act(world, "go east", "go south")
    assert [action.text for action in world.oracle()] == path
    assert world.progress() == far > 0


def test_the_oracle_reads_the_recipe_before_it_cooks() -> None:
    world = started("cooking-easy")
    assert world.oracle()[0].text == "examine cookbook"
    act(world, "examine cookbook")
    assert "examine cookbook" not in [action.text for action in world.oracle()]


def test_taking_the_wrong_thing_loses() -> None:
    world = started("treasure-easy")
    transition = act(world, "go west", "take cane")
    assert transition.terminated and not transition.success and transition.valid
    assert transition.observation.text.endswith("You lost!")
    assert world.progress() < 1 and world.oracle() == [] and world.admissible() == []
    after = act(world, "look")
    assert not after.success and not after.valid and after.reward == 0


def test_a_won_game_stays_won_until_the_next_reset() -> None:
    world = started("coin-easy")
    solve(world)
    after = act(world, "restart")
    assert not after.valid and after.reward == 0
    assert world.progress() == 1
    opening = world.reset(task("coin-easy"))
    assert opening == TextWorld("coin-easy").reset(task("coin-easy"))
    assert world.progress() == 0 and solve(world)[-1].success


@pytest.mark.parametrize("steps", [0, 1, 7])
def test_a_snapshot_restored_elsewhere_goes_on_as_the_original(steps: int) -> None:
    world = started("rooms", 1)
    wander(world, 3, steps)
    copy = TextWorld("rooms")
    copy.restore(world.snapshot())
    assert signals_of(copy) == signals_of(world)
    assert copy.oracle() == world.oracle() and copy.admissible() == world.admissible()
    assert wander(copy, 4, 10) == wander(world, 4, 10)
    assert signals_of(copy) == signals_of(world)


# ── bad input ────────────────────────────────────────────────────────────────


def test_a_misspelt_level_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'coin-easy'"):
        registry.make("textworld/coin-esy")


def test_parameters_are_refused() -> None:
    with pytest.raises(InputError, match="take no parameters"):
        TextWorld("rooms").reset(Task("t", "textworld/rooms", 0, parameters={"rooms": 9}))


def test_a_snapshot_of_another_level_is_refused() -> None:
    with pytest.raises(InputError, match="snapshot of 'textworld/coin-easy'"):
        TextWorld("rooms").restore(started("coin-easy").snapshot())


def test_a_world_without_a_game_reports_it() -> None:
    with pytest.raises(InputError, match="call reset"):
        TextWorld("rooms").step(Action("look"))


def test_the_task_set_is_finite() -> None:
    tasks = registry.tasks("textworld/rooms")
    assert tasks.size == 1024
    assert tasks.task(Split.TRAIN, 1024) == tasks.task(Split.TRAIN, 0)
