"""Credit of recorded games: each player's turns are judged by that player's return alone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.agents.players import PlayersAgent
from palaestra.core.agent import Agent
from palaestra.core.budget import Budget
from palaestra.core.environment import Environment
from palaestra.core.episode import Episode, Key, player_of
from palaestra.core.message import user
from palaestra.core.model import Model
from palaestra.core.session import Session
from palaestra.core.task import Split, TaskSet
from palaestra.environments.registry import make, tasks
from palaestra.learning.credit.compose import parse
from palaestra.learning.credit.per_player import JOINT
from palaestra.learning.data.filters import spread, varied
from palaestra.learning.data.rewards import Shaping
from palaestra.learning.data.trajectory import Trajectory
from palaestra.learning.methods.component import Kind, Need, components
from palaestra.learning.methods.needs import lacking
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from tests.agents.test_players import Nim
from tests.core.games import Ring, Tally
from tests.core.small import renderer
from tests.learning.credit.made import rollout

KUHN = "openspiel/kuhn_poker:self"
OUTCOME_ONLY = Shaping(most_turns=10, weights={"outcome": 1.0})
TURN_BY_TURN = Shaping(most_turns=10, weights={"outcome": 0.0, "environment": 1.0})
COMPARING = sorted(
    name
    for name, part in components(Kind.CREDIT).items()
    if {Need.GROUP, Need.OTHERS} & set(part.needs) and name not in JOINT
)


def says(*words: str) -> ScriptedModel:
    return ScriptedModel(list(words), name="policy", renderer=renderer())


def always(word: str, name: str = "policy") -> ScriptedModel:
    return ScriptedModel(lambda messages: word, name=name, renderer=renderer())


def play(
    environment: Environment,
    models: Mapping[str, Model],
    *,
    agent: Agent | None = None,
    id: str = "game",
    member: int = 0,
    invalid: int | None = None,
) -> Episode:
    known = tasks(id) if "/" in id else TaskSet(id)
    session = Session(
        Key("rl/1", 0, member),
        known.task(Split.TRAIN, 0),
        LocalEnvironment(environment),
        agent or PlayersAgent(),
        models,
        budget=Budget(invalid_actions=invalid),
    )
    return asyncio.run(session.run())


class Planned(Agent):
    """Asks a planner before each move and once more about it."""

    name, roles = "planned", ("planner",)

    async def run(self, session: Session) -> None:
        while not session.over:
            await session.generate([user("plan")], role="planner")
            reply = await session.generate([user("move")])
            await session.act(reply.text, by=reply)


class Planning(Agent):
    """Plays for each player with a planner of its own."""

    name, several = "planning", True

    async def run(self, session: Session) -> None:
        await session.play({player: Planned() for player in session.players})


def kuhn(member: int, first: Sequence[str], second: Sequence[str]) -> Episode:
    models = {"player0": says(*first), "player1": says(*second)}
    return play(make(KUHN), models, id=KUHN, member=member)


@pytest.fixture(scope="module")
def poker() -> list[Trajectory]:
    """Two games with one deal: the first player wins one, and the second the other."""
    pytest.importorskip("pyspiel", reason="needs open-spiel")
    won = kuhn(0, ["Bet"], ["Pass"])
    lost = kuhn(1, ["Pass", "Pass"], ["Bet"])
    assert won.results == {"player0": 1.0, "player1": -1.0}
    assert lost.results == {"player0": -1.0, "player1": 1.0}
    return [Shaping(most_turns=10).trajectory(episode, "policy") for episode in (won, lost)]


def advantages_of(batch: Sequence[Trajectory], rule: str) -> list[dict[str, float]]:
    """Return each player's mean advantage in each rollout."""
    found = []
    for trajectory, numbers in zip(batch, parse(rule)(batch).advantages, strict=True):
        by_player: dict[str, list[float]] = {}
        chunks = numbers.split([turn.tokens for turn in trajectory.turns])
        for turn, chunk in zip(trajectory.turns, chunks, strict=True):
            by_player.setdefault(player_of(turn.role), []).extend(chunk.tolist())
        found.append({player: fmean(values) for player, values in by_player.items()})
    return found


