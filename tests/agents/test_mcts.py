"""Monte-Carlo tree search wins what can be won, for its own seat, and foresees no opponent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from palaestra.agents.registry import make_agent
from palaestra.core.budget import Budget
from palaestra.core.environment import Action, Capability, Environment, Observation, Transition
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import CapabilityMissing, InputError, UnknownName
from palaestra.core.model import Model
from palaestra.core.session import Session
from palaestra.core.task import Split, Task, TaskSet
from palaestra.environments.text.probe import Probe
from palaestra.models.scripted import ScriptedModel
from palaestra.rollout.worlds import LocalWorld


class Stones(Environment):
    """Take one or two of the stones in turn; who takes the last one wins."""

    capabilities = frozenset({Capability.ADMISSIBLE, Capability.STATE_KEY})
    players = ("white", "black")
    instructions = "Say how many to take: 1, 2."
    heap = 5

    def reset(self, task: Task) -> Observation:
        self.stones, self.turn = self.heap, 0
        return Observation(f"{self.stones} stones")

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    def turn_of(self) -> str:
        return self.players[self.turn]

    def state_key(self) -> str:
        return f"{self.stones} {self.turn}"

    def admissible(self) -> Sequence[str]:
        return [str(n) for n in (1, 2) if n <= self.stones]

    def step(self, action: Action) -> Transition:
        if action.text not in self.admissible():
            return Transition(Observation("Say 1 or 2."), valid=False)
        self.stones -= int(action.text)
        mover, other = self.turn_of(), self.players[1 - self.turn]
        self.turn = 1 - self.turn
        seen, won = Observation(f"{self.stones} stones"), not self.stones
        rewards = {mover: float(won), other: -float(won)}
        return Transition(seen, float(won), won, success=won, rewards=rewards)


class FourStones(Stones):
    heap = 4


class Mute(Stones):
    capabilities = frozenset()


def lived(world: Environment, agent: str, *, seed: int = 0, **budget: int) -> Episode:
    """Other players always take as many as leaves a multiple of three, where they can."""
    best: Model = ScriptedModel(lambda told: str(int(told[-1].content[0]) % 3 or 1))
    task = TaskSet("world").task(Split.TRAIN, 0)
    session = Session(
        Key("test", seed),
        task,
        LocalWorld(world),
        make_agent(agent),
        {"agent": best},
        budget=Budget(**budget),
        seed=seed,
    )
    return asyncio.run(session.live())


@pytest.mark.parametrize("select", ["uct", "puct"])
@pytest.mark.parametrize(("game", "seat"), [(Stones, "white"), (FourStones, "white")])
def test_it_wins_a_won_game_against_who_never_errs(
    game: type[Stones], seat: str, select: str
) -> None:
    for seed in range(3):
        agent = f"mcts?simulations=64&select={select}&seat={seat}"
        steps = lived(game(), agent, seed=seed).steps
        assert steps[0].action.text == str(game.heap % 3)
        assert sum(step.transition.rewards[seat] for step in steps) == 1


def test_it_plays_the_second_seat_for_that_seats_good() -> None:
    class Lost(Stones):
        heap = 6  # white, who begins with 1, has lost to who knows how

    steps = lived(Lost(), "mcts?simulations=64&seat=black").steps
    assert steps[-1].transition.rewards == {"black": 1.0, "white": -1.0}


def test_only_what_was_done_is_recorded_and_opponents_are_asked_for_that_alone() -> None:
    episode = lived(Stones(), "mcts?simulations=16")
    assert [call.role for call in episode.calls] == ["black"] * (len(episode.steps) // 2)
    assert episode.usage.tried >= 16 and episode.usage.turns == len(episode.steps)
    assert lived(Stones(), "mcts?simulations=16").steps[0].action == episode.steps[0].action


def test_alone_it_finds_what_pays_at_the_end_only() -> None:
    assert lived(Probe("sea-5"), "mcts?simulations=128").outcome.solved
    few = lived(Probe("sea-5"), "mcts?simulations=1000", tried=40)
    assert few.usage.tried <= 40 and few.usage.turns == 5  # it goes on by chance


async def nothing(*of: object) -> dict[str, float]:
    """A value of one's own: it knows nothing before the end."""
    return {}


def test_values_are_exchanged_by_name() -> None:
    agent = "mcts?simulations=64&value=tests.agents.test_mcts:nothing"
    assert lived(Stones(), agent).steps[0].action.text == "2"
    with pytest.raises(UnknownName, match="value of a state"):
        make_agent("mcts?value=oracle")


def test_what_it_needs_is_told_in_a_sentence() -> None:
    with pytest.raises(InputError, match=r"seat=red is no player.*white, black"):
        lived(Stones(), "mcts?seat=red")
    with pytest.raises(CapabilityMissing, match=r"lists no actions.*'lats'"):
        lived(Mute(), "mcts")
