"""OpenSpiel's games keep the contract, hide hidden information, and follow the package's rules."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from palaestra.core.environment import Action, Capability, Transition
from palaestra.core.errors import CapabilityMissing, InputError, UnknownName
from palaestra.core.rare_capabilities import sample_action
from palaestra.core.task import Split, Task, TaskSet

pytest.importorskip("pyspiel", reason="needs open-spiel")
import pyspiel

from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.openspiel import exploitability as measure
from palaestra.environments.families.openspiel.environment import OpenSpiel
from palaestra.environments.families.openspiel.games import EXCLUDED
from palaestra.environments.families.openspiel.opponents import (
    EXPLOITABLE,
    ITERATIONS,
    SOLVABLE,
    load,
    load_native,
    move_values,
    opponent,
)
from palaestra.environments.shared.seats import parse

CONFORMING = (
    *("tic_tac_toe", "nim:optimal", "kuhn_poker:equilibrium", "connect_four:mcts"),
    *("leduc_poker:self", "goofspiel:self", "euchre", "2048"),
    *("matching_pennies_3p:self", "markov_soccer:self", "coop_box_pushing:self"),
)
PLAYED = (  # with chance, without, hidden, open, simultaneous, with several seats, and alone
    *("tic_tac_toe", "breakthrough", "hex", "kuhn_poker", "leduc_poker", "liars_dice", "goofspiel"),
    *(
        "backgammon",
        "hearts",
        "battleship",
        "cribbage",
        "matching_pennies_3p",
        "twixt",
        "blackjack",
    ),
    *("connect_four:mcts", "tic_tac_toe:optimal", "kuhn_poker:equilibrium"),
    *("kuhn_poker:self", "goofspiel:self", "hearts:self", "pig:self"),
    *("matching_pennies_3p:self", "matrix_bos:self", "oshi_zumo:self", "markov_soccer:self"),
    *("laser_tag:self", "coop_box_pushing:self"),
)


def task(index: int, split: Split = Split.TRAIN) -> Task:
    return TaskSet("openspiel").task(split, index)


def started(name: str, index: int = 0) -> OpenSpiel:
    world = OpenSpiel(name)
    world.reset(task(index))
    return world


def act(world: OpenSpiel, *words: str) -> Transition:
    """The transition of the last move."""
    return [world.step(Action(word)) for word in words][-1]


def play(world: OpenSpiel, rng: random.Random, most: int = 100) -> list[tuple[str, Transition]]:
    """Play random moves until the end or the limit."""
    received: list[tuple[str, Transition]] = []
    while len(received) < most and not (received and received[-1][1].terminated):
        action = sample_action(world, rng)
        received.append((action.text, world.step(action)))
    return received


def record(world: OpenSpiel, index: int) -> float:
    """Return the mean reward of random moves over a number of tasks."""
    total = 0.0
    for number in range(index):
        world.reset(task(number))
        total += sum(step.reward for _, step in play(world, random.Random(number)))
    return total / index


# ── the contract ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("name", CONFORMING)
def test_the_contract_holds(name: str, clause: Callable[[Subject], None]) -> None:
    clause(Subject(lambda: OpenSpiel(name), OpenSpiel.tasks(f"openspiel/{name}"), steps=15))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in OpenSpiel.names() if ":mcts" not in name])
def test_the_contract_holds_for_every_name(name: str) -> None:
    slow = name.startswith(("bridge", "colored_trails"))  # a second a game
    steps, tasks = (2, 1) if slow else (8, 2)
    subject = Subject(lambda: OpenSpiel(name), OpenSpiel.tasks(name), steps, tasks)
    for clause in CLAUSES:
        clause(subject)


# ── faithful to the package ──────────────────────────────────────────────────


@pytest.mark.parametrize("name", PLAYED)
def test_what_happened_is_the_package_s_game(name: str) -> None:
    """The history, played again in the package, gives the same views, moves, rewards and ends."""
    world = OpenSpiel(name)
    game = (load_native if own(world) else load)(name.partition(":")[0])
    for index in range(3):
        seen = [world.reset(task(index)).text]
        received = play(world, random.Random(index), most=60)
        seen += [transition.observation.text for _, transition in received]
        turns, end = replayed(game, world._state.history(), None if own(world) else index)
        turns += [(end.clone(), seat, action) for seat, action in world._pending.items()]
        following = [state for state, _, _ in turns[1:]] + [end]
        assert len(turns) == len(received)
        for (state, seat, action), view, (words, transition), after in zip(
            turns, seen, received, following, strict=False
        ):
            assert any(shown in view for shown in views(state, seat))
            assert words == state.action_to_string(seat, action).strip() and transition.valid
            won = [now - then for now, then in zip(paid(after), paid(state), strict=True)]
            assert transition.reward == won[seat]
            assert list(transition.rewards.values()) == (won if own(world) else [])
            assert transition.terminated == after.is_terminal() and not transition.truncated
            judged = 0 if own(world) else seat  # the last to move
            assert transition.success == (after.is_terminal() and after.returns()[judged] > 0)


def own(world: OpenSpiel) -> bool:
    return len(world.spec.players) > 1


def replayed(game: Any, history: list[int], index: int | None) -> tuple[list[Any], Any]:
    """The states in which a player acted, with its seat and its action, and the last state."""
    state, turns, left = game.new_initial_state(), [], list(history)
    mine = None if index is None else index % game.num_players()
    while left:
        if state.is_simultaneous_node():
            moves = [left.pop(0) for _ in range(game.num_players())]
            for seat, action in enumerate(moves):
                if legal := state.legal_actions(seat):
                    assert action in legal
                    turns.append((state.clone(), seat, action))
            state.apply_actions(moves)
            continue
        action, seat = left.pop(0), state.current_player()
        assert action in state.legal_actions()
        if not state.is_chance_node() and mine in (None, seat):
            turns.append((state.clone(), seat, action))
        state.apply_action(action)
    return turns, state


def views(state: Any, seat: int) -> list[str]:
    """Return the package's observation and information state of that seat."""
    kind, found = state.get_game().get_type(), []
    if kind.provides_observation_string:
        found.append(state.observation_string(seat).strip("\n"))
    if kind.provides_information_state_string:
        found.append(state.information_state_string(seat).strip("\n"))
    return found


