"""Trials: the world branches, and the episode knows only what was really done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.agent import Agent
from palaestra.core.budget import Budget
from palaestra.core.environment import (
    Action,
    AsyncEnvironment,
    Capability,
    Observation,
    Signals,
    Transition,
)
from palaestra.core.episode import Episode
from palaestra.core.errors import AgentFault, CapabilityMissing, EnvironmentFault, SessionOver
from palaestra.core.graph import Call
from palaestra.core.message import user
from palaestra.core.outcome import Limit, Outcome, Owner
from palaestra.core.session import Session
from palaestra.core.trial import Point, Trial
from palaestra.environments.families.probe.environment import Probe
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from tests.core.small import Counted, Journal, Stairs, run_episode, session

Body = Callable[[Session], Awaitable[None]]


class Saved(Stairs):
    """Stairs with snapshots that are not deterministic: each instance has its number."""

    capabilities = frozenset({Capability.SNAPSHOT})
    deterministic = False
    resets = 0

    async def reset(self, task):  # type: ignore[no-untyped-def]
        self.resets += 1
        return await super().reset(task)

    async def snapshot(self) -> bytes:
        return bytes([self.place])

    async def restore(self, snapshot: bytes) -> Signals:
        self.place = snapshot[0]
        return self._signals()


class Program(Agent):
    """Does what a function does."""

    name = "program"

    def __init__(self, body: Body) -> None:
        self.body = body

    async def run(self, session: Session) -> None:
        await self.body(session)


WORLDS = {
    "repeated": lambda: Stairs(6),
    "saved": lambda: Saved(6),
    "probe": lambda: LocalEnvironment(Probe("sea-6")),
}
WORDS = ["up", "fall", "huh", "ping", "pong"]


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> AsyncEnvironment:
    return WORLDS[request.param]()


def act(body: Body, world: AsyncEnvironment | None = None, **more) -> Episode:  # type: ignore[no-untyped-def]
    return run_episode(Program(body), world=world or Stairs(), **more)


def test_what_was_tried_is_counted_and_is_no_step(world: AsyncEnvironment) -> None:
    words = ["ping", "pong"] if isinstance(world, LocalEnvironment) else ["up", "up"]

    async def body(session: Session) -> None:
        before = session.usage.turns
        async with session.trial() as trial:
            for word in words:
                seen = await trial.act(word)
                assert seen.valid and not session.over and session.usage.turns == before
        await session.act(words[0])

    episode = act(body, world)
    assert [step.action.text for step in episode.steps] == words[:1]
    assert (episode.usage.turns, episode.usage.tried) == (1, 2)
    assert episode.outcome == Outcome.failure()  # it gave up after one turn


def test_a_solved_trial_solves_nothing() -> None:
    async def body(session: Session) -> None:
        async with session.trial() as trial:
            for _ in range(3):
                seen = await trial.act("up")
            assert seen.success and trial.over

    episode = act(body)
    assert episode.outcome == Outcome.failure() and (episode.reward, episode.progress) == (0.0, 0.0)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(sorted(WORLDS)),
    st.lists(st.sampled_from(["up", "huh", "ping", "pong"]), max_size=3),
    st.lists(st.one_of(st.sampled_from([*WORDS, "save"]), st.integers(0, 3)), max_size=12),
)
def test_after_any_trial_the_world_is_as_before_it(
    kind: str, done: list[str], deeds: list[str | int]
) -> None:
    world = WORLDS[kind]()
    states: dict[int, str | None] = {}

    async def body(session: Session) -> None:
        for word in done:
            await session.act(word)
        before = session.state.signals
        async with session.trial() as trial:
            await _do(trial, deeds, states)
        assert session.state.signals == before
        async with session.trial() as trial:
            assert trial.signals == before and trial.steps == 0
            seen = await trial.act("up")
        assert seen == await session.act("up")  # the world is where it says that it is
        plain = WORLDS[kind]()
        await plain.reset(session.task)
        for word in done:
            await plain.step(Action(word))
        assert (seen, session.state.signals) == await plain.step(Action("up"))

    episode = act(body, world)
    assert episode.outcome in (Outcome.failure(), Outcome.success()), episode.outcome
    assert len(episode.steps) == len(done) + 1


async def _do(trial: Trial, deeds: list[str | int], states: dict[int, str | None]) -> None:
    points: list[Point] = []
    for deed in deeds:
        if deed == "save":
            states[len(points)] = trial.signals.state_key
            points.append(await trial.save())
        elif isinstance(deed, int):
            if deed < len(points):
                await trial.back(points[deed])
                assert trial.signals.state_key == states[deed]
                assert trial.steps == len(points[deed].path)
        elif not trial.over:
            assert isinstance(deed, str)
            await trial.act(deed)


def test_a_world_with_snapshots_is_never_reset_for_a_trial() -> None:
    async def body(session: Session) -> None:
        async with session.trial() as trial:
            await trial.act("up")
            there = await trial.save()
            await trial.act("fall")
            await trial.back(there)
            assert trial.signals.state_key == "1"

    world = Saved()
    act(body, world)
    assert (world.resets, world.place) == (1, 0)


def test_a_world_that_neither_saves_nor_repeats_is_refused_in_a_sentence() -> None:
    class Dice(Stairs):
        deterministic = False

    async def body(session: Session) -> None:
        async with session.trial():
            raise AssertionError("not reached")

    with pytest.raises(
        CapabilityMissing, match="'stairs' has no snapshots and is not deterministic"
    ):
        act(body, Dice())


def test_the_episode_stands_still_while_a_trial_is_open() -> None:
    async def body(session: Session) -> None:
        async with session.trial():
            with pytest.raises(AgentFault, match="a trial is open"):
                async with session.trial():
                    raise AssertionError("not reached")
            with pytest.raises(AgentFault, match="a trial is open"):
                await session.act("up")
        await session.act("up")
        async with session.trial():
            await session.act("up")

    episode = act(body)
    assert (episode.outcome.kind, episode.outcome.owner) == ("trial", Owner.AGENT)
    assert len(episode.steps) == 1


def test_nothing_is_tried_after_the_end_of_a_way() -> None:
    async def body(session: Session) -> None:
        async with session.trial() as trial:
            home = await trial.save()
            await trial.act("fall")
            with pytest.raises(AgentFault, match="after the end of a tried path"):
                await trial.act("up")
            await trial.back(home)
            await trial.act("up")

    assert act(body).usage.tried == 2


def test_a_way_is_over_where_the_turns_of_the_episode_would_be() -> None:
    seen: list[bool] = []

    async def body(session: Session) -> None:
        await session.act("up")
        async with session.trial() as trial:
            for _ in range(2):
                seen.append(trial.over)
                await trial.act("huh")
            seen.append(trial.over)

    act(body, budget=Budget(turns=3))
    assert seen == [False, False, True]


def test_a_budget_of_trials_says_when_it_is_spent_and_then_ends_the_episode() -> None:
    seen: list[bool] = []

    async def body(session: Session) -> None:
        async with session.trial() as trial:
            for _ in range(2):
                seen.append(trial.over)
                await trial.act("huh")
            seen.append(trial.over)
        await session.act("up")  # what is tried costs no turns
        async with session.trial() as trial:
            await trial.act("up")

    episode = act(body, budget=Budget(tried=2, turns=3))
    assert seen == [False, False, True]
    assert episode.outcome == Outcome.truncated(Limit.TRIED)
    assert (episode.usage.tried, episode.usage.turns) == (2, 1)


def test_an_episode_that_is_over_tries_nothing() -> None:
    async def body(session: Session) -> None:
        await session.act("fall")
        with pytest.raises(SessionOver):
            async with session.trial():
                raise AssertionError("not reached")

    assert act(body).usage.tried == 0


def test_an_agent_that_breaks_in_a_trial_finds_the_world_as_it_was() -> None:
    async def body(session: Session) -> None:
        async def broken() -> None:
            async with session.trial() as trial:
                await trial.act("up")
                raise KeyError("plan")

        with pytest.raises(KeyError):
            await broken()
        for _ in range(3):
            await session.act("up")

    assert act(body).outcome == Outcome.success()


def test_a_world_that_breaks_in_a_trial_is_not_scored() -> None:
    class Brittle(Stairs):
        async def step(self, action: Action) -> tuple[Transition, Signals]:
            if action.text == "fall":
                raise EnvironmentFault("crash", "the stairs gave way")
            return await super().step(action)

    async def body(session: Session) -> None:
        async with session.trial() as trial:
            await trial.act("fall")

    outcome = act(body, Brittle()).outcome
    assert (outcome.kind, outcome.owner) == ("crash", Owner.ENVIRONMENT)


@pytest.mark.parametrize("what", ["reset", "step"])
def test_a_world_that_does_not_come_back_is_an_error_of_the_world(what: str) -> None:
    class Drifting(Stairs):
        runs_on = 0

        async def reset(self, task):  # type: ignore[no-untyped-def]
            self.runs_on += 1
            first, signals = await super().reset(task)
            late = what == "reset" and self.runs_on > 1
            return (Observation("elsewhere") if late else first), signals

        async def step(self, action: Action) -> tuple[Transition, Signals]:
            transition, signals = await super().step(action)
            return replace(transition, reward=float(self.runs_on)), signals

    async def body(session: Session) -> None:
        await session.act("up")
        async with session.trial() as trial:
            await trial.act("up")

    outcome = act(body, Drifting()).outcome
    assert (outcome.kind, outcome.owner) == ("branch", Owner.ENVIRONMENT)


def test_time_that_runs_out_in_a_trial_waits_for_no_world() -> None:
    class Stuck(Stairs):
        async def step(self, action: Action) -> tuple[Transition, Signals]:
            await asyncio.sleep(3600)
            raise AssertionError("not reached")

    async def body(session: Session) -> None:
        async with session.trial() as trial:
            await trial.act("up")

    episode = act(body, Stuck(), budget=Budget(seconds=0.01))
    assert episode.outcome == Outcome.truncated(Limit.SECONDS)


def test_an_agent_that_cuts_its_own_trial_off_cannot_go_on_in_that_world() -> None:
    async def body(session: Session) -> None:
        async def long() -> None:
            async with session.trial() as trial:
                await trial.act("up")
                await asyncio.sleep(3600)

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(long(), 0.001)
        await session.act("up")

    outcome = act(body).outcome
    assert (outcome.kind, outcome.owner) == ("trial", Owner.AGENT)


# ── the record ───────────────────────────────────────────────────────────────


async def _search(session: Session) -> None:
    """Asks, tries the reply, and does it if it leads up."""
    while not session.over:
        asked = [user("where?")]
        async with session.trial() as trial:
            while True:
                reply = (await session.generate(asked)).text
                if (await trial.act(reply)).valid:
                    break
                asked = [*asked, user("no")]
        await session.act(reply)


def _model() -> Counted:
    return Counted(lambda messages: "up" if len(messages) > 2 else "huh")


def test_calls_made_in_a_trial_are_in_the_graph() -> None:
    episode = act(_search, model=_model())
    assert episode.outcome == Outcome.success()
    assert (len(episode.calls), len(episode.steps), episode.usage.tried) == (9, 3, 9)


@pytest.mark.parametrize("kind", ["repeated", "saved"])
@pytest.mark.parametrize("cut", range(0, 13, 2))
def test_an_episode_cut_off_tries_again_what_it_tried(kind: str, cut: int) -> None:
    def roll_out(model: Counted, journal: Journal, past: list) -> Episode:  # type: ignore[type-arg]
        world = Saved(3) if kind == "saved" else Stairs(3)
        return run_episode(Program(_search), model, world, journal=journal, past=past)

    whole = Journal()
    episode = roll_out(_model(), whole, [])
    asked, rest = _model(), Journal()
    again = roll_out(asked, rest, whole.events[:cut])
    assert _timeless(again) == _timeless(episode) and again.usage.tried == 9
    assert rest.events[: len(whole.events) - cut] == rest.events
    known = sum(isinstance(event, Call) for event in whole.events[:cut])
    assert asked.asked == 9 - known


def _timeless(episode: Episode) -> Episode:
    steps = tuple(replace(step, seconds=0.0) for step in episode.steps)
    return replace(episode, steps=steps, usage=replace(episode.usage, seconds=0.0))


def test_a_session_without_trials_has_tried_nothing() -> None:
    episode = run_episode(Program(_nothing), ScriptedModel(["up"]))
    assert episode.usage.tried == 0
    assert session(Program(_nothing), budget=Budget(turns=4)).turns_left == 4
    assert session(Program(_nothing)).turns_left is None


async def _nothing(session: Session) -> None:
    return None
