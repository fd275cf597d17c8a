"""Acting agents: function calling, RCI, AgentOccam."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.agents.code.code_agent import CodeAgent
from palaestra.agents.function_calling import ToolsAgent, actions_of
from palaestra.agents.memory.toolbox import HEAD, Toolbox, ToolboxAgent
from palaestra.agents.occam import OccamAgent
from palaestra.agents.page_lines import compact
from palaestra.agents.plan_tree import COMMAND, Plan, PlanTree
from palaestra.agents.rci import CRITICISE, GROUNDINGS, IMPROVE, RciAgent
from palaestra.core.budget import Budget
from palaestra.core.environment import Action
from palaestra.core.episode import Episode
from palaestra.core.message import Message, ToolCall, assistant, system, user
from palaestra.core.outcome import Outcome
from palaestra.core.task import Task
from palaestra.core.tool import Tool
from palaestra.environments.authoring import ToolWorld, tool
from palaestra.models.scripted.scripted_model import ScriptedModel
from palaestra.rollout.guarded_environment import LocalEnvironment
from tests.core.small import renderer, run_episode

ADD = Tool("add", "Add.", {"type": "object", "properties": {"by": {"type": "integer"}}})
LOOK, JUMP = (Tool(name, f"To {name}.", {"type": "object"}) for name in ("look", "jump"))


class Door(ToolWorld):
    """Open the door. The key comes first."""

    def begin(self, task: Task) -> str:
        self.tools = tuple(tool for tool in self.tools if tool.name == "take_key")
        self.state = {"key": False, "open": False}
        return "a locked door"

    @tool
    def take_key(self) -> str:
        """Take the key."""
        self.state["key"] = True
        self.tools = (*self.tools, Tool("open", "Open the door.", {"type": "object"}))
        return "you have the key"

    @tool
    def open(self) -> str:
        """Open the door."""
        self.state["open"] = True
        return "open"

    def verdict(self) -> bool | None:
        return True if self.state["open"] else None


def called(name: str, **arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def hand(episode: Episode, call: int) -> list[str]:
    """Return the environment's tools that a toolbox agent had loaded in that call."""
    listed = next(iter(episode.graph.conversation(call))).text.partition(HEAD)[2]
    return re.findall(r"(?m)^(\w+)\(", listed)[2:]


# ── function calling ─────────────────────────────────────────────────────────


def test_tools_are_told_as_schemas_and_called_in_tags() -> None:
    model = ScriptedModel([called("take_key"), called("open")], renderer=renderer())
    episode = run_episode(ToolsAgent(), model, LocalEnvironment(Door()))
    assert episode.outcome == Outcome.success()
    assert [step.action.call for step in episode.steps] == [
        ToolCall("take_key", {}),
        ToolCall("open", {}),
    ]
    shown = episode.calls[0].messages[0].text
    line = next(line for line in shown.splitlines() if "take_key" in line and "function" in line)
    assert json.loads(line)["function"]["parameters"]["type"] == "object"
    answer = episode.calls[1].messages[-1]
    assert answer.role == "user"
    assert "<tool_response>\nyou have the key\n</tool_response>" in answer.text
    assert len(list(episode.graph.branches())) == 1


def test_new_tools_are_listed_when_they_appear() -> None:
    episode = run_episode(ToolsAgent(), ScriptedModel([called("take_key"), "hm", called("open")]),
                   LocalEnvironment(Door()))  # fmt: skip
    assert '"name": "open"' not in episode.calls[0].messages[0].text
    assert '"name": "open"' in episode.calls[1].messages[-1].text
    assert "Tools now" not in episode.calls[2].messages[-1].text