def paid(state: Any) -> list[float]:
    """Return the package's returns; before the end only if it gives intermediate rewards."""
    kind = state.get_game().get_type()
    if state.is_terminal() or kind.reward_model == pyspiel.GameType.RewardModel.REWARDS:
        return list(state.returns())
    return [0.0] * state.get_game().num_players()


def test_all_games_that_load_are_there_but_the_excluded() -> None:
    there = {name.partition(":")[0] for name in OpenSpiel.names()}
    for kind in pyspiel.registered_games():
        dynamics, chance = pyspiel.GameType.Dynamics, pyspiel.GameType.ChanceMode
        fit = kind.default_loadable and kind.dynamics != dynamics.MEAN_FIELD
        fit = fit and kind.chance_mode != chance.SAMPLED_STOCHASTIC
        assert (kind.short_name in there) == (fit and kind.short_name not in EXCLUDED)
    assert len(there) == 103 and len(OpenSpiel.names()) == 240


def test_seats_alternate_in_each_split_and_all_of_them_occur() -> None:
    for split in Split:
        world = OpenSpiel("hearts")
        seen = [world.reset(task(index, split)) and world._seat for index in range(8)]
        assert seen == [0, 1, 2, 3, 0, 1, 2, 3]


def test_the_same_cards_are_dealt_whoever_plays() -> None:
    for index in range(10):
        deals = {
            tuple(started(name, index)._state.history()[:2])
            for name in ("kuhn_poker", "kuhn_poker:self", "kuhn_poker:equilibrium")
        }
        assert len(deals) == 1


def test_cards_are_dealt_as_often_as_the_package_says() -> None:
    world = OpenSpiel("kuhn_poker:self")
    dealt = Counter()
    for index in range(1200):
        world.reset(task(index))
        dealt[tuple(world._state.history())] += 1
    assert len(dealt) == 6 and all(150 < count < 250 for count in dealt.values())


