"""The clauses for several players: sound games keep them, and each broken one fails its clause."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from palaestra.core.environment import Action, Environment, Observation, Stakes, Transition
from palaestra.core.task import TaskSet
from palaestra.environments.base import hashed
from palaestra.environments.conformance import players_clauses as players
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Broken, Subject
from palaestra.environments.simultaneous import Round
from tests.agents.test_players import Nim
from tests.core.games import Ring, Tally


class Nameless(Environment, players=("white", "black")):
    """Has players, and does not say who acts."""

    instructions = "Say on."

    def reset(self, task: object) -> Observation:
        return Observation("here")

    def step(self, action: Action) -> Transition:
        return Transition(Observation("here"))


class Strange(Nim):
    def acting(self) -> tuple[str, ...]:
        return ("green",) if super().acting() else ()


class Twice(Tally):
    def acting(self) -> tuple[str, ...]:
        return (*super().acting(), *super().acting())


class Partial(Nim):
    def step(self, action: Action) -> Transition:
        return replace(super().step(action), rewards={"white": 0.0})


class Disputed(Nim):
    def step(self, action: Action) -> Transition:
        return replace(super().step(action), reward=1.0)


class Lingering(Nim):
    def acting(self) -> tuple[str, ...]:
        return (self.spec.players[self.turn],)


class Blind(Nim):
    def observe(self, player: str) -> Observation:
        return {name: super(Blind, self).observe(name) for name in self.acting()}[player]


class Fickle(Tally):
    looks = 0

    def observe(self, player: str) -> Observation:
        self.looks += 1
        return Observation(f"look {self.looks}")


class Meddling(Tally):
    def observe(self, player: str) -> Observation:
        self.start += 1
        return super().observe(player)


class Empty(Tally):
    def observe(self, player: str) -> Observation:
        return Observation("" if player == "cat" else "Go on.")


class Open(Tally):
    """All see the moves that are pending."""

    def observe(self, player: str) -> Observation:
        seen = super().observe(player).text
        return Observation(f"{seen} {[action.text for action in self._pending.values()]}")


class Gossip(Tally):
    """The next player is told the last move, and nobody sees it by looking."""

    def step(self, action: Action) -> Transition:
        transition = super().step(action)
        return replace(transition, observation=Observation(f"Somebody said {action.text}."))


class Paying(Tally):
    """The others pay at once for a move that is pending."""

    def step(self, action: Action) -> Transition:
        transition = super().step(action)
        if transition.rewards or not transition.valid:
            return transition
        costs = {player: -float(action.text) for player in self.spec.players}
        return replace(transition, reward=-float(action.text), rewards=costs)


class Backwards(Tally):
    """The player that acts next is the last one, although the first one did."""

    def acting(self) -> tuple[str, ...]:
        acting = super().acting()
        return acting if len(acting) == len(self.movers()) else acting[::-1]


class Keyless(Tally):
    def state_key(self) -> str:
        return hashed(self.save_round())


class Counting(Tally):
    """The key has the number of pending moves, and not the moves."""

    def state_key(self) -> str:
        return hashed(self.save_round(), len(self._pending))


class Forgetful(Tally):
    def restore(self, snapshot: bytes) -> None:
        super().restore(snapshot)
        self._pending = {}


class Confused(Tally):
    """Restores who has moved, and not what."""

    def restore(self, snapshot: bytes) -> None:
        super().restore(snapshot)
        self._pending = dict.fromkeys(self._pending, Action("1"))


class Hasty(Tally):
    """The move that comes first wins."""

    def play(self, moves: Mapping[str, Action]) -> Round:
        played, first = super().play(moves), next(iter(moves))
        return replace(played, rewards={p: float(p == first) for p in played.rewards})


class Ordered(Tally):
    """What is saved depends on the order of the moves."""

    def play(self, moves: Mapping[str, Action]) -> Round:
        played = super().play(moves)
        self.past[-1] = {player: int(move.text) for player, move in moves.items()}
        return played


class Generous(Tally, stakes=Stakes("zero-sum")):
    pass


class Unequal(Tally, stakes=Stakes("common")):
    pass


class Bottomless(Tally, stakes=Stakes("general", forfeit=float("-inf"))):
    pass


class Restless(Tally, stakes=Stakes("general", idle="0")):
    pass


class Halved(Tally):
    """A game in which fewer and fewer act: a sound one."""

    def movers(self) -> Sequence[str]:
        return self.spec.players[len(self.past) :]

    def play(self, moves: Mapping[str, Action]) -> Round:
        played = super().play(moves)
        return Round({player: played.rewards.get(player, 0.0) for player in self.spec.players})


def subject(world: type[Environment]) -> Subject:
    return Subject(world, TaskSet("game"))


@pytest.mark.parametrize("world", [Tally, Ring, Nim, Halved])
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_a_sound_game_passes(clause: Callable[[Subject], None], world: type[Environment]) -> None:
    clause(subject(world))


@pytest.mark.parametrize(
    ("world", "clause", "why"),
    [
        (Strange, players.players_take_turns, "'green', who does not play"),
        (Twice, players.players_take_turns, "players that act are"),
        (Partial, players.players_take_turns, "{'black'} have none"),
        (Disputed, players.players_take_turns, "white, who acted, has 0.0"),
        (Lingering, players.no_player_acts_after_the_end, r"at the end, .* act"),
        (Blind, players.each_player_can_look_at_any_time, r"observe\('black'\) raised KeyError"),
        (Fickle, players.each_player_can_look_at_any_time, "looking again"),
        (Meddling, players.each_player_can_look_at_any_time, "looking at it changed the state"),
        (Empty, players.each_player_can_look_at_any_time, "cat sees nothing"),
        (Open, players.pending_moves_are_hidden, "after the pending move of ann"),
        (Gossip, players.pending_moves_are_hidden, "two pending moves of"),
        (Paying, players.pending_moves_are_hidden, "two pending moves of"),
        (Backwards, players.pending_moves_are_hidden, "act at the same time; after the move of"),
        (Keyless, players.pending_moves_are_saved, "did not change the state key"),
        (Counting, players.pending_moves_are_saved, "one state key and two futures"),
        (Forgetful, players.pending_moves_are_saved, "the signals of a round, restored"),
        (Confused, players.pending_moves_are_saved, "restored"),
        (Hasty, players.simultaneous_moves_commute, "in another order"),
        (Ordered, players.simultaneous_moves_commute, "in another order"),
        (Generous, players.returns_are_as_declared, "which are not zero-sum"),
        (Unequal, players.returns_are_as_declared, "which are not common"),
        (Bottomless, players.returns_are_as_declared, "the return of a forfeit is -inf"),
        (Restless, players.the_idle_action_is_a_move, "'0' is idle, and no move of"),
    ],
)
def test_a_broken_game_fails(
    world: type[Environment], clause: Callable[[Subject], None], why: str
) -> None:
    with pytest.raises(Broken, match=why):
        clause(subject(world))


def test_every_clause_for_players_is_broken_by_a_game_above() -> None:
    marks = [mark for mark in test_a_broken_game_fails.pytestmark if mark.name == "parametrize"]
    assert {clause for _, clause, _ in marks[0].args[1]} == set(players.PLAYERS)


def test_players_without_the_methods_are_told_which_are_missing() -> None:
    with pytest.raises(Exception, match="lacks the method `acting` or `observe`; add both"):
        players.players_take_turns(subject(Nameless))
