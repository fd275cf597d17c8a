"""Search at test time: it finds what the model alone misses, and records real actions only."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.agents.registry import make_agent
from palaestra.agents.search.scorers import QUESTION, find_scorer
from palaestra.agents.search.tree import Node, Tree
from palaestra.core.budget import Budget
from palaestra.core.environment import Action
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import CapabilityMissing, InputError, UnknownName
from palaestra.core.message import system, user
from palaestra.core.model import Finish, Generation, Model, Prompt
from palaestra.core.outcome import Limit, Outcome
from palaestra.core.session import Session
from palaestra.core.task import Task
from palaestra.core.trial import Trial
from palaestra.environments.families.probe.environment import Probe
from palaestra.learning.data.rows import rows_of
from palaestra.models.scripted.expert import ExpertModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.store.header import events_in_order
from tests.agents.fork import LONG, Fork, Valuing, Wavering
from tests.core.small import Journal, Stairs, run_episode

TASK = Task("test/0", "fork", 0)
SEARCHES = {
    "best_of_n": "best_of_n?n=32",
    "beam": "beam?width=3&samples=8",
    "best_first": "best_first?budget=8&samples=8",
    "lats": "lats?iterations=8&samples=8",
    "adaptive": "adaptive?agree=1&samples=10&budget=32",
}


def roll_out(
    agent: str,
    seed: int = 0,
    models: Mapping[str, Model] | Model | None = None,
    budget: Budget = Budget(turns=8),
    **more,  # type: ignore[no-untyped-def]
) -> Episode:
    """Run one episode at the fork."""
    models = models or Wavering()
    models = {"agent": models} if isinstance(models, Model) else models
    session = Session(
        Key("test", seed),
        TASK,
        LocalEnvironment(Fork()),
        make_agent(agent),
        models,
        budget=budget,
        seed=seed,
        **more,
    )
    return asyncio.run(session.run())


def timeless(episode: Episode) -> Episode:
    steps = tuple(replace(step, seconds=0.0) for step in episode.steps)
    return replace(episode, steps=steps, usage=replace(episode.usage, seconds=0.0))


# ── what is found ────────────────────────────────────────────────────────────


def test_the_model_alone_is_misled() -> None:
    assert sum(roll_out("direct", seed).outcome.solved for seed in range(16)) <= 4


@pytest.mark.parametrize("name", SEARCHES)
def test_each_search_finds_the_way_where_what_pays_at_once_is_wrong(name: str) -> None:
    for seed in range(4):
        episode = roll_out(SEARCHES[name], seed)
        assert episode.outcome == Outcome.success()
        # the record holds what was done, and what was tried is counted beside it
        assert [step.action.text for step in episode.steps] == ["right"] * LONG
        assert episode.reward == 1.0 and episode.usage.turns == LONG
        assert episode.usage.tried >= LONG
        assert episode.usage.tried <= len(episode.calls) + LONG


@pytest.mark.parametrize("scorer", ["oracle", "judge", "tests.agents.test_search:by_length"])
def test_any_scorer_can_lead_a_search(scorer: str) -> None:
    models = {"agent": Wavering(), "judge": Valuing()}
    episode = roll_out(f"best_first?samples=8&scorer={scorer}", models=models)
    assert episode.outcome == Outcome.success()
    asked = sum(call.role == "judge" for call in episode.calls)
    assert (asked > 0) == (scorer == "judge")


async def by_length(session: Session, trial: Trial, node: Node) -> float:
    """Score by length, a custom scorer: an alley's observation is longer than a fork's."""
    return -float(len(node.messages[-1].text))


def test_a_judges_number_is_parsed_as_a_share() -> None:
    models = {"agent": Wavering(), "judge": Valuing()}
    calls = roll_out("best_first?scorer=judge&samples=8", models=models).calls
    judged = [call for call in calls if call.role == "judge"]
    assert all(call.messages[0].text == QUESTION for call in judged)
    assert any(call.messages[1].text.endswith("> right\na fork") for call in judged)


def test_an_unknown_scorer_is_reported_in_one_sentence() -> None:
    for name in ("orakel", "tests.agents.fork:nothing", ":"):
        with pytest.raises(UnknownName, match="scorer"):
            find_scorer(name)
    with pytest.raises(CapabilityMissing, match="declares no progress; use another scorer"):
        roll_out("beam?scorer=progress")
    with pytest.raises(InputError, match="greater than or equal to 1"):
        make_agent("beam?width=0")


def test_search_corrects_an_expert_that_errs() -> None:
    def solved(agent: str, seed: int) -> bool:
        world, maker = LocalEnvironment(Probe("sea-6")), make_agent(agent)
        expert = ExpertModel(maker, error=0.3, environment=world)
        session = Session(Key("sea", seed), TASK, world, maker, {"agent": expert})
        return asyncio.run(session.run()).outcome.solved

    rates = {
        name: sum(solved(name, seed) for seed in range(8))
        for name in ("direct", "best_first?scorer=progress", "lookahead?samples=6")
    }
    assert rates["direct"] < rates["lookahead?samples=6"] <= 8
    assert rates["best_first?scorer=progress"] == 8


def test_the_expert_answers_what_a_search_asks() -> None:
    plan = [Action("right")] * 3
    search, ahead = make_agent("lats"), make_agent("lookahead")
    assert search.answer([system("s"), user("a fork")], plan) == "right"
    assert search.answer([system(QUESTION), user("a fork")], plan) == "25.00"
    assert ahead.answer([system("s"), user("a fork")], plan) == "right"


# ── how a tree grows ─────────────────────────────────────────────────────────


def output(text: str) -> Generation:
    return Generation(text, (), (), Finish.STOP, "wavering", 0)


def grown(model: Model, check) -> None:  # type: ignore[no-untyped-def]
    """Check a tree at the fork within a trial."""

    class Looking(type(make_agent("beam"))):  # type: ignore[misc]
        async def search(self, tree: Tree) -> Node | None:
            if not tree.session.steps:
                await check(tree)
            return None

    session = Session(Key("t", 0), TASK, LocalEnvironment(Fork()), Looking(), {"agent": model})
    outcome = asyncio.run(session.run()).outcome
    assert outcome in (Outcome.success(), Outcome.failure()), outcome.detail


def test_equal_actions_are_one_proposal_and_the_most_frequent_comes_first() -> None:
    async def check(tree: Tree) -> None:
        first, second = await tree.propose(tree.root, 20)
        assert (first.reply.text, second.reply.text) == ("left", " right\n")
        assert first.times > second.times and first.times + second.times == 20
        children = await tree.grow(tree.root, 20)
        assert [child.reply and child.reply.text for child in children] == ["left", " right\n"]

    grown(Wavering(0.8), check)


def test_a_state_that_is_known_and_an_action_not_understood_lead_nowhere() -> None:
    async def check(tree: Tree) -> None:
        right = await tree.attempt(tree.root, output("right"))
        again = await tree.attempt(tree.root, output("right"))
        garbage = await tree.attempt(tree.root, output("up"))
        assert right is not None and again is not None and garbage is not None
        assert (right.closed, again.closed, garbage.closed) == (False, True, True)
        assert tree.best is right and right.path == [right]

    grown(Wavering(), check)


def test_an_ended_path_is_closed_and_scored_by_the_environment() -> None:
    async def check(tree: Tree) -> None:
        node = tree.root
        for _ in range(3):
            child = await tree.attempt(node, output("left"))
            assert child is not None
            node = child
        assert node.closed and node.point is None
        assert node.score < 0 < node.parent.score  # type: ignore[union-attr]
        assert (
            await tree.propose(node, 2) == [] and await tree.attempt(node, output("left")) is None
        )

    grown(Wavering(), check)


# ── compute ──────────────────────────────────────────────────────────────────


def test_a_search_spends_what_its_options_say() -> None:
    class Stubborn(Wavering):
        async def generate(self, prompt: Prompt) -> Generation:
            return await super().generate(replace(prompt, seed=0))

    stubborn = Stubborn(1.0)  # one action in each state, so no try is saved
    first = roll_out("best_first?budget=3&samples=2", models=stubborn, budget=Budget(turns=1))
    assert (len(first.calls), first.usage.tried) == (2 * 1, 1)  # a turn leaves nothing behind it
    wide = roll_out("beam?width=1&samples=5&depth=2", models=stubborn, budget=Budget(turns=2))
    assert len(wide.calls) <= 2 * (2 * 5) and wide.usage.tried <= 4
    tries = roll_out("best_of_n?n=3", models=stubborn, budget=Budget(turns=2))
    assert (len(tries.calls), tries.usage.tried) == (3 * 2, 3 * 2)


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("tried", [0, 1, 5])
def test_an_agent_whose_trials_are_spent_just_acts(name: str, tried: int) -> None:
    episode = roll_out(SEARCHES[name], models=Wavering(1.0), budget=Budget(turns=8, tried=tried))
    assert episode.usage.tried <= tried
    assert episode.outcome == Outcome.failure() and len(episode.steps) == LONG


def test_a_budget_of_tokens_ends_a_search_as_it_ends_anything() -> None:
    episode = roll_out("lats", models=Wavering(tokens=True), budget=Budget(turns=8, tokens=20))
    assert episode.outcome == Outcome.truncated(Limit.TOKENS)
    assert not episode.steps and episode.usage.sampled_tokens == 20


def test_agreement_saves_the_search() -> None:
    sure = roll_out("adaptive?agree=0.75&samples=4", models=Wavering(0.0))
    assert sure.outcome == Outcome.success()
    assert (len(sure.calls), sure.usage.tried) == (4 * LONG, 0)
    torn = roll_out("adaptive?agree=1&samples=4", models=Wavering(0.5))
    assert torn.usage.tried > 0


def test_lookahead_imagines_and_tries_nothing() -> None:
    class Seer(Model):
        name = "seer"

        async def generate(self, prompt: Prompt) -> Generation:
            left = prompt.messages[-1].text.endswith("> left")
            words = "an alley" if left else "a fork"
            return Generation(words, (), (), "stop", self.name, 0)  # type: ignore[arg-type]

    models = {"agent": Wavering(), "world": Seer(), "judge": Valuing()}
    episode = roll_out("lookahead?samples=6", models=models)
    assert episode.outcome == Outcome.success()
    assert episode.usage.tried == 0
    assert {call.role for call in episode.calls} == {"agent", "world", "judge"}
    imagined = [m.text for c in episode.calls for m in c.messages if c.role == "judge"]
    assert any("(imagined) an alley" in text for text in imagined)


def test_a_world_that_cannot_branch_reports_it() -> None:
    class Dice(Stairs):
        deterministic = False

    with pytest.raises(CapabilityMissing, match="use an agent that does not search"):
        run_episode(make_agent("best_first"), Wavering(), world=Dice())


# ── the record ───────────────────────────────────────────────────────────────


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(sorted(SEARCHES)), st.integers(0, 99), st.integers(1, 4))
def test_what_was_done_can_be_done_again_without_what_was_tried(
    name: str, seed: int, turns: int
) -> None:
    episode = roll_out(name, seed, Wavering(0.5), Budget(turns=turns, tried=60))
    world = Fork()
    world.reset(TASK)
    for step in episode.steps:
        assert world.state_key() == step.before.state_key
        assert world.step(step.action) == step.transition
    assert len(episode.steps) <= turns and episode.usage.tried <= 60
    assert timeless(roll_out(name, seed, Wavering(0.5), Budget(turns=turns, tried=60))) == timeless(
        episode
    )


@pytest.mark.parametrize("name", ["best_first", "lats"])
def test_every_proposal_is_a_sibling_and_every_sampled_token_is_trained_once(name: str) -> None:
    episode = roll_out(name, models=Wavering(tokens=True))
    rows = rows_of(episode, "wavering")
    assert sum(row.trained for row in rows) == episode.usage.sampled_tokens
    done = episode.graph.conversation(len(episode.calls) - 1)
    assert len(rows) > 1 and done[1].text == "a fork"
    asked = {tuple(episode.graph.conversation(call.index)[:-1]) for call in episode.calls}
    assert len(asked) < len(episode.calls)  # the same prompt, several times


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0])
def test_a_search_cut_off_goes_on_to_the_same_end(share: float) -> None:
    journal = Journal()
    episode = roll_out("best_first", 1, journal=journal)
    assert events_in_order(episode) == journal.events
    past = journal.events[: round(share * len(journal.events))]
    assert timeless(roll_out("best_first", 1, past=past)) == timeless(episode)
