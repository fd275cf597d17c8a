"""A session: budgets give their outcome, faults belong to whose they are."""

from __future__ import annotations

import asyncio

import pytest

from palaestra.agents.direct import DirectAgent
from palaestra.core.agent import Agent
from palaestra.core.budget import Budget
from palaestra.core.environment import Action, Observation, Signals, Transition
from palaestra.core.episode import derive_seed
from palaestra.core.errors import (
    AgentFault,
    ContextTooLong,
    EnvironmentFault,
    InfrastructureFault,
    InputError,
    SessionOver,
)
from palaestra.core.message import user
from palaestra.core.model import Generation, Model, Prompt
from palaestra.core.outcome import Limit, Outcome, Owner, Status
from palaestra.core.session import Session
from palaestra.core.task import Task
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.small import Acting, Asking, Stairs, renderer, run_episode, session

UP = ["up"] * 20
SEEDS = (
    8_238_016_292_129_134_938,
    4_761_921_975_702_974_394,
    8_890_419_817_223_504_098,
    2_733_709_560_681_459_437,
)
"""What `derive_seed` has always given; other numbers would change every recorded run."""


class Failing(Model):
    """Raises."""

    name = "failing"

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def generate(self, prompt: Prompt) -> Generation:
        raise self.error


class Program(Agent):
    """Does what a function does."""

    name = "program"

    def __init__(self, body) -> None:  # type: ignore[no-untyped-def]
        self.body = body

    async def run(self, session: Session) -> None:
        await self.body(session)


def program(body) -> Program:  # type: ignore[no-untyped-def]
    return Program(body)


# ── the ends that the world decides ──────────────────────────────────────────


def test_a_solved_task_is_a_success() -> None:
    episode = run_episode(DirectAgent(), ScriptedModel(UP))
    assert episode.outcome == Outcome.success()
    assert (episode.reward, episode.progress, len(episode.steps)) == (1.0, 1.0, 3)


def test_an_end_without_success_is_a_failure() -> None:
    assert run_episode(DirectAgent(), ScriptedModel(["up", "fall"])).outcome == Outcome.failure()


def test_an_agent_that_returns_early_has_given_up() -> None:
    episode = run_episode(Acting("up"))
    assert episode.outcome == Outcome.failure() and len(episode.steps) == 1


def test_the_worlds_own_limit_truncates() -> None:
    class Limited(Stairs):
        async def step(self, action: Action) -> tuple[Transition, Signals]:
            return Transition(Observation("late"), truncated=True), Signals()

    assert run_episode(Acting("up"), world=Limited()).outcome == Outcome.truncated(
        Limit.ENVIRONMENT
    )


def test_each_step_knows_its_call_and_the_state_before_it() -> None:
    steps = run_episode(DirectAgent(), ScriptedModel(UP)).steps
    assert [(step.index, step.call, step.before.state_key) for step in steps] == [
        (0, 0, "0"),
        (1, 1, "1"),
        (2, 2, "2"),
    ]
    assert run_episode(Acting("up")).steps[0].call is None


# ── budgets ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("turns", [0, 1, 2])
def test_a_budget_of_turns_is_used_to_the_last_one(turns: int) -> None:
    episode = run_episode(DirectAgent(), ScriptedModel(UP), budget=Budget(turns=turns))
    assert episode.outcome == Outcome.truncated(Limit.TURNS)
    assert (len(episode.steps), len(episode.calls), episode.usage.turns) == (turns,) * 3


def test_success_on_the_last_turn_is_success() -> None:
    assert run_episode(DirectAgent(), ScriptedModel(UP), budget=Budget(turns=3)).outcome.solved


@pytest.mark.parametrize("tokens", range(8))
def test_no_more_tokens_are_sampled_than_the_budget_has(tokens: int) -> None:
    model = ScriptedModel(lambda messages: "What a long way up", renderer=renderer())
    long = len(renderer().reply("What a long way up"))
    episode = run_episode(DirectAgent(), model, budget=Budget(tokens=tokens))
    assert tokens < long
    assert episode.outcome == Outcome.truncated(Limit.TOKENS)
    assert episode.usage.sampled_tokens == tokens


