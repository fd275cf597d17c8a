"""PettingZoo's games keep the contract, and are played, rewarded and ended as the package says."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from palaestra.core.environment import Action, Transition
from palaestra.core.errors import InputError, MissingPackage, UnknownName
from palaestra.core.rare_capabilities import sample_action
from palaestra.core.task import Split, Task, TaskSet

pytest.importorskip("pettingzoo", reason="needs pettingzoo")
pytest.importorskip("pygame", reason="needs pygame-ce")
pytest.importorskip("rlcard", reason="needs rlcard")
from pettingzoo.env_registry.exceptions import FailedToImport
from pettingzoo.env_registry.registration import make

from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.pettingzoo import environment
from palaestra.environments.families.pettingzoo.environment import PettingZoo
from palaestra.environments.families.pettingzoo.words import GAMES, pursuit
from tests.chosen import mostly_slow

QUICK = [name for name in PettingZoo.names() if name.partition(":")[0] != "pursuit"]
CONFORMING = (
    *("tictactoe", "leduc_holdem:self", "rps", "pursuit_small", "texas_holdem_no_limit"),
    *("rps:self", "pursuit_small:self"),
)


def task(index: int, split: Split = Split.TRAIN) -> Task:
    return TaskSet("pettingzoo").task(split, index)


def started(name: str, index: int = 0) -> PettingZoo:
    world = PettingZoo(name)
    world.reset(task(index))
    return world


def act(world: PettingZoo, *words: str) -> Transition:
    """The transition of the last move."""
    return [world.step(Action(word)) for word in words][-1]


def play(world: PettingZoo, rng: random.Random, most: int = 300) -> list[Transition]:
    """Play random moves until the end or the limit."""
    shown: list[Transition] = []
    while len(shown) < most and not (shown and (shown[-1].terminated or shown[-1].truncated)):
        shown.append(world.step(sample_action(world, rng)))
    return shown


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("name", CONFORMING)
def test_the_contract_holds(name: str, clause: Callable[[Subject], None]) -> None:
    clause(Subject(lambda: PettingZoo(name), PettingZoo.tasks(f"pettingzoo/{name}"), steps=15))


@pytest.mark.slow
@pytest.mark.parametrize("name", PettingZoo.names())
def test_the_contract_holds_for_every_name(name: str) -> None:
    for clause in CLAUSES:
        clause(Subject(lambda: PettingZoo(name), PettingZoo.tasks(name), steps=40))


# ── faithful to the package ──────────────────────────────────────────────────


@pytest.mark.filterwarnings("ignore")  # the package's own
@pytest.mark.parametrize("name", mostly_slow(PettingZoo.names(), *QUICK))
def test_what_happened_is_the_package_s_game(name: str) -> None:
    """The same actions in the package's own loop give the same views, rewards and ends."""
    world, game = PettingZoo(name), GAMES[name.partition(":")[0]]
    own = len(world.spec.players) > 1
    for index in range(4):
        output = [world.reset(task(index)).text]
        if world._deal:
            continue  # of another seed
        shown = play(world, random.Random(index), most=25 if name == "pursuit" else 250)
        output += [transition.observation.text for transition in shown]
        mine = None if own else game.seats[index % len(game.seats)]

        env: Any = make("aec", game.id, **game.arguments)
        env.reset(seed=task(index).seed)
        left, total = list(world._done), dict.fromkeys(game.seats, 0.0)
        ended, cut = set(), set()
        for agent in env.agent_iter():
            seen, reward, terminated, truncated, _ = env.last()
            total[agent] += reward
            if terminated or truncated:
                ended |= {agent} if terminated else set()
                cut |= {agent} if truncated else set()
                env.step(None)
                continue
            if mine in (None, agent):
                assert game.render(seen, game.seats.index(agent)) in output.pop(0)
            if not left:
                break
            action = left.pop(0)
            assert not isinstance(seen, dict) or seen["action_mask"][action]
            env.step(action)
        assert not left
        if ended or cut:
            assert len(output) == 1  # the last view
            for seat in game.seats if own else [mine]:
                rewards = [step.rewards[seat] if own else step.reward for step in shown]
                assert sum(rewards) == pytest.approx(total[seat])
            assert shown[-1].terminated == (len(ended) == len(game.seats) or game.match)
            assert shown[-1].truncated == (len(cut) == len(game.seats) and not game.match)
            if not game.together:
                judged = game.seats[0] if own else mine
                assert shown[-1].success == (shown[-1].terminated and total[judged] > 0)
        else:
            assert not shown[-1].terminated and not shown[-1].truncated


