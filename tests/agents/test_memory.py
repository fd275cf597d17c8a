"""Each memory: its prompts, what it keeps, and what it leaves for later episodes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaestra.agents.history import History
from palaestra.agents.memory import diff_history, places, recall, skills, sliding, subtasks, summary
from palaestra.agents.memory.retrieval import best
from palaestra.agents.registry import AGENTS, make_agent
from palaestra.agents.tool_calling import NativeHistory
from palaestra.core.agent import Agent
from palaestra.core.bm25 import scores
from palaestra.core.budget import Budget
from palaestra.core.environment import Action, Observation, Signals, Transition
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import InputError
from palaestra.core.graph import Call
from palaestra.core.message import Message, ToolCall, user
from palaestra.core.model import Finish, Generation
from palaestra.core.session import Session
from palaestra.core.task import Task
from palaestra.core.tool import Tool
from palaestra.models.scripted.expert import ExpertModel
from palaestra.models.scripted.scripted_model import ScriptedModel
from tests.agents.test_laws import NEEDED
from tests.core.small import TASK, Journal, Stairs, renderer, run_episode

ROOT = Path(__file__).resolve().parents[2]
MEMORIES = [NEEDED.get(name, name) for name in sorted(AGENTS) if ".memory." in AGENTS[name]]


def prompt(episode: Episode, call: int) -> list[Message]:
    """Return the prompt of a call."""
    return list(episode.graph.conversation(call)[:-1])


def after(agent: Agent, model: object, number: int, world: Stairs | None = None) -> Episode:
    """Return the episode of that number in a series."""
    key, place = Key("test", number), world or Stairs()
    bound = model.for_environment(place) if isinstance(model, ExpertModel) else model
    return asyncio.run(Session(key, TASK, place, agent, {"agent": bound}).run())  # type: ignore[dict-item]


@pytest.mark.parametrize("name", [*MEMORIES, *(f"{n}?thoughts=true" for n in ("diff", "summary"))])
def test_an_expert_solves_the_task_through_every_memory(name: str) -> None:
    agent = make_agent(name)
    for number in range(3):  # the second and third know of the first
        episode = after(agent, ExpertModel(agent, renderer()), number)
        assert episode.outcome.solved and len(episode.steps) == 3, name


def test_a_summary_replaces_what_it_sums_up() -> None:
    agent = make_agent("summary?budget=330&length=30")
    episode = after(agent, ExpertModel(agent, renderer()), 0, Stairs(20))
    assert episode.outcome.solved
    asked = [call for call in episode.calls if call.role == "memory"]
    assert asked and all(call.messages[-1].text.endswith(summary.ASK) for call in asked)
    following = prompt(episode, asked[0].index + 1)
    assert asked[0].reply.text.strip() in following[1].text
    assert following[1].text.startswith("You are on step 0 of 20.")  # the task stays
    assert [m.role for m in following[2:]] == ["assistant", "user"]  # so does the newest exchange


def test_of_a_constant_memory_only_the_last_state_is_left() -> None:
    replies = ["<IS>one</IS>\nAction: up", "Action: up", "<IS>three</IS>\nAction: up"]
    number = iter(replies)
    episode = run_episode(make_agent("constant"), ScriptedModel(lambda _: next(number)))
    assert episode.outcome.solved
    assert [m.text for m in prompt(episode, 1)[2:]] == [replies[0], "You are on step 1 of 3."]
    # a reply without a state does not lose it
    assert prompt(episode, 2)[2].text == "<IS>one</IS>\nAction: up"
    assert len(prompt(episode, 2)) == 4


def test_a_sliding_window_keeps_replies_and_drops_old_results() -> None:
    past = sliding.Sliding("do", "first", window=3, step=2)
    for number in range(6):
        past.add(f"say {number}", f"see {number}")
    output = [m.text for m in past.messages if m.role == "assistant"]
    seen = [m.text for m in past.messages if m.role == "user"]
    assert output == [f"say {n}" for n in range(6)]
    assert seen == ["first", *[sliding.OMITTED] * 4, "see 4", "see 5"]  # two at a time


def test_a_step_beyond_the_window_is_refused() -> None:
    with pytest.raises(InputError, match="step 4 is larger than window 3"):
        make_agent("sliding?window=3&step=4")


TEXT = st.text(st.sampled_from("ab,.@+- \n1"), max_size=40)


@given(st.lists(TEXT, min_size=2, max_size=5))
def test_differences_give_every_observation_back(seen: list[str]) -> None:
    for before, now in pairwise(seen):
        assert patched(before, diff_history.difference(before, now)) == now


def test_only_changes_are_shown_after_the_first_observation() -> None:
    room, moved = (f"#########\n#....{row}#\n#########\nA room." for row in ("..@", ".@."))
    past = diff_history.DiffHistory("do", room, None)
    past.add("left", moved)
    past.add("left", "a\nb\nc")
    assert past.messages[1].text == room
    assert past.messages[3].text == "@@ line 2\n-#......@#\n+#.....@.#"
    assert past.messages[5].text == "a\nb\nc"  # shorter than the difference


@given(st.lists(st.sampled_from(["red key", "blue door", "red door", ""]), max_size=6))
def test_retrieval_prefers_what_shares_rare_words_with_the_query(texts: list[str]) -> None:
    found = best("red key", texts, 2)
    rated = scores("red key", texts) if texts else []
    assert [rated[i] for i in found] == sorted((s for s in rated if s > 0), reverse=True)[:2]
    if "red key" in texts:
        assert texts[found[0]] == "red key"
    assert all("red" in texts[i] or "key" in texts[i] for i in found)


def test_recall_shows_similar_situations_from_long_ago() -> None:
    past = recall.Recall("do", "go to the barn", 1, 1, best)
    for place in ("a red door", "a blue hall", "a green hill", "the red door again"):
        past.add(f"left of {place}", place)
    opening = past.messages[1].text
    assert opening.startswith("go to the barn") and len(past.messages) == 4
    assert "a red door > left of a blue hall > a blue hall" in opening
    assert "green hill >" not in opening


def test_recall_across_episodes_tells_how_like_ones_went() -> None:
    agent = make_agent("recall?across=true")
    first, second = (after(agent, ExpertModel(agent), number) for number in range(2))
    assert recall.CASES not in prompt(first, 0)[0].text
    assert "You did: up, up, up\nSolved." in prompt(second, 0)[0].text


def test_a_map_shows_all_actions_tried_in_this_place() -> None:
    past = places.Map("do", "hall", last=0, limit=2)
    for action, seen in (("north", "hall"), ("east", "kitchen"), ("west", "hall")):
        past.add(f"Action: {action}", seen)
    assert past.messages[-1].text.endswith(
        f"{places.HEAD}\n- north: changed nothing\n- east: led to kitchen"
    )
    past.add("Action: up", "attic")
    assert places.HEAD not in past.messages[-1].text  # nothing was tried here


def test_a_corrected_sub_task_opens_what_depends_on_it_again() -> None:
    tree = subtasks.TaskTree("do", "book a trip", 9)
    tree.add("+ 1 fly to Rome\n+ 1.1 find a flight\n+ 2 find a hotel\nAction: x", "ok")
    tree.add("v 1\nv 2\nAction: x", "the user says: not Rome, Oslo")
    tree.add("~ 1 fly to Oslo\nAction: x", "ok")
    prompt = tree.messages[-1].text
    assert "1 [open] fly to Oslo\n1.1 [open] find a flight\n2 [done] find a hotel" in prompt
    assert prompt.startswith("book a trip") and prompt.endswith("ok") and "not Rome" not in prompt


@given(st.lists(st.text(st.sampled_from("+v~ 12.\na"), max_size=30), max_size=8))
def test_no_reply_breaks_the_tree_or_its_limit(replies: list[str]) -> None:
    tree = subtasks.TaskTree("do", "first", 3)
    for reply in replies:
        tree.add(reply, "seen")
        assert len(tree.nodes) <= 3 and len(tree.messages) == 2


def test_rules_are_distilled_from_the_last_trial_and_told_in_the_next() -> None:
    agent = make_agent("rules")
    model = ScriptedModel(
        lambda m: "up is necessary for the top" if m[0].text == agent.question else "up"  # type: ignore[attr-defined]
    )
    episodes = [after(agent, model, number) for number in range(3)]
    assert [call.role for call in episodes[0].calls] == ["agent"] * 3  # nothing to learn from yet
    assert [call.role for call in episodes[1].calls] == ["memory", *["agent"] * 3]
    question = prompt(episodes[2], 0)[1].text
    assert "up is necessary for the top" in question and "> up\nYou are on step 1" in question
    assert prompt(episodes[2], 1)[0].text.endswith("\nup is necessary for the top")


def test_profiles_are_kept_by_user() -> None:
    agent = make_agent("profile?by=user")
    model = ScriptedModel(lambda m: "likes stairs" if "profile of" in m[0].text else "up")

    def served(number: int, user: str) -> list[str]:
        task = Task(f"train/{number}", "desk", number, parameters={"user": user})
        key = Key("test", number)
        episode = asyncio.run(Session(key, task, Stairs(), agent, {"agent": model}).run())
        return [call.role for call in episode.calls]

    assert served(0, "ann") == served(1, "bob") == ["agent"] * 3
    assert served(2, "ann")[0] == "memory"
    with pytest.raises(InputError, match="has no such parameter; use one of its parameters: none"):
        after(agent, model, 3)


def test_a_skill_that_worked_is_done_again_in_one_word() -> None:
    agent = make_agent("skills")
    after(agent, ScriptedModel(["up"] * 3), 0)
    episode = after(agent, ScriptedModel(["you_are_on_step_0_of()"]), 1)
    assert episode.outcome.solved and len(episode.calls) == 1
    assert [step.action.text for step in episode.steps] == ["up"] * 3
    assert skills.HEAD in prompt(episode, 0)[0].text


def test_what_failed_becomes_no_skill() -> None:
    agent = make_agent("skills")
    after(agent, ScriptedModel(["up", "fall"]), 0)
    assert skills.HEAD not in prompt(after(agent, ScriptedModel(["up"] * 3), 1), 0)[0].text


def test_a_shelf_in_a_file_outlives_the_process_and_other_cells_share_nothing(
    tmp_path: Path,
) -> None:
    shelf = tmp_path / "shelf.jsonl"
    after(make_agent(f"skills?shelf={shelf}"), ScriptedModel(["up"] * 3), 0)
    later = make_agent(f"skills?shelf={shelf}")
    assert after(later, ScriptedModel(["you_are_on_step_0_of"]), 1).outcome.solved
    assert [json.loads(line)["solved"] for line in shelf.read_text().splitlines()] == [True] * 2
    torn = shelf.read_text()[:-20]  # a process was killed in the midst of writing
    shelf.write_text(torn)
    assert after(later, ScriptedModel(["you_are_on_step_0_of"]), 2).outcome.solved
    assert len(shelf.read_text().splitlines()) == 2
    shelf.write_text("no shelf\n")
    with pytest.raises(InputError, match="is not a shelf"):
        after(later, ScriptedModel(["up"] * 3), 3)

    agent, model = make_agent("skills"), ScriptedModel(["up"] * 3)
    for phase in ("eval/test/seed-1", "eval/test/seed-2"):
        key = Key(phase, 0)
        episode = asyncio.run(Session(key, TASK, Stairs(), agent, {"agent": model}).run())
        assert skills.HEAD not in prompt(episode, 0)[0].text


@pytest.mark.parametrize("name", ["rules", "skills", "recall?across=true", "occam?replays=1"])
def test_an_interrupted_episode_gets_the_same_prompts_again(name: str) -> None:
    agent, model = make_agent(name), ScriptedModel(lambda _: "up")
    after(agent, model, 0)
    journal, key = Journal(), Key("test", 1)
    more = {"agent": model}
    asyncio.run(Session(key, TASK, Stairs(), agent, more, journal=journal).run())
    after(agent, ScriptedModel(lambda _: "fall"), 2)  # the shelf has something new
    for other in (agent, make_agent(name)):  # or it is a new process, with nothing on the shelf
        past = journal.events[:3]
        again = asyncio.run(Session(key, TASK, Stairs(), other, more, past=past).run())
        assert list(again.calls) == [event for event in journal.events if isinstance(event, Call)]
        assert again.outcome.solved


# ── tools ────────────────────────────────────────────────────────────────────


def tool(name: str, description: str) -> Tool:
    return Tool(name, description, {"type": "object", "properties": {}})


class Office(Stairs):
    """Two things to do, in this order, by two of thirty tools."""

    tools = (  # type: ignore[assignment]
        *(tool(f"job_{n}", f"do job number {n}") for n in range(28)),
        tool("send_letter", "send a letter by mail"),
        tool("water_plant", "give water to the plant"),
    )
    instructions = "Do what is asked.\nCall one tool per reply:\n" + "\n".join(
        tool.signature for tool in tools
    )
    right = ("send_letter", "water_plant")

    async def reset(self, task: Task) -> tuple[Observation, Signals]:
        self.place = 0
        return Observation("Send the letter, then water the plant."), self._signals()

    async def step(self, action: Action) -> tuple[Transition, Signals]:
        if not action.text.startswith(self.right[self.place]):
            return Transition(Observation("That is not it."), valid=False), self._signals()
        self.place += 1
        done = self.place == 2
        seen = Observation("Done.")
        return Transition(seen, float(done), terminated=done, success=done), self._signals()

    async def oracle(self) -> list[Action]:
        calls = [ToolCall(name, {}) for name in self.right[self.place :]]
        return [Action(str(call), call) for call in calls]


def test_of_thirty_tools_only_those_at_hand_are_told() -> None:
    agent = make_agent("toolbox?limit=2")
    episode = after(agent, ExpertModel(agent, renderer()), 0, Office())
    assert episode.outcome.solved and len(episode.steps) == 2
    own = [c.reply.text for c in episode.calls if "_tools(" in c.reply.text]
    assert own == [
        "drop_tools(names=['job_0'])", "find_tools(words='send letter')",
        "drop_tools(names=['job_1'])", "find_tools(words='water plant')",
    ]  # fmt: skip
    for number in range(len(episode.calls)):
        system = prompt(episode, number)[0].text
        assert sum(tool.signature in system for tool in Office.tools) <= 2
    assert "send_letter(" in prompt(episode, 2)[0].text


def test_endless_tool_searches_are_stopped() -> None:
    model = ScriptedModel(lambda _: "find_tools(words='letter')")
    episode = run_episode(make_agent("toolbox"), model, Office(), Budget(turns=2))
    assert len(episode.calls) == 10 and episode.invalid_turns == 2


def test_the_memory_of_the_page_on_memory_works_as_an_agent() -> None:
    text = (ROOT / "docs" / "memory.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    exec(text.partition("```python run\n")[2].partition("```")[0], names)
    agent = names["CountedAgent"]()
    episode = run_episode(agent, ScriptedModel(["up"] * 3), world=Stairs())
    assert "Turn 3" in prompt(episode, 2)[-1].text and episode.outcome.solved


def patched(before: str, prompt: str) -> str:
    """Return the observation after `before`, from a `difference`."""
    if not prompt.startswith(diff_history.MARK):
        return prompt
    unit = prompt[len(diff_history.MARK) :].partition(" ")[0]
    old = before.split(diff_history.UNITS[unit])
    found: list[str] = []
    taken = 0
    for line in prompt.split("\n"):
        head = re.fullmatch(rf"{diff_history.MARK}{unit} (\d+)", line)
        if head is not None:
            found += old[taken : int(head[1]) - 1]
            taken = int(head[1]) - 1
        elif line.startswith("+"):
            found.append(line[1:])
        else:
            taken += 1
    return diff_history.UNITS[unit].join(found + old[taken:])


def test_a_history_repeats_the_messages_of_the_last_prompt_unless_their_text_changed() -> None:
    history = History("rules", "a room")
    before = history.messages
    history.add("go", "a hall")
    after = history.messages
    assert [new is old for new, old in zip(after, before, strict=False)] == [True, True]
    history.instructions = "more rules"
    assert [message.text for message in history.messages] == [
        "more rules",
        "a room",
        "go",
        "a hall",
    ]


@pytest.mark.parametrize(
    ("last", "keep_first", "shown"),
    [
        (0, True, ["a room\n…\na yard"]),
        (0, False, ["a yard"]),
        (1, True, ["a room\n…\na hall", "out", "a yard"]),
        (1, False, ["a hall", "out", "a yard"]),
        (9, False, ["a room", "go", "a hall", "out", "a yard"]),
    ],
)
def test_the_first_observation_stays_where_it_states_the_task(
    last: int, keep_first: bool, shown: list[str]
) -> None:
    history = History("rules", "a room", last, keep_first=keep_first)
    history.add("go", "a hall")
    history.add("out", "a yard")
    assert [message.text for message in history.messages] == ["rules", *shown]


def test_a_prompt_of_everything_cannot_drop_the_first_observation() -> None:
    assert make_agent("direct?history=0&first=false").name == "direct"
    with pytest.raises(InputError, match="first=false has no effect on a prompt with all"):
        make_agent("direct?first=false")


def test_a_prompt_that_was_given_out_does_not_change_when_the_history_grows() -> None:
    history, native = History("rules", "a room"), NativeHistory("rules", Observation("a room"))
    handed: list[tuple[Sequence[Message], list[Message]]] = []
    for turn in range(4):
        handed += [(kept, list(kept)) for kept in (history.messages, native.messages)]
        history.add(f"go {turn}", "a hall")
        native.add(Generation(f"go {turn}", (), (), Finish.STOP, "model", 0), [user("a hall")])
        assert list(history.messages) == list(native.messages)
    assert [len(kept) for kept, _ in handed] == [2, 2, 4, 4, 6, 6, 8, 8]
    assert all(list(kept) == before for kept, before in handed)
