"""`palaestra.to_pettingzoo`: PettingZoo's own tests pass, and episodes are palaestra's."""

from __future__ import annotations

import random
import sys

import pytest

import palaestra as pa
from palaestra.core.environment import Action
from palaestra.core.errors import InputError, MissingPackage, UnknownName
from palaestra.core.rare_capabilities import sample_action
from palaestra.core.task import Split, TaskSet
from tests.core.games import Tally

TALLY, NIM = "tests.core.games:Tally", "tests.agents.test_players:Nim"
GAMES = (
    *("openspiel/kuhn_poker:self", "openspiel/goofspiel:self", "openspiel/matrix_bos:self"),
    *("pettingzoo/rps:self", TALLY, NIM, "probe/memory-4"),
)


@pytest.fixture(autouse=True)
def _needs_the_package() -> None:
    pytest.importorskip("pettingzoo", reason="needs pettingzoo")


def needs(id: str) -> None:
    """Skip the test if the environment's package is not installed."""
    for family, package in (("openspiel", "pyspiel"), ("pettingzoo", "pygame")):
        if id.startswith(family):
            pytest.importorskip(package)


@pytest.mark.filterwarnings("ignore")  # of names and spaces that PettingZoo finds unusual
@pytest.mark.parametrize("id", GAMES)
def test_the_package_s_own_tests_pass(id: str) -> None:
    from pettingzoo.test import api_test, parallel_api_test

    needs(id)
    api_test(pa.to_pettingzoo(id), num_cycles=60)
    parallel_api_test(pa.to_pettingzoo(id, parallel=True), num_cycles=60)


@pytest.mark.parametrize("id", GAMES)
def test_sampled_actions_play_a_game_to_its_end(id: str) -> None:
    needs(id)
    env = pa.to_pettingzoo(id)
    env.reset(seed=0)
    total = dict.fromkeys(env.possible_agents, 0.0)
    for player in env.agent_iter(400):
        _, reward, terminated, truncated, _ = env.last()
        total[player] += reward
        over = terminated or truncated
        env.step(None if over else env.action_space(player).sample())
    assert not env.agents
    stakes = pa.to_pettingzoo(id)._seating.environment.spec.stakes
    assert stakes.returns != "zero-sum" or sum(total.values()) == 0


def test_an_episode_is_the_environment_s_own() -> None:
    env, world, rng = pa.to_pettingzoo(TALLY), Tally(), random.Random(0)
    env.reset(seed=5)
    first = world.reset(TaskSet(TALLY).task(Split.TRAIN, 5))
    assert env.last()[0] == {"text": first.text}
    while world.acting():
        player, move = world.acting()[0], sample_action(world, rng).text
        assert env.agent_selection == player
        transition = world.step(Action(move))
        env.step(move)
        assert env.rewards == {p: transition.rewards.get(p, 0.0) for p in world.spec.players}
        for seat in world.spec.players:
            assert env.observe(seat) == {"text": world.observe(seat).text}
    assert all(env.terminations.values()) and not any(env.truncations.values())


def test_a_round_takes_the_moves_of_all_who_act() -> None:
    env = pa.to_pettingzoo(TALLY, parallel=True)
    seen, infos = env.reset(seed=0)
    assert seen["bob"] == {"text": "bob, round 1. Last: -"} and infos["cat"] == {"acts": True}
    seen, rewards, ended, cut, infos = env.step({"cat": "3", "ann": "1", "bob": "2"})
    assert seen["ann"] == {"text": "ann, round 2. Last: ann 1, bob 2, cat 3"}
    assert rewards == {"ann": 1.0, "bob": 2.0, "cat": 3.0}
    assert not any(ended.values()) and not any(cut.values())
    assert infos["ann"] == {"acts": True, "valid": True, "success": False}
    for _ in range(2):
        _, _, ended, _, infos = env.step({"ann": "1", "bob": "1", "cat": "1"})
    assert all(ended.values()) and env.agents == [] and infos["ann"]["acts"] is False
    with pytest.raises(InputError, match="call reset"):
        env.step({})


