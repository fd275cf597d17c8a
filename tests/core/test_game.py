"""Several players: any agent in any seat, one record whoever was faster, forfeits."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.agents.direct import DirectAgent
from palaestra.agents.players import PlayersAgent, Seats
from palaestra.agents.react import ReActAgent
from palaestra.core.agent import Agent
from palaestra.core.budget import Budget
from palaestra.core.environment import Environment
from palaestra.core.episode import Episode, Event, Key, together
from palaestra.core.errors import InputError, StorageFull
from palaestra.core.message import user
from palaestra.core.model import Generation, Model, Prompt
from palaestra.core.outcome import Limit, Owner, Status
from palaestra.core.session import Session
from palaestra.core.task import Split, TaskSet
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from tests.agents.test_players import Nim
from tests.core.games import Ring, Tally
from tests.core.small import renderer


class Delayed(Model):
    """A model that picks 1, 2 or 3 by its seed, after a number of turns of the event loop."""

    def __init__(self, delays: Callable[[], int]) -> None:
        self.name, self.renderer, self._delays = "delayed", renderer(), delays

    async def generate(self, prompt: Prompt) -> Generation:
        for _ in range(self._delays()):
            await asyncio.sleep(0)
        text = str(1 + prompt.seed % 3)
        script = ScriptedModel(lambda messages: text, name=self.name, renderer=self.renderer)
        return await script.generate(prompt)


class Pondering(Agent):
    """Thinks a number of times, in a role of its own, before each move."""

    name = "pondering"
    roles = ("planner",)

    def __init__(self, times: int) -> None:
        self.times = times

    async def run(self, session: Session) -> None:
        assert session.observation is not None
        seen = session.observation.text
        while not session.over:
            for number in range(self.times):
                await session.generate([user(f"{seen} {number}")], role="planner")
            reply = await session.generate([user(seen)])
            seen = (await session.act(reply.text, by=reply)).observation.text


def seated(**agents: Agent) -> Seats:
    return Seats(agents)


class Kept:
    """A journal in memory, which may fail after a number of events, as a killed process does."""

    def __init__(self, most: int | None = None) -> None:
        self.events: list[Event] = []
        self.most = most

    def append(self, key: Key, event: Event) -> None:
        if self.most is not None and len(self.events) >= self.most:
            raise Killed
        self.events.append(event)


class Slow(Kept):
    """A journal that stores an event some turns of the event loop later, but for a failing one."""

    def __init__(self, failing: int | None = None) -> None:
        super().__init__()
        self.saved: list[asyncio.Future[None]] = []
        self._failing = failing

    def append(self, key: Key, event: Event) -> asyncio.Future[None]:  # type: ignore[override]
        super().append(key, event)
        loop = asyncio.get_running_loop()
        saved = loop.create_future()
        if len(self.saved) == self._failing:
            saved.set_exception(StorageFull("full"))
        else:
            loop.call_soon(loop.call_soon, saved.set_result, None)
        self.saved.append(saved)
        return saved


class Killed(BaseException):
    """Stands for the end of the process."""


def play(
    environment: Environment,
    agent: Agent,
    models: Mapping[str, Model],
    *,
    journal: Kept | None = None,
    past: Sequence[Event] = (),
    budget: Budget = Budget(),
    player_budget: Budget = Budget(),
) -> Episode:
    session = Session(
        Key("test", 0, 0),
        TaskSet("game").task(Split.TRAIN, 0),
        LocalEnvironment(environment),
        agent,
        models,
        journal=journal,
        past=past,
        budget=budget,
        player_budget=player_budget,
    )
    return asyncio.run(session.run())


def same(episode: Episode) -> Episode:
    """Return an episode without its times."""
    return replace(
        episode,
        calls=tuple(replace(call, seconds=0.0) for call in episode.calls),
        steps=tuple(replace(step, seconds=0.0) for step in episode.steps),
        usage=replace(episode.usage, seconds=0.0),
    )


def seats() -> Seats:
    return seated(ann=Pondering(2), bob=DirectAgent(), cat=Pondering(1))


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_every_interleaving_gives_the_same_episode(seed: int) -> None:
    rng = random.Random(seed)
    slow = play(Tally(), seats(), {"agent": Delayed(lambda: rng.randrange(6))})
    fast = play(Tally(), seats(), {"agent": Delayed(lambda: 0)})
    assert same(slow) == same(fast)
    assert [step.before.turn for step in slow.steps] == ["ann", "bob", "cat"] * 3
    roles = ["ann/planner"] * 2 + ["ann", "bob", "cat/planner", "cat"]
    assert [call.role for call in slow.calls] == roles * 3
    for step in slow.steps:
        assert step.call is not None and slow.calls[step.call].role == step.before.turn


@pytest.mark.parametrize("most", range(27))
def test_a_killed_episode_goes_on_at_the_event(most: int) -> None:
    whole = play(Tally(), seats(), {"agent": Delayed(lambda: 0)}, journal=(kept := Kept()))
    assert len(kept.events) == 27
    journal = Kept(most)
    with pytest.raises(Killed):
        play(Tally(), seats(), {"agent": Delayed(lambda: 0)}, journal=journal)
    assert len(journal.events) == most
    again = Kept()
    resumed = play(
        Tally(), seats(), {"agent": Delayed(lambda: 0)}, journal=again, past=journal.events
    )
    assert same(resumed) == same(whole)
    assert len(journal.events) + len(again.events) == len(kept.events)


def test_all_is_stored_before_the_next_model_call_and_before_anybody_sees_what_came_of_it() -> None:
    journal, waited = Slow(), 0

    class Looking(Delayed):
        async def generate(self, prompt: Prompt) -> Generation:
            nonlocal waited
            waited += bool(journal.saved)
            assert all(saved.done() for saved in journal.saved)
            return await super().generate(prompt)

    agents = seated(white=Pondering(2), black=DirectAgent())
    episode = play(Nim(), agents, {"agent": Looking(lambda: 0)}, journal=journal)
    assert episode.outcome.status in (Status.SUCCESS, Status.FAILURE)
    assert waited == len(episode.calls) - 1


def test_a_reply_that_cannot_be_stored_ends_the_episode() -> None:
    agents = seated(white=DirectAgent(), black=DirectAgent())
    with pytest.raises(StorageFull, match="full"):
        play(Nim(), agents, {"agent": Delayed(lambda: 0)}, journal=Slow(failing=0))


def test_players_think_at_the_same_time_and_see_no_pending_moves() -> None:
    thinking: list[int] = []
    now = 0

    class Counting(Delayed):
        async def generate(self, prompt: Prompt) -> Generation:
            nonlocal now
            now += 1
            thinking.append(now)
            try:
                return await super().generate(prompt)
            finally:
                now -= 1

    direct = seated(ann=DirectAgent(), bob=DirectAgent(), cat=DirectAgent())
    episode = play(Tally(), direct, {"agent": Counting(lambda: 3)})
    assert max(thinking) == 3
    for call in episode.calls[:3]:
        assert "Last: -" in call.messages[-1].text
    assert episode.observation is not None
    assert set(episode.observation.others) == {"bob", "cat"}
    last = episode.steps[-1].transition
    assert last.terminated and set(last.observation.others) == {"ann", "bob"}


def test_any_agent_plays_for_any_player() -> None:
    replies = ScriptedModel(lambda messages: "Thought: I try.\nAction: 2", name="thinker")
    models = {"agent": ScriptedModel(lambda messages: "1"), "bob": replies}
    agents = seated(ann=DirectAgent(), bob=ReActAgent(), cat=Pondering(1))
    episode = play(Tally(), agents, models)
    assert {c.policy for c in episode.calls if c.role == "bob"} == {"thinker"}
    assert episode.results == {"ann": 0.0, "bob": 6.0, "cat": 0.0}
    assert episode.players["bob"].outcome.solved and not episode.players["ann"].outcome.solved


def test_rewards_of_a_turn_are_all_those_until_the_next_one() -> None:
    heard: dict[str, list[float]] = {"white": [], "black": []}

    class Listening(Agent):
        name = "listening"

        async def run(self, session: Session) -> None:
            while not session.over:
                heard[session.turn].append((await session.act("1")).reward)

    play(Nim(), seated(white=Listening(), black=Listening()), {"agent": ScriptedModel([])})
    assert heard == {"white": [0.0, 0.0, 1.0], "black": [0.0, -1.0]}


def test_who_is_not_understood_forfeits_and_the_other_wins() -> None:
    models = {"white": ScriptedModel(lambda m: "what?"), "black": ScriptedModel(lambda m: "1")}
    budget = Budget(invalid_actions=3)
    episode = play(Nim(), PlayersAgent(), models, budget=budget)
    white, black = episode.players["white"], episode.players["black"]
    assert white.forfeited and white.outcome.kind == "unparsed" and white.invalid_actions == 3
    assert white.outcome.owner is Owner.AGENT
    assert (white.total, black.total) == (-1.0, 0.0)
    assert episode.outcome.status is Status.FAILURE


class Crashing(Agent):
    name = "crashing"

    async def run(self, session: Session) -> None:
        await session.act("3")
        raise RuntimeError("gone")


def test_after_a_forfeit_the_others_play_on_where_the_environment_has_an_idle_action() -> None:
    agents = seated(ann=Crashing(), bob=DirectAgent(), cat=DirectAgent())
    models = {"bob": ScriptedModel(lambda m: "2"), "cat": ScriptedModel(lambda m: "3")}
    episode = play(Ring(), agents, models)
    assert [step.action.text for step in episode.steps] == ["3", "2", "3", *["1", "2", "3"] * 2]
    assert episode.players["ann"].outcome.kind == "crash"
    assert episode.results == {"ann": -5.0, "bob": 6.0, "cat": 6.0}
    ended = play(Tally(), agents, models)
    assert len(ended.steps) == 4 and ended.steps[-1].transition.terminated
    assert ended.results == {"ann": -5.0, "bob": 2.0, "cat": 0.0}


@pytest.mark.parametrize(
    ("limit", "why"),
    [(Budget(turns=1), Limit.TURNS), (Budget(tokens=2), Limit.TOKENS)],
)
def test_a_player_s_own_limit_ends_its_part_only(limit: Budget, why: Limit) -> None:
    direct = seated(ann=DirectAgent(), bob=DirectAgent(), cat=DirectAgent())
    episode = play(Ring(), direct, {"agent": Delayed(lambda: 1)}, player_budget=limit)
    assert {player.outcome.limit for player in episode.players.values()} == {why}
    assert len(episode.steps) == 9 and episode.outcome.limit is None


def test_a_player_out_of_time_forfeits() -> None:
    class Slow(Agent):
        name = "slow"

        async def run(self, session: Session) -> None:
            await asyncio.sleep(60)

    agents = seated(ann=Slow(), bob=DirectAgent(), cat=DirectAgent())
    episode = play(Ring(), agents, {"agent": Delayed(lambda: 0)}, player_budget=Budget(seconds=0.2))
    assert episode.players["ann"].outcome.limit is Limit.SECONDS
    assert not episode.players["bob"].forfeited and len(episode.steps) == 9


def test_bad_input_is_named() -> None:
    with pytest.raises(InputError, match="'dan' does not play"):
        play(Tally(), seated(dan=DirectAgent()), {"agent": ScriptedModel([])})
    with pytest.raises(InputError, match="The player cat has no agent"):
        play(Tally(), seated(ann=DirectAgent(), bob=DirectAgent()), {"agent": ScriptedModel([])})


def test_a_player_that_never_moved_has_a_result_as_well() -> None:
    models = {"white": ScriptedModel(lambda m: "what?"), "black": ScriptedModel(lambda m: "1")}
    episode = play(Nim(), PlayersAgent(), models, budget=Budget(turns=2))
    assert episode.outcome.limit is Limit.TURNS
    assert episode.results == {"white": 0.0, "black": 0.0}


def test_a_player_that_tries_again_does_not_act_at_the_same_time_as_itself() -> None:
    models = {"ann": ScriptedModel(["4", "1", "1", "1"]), "bob": ScriptedModel(lambda m: "2")}
    direct = seated(ann=DirectAgent(), bob=DirectAgent(), cat=DirectAgent())
    episode = play(Tally(), direct, {**models, "cat": ScriptedModel(lambda m: "3")})
    pairs = zip((None, *episode.steps), episode.steps[:5], strict=False)
    assert [together(*pair) for pair in pairs] == [False, False, True, True, False]