def test_a_hand_that_the_seat_sits_out_is_dealt_again() -> None:
    """In euchre, a partner that goes alone leaves the agent nothing to do."""
    world = OpenSpiel("euchre")
    again = 0
    for index in range(60):
        world.reset(task(index))
        again += world._deal > 0
        assert world.admissible()
    assert again > 0


# ── what a seat must not see ─────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("title", "cards"),
    [("kuhn_poker", 1), ("leduc_poker", 1), ("liars_dice", 1), ("repeated_leduc_poker", 1)],
)
def test_a_view_changes_with_one_s_own_card_and_not_with_the_other_s(
    title: str, cards: int
) -> None:
    """All deals: the views of a seat are as many as its own cards, whatever the other has."""
    world = OpenSpiel(f"{title}:self")
    for seat in (0, 1):
        views: dict[int, set[str]] = {}
        for deal in deals(world._game):
            world._state = world._game.new_initial_state()
            for card in deal:
                world._state.apply_action(card)
            views.setdefault(deal[seat], set()).add(world._view(seat))
        assert all(len(seen) == cards for seen in views.values())
        assert len(set.union(*views.values())) == len(views) > 1


def deals(game: Any) -> list[tuple[int, int]]:
    start = game.new_initial_state()
    pairs = [(one, two) for one, _ in start.chance_outcomes() for two in range(20)]
    return [pair for pair in pairs if pair[1] in start.child(pair[0]).legal_actions()]


@pytest.mark.parametrize(
    ("title", "hand"), [("hearts", 13), ("spades", 13), ("skat", 10), ("euchre", 6)]
)
def test_exchanging_two_cards_of_others_changes_nothing(title: str, hand: int) -> None:
    """As many dealt cards matter to a view as the seat holds (and one lies open, in euchre)."""
    world = OpenSpiel(f"{title}:self")
    world.reset(task(0))
    dealt = world._state.history()
    for seat in range(world._game.num_players()):
        world._state = again(world._game, dealt)
        before, matters = world._view(seat), Counter[int]()
        exchanges = []
        for one, two in itertools.combinations(range(len(dealt)), 2):
            exchanged = list(dealt)
            exchanged[one], exchanged[two] = exchanged[two], exchanged[one]
            world._state = again(world._game, exchanged)
            if world._state is not None and world._view(seat) != before:
                matters.update((one, two))
                exchanges.append({one, two})
        held = {place for place, _ in matters.most_common(hand)}
        assert len(exchanges) > hand and all(exchange & held for exchange in exchanges)


def again(game: Any, dealt: list[int]) -> Any:
    state = game.new_initial_state()
    for card in dealt:
        if not state.is_chance_node() or card not in state.legal_actions():
            return None
        state.apply_action(card)
    return state


SIMULTANEOUS = [
    kind.short_name
    for kind in pyspiel.registered_games()
    if kind.dynamics == pyspiel.GameType.Dynamics.SIMULTANEOUS and kind.default_loadable
]


@pytest.mark.parametrize("title", SIMULTANEOUS)
def test_a_simultaneous_move_is_hidden_from_those_who_move_later(title: str) -> None:
    if f"{title}:self" not in OpenSpiel.names():
        return  # alone
    world, seen = started(f"{title}:self"), set()
    for words in world.admissible():
        world.reset(task(0))
        seen.add(act(world, words).observation.text)
    assert len(seen) == 1 and len(SIMULTANEOUS) > 15
    turns, seen = started(title), set()  # against an opponent, in the turn-based form
    state = turns._game.new_initial_state()
    while state.is_chance_node():
        state.apply_action(state.legal_actions()[0])
    for action in state.legal_actions():
        turns._state = state.child(action)
        seen.add(turns._view(turns._state.current_player()))
    assert len(seen) == 1