@pytest.mark.parametrize("title", GAMES)
def test_seats_and_actions_are_the_package_s(title: str) -> None:
    game, env = GAMES[title], started(title)._env
    assert tuple(env.possible_agents) == game.seats
    assert {env.action_space(seat).n for seat in game.seats} == {len(game.words)}
    assert PettingZoo.spec_of(title).players == ("agent",)
    assert PettingZoo.spec_of(f"{title}:self").players == game.seats


def test_seats_alternate_in_each_split() -> None:
    for split in Split:
        world = PettingZoo("tictactoe")
        texts = [world.reset(task(index, split)).text.splitlines()[0] for index in range(4)]
        assert texts == ["You are x.", "You are o."] * 2


def test_a_hand_that_is_over_before_one_s_turn_is_dealt_again() -> None:
    world = PettingZoo("leduc_holdem")
    deals = [world.reset(task(index)) and world._deal for index in range(30)]
    assert 0 < sum(deal > 0 for deal in deals) < 15
    index = next(index for index, deal in enumerate(deals) if deal)
    world.reset(task(index))
    saved = world.snapshot()
    other = PettingZoo("leduc_holdem")
    other.restore(saved)
    assert other.state_key() == world.state_key() and other.admissible() == world.admissible()


def test_what_is_earned_before_one_s_first_turn_is_not_lost() -> None:
    """In pursuit, partners that move first may touch an evader: all share that."""
    world = PettingZoo("pursuit")
    early = []
    for index in range(16):
        world.reset(task(index))
        early.append(world._owed[world._actor])
        saved = world.snapshot()
        reward = act(world, "stay").reward
        world.restore(saved)
        assert act(world, "stay").reward == reward
    assert any(early)


# ── words ────────────────────────────────────────────────────────────────────


def test_boards_show_what_is_free() -> None:
    world = started("tictactoe:self")
    assert act(world, "4").observation.text.splitlines()[:4] == [
        *("You are o.", "0 1 2", "3 x 5", "6 7 8")
    ]
    last = act(world, "0", "1", "2", "7")
    assert last.success and last.rewards == {"player_1": 1.0, "player_2": -1.0}
    assert "Returns: player_1 1, player_2 -1." in last.observation.text

    board = act(started("connect_four:self"), "3", "3", "0").observation.text.splitlines()
    assert board[1] == "0 1 2 3 4 5 6" and board[6:8] == [". . . o . . .", "x . . x . . ."]


def test_the_first_hand_of_rock_paper_scissors_stays_hidden_until_both_are_shown() -> None:
    for hand in ("rock", "paper"):
        world = started("rps:self")
        first = act(world, hand)
        assert first.observation.text.startswith("The other's last move: none yet.")
        second = act(world, "paper")
        assert second.observation.text.startswith("The other's last move: paper.")
        assert second.rewards["player_1"] == (1.0 if hand == "rock" else 0.0)


def test_both_hands_of_rock_paper_scissors_are_played_at_the_same_time() -> None:
    world = started("rps:self")
    assert world.acting() == ("player_0", "player_1")
    views = [world.observe(player) for player in world.spec.players]
    key = world.state_key()
    first = act(world, "rock")
    assert world.acting() == ("player_1",) and world.state_key() != key
    assert first.rewards == {"player_0": 0.0, "player_1": 0.0}
    assert first.observation == world.observe("player_1") == views[1]
    assert world.observe("player_0").text.endswith("It is not your turn.")
    assert act(world, "paper").rewards == {"player_0": -1.0, "player_1": 1.0}
    assert world.acting() == ("player_0", "player_1")
    assert "last move: paper" in world.observe("player_0").text
    assert "last move: rock" in world.observe("player_1").text


def test_a_pursuer_sees_where_those_before_it_have_gone() -> None:
    """So pursuers take turns here, as in the package."""
    seen = set()
    for way in ("left", "right", "up", "down", "stay"):
        world = started("pursuit_small:self")
        assert world.acting() == ("pursuer_0",)
        seen.add(act(world, way).observation.text)
    assert len(seen) > 1


@pytest.mark.parametrize("title", [title for title in GAMES if title != "pursuit"])  # too slow
def test_a_forfeit_has_the_least_return_of_a_game(title: str) -> None:
    """The worst that daring players come to is never below it."""
    stakes, least = PettingZoo.spec_of(f"{title}:self").stakes, 0.0
    world, hunt = PettingZoo(f"{title}:self"), title == "pursuit_small"
    for index in range(1 if hunt else 30):
        world.reset(task(index))
        rng, total = random.Random(index), dict.fromkeys(world.spec.players, 0.0)
        while world.acting():
            moves, last = world.admissible(), {"rps": ("rock", "paper")}.get(title)
            daring = [move for move in ("all in", "raise", "call", "stay") if move in moves]
            move = last[len(world.acting()) - 1] if last else (daring or [rng.choice(moves)])[0]
            for player, reward in act(world, move).rewards.items():
                total[player] += reward
        least = min(least, *total.values())
        if stakes.returns == "common":
            assert len(set(total.values())) == 1
        else:
            assert stakes.returns == "zero-sum" and sum(total.values()) == 0
    assert stakes.forfeit <= least + 1e-6
    assert hunt or least == stakes.forfeit


