"""Players that are late: they pass or forfeit, as declared, and an interrupted episode keeps it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.agents.direct import DirectAgent
from palaestra.agents.players import Seats
from palaestra.core import game as game_module
from palaestra.core import player_session
from palaestra.core.agent import Agent
from palaestra.core.budget import Budget
from palaestra.core.environment import Stakes
from palaestra.core.episode import Episode, Event
from palaestra.core.message import user
from palaestra.core.outcome import Limit
from palaestra.core.player_session import PlayerSession
from palaestra.core.session import Session
from palaestra.environments.registry import spec
from palaestra.evaluation.reports.transcript import turns
from palaestra.evaluation.statistics.conversation import conversation
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.games import Tally
from tests.core.test_game import Delayed, Kept, Killed, play, same

SECOND = Budget(turn_seconds=1.0)


class Limited(Tally, stakes=Stakes("general", -5.0, idle="1", limits={"ann": SECOND})):
    """A game in which ann alone has a second for each action."""


class Clock:
    """A clock that stands still until somebody is late."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(player_session, "ran", clock)
    monkeypatch.setattr(game_module, "POLL", 0.002)
    return clock


class Dreaming(Agent):
    """Thinks twice before each action, and too long in its first turn."""

    name, roles = "dreaming", ("planner",)

    def __init__(self, clock: Clock, late: bool = True) -> None:
        self.clock, self.late = clock, late
        self.seen: list[str] = []

    async def run(self, session: Session) -> None:
        assert session.observation is not None and isinstance(session, PlayerSession)
        seen = session.observation.text
        while not session.over:
            await session.generate([user(f"plan {seen}")], role="planner")
            if self.late:
                self.clock.now += 10
                while not session.missed:
                    await asyncio.sleep(0.001)
                self.late = False
            reply = await session.generate([user(seen)])
            seen = (await session.act(reply.text, by=reply)).observation.text
            self.seen.append(seen)


class Hanging(Agent):
    """Never acts."""

    name = "hanging"

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    async def run(self, session: Session) -> None:
        while True:
            self.clock.now += 10
            await asyncio.sleep(0.01)


def game(
    ann: Agent,
    world: type[Tally] = Limited,
    journal: Kept | None = None,
    past: Sequence[Event] = (),
    limits: Budget = Budget(),
) -> Episode:
    agents = Seats({"ann": ann, "bob": DirectAgent(), "cat": DirectAgent()})
    models = {"agent": Delayed(lambda: 0), "cat": ScriptedModel(lambda messages: "3")}
    return play(world(), agents, models, journal=journal, past=past, player_budget=limits)


def test_a_late_player_passes_in_its_turn_and_goes_on_in_the_next(clock: Clock) -> None:
    ann = Dreaming(clock)
    episode = game(ann)
    own = [step for step in episode.steps if step.before.turn == "ann"]
    assert [step.late for step in own] == [True, False, False]
    assert own[0].action.text == "1" and own[0].call is None
    assert [step.call is None for step in own] == [True, False, False]
    assert [turn.late for turn in turns(episode)[:4]] == [True, False, False, False]
    assert conversation(episode).members["ann"].does == {"pass": 1, "act": 2}
    assert ann.seen[0].startswith(f"{player_session.LATE}\nann, round 2. Last: ann 1")
    assert len([call for call in episode.calls if call.role == "ann"]) == 3  # one came too late
    assert not episode.players["ann"].forfeited and episode.players["ann"].turns == 3


def test_one_that_never_acts_holds_up_nobody(clock: Clock) -> None:
    episode = game(Hanging(clock))
    assert [step.late for step in episode.steps] == [True, False, False] * 3
    assert episode.outcome.limit is None and not episode.players["ann"].forfeited


@pytest.mark.parametrize(
    ("limits", "idle"), [(Budget(turn_seconds=1.0, late="forfeit"), "1"), (SECOND, None)]
)
def test_one_that_may_not_pass_forfeits(clock: Clock, limits: Budget, idle: str | None) -> None:
    class Strict(Tally, stakes=Stakes("general", -5.0, idle=idle, limits={"ann": limits})):
        """The same."""

    ann = game(Hanging(clock), Strict).players["ann"]
    assert ann.forfeited and ann.outcome.limit is Limit.SECONDS and ann.total == -5.0


def test_limits_of_a_run_hold_beside_those_of_the_environment(clock: Clock) -> None:
    episode = game(Dreaming(clock, late=False), limits=Budget(turns=2))
    assert all(player.forfeited for player in episode.players.values())
    assert {player.outcome.limit for player in episode.players.values()} == {Limit.TURNS}


@pytest.mark.parametrize(("agent", "again"), [(Dreaming, True), (Dreaming, False), (Hanging, True)])
def test_a_killed_episode_with_a_late_player_goes_on_at_the_event(
    clock: Clock, agent: type[Dreaming] | type[Hanging], again: bool
) -> None:
    whole = game(agent(clock), journal=(kept := Kept()))
    for most in range(len(kept.events)):
        journal = Kept(most)
        with pytest.raises(Killed):
            game(agent(clock), journal=journal)
        passed = any(getattr(event, "late", False) for event in journal.events)
        ann: Agent = agent(clock)
        if isinstance(ann, Dreaming) and passed:
            ann.late = again  # another model may be faster when the calls are made again
        more = Kept()
        resumed = game(ann, journal=more, past=journal.events)
        assert same(resumed) == same(whole)
        assert len(journal.events) + len(more.events) == len(kept.events)


LIMITED = """
[members.quick]
[members.slow]
tokens = 5
turn_seconds = 2
late = "forfeit"
[[stage]]
do = "propose"
[[stage]]
do = "count"
"""


def test_members_have_limits_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "team.toml"
    file.write_text(LIMITED)
    own = Budget(tokens=5, turn_seconds=2.0, late="forfeit")
    assert spec(f"questions/things-2?team={file}").stakes.limits == {"slow": own}
    assert spec(f"tests.core.games:Tally?team=ann:{file}").stakes.limits == {"ann.slow": own}


numbers = st.none() | st.integers(1, 9)
late = st.sampled_from(["pass", "forfeit"])
budgets = st.builds(Budget, numbers, numbers, turn_seconds=numbers, late=late)


@given(budgets, budgets)
def test_the_smaller_of_two_limits_holds(one: Budget, two: Budget) -> None:
    both = one.within(two)
    assert both == two.within(one) and both.within(one) == both
    for name in ("turns", "tokens", "turn_seconds"):
        given_ = [x for x in (getattr(one, name), getattr(two, name)) if x is not None]
        assert getattr(both, name) == (min(given_) if given_ else None)