@pytest.mark.parametrize("title", ["goofspiel", "matching_pennies_3p", "oshi_zumo", "laser_tag"])
def test_players_act_at_the_same_time(title: str) -> None:
    world = started(f"{title}:self")
    players = world.spec.players
    views = {player: world.observe(player) for player in players}
    assert world.acting() == players and len(players) == world._game.num_players()
    for index, player in enumerate(players):
        assert world.acting() == players[index:]
        assert f"You are player {index}." in views[player].text
        assert "Moves: " in world.observe(player).text
        assert [world.observe(p) for p in players[index:]] == [views[p] for p in players[index:]]
        last = act(world, world.admissible()[-1])
        if index < len(players) - 1:
            assert last.observation == views[players[index + 1]]
            assert not any(last.rewards.values()) and not last.terminated
            assert world.observe(player).text.endswith("It is not your turn.")
    assert last.terminated or world.acting() == players


def test_moves_of_a_round_are_applied_at_once() -> None:
    world = started("matrix_bos:self")
    act(world, world.admissible()[0])
    assert world._state.history() == []
    last = act(world, world.admissible()[0])
    assert last.terminated and last.rewards == {"player0": 3.0, "player1": 2.0}
    assert last.reward == 2.0 and world.acting() == ()


def test_a_decision_of_a_round_is_measured_in_the_turn_based_game() -> None:
    for title in ("goofspiel", "matrix_rps", "matching_pennies_3p"):
        world, rng = started(f"{title}:self"), random.Random(0)
        for _ in range(7):
            turns = load(title).new_initial_state()
            for action in (*world._state.history(), *world._pending.values()):
                turns.apply_action(action)
            if turns.is_terminal():
                break
            assert world.information_state() == turns.information_state_string()
            world.step(sample_action(world, rng))
    assert set(measure.decisions("matrix_rps")) >= {started("matrix_rps:self").information_state()}


# ── opponents ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("title", SOLVABLE)
def test_the_solver_s_values_are_those_of_plain_minimax(title: str) -> None:
    values = move_values(title)
    known: dict[tuple[str, int], float] = {}

    def worth(state: Any) -> float:
        """To the first player."""
        if state.is_terminal():
            return float(state.returns()[0])
        key = str(state), state.current_player()
        if key not in known:
            sign = 1 if state.current_player() == 0 else -1
            mine = {action: sign * worth(state.child(action)) for action in state.legal_actions()}
            assert mine == values(state)
            known[key] = sign * max(mine.values())
        return known[key]

    assert worth(load(title).new_initial_state()) == {"nim": -1.0, "tic_tac_toe": 0.0}[title]


def test_no_one_beats_the_optimal_opponent_at_tic_tac_toe() -> None:
    world = OpenSpiel("tic_tac_toe:optimal")
    for index in range(60):
        world.reset(task(index))
        assert not any(step.success for _, step in play(world, random.Random(index)))
    best = opponent("optimal", "tic_tac_toe")
    for index in range(10):
        world.reset(task(index))
        last = None
        while last is None or not last.terminated:
            action = best(world._state, random.Random(index))
            last = act(world, world._state.action_to_string(world._seat, action))
        assert last.reward == 0


def test_searching_opponents_are_better_than_random_ones() -> None:
    assert record(OpenSpiel("connect_four:mcts"), 10) < -0.5 < record(OpenSpiel("connect_four"), 10)


@pytest.mark.parametrize("title", ["kuhn_poker", "matrix_brps"])
def test_the_equilibrium_opponent_plays_the_policy(title: str) -> None:
    policy = measure.equilibrium(title)
    plays, state = opponent("equilibrium", title), load(title).new_initial_state()
    while state.is_chance_node():
        state.apply_action(state.legal_actions()[0])
    wanted = policy[state.information_state_string()]
    rng = random.Random(0)
    played = Counter(state.action_to_string(plays(state, rng)) for _ in range(2000))
    for words, chance in wanted.items():
        assert played[words] / 2000 == pytest.approx(chance, abs=0.04)