def test_code_sees_new_functions_and_can_call_them() -> None:
    cells = [f"```python\n{line}\n```" for line in ("take_key()", "1", "open()")]
    model = ScriptedModel(cells, renderer=renderer())
    episode = run_episode(CodeAgent(sandbox="unsafe"), model, LocalEnvironment(Door()))
    assert episode.outcome == Outcome.success()
    shown = episode.calls[1].messages[-1].text
    assert shown.splitlines()[-4:] == [
        "These functions act in the world now:",
        "take_key(): Take the key.",
        "open(): Open the door.",
        "act(action: str): do an action, said in words",
    ]
    assert "functions" not in episode.calls[2].messages[-1].text


@pytest.mark.parametrize(("limit", "at_hand"), [(8, ["take_key", "open"]), (1, ["take_key"])])
def test_new_tools_are_loaded_while_the_limit_allows(limit: int, at_hand: list[str]) -> None:
    model = ScriptedModel(["take_key()", "hm", "open()"])
    episode = run_episode(ToolboxAgent(limit=limit), model, LocalEnvironment(Door()))
    assert episode.outcome == Outcome.success()
    assert hand(episode, 0) == ["take_key"]
    assert hand(episode, 2) == at_hand


def test_withdrawn_tools_are_unloaded() -> None:
    box = Toolbox("", "", None, 2, [ADD, LOOK, JUMP])
    box.offer([LOOK, JUMP])
    assert "add(" not in box.instructions and "look(" in box.instructions
    assert "jump(" not in box.instructions  # it was there before, and was not asked for
    box.offer([LOOK, JUMP, ADD])
    assert "add(" in box.instructions


def test_all_calls_of_a_reply_are_made_in_their_order_until_the_end() -> None:
    both = called("take_key") + "\n" + called("open") + called("take_key")
    episode = run_episode(ToolsAgent(), ScriptedModel([both]), LocalEnvironment(Door()))
    assert episode.outcome == Outcome.success() and len(episode.steps) == 2
    assert {step.call for step in episode.steps} == {0}


def test_words_and_calls_that_do_not_fit_are_answered_by_the_world() -> None:
    script = ["Shall I?", called("fly", to="Rome"), called("take_key"), called("open")]
    episode = run_episode(ToolsAgent(), ScriptedModel(script), LocalEnvironment(Door()))
    assert [step.transition.valid for step in episode.steps] == [False, False, True, True]
    assert "There is no tool 'fly'" in episode.steps[1].transition.observation.text
    assert episode.outcome == Outcome.success()


def test_a_world_of_words_has_one_tool() -> None:
    episode = run_episode(ToolsAgent(), ScriptedModel([called("act", action="up")] * 3))
    assert episode.outcome == Outcome.success()
    assert [step.action for step in episode.steps] == [Action("up")] * 3


@pytest.mark.parametrize("form", ["{}", "```json\n{}\n```", "```\n{}\n```\n"])
def test_a_call_without_its_tags_is_a_call(form: str) -> None:
    written = json.dumps({"name": "act", "arguments": {"action": "ls"}}, indent=2)
    assert actions_of(form.replace("{}", written), []) == [Action("ls")]
    data = form.replace("{}", '{"name": "Ann"}')
    assert actions_of(data, [])[0].call is None


def test_text_actions_are_demonstrated_as_text_without_the_tool_act() -> None:
    agent, done = ToolsAgent(), Action("done")
    assert agent.answer([system("<tools>\n{}\n</tools>"), user("?")], [done]) == "done"
    call = Action("add(by=1)", ToolCall("add", {"by": 1}))
    assert actions_of(agent.answer([system("")], [call]), [ADD]) == [call]


@given(st.text(), st.dictionaries(st.text(), st.integers() | st.text()))
def test_a_demonstrated_call_is_understood_as_itself(words: str, arguments: dict[str, int]) -> None:
    anything = {"type": "object", "properties": {name: {} for name in arguments}}
    tool = Tool("use", "Use it.", anything)
    call = Action(str(ToolCall("use", arguments)), ToolCall("use", arguments))
    agent = ToolsAgent()
    assert actions_of(agent.phrase(call), [tool]) == [call]
    assert actions_of(agent.phrase(Action(words)), [tool]) == [Action(words.strip())]


