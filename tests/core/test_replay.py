"""An interrupted episode is replayed from its record, without model calls."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from palaestra.agents.direct import DirectAgent
from palaestra.agents.react import ReActAgent
from palaestra.core.agent import Agent
from palaestra.core.budget import Budget
from palaestra.core.environment import Action, Signals, Transition
from palaestra.core.episode import Episode, Event
from palaestra.core.errors import ContextTooLong, EnvironmentFault, ReplayMismatch
from palaestra.core.graph import Call
from palaestra.core.message import user
from palaestra.core.model import Generation, Prompt
from palaestra.core.outcome import Owner
from palaestra.core.session import Session
from tests.core.small import Acting, Counted, Journal, Stairs, renderer, run_episode

SCRIPT = ["up", "huh", "up", "up"]
CALLS = len(SCRIPT)
EVENTS = 2 * CALLS


def model(script: list[str] = SCRIPT) -> Counted:
    return Counted(script, renderer=renderer())


def whole() -> tuple[Episode, list[Event]]:
    journal = Journal()
    return run_episode(DirectAgent(), model(), journal=journal), journal.events


def timeless(episode: Episode) -> Episode:
    steps = tuple(replace(step, seconds=0.0) for step in episode.steps)
    return replace(episode, steps=steps, usage=replace(episode.usage, seconds=0.0))


@pytest.mark.parametrize("cut", range(EVENTS + 1))
def test_an_episode_cut_after_any_event_ends_as_if_it_had_not_been(cut: int) -> None:
    episode, events = whole()
    assert len(events) == EVENTS
    asked, journal = model(), Journal()
    again = run_episode(DirectAgent(), asked, journal=journal, past=events[:cut])
    assert timeless(again) == timeless(episode)
    recorded = sum(isinstance(event, Call) for event in events[:cut])
    assert asked.asked == CALLS - recorded
    assert len(journal.events) == EVENTS - cut  # nothing is recorded twice


@pytest.mark.parametrize("cut", range(1, EVENTS + 1))
def test_a_world_that_tells_something_else_does_not_fit(cut: int) -> None:
    _, events = whole()
    with pytest.raises(ReplayMismatch):
        run_episode(DirectAgent(), model(), world=Stairs(name="rung"), past=events[:cut])


def test_a_world_in_which_an_action_leads_elsewhere_does_not_fit() -> None:
    class Crumbling(Stairs):
        async def step(self, action: Action) -> tuple[Transition, Signals]:
            transition, signals = await super().step(action)
            return replace(transition, reward=-1.0), signals

    with pytest.raises(ReplayMismatch, match="step 0 led somewhere else"):
        run_episode(DirectAgent(), model(), world=Crumbling(), past=whole()[1][:2])


def test_an_agent_that_asks_otherwise_does_not_fit() -> None:
    with pytest.raises(ReplayMismatch, match="call 0 asks something else"):
        run_episode(ReActAgent(), model(), past=whole()[1][:1])


def test_an_agent_that_asks_in_another_role_does_not_fit() -> None:
    class Judged(Agent):
        name = "judged"

        def __init__(self, role: str) -> None:
            self.role = role

        async def run(self, session: Session) -> None:
            await session.generate([user("?")], role=self.role)

    models, journal = {"judge": model(), "agent": model()}, Journal()
    run_episode(Judged("judge"), models, journal=journal)
    with pytest.raises(ReplayMismatch):
        run_episode(Judged("agent"), models, past=journal.events)


def test_an_agent_that_acts_where_it_asked_does_not_fit() -> None:
    with pytest.raises(ReplayMismatch, match="a Step happens"):
        run_episode(Acting("up"), past=whole()[1][:1])


def test_an_episode_that_now_ends_before_its_record_does_not_fit() -> None:
    _, events = whole()
    with pytest.raises(ReplayMismatch, match=r"truncated\(turns\), but 4 more events"):
        run_episode(DirectAgent(), model(), budget=Budget(turns=2), past=events)
    with pytest.raises(ReplayMismatch, match="failure, but 8 more events"):
        run_episode(Acting(), past=events)


def test_an_environment_that_fails_during_a_replay_is_an_outcome() -> None:
    class Broken(Stairs):
        async def step(self, action: Action) -> tuple[Transition, Signals]:
            raise EnvironmentFault("crash", "out of memory")

    outcome = run_episode(DirectAgent(), model(), world=Broken(), past=whole()[1]).outcome
    assert outcome.owner is Owner.ENVIRONMENT


class Impatient(Agent):
    """Asks too much first, then less, and acts as the reply says."""

    name = "impatient"

    async def run(self, session: Session) -> None:
        talk = [user("up")]
        while not session.over:
            with suppress(ContextTooLong):
                await session.generate([*talk, user("and much more")])
            reply = await session.generate(talk)
            await session.act(reply.text)


class Narrow(Counted):
    """Reads one message at most, and answers by its seed."""

    async def generate(self, prompt: Prompt) -> Generation:
        if len(prompt.messages) > 1:
            raise ContextTooLong("too long")
        self.seeds = [*getattr(self, "seeds", []), prompt.seed]
        return await super().generate(prompt)


def test_what_was_too_long_left_no_record_and_is_refused_again() -> None:
    def narrow() -> Narrow:
        return Narrow(["up"] * CALLS, renderer=renderer())

    first, journal = narrow(), Journal()
    whole = run_episode(Impatient(), first, journal=journal)
    assert whole.outcome.solved
    for cut in range(len(journal.events) + 1):
        again, rest = narrow(), Journal()
        episode = run_episode(Impatient(), again, journal=rest, past=journal.events[:cut])
        assert timeless(episode) == timeless(whole)
        assert len(rest.events) == len(journal.events) - cut
        assert first.seeds[len(first.seeds) - again.asked :] == getattr(again, "seeds", [])


@pytest.mark.parametrize("cut", range(EVENTS + 1))
def test_tokens_that_take_time_are_counted_on_where_an_episode_was_cut(cut: int) -> None:
    class Thinking(Stairs):
        token_time = True

    journal = Journal()
    episode = run_episode(DirectAgent(), model(), world=Thinking(), journal=journal)
    again = run_episode(DirectAgent(), model(), world=Thinking(), past=journal.events[:cut])
    assert timeless(again) == timeless(episode)
    assert all(step.action.spent for step in episode.steps)
