"""Several replies to one prompt: one batch, and the calls that asking one after the other makes."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from palaestra.core.agent import Agent
from palaestra.core.budget import Budget
from palaestra.core.episode import Episode, Event
from palaestra.core.errors import InfrastructureFault
from palaestra.core.graph import Call
from palaestra.core.message import assistant, system, user
from palaestra.core.model import Finish, Generation, Model, Prompt
from palaestra.core.outcome import Outcome
from palaestra.core.session import Session
from tests.core.small import Journal, renderer, run_episode

SAMPLES = 4


class Seeded(Model):
    """Says a word and some more by the seed of its prompt, as many tokens as it may."""

    name = "seeded"

    def __init__(self, *, tokens: bool = True) -> None:
        self.renderer = renderer() if tokens else None
        self.seeds: list[int] = []
        self.under_way = self.most_at_once = 0

    async def generate(self, prompt: Prompt) -> Generation:
        self.seeds.append(prompt.seed)
        self.under_way += 1
        self.most_at_once = max(self.most_at_once, self.under_way)
        rng = random.Random(prompt.seed)
        for _ in range(rng.randrange(6)):  # they end in another order than they begin in
            await asyncio.sleep(0)
        self.under_way -= 1
        tokens = tuple(renderer().reply(rng.choice(["up", "go up the stairs", "down down"])))
        tokens = tokens[: prompt.sampling.max_tokens]
        text, logprobs = renderer().text(tokens), (-1.0,) * len(tokens)
        return Generation(text, tokens, logprobs, Finish.STOP, self.name, 0)


class Sampling(Agent):
    """Samples several replies, at once or one after the other, and acts by the last one."""

    name = "sampling"

    def __init__(self, at_once: bool = True) -> None:
        self.at_once = at_once

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        talk = [system(session.instructions), user(session.observation.text)]
        while not session.over:
            if self.at_once:
                replies = await session.generate(talk, n=SAMPLES)
            else:
                replies = [await session.generate(talk) for _ in range(SAMPLES)]
            assert len(replies) == SAMPLES
            seen = (await session.act("up", by=replies[-1])).observation.text
            talk += [assistant(replies[-1].text), user(seen)]


def timeless(episode: Episode) -> Episode:
    steps = tuple(replace(step, seconds=0.0) for step in episode.steps)
    return replace(episode, steps=steps, usage=replace(episode.usage, seconds=0.0))


def test_the_replies_are_those_of_asking_one_after_the_other_and_are_sampled_at_once() -> None:
    together, single = Seeded(), Seeded()
    episode = run_episode(Sampling(), together)
    assert timeless(episode) == timeless(run_episode(Sampling(at_once=False), single))
    assert episode.outcome == Outcome.success()
    assert (together.most_at_once, single.most_at_once) == (SAMPLES, 1)
    assert together.seeds == single.seeds and len(set(together.seeds)) == 3 * SAMPLES
    assert [step.call for step in episode.steps] == [3, 7, 11]
    assert [call.parent for call in episode.calls] == [None] * 4 + [3] * 4 + [7] * 4


@pytest.mark.parametrize("tokens", [True, False])
@pytest.mark.parametrize("limit", ["tokens", "total_tokens"])
def test_a_budget_ends_where_it_would_have_ended_asking_one_after_the_other(
    limit: str, tokens: bool
) -> None:
    ends = set()
    for amount in range(1, 150, 7):
        budget = Budget(**{limit: amount})
        models = Seeded(tokens=tokens), Seeded(tokens=tokens)
        episode = run_episode(Sampling(), models[0], budget=budget)
        assert timeless(episode) == timeless(run_episode(Sampling(False), models[1], budget=budget))
        assert episode.usage.sampled_tokens <= amount
        ends.add((len(episode.calls), models[0].most_at_once))
    assert len({calls for calls, _ in ends}) > 3
    if limit == "tokens":
        assert any(at_once > 1 for _, at_once in ends)


def journalled() -> tuple[Episode, list[Event]]:
    journal = Journal()
    return run_episode(Sampling(), Seeded(), journal=journal), journal.events


@pytest.mark.parametrize("cut", range(3 * (SAMPLES + 1) + 1))
def test_a_journal_with_some_of_the_replies_is_gone_on_with(cut: int) -> None:
    episode, events = journalled()
    assert len(events) == 3 * (SAMPLES + 1)
    model, journal = Seeded(), Journal()
    again = run_episode(Sampling(), model, journal=journal, past=events[:cut])
    assert timeless(again) == timeless(episode)
    assert len(model.seeds) == sum(isinstance(event, Call) for event in events[cut:])
    assert len(journal.events) == len(events) - cut  # nothing is recorded twice


def test_where_one_reply_fails_those_before_it_are_kept_and_the_others_are_stopped() -> None:
    class Failing(Seeded):
        ended = 0

        async def generate(self, prompt: Prompt) -> Generation:
            number = len(self.seeds)
            if number == 3:
                self.seeds.append(prompt.seed)
                await asyncio.Event().wait()  # for ever
            found = await super().generate(prompt)
            if number == 2:
                raise InfrastructureFault("model", "it is gone")
            self.ended += 1
            return found

    model, journal = Failing(), Journal()
    episode = run_episode(Sampling(), model, journal=journal)
    assert episode.outcome.kind == "model" and len(model.seeds) == SAMPLES
    assert [event.index for event in journal.events] == [0, 1]
    again = run_episode(Sampling(), Seeded(), past=journal.events)
    assert timeless(again) == timeless(run_episode(Sampling(), Seeded()))


def test_no_reply_but_one_of_the_episode_itself_is_acted_by() -> None:
    class Lying(Agent):
        name = "lying"

        def __init__(self, reply: Generation) -> None:
            self.reply = reply

        async def run(self, session: Session) -> None:
            await session.generate([user("What?")])
            await session.act("up", by=self.reply)

    made_up = Generation("up", (), (), Finish.STOP, "nobody", 0)
    for reply in (made_up, replace(made_up, call=0), replace(made_up, call=7)):
        episode = run_episode(Lying(reply), Seeded())
        assert episode.outcome.kind == "reply" and not episode.steps
