"""Planning agents: when they plan, how they execute, and what they do when a plan fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.agents import deps, goal, meta_plan, plan_and_execute, recursive
from palaestra.agents.numbered_plan import LONGER, MAX_STEPS, numbered, steps_of
from palaestra.agents.registry import make_agent
from palaestra.core.agent import Agent
from palaestra.core.budget import Budget
from palaestra.core.episode import Episode
from palaestra.core.errors import InputError
from palaestra.core.message import Message
from palaestra.core.model import Generation, Prompt, Sampling
from palaestra.core.outcome import Outcome
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.core.small import renderer, run_episode


def roll_out(agent: Agent, *replies: str | Callable[[str], str], turns: int = 8) -> Episode:
    """Return an episode with these replies in order, or with a function of the prompt."""
    if len(replies) == 1 and callable(replies[0]):
        answer = replies[0]
        model = ScriptedModel(lambda messages: answer(messages[-1].text), renderer=renderer())
    else:
        rest = iter([reply for reply in replies if isinstance(reply, str)])
        model = ScriptedModel(lambda _: next(rest), renderer=renderer())
    return run_episode(agent, model, budget=Budget(turns=turns))


def actions(episode: Episode) -> list[str]:
    return [step.action.text for step in episode.steps]


def roles(episode: Episode) -> list[str]:
    return [call.role for call in episode.calls]


def asked(episode: Episode, call: int) -> str:
    return episode.calls[call].messages[-1].text


# ── plans as text ────────────────────────────────────────────────────────────

LINE = st.text(st.characters(codec="utf-8", exclude_characters="\n\r"))
STEP = st.lists(LINE, min_size=1, max_size=3).map("\n".join).map(str.strip).filter(bool)


@given(st.lists(STEP, max_size=MAX_STEPS))
def test_a_written_plan_is_read_as_it_was_meant(steps: list[str]) -> None:
    assert steps_of(numbered(steps)) == [step.strip() for step in steps]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("My plan:\n1. up\n2) down\nThat is all.", ["up", "down"]),
        ("  Step 1: up\n  Step 2: down", ["up", "down"]),
        ("- up\n* down", ["up", "down"]),
        ("up\n\ndown\n", ["up", "down"]),
        ("1.\n2. up", ["up"]),
        ("", []),
        (" \n ", []),
    ],
)
def test_what_is_taken_for_the_steps_of_a_plan(text: str, steps: list[str]) -> None:
    assert steps_of(text) == steps


def test_an_endless_plan_is_read_in_part() -> None:
    assert len(steps_of("1. up\n" * 10_000)) == MAX_STEPS


def test_a_plan_has_more_room_than_an_action() -> None:
    room: list[int] = []

    class Measured(ScriptedModel):
        async def generate(self, prompt: Prompt) -> Generation:
            room.append(prompt.sampling.max_tokens)
            return await super().generate(prompt)

    usual = Sampling(max_tokens=8)
    run_episode(plan_and_execute.PlanAgent(), Measured(lambda _: "up"), sampling=usual)
    assert room[0] == LONGER * room[1]


# ── plan and execute ─────────────────────────────────────────────────────────


def test_the_executor_is_asked_for_each_step_of_the_plan() -> None:
    episode = roll_out(
        plan_and_execute.PlanAgent(), "1. climb\n2. climb\n3. climb", "up", "up", "up"
    )
    assert episode.outcome == Outcome.success()
    assert roles(episode) == ["planner", "agent", "agent", "agent"]
    assert "Step 2 of the plan: climb" in asked(episode, 2)
    assert len(list(episode.graph.branches())) == 2


def test_a_step_that_the_world_does_not_understand_gives_a_new_plan() -> None:
    episode = roll_out(
        plan_and_execute.PlanAgent(),
        "1. jump\n2. up",
        "jump",
        "1. up\n2. up\n3. up",
        "up",
        "up",
        "up",
    )
    assert episode.outcome == Outcome.success() and actions(episode) == ["jump", "up", "up", "up"]
    assert "> jump\nWhat?" in asked(episode, 2) and asked(episode, 2).endswith(
        plan_and_execute.AGAIN
    )


def test_the_executor_may_ask_for_a_new_plan_but_not_before_trying() -> None:
    episode = roll_out(
        plan_and_execute.PlanAgent(), "1. a\n2. b", "up", "Replan", "1. a\n2. b\n3. c", "up", "up"
    )
    assert roles(episode) == ["planner", "agent", "agent", "planner", "agent", "agent"]
    never = roll_out(plan_and_execute.PlanAgent(), lambda _: "Replan", turns=3)
    assert str(never.outcome) == "truncated(turns)" and len(never.calls) == 6


def test_lines_of_a_plan_can_be_the_actions() -> None:
    episode = roll_out(plan_and_execute.PlanAgent(ask=False), "1. up\n2. up", "1. up")
    assert episode.outcome == Outcome.success() and roles(episode) == ["planner"] * 2
    assert [step.call for step in episode.steps] == [0, 0, 1]


# ── DEPS ─────────────────────────────────────────────────────────────────────


def test_goals_are_selected_and_pursued_until_reached() -> None:
    up, there = "Action: up\nReached: no", "Action: up\nReached: yes"
    episode = roll_out(deps.DepsAgent(), "1. the top\n2. the first step", "2", there, up, up)
    assert episode.outcome == Outcome.success()
    assert roles(episode) == ["planner", "selector", "agent", "agent", "agent"]
    assert asked(episode, 2).endswith("Goal: the first step")
    assert asked(episode, 3).endswith("Goal: the top")


def test_a_failed_goal_is_described_and_explained_before_the_new_plan() -> None:
    episode = roll_out(
        deps.DepsAgent(patience=1), "1. fly", "Action: up", "I am on step 1.", "No wings.",
        "1. climb", "Action: up\nReached: yes", "All went well.", "One more.", "1. climb",
        "Action: up",
    )  # fmt: skip
    assert episode.outcome == Outcome.success()
    assert "The goal 'fly' failed: 1 actions did not reach it." in asked(episode, 2)
    assert asked(episode, 3) == deps.EXPLAIN and asked(episode, 4) == deps.AGAIN
    assert "All goals were reached, but the task is not solved" in asked(episode, 6)


@pytest.mark.parametrize("choice", ["0", "3", "999", "the second", ""])
def test_a_selection_that_names_no_goal_is_the_first_one(choice: str) -> None:
    episode = roll_out(deps.DepsAgent(), "1. a\n2. b", choice, "Action: up", turns=1)
    assert asked(episode, 2).endswith("Goal: a")


# ── the evolving global plan ─────────────────────────────────────────────────


def test_the_global_plan_is_rewritten_each_turn() -> None:
    episode = roll_out(
        goal.GoalAgent(), *["1. climb, thrice", "up", "1. twice", "up", "1. once", "up"]
    )
    assert episode.outcome == Outcome.success() and roles(episode) == ["planner", "agent"] * 3
    assert "Plan:\n1. twice" in asked(episode, 3) and "> up\nYou are on step 1" in asked(episode, 2)
    assert len(list(episode.graph.branches())) == 2


# ── recursive planning ───────────────────────────────────────────────────────


def test_goals_are_split_until_they_are_atomic() -> None:
    there = "Action: up\nReached: yes"
    episode = roll_out(
        recursive.RecursiveAgent(), "1. [think] how high?\n2. [act] climb", "Atomic",
        "Three steps.", "1. [act] a\n2. [act] b\n3. [act] c", there, there, there,
    )  # fmt: skip
    assert episode.outcome == Outcome.success()
    split = asked(episode, 3)
    assert "  - [think] how high? (thought: Three steps.)" in split
    assert "  - [act] climb (active)" in split and split.endswith(recursive.SPLIT)


def test_a_failed_part_has_the_whole_split_again_with_its_state_in_sight() -> None:
    episode = roll_out(
        recursive.RecursiveAgent(depth=1), "1. [act] fly\n2. [act] land", "Action: fly",
        "Atomic", "Action: up", "Action: up", "Action: up",
    )  # fmt: skip
    assert episode.outcome == Outcome.success()
    again = asked(episode, 2)
    assert "[act] fly (failed: 'fly' was not understood)" in again and "land (open)" in again


def test_thinking_alone_never_goes_on_for_ever() -> None:
    def think(prompt: str) -> str:
        return "1. [think] a\n2. [think] b" if prompt.endswith(recursive.SPLIT) else "Hm."

    episode = roll_out(recursive.RecursiveAgent(), think, turns=2)
    assert len(episode.steps) == 2 and len(episode.calls) < 40


# ── meta plans ───────────────────────────────────────────────────────────────


def test_a_meta_plan_is_made_without_the_task_and_guides_every_action() -> None:
    episode = roll_out(meta_plan.MetaAgent(), "1. Never fall.", "up", "up", "up")
    assert episode.outcome == Outcome.success() and roles(episode) == ["planner"] + ["agent"] * 3
    assert all("You are on step" not in message.text for message in episode.calls[0].messages)
    assert "Never fall." in episode.calls[1].messages[0].text


def test_a_meta_plan_can_be_given(tmp_path: Path) -> None:
    (tmp_path / "plan.txt").write_text("Always up.")
    for name in ("meta?plan=Always up.", f"meta?plan=@{tmp_path / 'plan.txt'}"):
        episode = roll_out(make_agent(name), "up", "up", "up")
        assert roles(episode) == ["agent"] * 3
        assert "Always up." in episode.calls[0].messages[0].text
    with pytest.raises(InputError, match=r"nowhere\.txt' cannot be read"):
        make_agent("meta?plan=@nowhere.txt")


# ── roles ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["plan", "deps", "goal", "meta", "recursive", "rci"])
def test_a_planner_may_have_a_model_of_its_own(name: str) -> None:
    def planned(messages: Sequence[Message]) -> str:
        return "1. [act] up\n2. [act] up"

    models = {
        "agent": ScriptedModel(lambda _: "Action: up", name="small"),
        "planner": ScriptedModel(planned, name="large"),
    }
    episode = run_episode(make_agent(name), models, budget=Budget(turns=3))
    assert {call.policy for call in episode.calls if call.role == "planner"} == {"large"}
    assert {call.policy for call in episode.calls if call.role == "agent"} == {"small"}
