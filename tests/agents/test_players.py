"""Games with several players: their observations, their models, and their rewards."""

from __future__ import annotations

import asyncio

import pytest

from palaestra.agents.direct import DirectAgent
from palaestra.agents.players import PlayersAgent
from palaestra.core.environment import Action, Environment, Observation, Transition
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError
from palaestra.core.model import Model
from palaestra.core.session import Session
from palaestra.core.task import Split, Task, TaskSet
from palaestra.learning.data.rewards import Shaping
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from tests.core.small import renderer, run_episode


class Nim(Environment, players=("white", "black")):
    """Take one or two of five stones; who takes the last one wins."""

    instructions = "Say how many to take: 1, 2."

    def reset(self, task: Task) -> Observation:
        self.stones, self.turn = 5, 0
        return Observation("5 stones")

    @classmethod
    def tasks(cls, environment: str) -> TaskSet:
        return TaskSet(environment)

    def acting(self) -> tuple[str, ...]:
        return (self.spec.players[self.turn],) if self.stones else ()

    def observe(self, player: str) -> Observation:
        return Observation(f"{self.stones} stones")

    def step(self, action: Action) -> Transition:
        if action.text not in ("1", "2") or int(action.text) > self.stones:
            return Transition(Observation("Say 1 or 2."), valid=False)
        self.stones -= int(action.text)
        mover, other = self.spec.players[self.turn], self.spec.players[1 - self.turn]
        self.turn = 1 - self.turn
        seen = Observation(f"{self.stones} stones")
        if self.stones:
            return Transition(seen, rewards={mover: 0.0, other: 0.0})
        rewards = {mover: 1.0, other: -1.0}
        return Transition(seen, 1.0, terminated=True, success=mover == "white", rewards=rewards)


def play(models: dict[str, Model], agent: type[PlayersAgent] | type[DirectAgent]) -> Episode:
    world = LocalEnvironment(Nim())
    task = TaskSet("nim").task(Split.TRAIN, 0)
    session = Session(Key("test", 0, 0), task, world, agent(), models)
    return asyncio.run(session.run())


def test_each_player_has_a_conversation_of_its_own() -> None:
    policy = ScriptedModel(lambda messages: "1", renderer=renderer())
    episode = play({"agent": policy}, PlayersAgent)
    assert [call.role for call in episode.calls] == ["white", "black"] * 2 + ["white"]
    assert len(list(episode.graph.branches())) == 2
    white, black = episode.graph.conversation(4), episode.graph.conversation(3)
    assert [m.text for m in white if m.role == "user"] == ["5 stones", "3 stones", "1 stones"]
    assert [m.text for m in black if m.role == "user"] == ["4 stones", "2 stones"]
    assert white[0].text.endswith("You are white.")


def test_a_player_may_have_a_model_of_its_own() -> None:
    ours = ScriptedModel(lambda messages: "2", name="ours")
    other = ScriptedModel(lambda messages: "1", name="other")
    episode = play({"agent": ours, "black": other}, PlayersAgent)
    assert [call.policy for call in episode.calls] == ["ours", "other", "ours"]
    assert episode.outcome.solved


def test_rewards_of_all_players_reach_credit() -> None:
    policy = ScriptedModel(lambda messages: "1", renderer=renderer(), name="policy")
    episode = play({"agent": policy}, PlayersAgent)
    trajectory = Shaping(most_turns=5).trajectory(episode, "policy")
    assert trajectory.outcomes == {"white": 1.0, "black": -1.0}
    assert [turn.role for turn in trajectory.turns] == ["white", "black"] * 2 + ["white"]


def test_an_agent_for_one_refuses_a_game_for_two() -> None:
    with pytest.raises(InputError, match="the agent 'direct' plays one; use the agent 'players'"):
        play({"agent": ScriptedModel(["1"])}, DirectAgent)


def test_the_players_agent_plays_alone_as_the_direct_agent() -> None:
    script = ["up", "up", "up"]
    alone = run_episode(PlayersAgent(), ScriptedModel(script, renderer=renderer()))
    direct = run_episode(DirectAgent(), ScriptedModel(script, renderer=renderer()))
    assert alone.calls == direct.calls and alone.outcome == direct.outcome


def test_a_role_without_a_model_is_named() -> None:
    class Judged(DirectAgent):
        async def run(self, session: Session) -> None:
            await session.generate([], role="judge")

    with pytest.raises(InputError, match="The role 'judge' has no model"):
        run_episode(Judged(), ScriptedModel(["up"]))