def test_the_oracle_wins_wherever_there_is_a_way() -> None:
    for name, solvable in (("nim:optimal", {1}), ("nim", {0, 1}), ("tic_tac_toe", {0, 1})):
        world, solved = OpenSpiel(name), Counter()
        for index in range(20):
            world.reset(task(index))
            if path := world.oracle():
                last = [world.step(action) for action in path][-1]
                assert last.success and last.reward == 1
                assert world.oracle() == []
                solved[index % 2] += 1
        assert set(solved) == solvable and all(count >= 9 for count in solved.values())
    with pytest.raises(CapabilityMissing, match="oracle"):
        started("tic_tac_toe:optimal").oracle()
    assert Capability.ORACLE in OpenSpiel.spec_of("nim").capabilities
    assert Capability.ORACLE not in OpenSpiel.spec_of("chess").capabilities


# ── exploitability ───────────────────────────────────────────────────────────


def test_exploitability_is_the_package_s() -> None:
    uniform = measure.uniform("kuhn_poker")
    kuhn = pyspiel.load_game("kuhn_poker")
    assert len(uniform) == 12 and uniform["0b"] == {"Pass": 0.5, "Bet": 0.5}
    assert measure.nash_conv("kuhn_poker", uniform) == pytest.approx(11 / 12)
    assert measure.exploitability("kuhn_poker", uniform) == pytest.approx(11 / 24)
    assert measure.exploitability("kuhn_poker", uniform) == pyspiel.exploitability(
        kuhn, pyspiel.UniformPolicy()
    )


def test_kuhn_s_own_equilibrium_cannot_be_exploited() -> None:
    """Kuhn 1950: any bluffing share between 0 and 1/3 with the lowest card will do."""
    for bluff in (0.0, 0.2, 1 / 3):
        bets = {"0": bluff, "1": 0.0, "2": 3 * bluff, "0pb": 0.0, "1pb": bluff + 1 / 3, "2pb": 1.0}
        bets |= {"0b": 0.0, "1b": 1 / 3, "2b": 1.0, "0p": 1 / 3, "1p": 0.0, "2p": 1.0}
        policy = {seen: {"Bet": bet, "Pass": 1 - bet} for seen, bet in bets.items()}
        assert measure.exploitability("kuhn_poker", policy) == pytest.approx(0, abs=1e-12)
    policy["0b"] = {"Bet": 1.0}
    assert measure.exploitability("kuhn_poker", policy) > 0.1


@pytest.mark.parametrize("title", [t for t in ITERATIONS if t != "leduc_poker"])
def test_the_equilibria_are_nearly_unexploitable(title: str) -> None:
    found = measure.exploitability(title, measure.equilibrium(title))
    assert 0 <= found < EXPLOITABLE
    assert measure.exploitability(title, measure.uniform(title)) > 100 * found


@pytest.mark.slow
def test_leduc_s_equilibrium_is_nearly_unexploitable() -> None:
    assert measure.exploitability("leduc_poker", measure.uniform("leduc_poker")) > 2.3
    assert measure.exploitability("leduc_poker", measure.equilibrium("leduc_poker")) < EXPLOITABLE


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"0b": None}, "misses the information state '0b'"),
        ({"0b": {"Fold": 1.0}}, "'Fold' is not an action"),
        ({"0b": {"Pass": 0.5}}, "must sum to 1, not to 0.5"),
        ({"0b": {"Pass": 1.5, "Bet": -0.5}}, "must not be negative"),
    ],
)
def test_a_policy_that_does_not_fit_is_refused(change: dict[str, Any], why: str) -> None:
    policy = {**measure.uniform("kuhn_poker"), **change}
    with pytest.raises(InputError, match=why):
        measure.exploitability("kuhn_poker", {k: v for k, v in policy.items() if v is not None})


def test_exploitability_is_refused_where_it_is_not_defined_or_too_long() -> None:
    with pytest.raises(InputError, match="constant-sum"):
        measure.exploitability("matrix_pd", measure.uniform("matrix_pd"))
    assert measure.nash_conv("matrix_pd", measure.uniform("matrix_pd")) > 0
    with pytest.raises(InputError, match="no information states"):
        measure.uniform("backgammon")
    with pytest.raises(InputError, match="'chess' has no computed equilibrium"):
        measure.equilibrium("chess")