def test_in_a_game_of_turns_a_round_is_one_move() -> None:
    env = pa.to_pettingzoo(NIM, parallel=True)
    _, infos = env.reset(seed=0)
    assert infos == {"white": {"acts": True}, "black": {"acts": False}}
    seen, _, _, _, infos = env.step({"white": "2", "black": "what?"})
    assert seen["black"] == {"text": "3 stones"} and infos["black"]["acts"]
    with pytest.raises(InputError, match="black acts now, and has no action"):
        env.step({"white": "1"})


def test_a_move_that_is_not_understood_is_answered_and_asked_for_again() -> None:
    env = pa.to_pettingzoo(TALLY)
    env.reset(seed=0)
    env.step("7")
    assert env.agent_selection == "ann" and env.infos["ann"]["valid"] is False
    assert env.last()[0] == {"text": "ann: 1, 2 or 3."} and env.last()[1] == 0.0
    rounds = pa.to_pettingzoo(TALLY, parallel=True)
    rounds.reset(seed=0)
    seen, _, _, _, infos = rounds.step({"ann": "1", "bob": "7", "cat": "3"})
    assert seen["bob"] == {"text": "bob: 1, 2 or 3."}
    assert [infos[player]["acts"] for player in ("ann", "bob", "cat")] == [False, True, True]
    _, rewards, _, _, _ = rounds.step({"ann": "2", "bob": "2", "cat": "3"})
    assert rewards == {"ann": 1.0, "bob": 2.0, "cat": 3.0}


def test_a_move_is_never_taken_for_another_player_s() -> None:
    """With transient errors, whose actions are valid and move nothing, the turn stays."""
    env = pa.to_pettingzoo(f"{TALLY}?errors=0.5", parallel=True)
    rounds = []
    for seed in range(8):
        env.reset(seed=seed)
        while env.agents:
            seen, *_ = env.step({"ann": "1", "bob": "2", "cat": "3"})
        rounds.append(seen["ann"]["text"])
    assert set(rounds) == {"ann, round 4. Last: ann 1, bob 2, cat 3"}


def test_seeds_are_numbers_of_tasks_and_splits_can_be_chosen() -> None:
    env = pa.to_pettingzoo("probe/memory-4")
    tasks = TaskSet("probe/memory-4")

    def first(split: Split, index: int) -> str:
        world = pa.to_pettingzoo("probe/memory-4")._seating.environment
        return world.reset(tasks.task(split, index)).text

    env.reset(seed=3)
    assert env.last()[0] == {"text": first(Split.TRAIN, 3)}
    env.reset()
    assert env.last()[0] == {"text": first(Split.TRAIN, 4)}
    env.reset(seed=1, options={"split": "test"})
    assert env.last()[0] == {"text": first(Split.TEST, 1)}
    with pytest.raises(UnknownName, match="split"):
        env.reset(options={"split": "tests"})


def test_an_environment_that_truncates_is_truncated() -> None:
    env = pa.to_pettingzoo(f"{NIM}?turns=1")
    env.reset(seed=0)
    env.step("1")
    assert all(env.truncations.values()) and not any(env.terminations.values())
    assert env.last()[0] == {"text": "4 stones"}


def test_what_it_needs_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownName, match="environment family"):
        pa.to_pettingzoo("pettingzo/rps")
    pytest.importorskip("minigrid")
    with pytest.raises(InputError, match="shows images, which text does not hold"):
        pa.to_pettingzoo("minigrid/Empty-5x5?observation=pixels")
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    monkeypatch.delitem(sys.modules, "palaestra.api.pettingzoo_environments", raising=False)
    with pytest.raises(MissingPackage, match=r"pip install 'palaestra\[pettingzoo\]'"):
        pa.to_pettingzoo(TALLY)
