"""Monte-Carlo tree search wins won games for its own player, and foresees no opponent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from palaestra.agents.registry import make_agent
from palaestra.core.budget import Budget
from palaestra.core.environment import (
    Action,
    Environment,
    Observation,
    Spec,
    Transition,
)
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import CapabilityMissing, InputError, UnknownName
from palaestra.core.model import Model
from palaestra.core.session import Session
from palaestra.core.task import Split, Task, TaskSet
from palaestra.environments.families.probe.environment import Probe
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment


class Stones(Environment, capabilities={"admissible", "state_key"}, players=("white", "black")):
    """Take one or two of the stones in turn; who takes the last one wins."""

    instructions = "Say how many to take: 1, 2."
    heap = 5

    def reset(self, task: Task) -> Observation:
        self.stones, self.turn = self.heap, 0
        return Observation(f"{self.stones} stones")

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    def acting(self) -> tuple[str, ...]:
        return (self.spec.players[self.turn],)

    def observe(self, player: str) -> Observation:
        return Observation(f"{self.stones} stones")

    def state_key(self) -> str:
        return f"{self.stones} {self.turn}"

    def admissible(self) -> Sequence[str]:
        return [str(n) for n in (1, 2) if n <= self.stones]

    def step(self, action: Action) -> Transition:
        if action.text not in self.admissible():
            return Transition(Observation("Say 1 or 2."), valid=False)
        self.stones -= int(action.text)
        mover, other = self.spec.players[self.turn], self.spec.players[1 - self.turn]
        self.turn = 1 - self.turn
        seen, won = Observation(f"{self.stones} stones"), not self.stones
        rewards = {mover: float(won), other: -float(won)}
        return Transition(seen, float(won), won, success=won, rewards=rewards)


class FourStones(Stones):
    heap = 4


class Mute(Stones):
    @classmethod
    def spec_of(cls, name: str = "") -> Spec:
        return replace(super().spec_of(name), capabilities=frozenset())


def roll_out(world: Environment, agent: str, *, seed: int = 0, **budget: int) -> Episode:
    """Other players always take as many as leaves a multiple of three, where they can."""
    best: Model = ScriptedModel(lambda shown: str(int(shown[-1].text[0]) % 3 or 1))
    task = TaskSet("world").task(Split.TRAIN, 0)
    session = Session(
        Key("test", seed),
        task,
        LocalEnvironment(world),
        make_agent(agent),
        {"agent": best},
        budget=Budget(**budget),
        seed=seed,
    )
    return asyncio.run(session.run())


@pytest.mark.parametrize("select", ["uct", "puct"])
@pytest.mark.parametrize(("game", "seat"), [(Stones, "white"), (FourStones, "white")])
def test_it_wins_a_won_game_against_a_perfect_player(
    game: type[Stones], seat: str, select: str
) -> None:
    for seed in range(3):
        agent = f"mcts?simulations=64&select={select}&seat={seat}"
        steps = roll_out(game(), agent, seed=seed).steps
        assert steps[0].action.text == str(game.heap % 3)
        assert sum(step.transition.rewards[seat] for step in steps) == 1


def test_it_plays_the_second_player_for_that_players_return() -> None:
    class Lost(Stones):
        heap = 6  # white, who begins with 1, has lost to who knows how

    steps = roll_out(Lost(), "mcts?simulations=64&seat=black").steps
    assert steps[-1].transition.rewards == {"black": 1.0, "white": -1.0}


def test_only_what_was_done_is_recorded_and_opponents_are_asked_for_that_alone() -> None:
    episode = roll_out(Stones(), "mcts?simulations=16")
    assert [call.role for call in episode.calls] == ["black"] * (len(episode.steps) // 2)
    assert episode.usage.tried >= 16 and episode.usage.turns == len(episode.steps)
    assert roll_out(Stones(), "mcts?simulations=16").steps[0].action == episode.steps[0].action


def test_alone_it_finds_what_pays_at_the_end_only() -> None:
    assert roll_out(Probe("sea-5"), "mcts?simulations=128").outcome.solved
    few = roll_out(Probe("sea-5"), "mcts?simulations=1000", tried=40)
    assert few.usage.tried <= 40 and few.usage.turns == 5  # it continues at random


async def nothing(*of: object) -> dict[str, float]:
    """Return no value: a custom function without information before the end."""
    return {}


def test_values_are_exchanged_by_name() -> None:
    agent = "mcts?simulations=64&value=tests.agents.test_mcts:nothing"
    assert roll_out(Stones(), agent).steps[0].action.text == "2"
    with pytest.raises(UnknownName, match="value of a state"):
        make_agent("mcts?value=oracle")


def test_missing_requirements_are_reported_in_one_sentence() -> None:
    with pytest.raises(InputError, match=r"seat=red is not a player.*white, black"):
        roll_out(Stones(), "mcts?seat=red")
    with pytest.raises(CapabilityMissing, match=r"lists no actions.*'lats'"):
        roll_out(Mute(), "mcts")