def test_every_rule_that_compares_credits_the_winner_and_blames_the_loser(
    poker: list[Trajectory],
) -> None:
    tried = [r for r in COMPARING if not lacking(components(Kind.CREDIT)[r].needs, poker)]
    assert {"anchor", "rloo", "grpo", "drgrpo", "gigpo"} <= set(tried)
    for rule in tried:
        first, second = advantages_of(poker, rule)
        assert first["player0"] > 0 > second["player0"], rule
        if rule == "anchor":  # it compares turns in one state, and the second player met two
            assert first["player1"] == 0 == second["player1"]
        else:
            assert second["player1"] > 0 > first["player1"], rule


def test_a_player_and_its_planner_share_one_return_in_order() -> None:
    models = {"agent": always("1")}
    episode = play(Nim(), models, agent=Planning())
    trajectory = Shaping(most_turns=10).trajectory(episode, "policy")
    roles = ["white/planner", "white", "black/planner", "black"]
    assert [turn.role for turn in trajectory.turns] == [*roles * 2, *roles[:2]]
    assert trajectory.turns_by_player == {"white": [0, 1, 4, 5, 8, 9], "black": [2, 3, 6, 7]}
    lost = replace(
        trajectory, key=Key("rl/1", 0, 1), outcome=-1.0, outcomes={"white": -1.0, "black": 1.0}
    )
    for numbers, sign in zip(parse("rloo")([trajectory, lost]).advantages, (1, -1), strict=True):
        parts = numbers.split([turn.tokens for turn in trajectory.turns])
        for turn, chunk in zip(trajectory.turns, parts, strict=True):
            wanted = sign if player_of(turn.role) == "white" else -sign
            assert bool((chunk * wanted > 0).all()), turn.role


@pytest.mark.parametrize("shaping", [OUTCOME_ONLY, TURN_BY_TURN])
def test_what_the_turns_of_a_player_earn_adds_up_to_its_result(shaping: Shaping) -> None:
    models = {"ann": says("1", "2", "3"), "bob": always("2"), "cat": always("3")}
    played = play(Tally(), models)
    assert played.results == {"ann": 1.0, "bob": 4.0, "cat": 6.0}
    stuck = {"ann": always("1"), "bob": says("2", "?", "?"), "cat": always("3")}
    ended = play(Tally(), stuck, invalid=2)
    assert ended.results == {"ann": 1.0, "bob": -5.0, "cat": 3.0}
    went_on = play(Ring(), stuck | {"bob": says("2", "?", "?")}, invalid=2)
    assert went_on.results == {"ann": 1.0, "bob": -5.0, "cat": 9.0}
    for episode in (played, ended, went_on):
        trajectory = shaping.trajectory(episode, "policy")
        assert trajectory.totals == pytest.approx(episode.results)
        assert shaping.episode_return(episode) == pytest.approx(episode.results["ann"])


def test_a_turn_is_rewarded_until_the_player_s_next_turn() -> None:
    models = {"ann": says("1", "2", "3"), "bob": always("2"), "cat": always("3")}
    trajectory = TURN_BY_TURN.trajectory(play(Tally(), models), "policy")
    earned = {
        player: [trajectory.turns[k].reward for k in places]
        for player, places in trajectory.turns_by_player.items()
    }
    assert earned == {"ann": [1, 0, 0], "bob": [2, 0, 2], "cat": [3, 3, 0]}


def test_turns_of_a_player_who_forfeits_are_credited_with_its_declared_return() -> None:
    models = {"white": says("2", "?", "?", "?"), "black": always("1")}
    episode = play(Nim(), models, invalid=3)
    assert episode.players["white"].forfeited and not episode.players["black"].forfeited
    assert episode.players["white"].turns == 4
    trajectory = OUTCOME_ONLY.trajectory(episode, "policy")
    assert trajectory.outcomes == episode.results == {"white": -1.0, "black": 0.0}
    numbers = parse("reinforce")([trajectory]).advantages[0]
    parts = numbers.split([turn.tokens for turn in trajectory.turns])
    for turn, chunk in zip(trajectory.turns, parts, strict=True):
        assert bool((chunk < 0).all()) == (turn.role == "white")
        assert bool((chunk == 0).all()) == (turn.role == "black")