def test_a_budget_of_seconds_cuts_off_whatever_is_running() -> None:
    async def wait(session: Session) -> None:
        await asyncio.sleep(3600)

    episode = run_episode(program(wait), budget=Budget(seconds=0.01))
    assert episode.outcome == Outcome.truncated(Limit.SECONDS)


def test_a_timeout_of_the_agents_own_is_a_crash_of_the_agent() -> None:
    async def impatient(session: Session) -> None:
        async with asyncio.timeout(0.001):
            await asyncio.sleep(3600)

    outcome = run_episode(program(impatient), budget=Budget(seconds=3600)).outcome
    assert (outcome.kind, outcome.owner) == ("crash", Owner.AGENT)


def test_actions_that_are_not_understood_in_a_row_are_the_agents_error() -> None:
    model = ScriptedModel(["huh", "up", "huh", "huh", "up"])
    episode = run_episode(DirectAgent(), model, budget=Budget(invalid_actions=2))
    assert episode.outcome.kind == "unparsed" and episode.outcome.owner is Owner.AGENT
    assert episode.outcome.scored and not episode.outcome.solved
    assert (len(episode.steps), episode.invalid_turns) == (4, 3)


def test_a_prompt_longer_than_the_context_truncates() -> None:
    episode = run_episode(DirectAgent(), Failing(ContextTooLong("4097 of 4096 tokens")))
    assert episode.outcome == Outcome.truncated(Limit.CONTEXT)


# ── faults belong to someone ─────────────────────────────────────────────────


def test_a_crash_of_the_agent_is_scored_as_its_own() -> None:
    async def crash(session: Session) -> None:
        await session.act("up")
        raise KeyError("plan")

    episode = run_episode(program(crash))
    assert episode.outcome == Outcome.error("crash", Owner.AGENT, "KeyError: 'plan'")
    assert episode.outcome.scored and len(episode.steps) == 1


def test_an_agent_may_say_that_it_failed() -> None:
    async def fail(session: Session) -> None:
        raise AgentFault("format", "no action in the reply")

    outcome = run_episode(program(fail)).outcome
    assert outcome == Outcome.error("format", Owner.AGENT, "no action in the reply")


@pytest.mark.parametrize("verb", ["reset", "step"])
def test_a_world_that_breaks_is_not_scored(verb: str) -> None:
    class Broken(Stairs):
        async def reset(self, task: Task) -> tuple[Observation, Signals]:
            if verb == "reset":
                raise EnvironmentFault("reset", "no board")
            return await super().reset(task)

        async def step(self, action: Action) -> tuple[Transition, Signals]:
            raise EnvironmentFault("step", "no dice")

    episode = run_episode(DirectAgent(), ScriptedModel(UP), world=Broken())
    assert (episode.outcome.kind, episode.outcome.owner) == (verb, Owner.ENVIRONMENT)
    assert not episode.outcome.scored
    assert (episode.observation is None) == (verb == "reset")


@pytest.mark.parametrize("error", [RuntimeError("no memory"), InfrastructureFault("model", "off")])
def test_a_model_that_breaks_is_the_infrastructures_error(error: Exception) -> None:
    outcome = run_episode(DirectAgent(), Failing(error)).outcome
    assert (outcome.kind, outcome.owner) == ("model", Owner.INFRASTRUCTURE)
    assert not outcome.scored


def test_a_mistake_in_the_set_up_is_no_outcome() -> None:
    with pytest.raises(InputError):
        run_episode(DirectAgent(), Failing(InputError("no such model")))


# ── after the end ────────────────────────────────────────────────────────────