# ── RCI ──────────────────────────────────────────────────────────────────────


def test_a_plan_is_improved_until_a_critique_finds_nothing() -> None:
    plans = ["1. fall", "Do not fall.", "1. up\n2. up\n3. up", "No problem."]
    replies = iter([*plans, *["up"] * 9])
    episode = run_episode(RciAgent(rounds=3), ScriptedModel(lambda _: next(replies)))
    assert episode.outcome == Outcome.success()
    roles = [call.role for call in episode.calls]
    assert roles[:5] == ["planner", "critic", "planner", "critic", "agent"]
    assert plans[2] in episode.calls[4].messages[0].text


def test_an_action_is_grounded_three_times_and_its_last_word_is_done() -> None:
    def reply(messages: list[Message]) -> str:
        asked = messages[-1].text
        return "up" if asked == GROUNDINGS[2] else "fall"

    episode = run_episode(RciAgent(rounds=0), ScriptedModel(lambda messages: reply(list(messages))))
    assert [step.action.text for step in episode.steps] == ["up"] * 3
    assert len(episode.calls) == 1 + 3 * 3
    # rejected drafts are not in later prompts
    assert "fall" not in [m.text for m in episode.graph.conversation(len(episode.calls) - 3)][:-1]


def test_an_expert_critic_names_the_first_wrong_step() -> None:
    agent, right = RciAgent(), [Action("up"), Action("up")]
    assert agent.answer([assistant("1. up\n2. up"), user(CRITICISE)], right) == "No problem."
    shown = agent.answer([assistant("1. up\n2. down"), user(CRITICISE)], right)
    assert shown == "Step 2 should be: up"
    assert agent.answer([user(IMPROVE)], right) == "1. up\n2. up"


# ── AgentOccam ───────────────────────────────────────────────────────────────


def test_the_prompt_holds_the_steps_of_the_active_plan_alone() -> None:
    script = [
        "Action: up",
        "Note: it is slippery\nBranch: reach step two\nAction: up",
        "Prune: 0\nAction: up",
    ]
    replies = iter(script)
    episode = run_episode(OccamAgent(), ScriptedModel(lambda _: next(replies)))
    assert episode.outcome == Outcome.success()
    second, third = (call.messages[-1].text for call in episode.calls[1:])
    assert "step 0 of 3. > up" in second
    assert "1. reach step two, of 0, active" in third and "it is slippery" in third
    assert "step 0 of 3. > up" not in third and "step 1 of 3. > up" in third
    assert "At the start" not in episode.calls[0].messages[-1].text
    for call in episode.calls[1:]:
        assert "At the start:\nYou are on step 0" in call.messages[-1].text


def test_planning_alone_takes_no_action_but_may_not_go_on_for_ever() -> None:
    model = ScriptedModel(lambda _: "Branch: think more")
    episode = run_episode(OccamAgent(), model, budget=Budget(invalid_actions=2))
    assert len(episode.calls) == 4 and len(episode.steps) == 2
    assert str(episode.outcome) == "error(unparsed, agent)"


def test_a_pruned_plan_goes_back_to_one_above_it_only() -> None:
    tree = PlanTree([Plan("all", None)])
    tree.apply(COMMAND.findall("Branch: a\nBranch: b\nPrune: 7\nPrune: 2"))
    assert tree.active == 2
    tree.apply(COMMAND.findall("Prune: 0"))
    assert tree.active == 0 and tree.plans[2].state == ", pruned"


@given(st.text("ab \n", max_size=60))
def test_compacting_loses_no_line_and_never_lengthens_by_much(text: str) -> None:
    lines = {line for line in text.split("\n") if line.strip()}
    short = compact(text)
    assert {line.partition(" (x")[0] for line in short.split("\n") if line} == lines
    assert compact("x\n\n\nx\nx\nx\ny") == "x\nx (x3)\ny" and len(short) <= len(text) + 5