def test_another_player_s_invalid_actions_cost_nothing() -> None:
    models = {"white": always("1"), "black": ScriptedModel(["?", "1", "1"], name="other")}
    trajectory = Shaping(most_turns=10).trajectory(play(Nim(), models), "policy")
    assert {turn.role for turn in trajectory.turns} == {"white"}
    assert [turn.reward for turn in trajectory.turns] == [0.0, 0.0, 0.0]
    assert all(turn.valid for turn in trajectory.turns)


def test_filters_see_that_any_player_s_return_varies() -> None:
    group = [game({"a": 0.0, "b": value, "c": 0.0}, member=m) for m, value in enumerate([1, -1])]
    assert varied([group]) == varied([group], metric="total") == [True]
    assert spread(group) > 0 and varied([[group[0], group[0]]]) == [False]


# ── laws ─────────────────────────────────────────────────────────────────────

PLAYERS = ("a", "b", "c")
RETURNS = st.lists(st.integers(-3, 3).map(float), min_size=3, max_size=3)
LAWFUL = ["rloo", "grpo", "drgrpo", "reinforce", "return_to_go", "spiral"]


def game(
    returns: Mapping[str, float], *, member: int, rewards: Sequence[float] = (0.0,) * 6
) -> Trajectory:
    """Two turns of each player, the second by its planner."""
    names = list(returns)
    return rollout(
        rewards,
        outcome=returns[names[0]],
        member=member,
        slots={"outcomes": dict(returns)},
        role=[*names, *(f"{name}/planner" for name in names)],
    )


@st.composite
def games(draw: st.DrawFn) -> list[Trajectory]:
    rewards = st.lists(st.integers(-4, 4).map(lambda n: n / 4), min_size=6, max_size=6)
    return [
        game(dict(zip(PLAYERS, draw(RETURNS), strict=True)), member=m, rewards=draw(rewards))
        for m in range(draw(st.integers(2, 4)))
    ]


@pytest.mark.parametrize("rule", LAWFUL)
@settings(max_examples=25)
@given(batch=games(), data=st.data())
def test_neither_the_order_of_rollouts_nor_the_names_of_players_matter(
    rule: str, batch: list[Trajectory], data: st.DataObject
) -> None:
    straight = parse(rule)(batch).advantages
    order = data.draw(st.permutations(range(len(batch))))
    names = dict(zip(PLAYERS, data.draw(st.permutations(["x", "yy", "a"])), strict=True))
    changed = parse(rule)([renamed(batch[i], names) for i in order]).advantages
    for i, found in zip(order, changed, strict=True):
        torch.testing.assert_close(found, straight[i], rtol=1e-9, atol=1e-9)


def renamed(trajectory: Trajectory, names: Mapping[str, str]) -> Trajectory:
    def role(old: str) -> str:
        player, bar, rest = old.partition("/")
        return names[player] + bar + rest

    turns = tuple(replace(turn, role=role(turn.role)) for turn in trajectory.turns)
    outcomes = {names[player]: outcome for player, outcome in trajectory.outcomes.items()}
    return replace(trajectory, turns=turns, outcomes=outcomes)


@pytest.mark.parametrize("rule", LAWFUL)
@settings(max_examples=25)
@given(batch=games(), reward=st.integers(-8, 8))
def test_credit_of_a_player_does_not_depend_on_the_rewards_of_another(
    rule: str, batch: list[Trajectory], reward: int
) -> None:
    changed = [
        replace(
            trajectory,
            turns=tuple(
                replace(turn, reward=float(reward)) if player_of(turn.role) == "b" else turn
                for turn in trajectory.turns
            ),
            outcomes=trajectory.outcomes | {"b": float(reward)},
        )
        for trajectory in batch
    ]
    before, after = advantages_of(batch, rule), advantages_of(changed, rule)
    for one, other in zip(before, after, strict=True):
        assert other["a"] == pytest.approx(one["a"]) and other["c"] == pytest.approx(one["c"])