@pytest.mark.slow
def test_a_tree_that_is_too_large_is_refused() -> None:
    with pytest.raises(InputError, match="too many to traverse"):
        measure.uniform("connect_four")


# ── what agents and callers get wrong ────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "move"),
    [
        ("x(0,0)", "x(0,0)"),
        ("  `X(0,0)`.\nbecause it is a corner", "x(0,0)"),
        ("> x(0,0)", "x(0,0)"),
        ("x(0,0) or x(0,1)", None),
        ("x(3,3)", None),
        ("", None),
        ("***", None),
    ],
)
def test_a_move_is_read_leniently_and_only_once(text: str, move: str | None) -> None:
    assert parse(text, {"x(0,0)": 0, "x(0,1)": 1}) == move


def test_case_matters_where_it_must() -> None:
    moves = {"bxc3": 1, "Bxc3": 2, "Nf3": 3}
    assert [parse(word, moves) for word in ("bxc3", "Bxc3", "BXC3", "nf3")] == [
        *("bxc3", "Bxc3", None, "Nf3")
    ]


def test_an_illegal_move_is_answered_in_words() -> None:
    world = started("tic_tac_toe:self")
    assert world.acting() == ("player0",) and world.spec.players == ("player0", "player1")
    first = act(world, "x(1,1)")
    assert "You are player 1." in first.observation.text and world.acting() == ("player1",)
    wrong = act(world, "o(1,1)")
    assert not wrong.valid and not wrong.terminated and wrong.reward == 0
    assert "Moves: o(0,0), o(0,1)" in wrong.observation.text
    last = act(world, "o(0,0)", "x(0,1)", "o(0,2)", "x(2,1)")
    assert last.success and last.terminated and last.reward == 1
    assert last.rewards == {"player0": 1.0, "player1": -1.0}
    assert "Returns: player 0 1, player 1 -1." in last.observation.text
    after = act(world, "x(2,2)")
    assert not after.valid and after.observation.text == "The game is over."
    assert world.admissible() == [] and world.acting() == ()


def test_stakes_are_the_package_s() -> None:
    for name, returns, least in [
        ("kuhn_poker:self", "zero-sum", -2.0),
        ("coop_box_pushing:self", "common", -1020.0),
        ("matrix_pd:self", "general", 0.0),
    ]:
        stakes = OpenSpiel.spec_of(name).stakes
        assert (stakes.returns, stakes.idle) == (returns, None)
        assert stakes.forfeit == pytest.approx(least)
    for name in OpenSpiel.names():
        assert math.isfinite(OpenSpiel.spec_of(name).stakes.forfeit)


def test_few_moves_are_listed_and_of_many_some() -> None:
    assert "Moves: Pass, Bet" in started("kuhn_poker").reset(task(0)).text
    text = started("hex").reset(task(0)).text
    assert "Moves: 121, such as a1, " in text and text.count(",") == 12


def test_boards_have_no_colour_codes() -> None:
    assert "\x1b" not in started("twixt").reset(task(0)).text


def test_bad_input_is_refused() -> None:
    with pytest.raises(UnknownName, match="tic_tac_toe"):
        OpenSpiel("tic_tac_to")
    with pytest.raises(UnknownName):
        OpenSpiel("chess:optimal")
    with pytest.raises(UnknownName):
        OpenSpiel("quoridor")
    with pytest.raises(InputError, match="take no parameters"):
        OpenSpiel("chess").reset(Task("t", "openspiel/chess", 0, parameters={"size": 9}))
    with pytest.raises(InputError, match="call reset"):
        OpenSpiel("chess").admissible()
    with pytest.raises(InputError, match=r"make 'openspiel/nim' instead"):
        started("tic_tac_toe").restore(started("nim").snapshot())
    with pytest.raises(InputError, match=r"make 'openspiel/tic_tac_toe:self' instead"):
        started("tic_tac_toe").restore(started("tic_tac_toe:self").snapshot())


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("bargaining", "coin_game", "hive", "hanabi:self", "kuhn_poker:equilibrium"):
        play(started(name), random.Random(0), most=5)
    assert capfd.readouterr().out == ""