def test_cards_of_others_are_hidden() -> None:
    for index in range(10):
        world = started("leduc_holdem:self", index)
        holders = world._env.unwrapped.env.game.players
        first = world._game.seats.index(world.acting()[0])
        for turn, move in ((first, "call"), (1 - first, "check")):
            text = world._render(world._actor)
            assert f"Your card: {holders[turn].hand.rank}. Open card: none." in text
            assert act(world, move).valid
        assert "Open card: none" not in world._render(world._actor)


def test_hands_are_reported_as_the_card_library_holds_them() -> None:
    for title in ("texas_holdem", "texas_holdem_no_limit"):
        world = started(f"{title}:self", 3)
        turn = world._game.seats.index(world.acting()[0])
        hand = world._env.unwrapped.env.game.players[turn].hand
        shown = world._render(world._actor).partition(": ")[2].partition(".")[0].split()
        assert sorted(shown) == sorted(card.suit + card.rank for card in hand)


def test_a_pursuer_sees_in_the_directions_in_which_it_walks() -> None:
    seen = np.zeros((7, 7, 3))
    seen[3, 3, 1] = 1  # oneself
    assert pursuit(seen, 0) == "nothing near"
    seen[5, 2, 2] = 2
    seen[3, 4, 1] = seen[3, 2, 0] = 1
    assert pursuit(seen, 0) == ("evaders: 2 up 1 left, 2 up 1 left; partners: 1 right; walls: left")
    for path, (dx, dy) in {"left": (-1, 0), "right": (1, 0), "up": (0, 1), "down": (0, -1)}.items():
        world = started("pursuit_small:self", 2)
        layer = world._env.unwrapped.env.pursuer_layer
        before = tuple(layer.get_position(0))
        walls = world._render(world._actor).splitlines()[0].partition("walls: ")[2].split(", ")
        act(world, path)
        after = tuple(layer.get_position(0))
        moved = (int(after[0] - before[0]), int(after[1] - before[1]))
        assert moved == ((0, 0) if path in walls else (dx, dy))


def test_pursuers_that_catch_all_have_won() -> None:
    """Walking towards the nearest evader wins small hunts, for all."""
    world, won = PettingZoo("pursuit_small:self"), 0
    for index in range(6):
        text, rng = world.reset(task(index)).text, random.Random(index)
        while True:
            near = text.partition("evaders: ")[2].partition(",")[0].partition(";")[0].split()
            path = next((w for w in near if w in ("up", "down", "left", "right")), "stay")
            if not near or (near[0] != "here" and rng.random() < 0.2):
                path = rng.choice(("left", "right", "up", "down"))
            last = act(world, path)
            text = last.observation.text
            if last.terminated or last.truncated:
                break
        assert last.success == last.terminated != last.truncated
        won += last.success
    assert won > 0


# ── what agents and callers get wrong ────────────────────────────────────────


def test_bad_moves_are_answered_in_words() -> None:
    world = started("tictactoe:self")
    act(world, "4")
    wrong = act(world, "4")
    assert (
        not wrong.valid
        and not wrong.terminated
        and "Moves: 0, 1, 2, 3, 5" in (wrong.observation.text)
    )
    assert act(world, " `0`. ").valid and world.acting() == ("player_1",)
    assert not act(started("rps"), "rock paper").valid
    assert act(started("texas_holdem_no_limit", 1), "Check or Call").valid


def test_bad_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnknownName, match="tictactoe"):
        PettingZoo("tictacto")
    with pytest.raises(InputError, match="take no parameters"):
        PettingZoo("rps").reset(Task("t", "pettingzoo/rps", 0, parameters={"rounds": 9}))
    with pytest.raises(InputError, match="call reset"):
        PettingZoo("rps").admissible()
    with pytest.raises(InputError, match="make 'pettingzoo/rps' instead"):
        started("tictactoe").restore(started("rps").snapshot())

    def broken(*given: object, **more: object) -> None:
        raise FailedToImport("no") from ModuleNotFoundError("no rlcard", name="rlcard")

    monkeypatch.setattr(environment, "make", broken)
    with pytest.raises(MissingPackage, match="needs the Python package 'rlcard'"):
        PettingZoo("leduc_holdem")


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    for title in GAMES:
        play(started(title), random.Random(0), most=5)
    assert capfd.readouterr().out == ""
