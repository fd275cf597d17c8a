"""Agents that reflect on past attempts, or check an action before they take it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from palaestra.agents import refine, reflexion, verify
from palaestra.agents.personas import PersonasAgent
from palaestra.agents.refine import RefineAgent
from palaestra.agents.reflexion import ReflexionAgent
from palaestra.agents.registry import make_agent
from palaestra.agents.verify import VerifyAgent
from palaestra.core.environment import Action, AsyncEnvironment
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InfrastructureFault
from palaestra.core.message import Message
from palaestra.core.model import Generation, Model, Prompt
from palaestra.core.outcome import Outcome
from palaestra.core.task import Split, TaskSet
from palaestra.models.scripted.expert import ExpertModel
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.runner import Job, Rollout
from palaestra.store.database import Database
from tests.core.small import Stairs, renderer, run_episode


class Steep(Stairs):
    """Stairs on which random actions fall, and without an oracle plan on the ground."""

    async def sample(self, seed: int) -> Action:
        return Action("fall")


def as_roles(*, agent: Any, **others: Any) -> dict[str, Model]:
    found = {"agent": agent, **others}
    return {role: ScriptedModel(script, name=role) for role, script in found.items()}


def output(episode: Episode, role: str) -> list[str]:
    return [call.reply.text for call in episode.calls if call.role == role]


def actions(episode: Episode) -> list[str]:
    return [step.action.text for step in episode.steps]


# ── refine ───────────────────────────────────────────────────────────────────


def better(messages: Sequence[Message]) -> str:
    return "up" if messages[-1].text == refine.IMPROVE else "fall"


def critical(messages: Sequence[Message]) -> str:
    return "Fine." if messages[-2].text == "up" else "It hurts."


def test_an_action_is_improved_until_the_critic_is_content() -> None:
    episode = run_episode(RefineAgent(), as_roles(agent=better, critic=critical))
    assert episode.outcome == Outcome.success()
    assert output(episode, "critic") == ["It hurts.", "Fine."] * 3
    drafts = [c for c in episode.calls if c.reply.text == "fall"]
    for number, call in enumerate(drafts):  # drafts are not in later prompts
        shown = [m.text for m in episode.graph.conversation(call.index) if m.role == "assistant"]
        assert shown == ["up"] * number + ["fall"]


@pytest.mark.parametrize(
    ("feedback", "approves"),
    [
        ('"Fine"', True),
        ("Fine, go ahead.", True),
        ("The action is correct.", True),
        ("There is nothing wrong with that action.", True),
        ("There is no issue with the command.", True),
        ("Nothing.", True),
        ("The action is correct, but it should be up.", False),
        ("The action is incorrect.", False),
        ("Finer steps would help.", False),
        ("Nothing was moved.", False),
    ],
)
def test_a_critic_may_agree_in_other_words(feedback: str, approves: bool) -> None:
    models = as_roles(agent=lambda m: "up", critic=lambda m: feedback)
    episode = run_episode(RefineAgent(rounds=1), models)
    assert len(output(episode, "agent")) == 3 * (1 if approves else 2)


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_rounds_of_feedback_are_bounded(rounds: int) -> None:
    models = as_roles(agent=lambda m: "up", critic=lambda m: "Never good enough.")
    episode = run_episode(RefineAgent(rounds=rounds), models)
    assert episode.outcome == Outcome.success()
    assert len(output(episode, "critic")) == 3 * rounds
    assert len(output(episode, "agent")) == 3 * (rounds + 1)


# ── verify ───────────────────────────────────────────────────────────────────


def hasty(messages: Sequence[Message]) -> str:
    action = "up" if "objection" in messages[-1].text else "fall"
    return f"Thought: I climb.\nAction: {action}"


def careful(messages: Sequence[Message]) -> str:
    if messages[0].text.endswith(verify.STATUS):
        return "One step higher."
    follows = messages[-1].text.endswith("Action: up")
    return "Yes." if follows else "No: falling is not climbing."


def test_an_action_that_does_not_follow_from_its_thought_is_corrected() -> None:
    episode = run_episode(VerifyAgent(), as_roles(agent=hasty, verifier=careful))
    assert episode.outcome == Outcome.success() and actions(episode) == ["up"] * 3
    objection = next(c for c in episode.calls if c.messages[-1].text.startswith("Before that"))
    assert "No: falling is not climbing." in objection.messages[-1].text


def test_the_verifiers_reflection_is_appended_to_the_observation() -> None:
    episode = run_episode(
        VerifyAgent(before=False), as_roles(agent=lambda m: "up", verifier=careful)
    )
    assert output(episode, "verifier") == ["One step higher."] * 2  # nothing follows the last step
    last = episode.graph.conversation(episode.calls[-1].index)[-2].text
    assert last == f"You are on step 2 of 3.{verify.REFLECTION}One step higher."


def test_each_check_can_be_left_out() -> None:
    agent = make_agent("verify?before=off&after=off")
    episode = run_episode(agent, as_roles(agent=lambda m: "up", verifier=careful))
    assert output(episode, "verifier") == [] and episode.outcome == Outcome.success()
    assert actions(run_episode(VerifyAgent(again=0), as_roles(agent=hasty, verifier=careful))) == [
        "fall"
    ]


# ── personas ─────────────────────────────────────────────────────────────────


def test_personas_discuss_and_then_one_action_is_taken() -> None:
    talk = "Participants: Climber, Nurse\nClimber: fall!\nNurse: No, up.\nAction: up"
    episode = run_episode(PersonasAgent(persons=2), ScriptedModel(lambda messages: talk))
    assert episode.outcome == Outcome.success() and len(episode.calls) == 3
    assert "at most 2" in episode.calls[0].messages[0].text


# ── vote ─────────────────────────────────────────────────────────────────────


def test_the_most_frequent_action_is_done_and_its_first_reply_goes_on() -> None:
    ballot = iter(["Action: fall", "It is up. Action: up", "So Action: up", *["Action: up"] * 6])
    episode = run_episode(
        make_agent("vote?samples=3&thoughts=yes"), ScriptedModel(lambda messages: next(ballot))
    )
    assert episode.outcome == Outcome.success() and actions(episode) == ["up"] * 3
    assert len(episode.calls) == 9
    second = episode.graph.conversation(3)
    assert second[2].text == "It is up. Action: up"
    assert [call.parent for call in episode.calls[:6]] == [None] * 3 + [1] * 3


def test_of_equals_the_first_is_done() -> None:
    ballot = iter(["up", "fall", *["up"] * 6])
    episode = run_episode(
        make_agent("vote?samples=2"), ScriptedModel(lambda messages: next(ballot))
    )
    assert actions(episode) == ["up"] * 3


# ── what looking twice is worth ──────────────────────────────────────────────


def solved(name: str, error: float, count: int = 150) -> float:
    agent = make_agent(name)
    world = Steep()
    model = ExpertModel(agent, error=error).for_environment(world)
    return (
        sum(run_episode(agent, model, world, seed=n).outcome.solved for n in range(count)) / count
    )


def test_a_second_look_helps_a_model_that_errs_and_one_look_as_persons_does_not() -> None:
    plain = solved("direct", 0.3)
    assert plain == pytest.approx(0.7**3, abs=0.12)
    for name in ("refine", "verify", "vote?samples=5"):  # 0.84 ** 3 of the last
        assert solved(name, 0.3) > plain + 0.12
    assert solved("personas", 0.3) == pytest.approx(plain, abs=0.12)


# ── reflexion ────────────────────────────────────────────────────────────────

TASKS = TaskSet("stairs")


def attempts(tasks: int, repeats: int) -> list[Job]:
    return [
        Job(Key("test", n, m), TASKS.task(Split.TEST, n))
        for n in range(tasks)
        for m in range(repeats)
    ]


def learning(messages: Sequence[Message]) -> str:
    """Falls until it has two lessons; each lesson states the number of earlier ones."""
    if messages[0].text == reflexion.REFLECT:
        return f"Lesson {messages[1].text.count('Lesson') + 1}: do not fall."
    return "up" if messages[0].text.count("Lesson") >= 2 else "fall"


class Breaking(ScriptedModel):
    """Raises an error after a number of replies."""

    def __init__(self, left: int) -> None:
        super().__init__(learning, renderer=renderer())
        self.left = left

    async def generate(self, prompt: Prompt) -> Generation:
        self.left -= 1
        if self.left < 0:
            raise InfrastructureFault("model", "gone")
        await asyncio.sleep(0)
        return await super().generate(prompt)


def roll_out(jobs: Sequence[Job], model: Model | None = None, **more: Any) -> list[Episode]:
    async def worlds(id: str) -> AsyncEnvironment:
        return Stairs()

    models = {"agent": model or ScriptedModel(learning, renderer=renderer())}
    return asyncio.run(Rollout(ReflexionAgent(), worlds, models, **more).run(jobs))


def test_later_attempts_know_the_lessons_of_earlier_ones_of_their_task() -> None:
    episodes = roll_out(attempts(3, 5), concurrency=64)
    for task in range(3):
        own = [e for e in episodes if e.key.group == task]
        assert [e.outcome.solved for e in own] == [False, False, True, True, True]
        # one lesson after each failure, asked for when the next attempt begins
        assert [len(output(e, "reflector")) for e in own] == [0, 1, 1, 0, 0]
        assert "Lesson 1: do not fall.\nLesson 2: do not fall." in own[4].calls[0].messages[0].text
        question = own[1].calls[0].messages[1].text
        assert "> fall\nYou are on step 0 of 3.\nIt ended in failure." in question


def test_lessons_stay_with_the_task_and_only_the_last_ones_are_shown() -> None:
    async def worlds(id: str) -> AsyncEnvironment:
        return Stairs()

    def never(messages: Sequence[Message]) -> str:
        return "A note." if messages[0].text == reflexion.REFLECT else "fall"

    rollout = Rollout(ReflexionAgent(lessons=2), worlds, {"agent": ScriptedModel(never)})
    episodes = asyncio.run(rollout.run(attempts(2, 5)))
    shown = [e.calls[-1].messages[0].text.count("A note.") for e in episodes]
    assert shown == [0, 1, 2, 2, 2] * 2


@pytest.mark.parametrize("cut", range(0, 22, 3))
def test_an_interrupted_run_ends_as_if_it_had_not_been(tmp_path: Path, cut: int) -> None:
    """Another process resumes: its agent has seen only the episodes in the store."""
    jobs = attempts(2, 4)
    undisturbed = roll_out(jobs, concurrency=1)
    assert sum(len(e.calls) for e in undisturbed) == 2 * (1 + 2 + 4 + 3)
    first = Database.open(tmp_path / "run.db")
    with contextlib.suppress(Exception):
        roll_out(jobs, Breaking(cut), concurrency=2, store=first)
    first.close()
    store = Database.open(tmp_path / "run.db")
    again = roll_out(jobs, concurrency=2, store=store)
    store.close()
    assert [e.outcome for e in again] == [e.outcome for e in undisturbed]
    assert [[c.messages for c in e.calls] for e in again] == [
        [c.messages for c in e.calls] for e in undisturbed
    ]


def test_a_model_that_notes_the_plan_errs_less_once_it_has_several_notes() -> None:
    async def worlds(id: str) -> AsyncEnvironment:
        return Steep()

    agent = ReflexionAgent(lessons=5)
    rollout = Rollout(agent, worlds, {"agent": ExpertModel(agent, error=0.2)})
    episodes = asyncio.run(rollout.run(attempts(80, 8)))
    early, late = (
        sum(e.outcome.solved for e in episodes if e.key.member in members) / 240
        for members in ((0, 1, 2), (5, 6, 7))
    )
    assert early == pytest.approx(0.8**3, abs=0.1) and late > early + 0.1