def test_going_on_after_the_end_is_refused_and_ends_the_agent_cleanly() -> None:
    refused: list[str] = []

    async def stubborn(session: Session) -> None:
        for _ in range(3):
            await session.act("up")
        for call in (session.act("up"), session.generate([user("more?")])):
            with pytest.raises(SessionOver, match="over: success"):
                await call
            refused.append("refused")
        await session.act("up")
        raise AssertionError("not reached")

    episode = run_episode(program(stubborn), ScriptedModel(UP))
    assert episode.outcome == Outcome.success()
    assert refused == ["refused"] * 2 and len(episode.steps) == 3 and not episode.calls


def test_an_outcome_once_reached_stands() -> None:
    async def crash_afterwards(session: Session) -> None:
        for _ in range(3):
            await session.act("up")
        raise RuntimeError("while it tidied up")

    assert run_episode(program(crash_afterwards)).outcome == Outcome.success()


# ── seeds and outcomes ───────────────────────────────────────────────────────


def test_seeds_are_the_same_for_ever() -> None:
    assert derive_seed() == SEEDS[0]
    assert derive_seed(0) == SEEDS[1]
    assert derive_seed("rl/3", 4, 5) == SEEDS[2]
    assert derive_seed(0, session(Acting()).key) == SEEDS[3]
    assert derive_seed(1, 23) != derive_seed(12, 3)


def test_each_call_has_its_own_seed_which_depends_on_key_and_run() -> None:
    class Remembering(ScriptedModel):
        def __init__(self) -> None:
            super().__init__(UP)
            self.seeds: list[int] = []

        async def generate(self, prompt: Prompt) -> Generation:
            self.seeds.append(prompt.seed)
            return await super().generate(prompt)

    one, again, other = Remembering(), Remembering(), Remembering()
    run_episode(DirectAgent(), one)
    run_episode(DirectAgent(), again)
    run_episode(DirectAgent(), other, seed=1)
    assert one.seeds == again.seeds and len({*one.seeds, *other.seeds}) == 6


def test_the_prompts_of_an_episode_name_it_as_their_program() -> None:
    programs: list[str | None] = []

    class Noting(ScriptedModel):
        async def generate(self, prompt: Prompt) -> Generation:
            programs.append(prompt.program)
            return await super().generate(prompt)

    run_episode(DirectAgent(), Noting(UP))
    assert programs == ["test/0.0"] * 3


def test_only_what_the_agent_did_is_scored() -> None:
    assert Outcome.success().scored and Outcome.failure().scored
    assert all(Outcome.truncated(limit).scored for limit in Limit)
    assert {owner for owner in Owner if Outcome.error("x", owner).scored} == {Owner.AGENT}
    assert Outcome.cancelled("enough").was_cancelled and not Outcome.cancelled("enough").scored
    assert not Outcome.error("cancelled", Owner.AGENT).was_cancelled


def test_outcomes_print_as_one_word() -> None:
    assert str(Outcome.success()) == "success"
    assert str(Outcome.truncated(Limit.TURNS)) == "truncated(turns)"
    assert str(Outcome.error("hang", Owner.ENVIRONMENT)) == "error(hang, environment)"
    assert Outcome.error("hang", Owner.ENVIRONMENT).status is Status.ERROR


def test_calls_without_a_renderer_have_no_tokens() -> None:
    call = run_episode(Asking([user("a")]), ScriptedModel(["b"])).calls[0]
    assert (call.prompt, call.completion, call.logprobs) == ((), (), ())


# ── tokens that take time ────────────────────────────────────────────────────


@pytest.mark.parametrize("timed", [True, False])
def test_an_action_carries_the_tokens_since_the_last_valid_one_where_they_take_time(
    timed: bool,
) -> None:
    class Timed(Stairs):
        token_time = timed

    model = ScriptedModel(["up", "go up the stairs", "up", "up"], renderer=renderer())
    episode = run_episode(DirectAgent(), model, world=Timed())
    sampled = [call.sampled for call in episode.calls]
    assert [step.transition.valid for step in episode.steps] == [True, False, True, True]
    expected = [sampled[0], sampled[1], sampled[1] + sampled[2], sampled[3]]
    assert [step.action.spent for step in episode.steps] == (expected if timed else [0] * 4)
    assert sum(expected) > sampled[1] > sampled[0] > 0
