"""τ²-bench keeps the contract, and its outputs and scores equal the package's."""

from __future__ import annotations

import asyncio
import contextvars
import random
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.environment import Action, Transition
from palaestra.core.errors import InputError
from palaestra.core.message import ToolCall
from palaestra.core.task import Split, Task
from palaestra.core.tool import NotACall, random_call

pytest.importorskip("inspect_ai", reason="needs inspect-ai")
pytest.importorskip("inspect_evals", reason="needs inspect-evals")
from inspect_ai.model import ChatMessageAssistant, ChatMessageTool, ChatMessageUser, ModelName
from inspect_ai.model._call_tools import tool_params
from inspect_ai.scorer import Target
from inspect_ai.solver import TaskState
from inspect_ai.tool import ToolCall as PackageCall
from inspect_ai.tool import ToolError
from inspect_ai.util import Store, store_as
from inspect_ai.util._store import init_subtask_store
from inspect_evals.tau2.airline.AirlineAgentTools import get_airline_tools
from inspect_evals.tau2.airline.scorer import airline_scorer
from inspect_evals.tau2.common.agents import StoredAgentState
from inspect_evals.tau2.retail.scorer import retail_scorer
from inspect_evals.tau2.retail.tools import get_retail_tools
from inspect_evals.tau2.telecom.scorer import telecom_scorer
from inspect_evals.tau2.telecom.solver import telecom_initializer

from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.tau2 import domain as published
from palaestra.environments.families.tau2.desk import Desk, Lent
from palaestra.environments.families.tau2.domain import AGENT, DOMAINS, USER
from palaestra.environments.families.tau2.environment import DONE, ROUNDS, Tau2, parse_action
from palaestra.environments.families.tau2.scoring import UNSCORED
from palaestra.environments.families.tau2.user import (
    STOP,
    TRANSFER,
    TRANSFERRED,
    ScriptedUser,
    Utterance,
)

SIZES = {"airline": (30, 20), "retail": (74, 40), "telecom": (74, 40)}
DO_NOTHING = {
    "airline": "0 1 4 5 6 10 13 26 28 31 34 36 41 43 45 46 47 48 49".split(),
    "retail": "10 12 25 50 57 65 105".split(),
    "telecom": [],
}
"""Tasks that an agent solves by saying only goodbye."""

REFUSED = {"12", "13", "64", "105"}
"""Retail tasks of whose reference actions the package's tools refuse one that would change
something; in 12 and 105 nothing else would, so that doing nothing passes."""


@pytest.fixture(autouse=True)
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package leaves a copy of a database behind whenever it scores: let it be here."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def all_tasks(name: str) -> list[Task]:
    tasks = Tau2.tasks(f"tau2/{name}")
    return [task for split in Split for task in tasks.take(split, tasks.count(split) or 0)]


def some_tasks(name: str, every: int) -> list[Task]:
    return all_tasks(name)[::every]


def task_of(name: str, id: str) -> Task:
    return next(task for task in all_tasks(name) if task.parameters["task"] == id)


def started(name: str, id: str) -> Tau2:
    world = Tau2(name)
    world.reset(task_of(name, id))
    return world


def act(world: Tau2, *texts: str) -> Transition:
    return [world.step(Action(text)) for text in texts][-1]


def solve(name: str, tasks: Sequence[Task]) -> list[str]:
    """The ids of the tasks that the oracle does not solve."""
    world, failed = Tau2(name), []
    for task in tasks:
        world.reset(task)
        path = world.oracle()
        if not path or not [world.step(action) for action in path][-1].success:
            failed.append(task.parameters["task"])
    return failed


# ── the contract ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["airline", "retail:users", "telecom", "telecom:users"])
@pytest.mark.parametrize("clause", CLAUSES)
def test_contract(clause: Callable[[Subject], None], name: str) -> None:
    clause(Subject.of(f"palaestra.environments.families.tau2.environment:Tau2/{name}", steps=15))


@pytest.mark.parametrize("name", DOMAINS)
def test_the_published_splits(name: str) -> None:
    tasks = Tau2.tasks(f"tau2/{name}:users")
    assert (tasks.count(Split.TRAIN), tasks.count(Split.TEST)) == SIZES[name]
    assert tasks.count(Split.VALIDATION) == 0
    assert len({task.parameters["task"] for task in all_tasks(name)}) == sum(SIZES[name])


def test_data_of_another_release_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(published.HASHES, "domains/airline/tasks.json", "0" * 16)
    published.records.cache_clear()
    with pytest.raises(InputError, match=r"tasks\.json.*install inspect-evals=="):
        Tau2("airline").reset(all_tasks("airline")[0])


def test_tools_of_both_sides_have_names_of_their_own() -> None:
    for name in Tau2.names():
        names = [tool.name for tool in Tau2(name).tools]
        assert len(set(names)) == len(names)
    assert len(Tau2("telecom").tools) == 13 and len(Tau2("telecom:users").tools) == 43


# ── the package alone ────────────────────────────────────────────────────────

SCORERS = {"airline": airline_scorer, "retail": retail_scorer, "telecom": telecom_scorer}
INSTANCES = {"airline": "AirlineAgent", "retail": "RetailAgent", "telecom": "TelecomAgent"}
DATABASES = {"airline": get_airline_tools, "retail": get_retail_tools}
Event = tuple[str, str | ToolCall]  # who, and what they said or did


def alone(domain: str, id: str, events: Sequence[Event]) -> tuple[list[str], bool, str]:
    """Return the package's tool outputs, its scorer's verdict, and its database's hash."""
    return contextvars.Context().run(lambda: asyncio.run(_alone(domain, id, events)))


async def _alone(domain: str, id: str, events: Sequence[Event]) -> tuple[list[str], bool, str]:
    init_subtask_store(Store())
    sample = DOMAINS[domain].sample(published.records(domain)[id])
    seen: dict[str, list[Any]] = {AGENT: [], USER: list(sample.input)}
    state = TaskState(
        ModelName("none/none"), id, 1, sample.input, seen[USER], metadata=sample.metadata
    )
    if domain == "telecom":
        await telecom_initializer()(state, None)  # type: ignore[arg-type]
    answers = []
    for who, what in events:
        if isinstance(what, str):
            seen[who].append(ChatMessageAssistant(content=what))
            seen[USER if who == AGENT else AGENT].append(ChatMessageUser(content=what))
            continue
        call = PackageCall("1", what.name, dict(what.arguments))
        tool = published.definitions(domain, who)[what.name].tool
        try:
            answer = str(await tool(**tool_params(call.arguments, tool)))
        except ToolError as error:
            answer = f"Error: {error.message}"
        except Exception as error:  # where the package would drop the turn
            answer = f"Error: {error}"
        answers.append(answer)
        seen[who].append(ChatMessageAssistant(content="", tool_calls=[call]))
        seen[who].append(ChatMessageTool(content=answer, tool_call_id="1"))
    store_as(StoredAgentState, INSTANCES[domain]).messages = seen[AGENT]
    state.messages = seen[USER]
    score = await SCORERS[domain]()(state, Target(""))
    assert score is not None
    hash = DATABASES[domain]().db.get_hash() if domain in DATABASES else ""
    return answers, score.value == "C", hash


def hold_against_the_package(domain: str, task: Task, choose: str) -> None:
    """Play with two players, where every act is explicit, and do the same to the package."""
    world, rng = Tau2(f"{domain}:users"), random.Random(task.seed)
    world.reset(task)
    path = world.oracle() if choose == "oracle" else []
    ended, events, answers = False, list[Event](), list[str]()
    while not ended:
        (who,) = world.acting()
        match choose:
            case "oracle":
                action = path[len(events)]
            case "nothing":
                action = Action("Goodbye." if who == AGENT else STOP if events else "Hello.")
            case _:
                action = world.sample_action(rng)
                if len(events) > 40:
                    action = Action(STOP)
        output = parse_action(action, published.tools(domain, who))
        step = world.step(action)
        events.append((who, output))
        if isinstance(output, ToolCall):
            answers.append(step.observation.text)
        ended = step.terminated
    theirs, verdict, hash = alone(domain, str(task.parameters["task"]), events)
    assert answers == theirs
    assert step.success is verdict and step.reward == float(verdict)
    assert step.rewards == {AGENT: step.reward, USER: step.reward}
    if hash:
        assert world._desk is not None
        assert world._desk.inside(DATABASES[domain]).db.get_hash() == hash


@pytest.mark.parametrize("choose", ["oracle", "nothing", "chance"])
@pytest.mark.parametrize(("domain", "every"), [("airline", 50), ("retail", 60), ("telecom", 25)])
def test_as_the_package(domain: str, every: int, choose: str) -> None:
    for task in some_tasks(domain, every):
        hold_against_the_package(domain, task, choose)


@pytest.mark.slow
@pytest.mark.parametrize("choose", ["oracle", "chance"])
@pytest.mark.parametrize(("domain", "every"), [("airline", 5), ("retail", 7), ("telecom", 3)])
def test_as_the_package_in_many_tasks(domain: str, every: int, choose: str) -> None:
    for task in some_tasks(domain, every):
        hold_against_the_package(domain, task, choose)


# ── solutions ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "every"), [("airline", 2), ("retail", 4), ("telecom", 8), ("retail:users", 20)]
)
def test_the_reference_actions_solve(name: str, every: int) -> None:
    assert not solve(name, some_tasks(name, every))


@pytest.mark.slow
@pytest.mark.parametrize("name", Tau2.names())
def test_the_reference_actions_solve_every_task(name: str) -> None:
    assert not solve(name, all_tasks(name))


@pytest.mark.parametrize(
    "name", ["airline", "retail", pytest.param("telecom", marks=pytest.mark.slow)]
)
def test_what_an_agent_passes_who_does_nothing(name: str) -> None:
    world, passed = Tau2(name), []
    for task in all_tasks(name):
        world.reset(task)
        while not (step := world.step(Action("Goodbye."))).terminated:
            pass
        if step.success:
            passed.append(task.parameters["task"])
    assert sorted(passed, key=int) == DO_NOTHING[name]


def test_reference_actions_that_the_tools_refuse() -> None:
    refused = set()
    for id in published.records("retail"):
        desk = Desk("retail", id)
        for action in desk.criteria.actions or []:
            if action.name not in UNSCORED:
                try:
                    desk.act(action.name, action.arguments)
                except ToolError:
                    if not action.name.startswith(("find_", "get_")):
                        refused.add(id)
    assert refused == REFUSED


def test_the_oracle_goes_on_from_the_middle_and_knows_when_all_is_lost() -> None:
    world = started("retail", "3")
    path = world.oracle()
    done = next(i for i, action in enumerate(path) if "get_user_details" in action.text)
    for action in path[: done + 1]:
        world.step(action)
    assert world.oracle() == path[done + 1 :]
    act(world, "cancel_pending_order(order_id='#W4776164', reason='no longer needed')")
    assert world.oracle() == []


# ── the desk ─────────────────────────────────────────────────────────────────


def test_a_lent_table_is_copied_entry_by_entry() -> None:
    whole = published.database("retail").users
    table = Lent(whole)
    (name,) = list(whole)[:1]
    assert table.own == set() and dict(table) == dict(whole)
    table[name].email = "new@example.com"
    assert table.own == {name} and whole[name].email != "new@example.com"
    assert table[name].email == "new@example.com"


def test_episodes_leave_the_published_database_alone() -> None:
    before = published.database("retail").get_hash()
    solve("retail", some_tasks("retail", 10))
    assert published.database("retail").get_hash() == before


def test_the_key_distinguishes_databases_and_not_the_path_to_them() -> None:
    world = started("retail", "3")
    key = world.state_key()
    act(world, "get_order_details(order_id='#W4776164')", "list_all_product_types()")
    assert world.state_key() == key
    cancel = "cancel_pending_order(order_id='#W4776164', reason='no longer needed')"
    assert act(world, cancel).valid and world.state_key() != key
    key = world.state_key()
    assert act(world, cancel).observation.text == "Error: Non-pending order cannot be cancelled"
    assert world.state_key() == key


def test_phone_and_database_agree_after_every_call() -> None:
    world = started("telecom:users", all_tasks("telecom")[0].parameters["task"])
    act(world, "Hello.", "disable_roaming(customer_id='C1001', line_id='L1002')")
    assert world._desk is not None and world._desk._both is not None
    surroundings = world._desk._both.user_tools.db.surroundings
    assert surroundings.roaming_allowed is False
    act(world, "enable_roaming(customer_id='C1001', line_id='L1002')")
    assert surroundings.roaming_allowed is True


def test_new_bills_have_ids_that_are_no_accident() -> None:
    seen = set()
    for _ in range(2):
        world = started("telecom", all_tasks("telecom")[0].parameters["task"])
        before = act(world, "get_bills_for_customer(customer_id='C1002')").observation.text
        act(world, "refuel_data(customer_id='C1002', line_id='L1004', gb_amount=1.5)")
        after = act(world, "get_bills_for_customer(customer_id='C1002')").observation.text
        found = set(re.findall(r'"bill_id": "(B[0-9a-f]{8})"', after))
        assert len(found) == 1 and not any(id in before for id in found)
        seen |= found
    assert len(seen) == 1


def test_what_the_package_did_not_foresee_is_answered() -> None:
    world = started("airline", "0")
    step = act(world, "update_reservation_passengers(reservation_id='EHGLP3', passengers=[{}])")
    assert step.valid and step.observation.text.startswith("Error: ")
    assert not step.terminated


# ── the conversation ─────────────────────────────────────────────────────────


def test_the_rounds_are_limited_and_then_scored() -> None:
    world = Tau2("airline:users")
    world.reset(task_of("airline", "0"))
    steps = [world.step(Action("Well?")) for _ in range(2 * ROUNDS)]
    assert not any(step.terminated for step in steps[:-1])
    assert steps[-1].terminated and steps[-1].success  # the right answer is to do nothing


def test_each_player_knows_only_their_own_part() -> None:
    world = Tau2("telecom:users")
    task = all_tasks("telecom")[0]
    first = world.reset(task).text
    scenario = str(Desk("telecom", task.parameters["task"]).task.user_scenario)
    assert world.acting() == (USER,) and scenario in first and "Agent Policy" not in first
    assert "- check_status_bar():" in first and "get_customer_by_phone" not in first
    done = act(world, "check_status_bar()")
    assert world.acting() == (USER,) and done.observation.text.startswith("Status Bar: ")
    assert not act(world, "get_customer_by_phone(phone_number='555-123-2002')").valid
    incoming = act(world, "My phone is slow.").observation.text
    assert world.acting() == (AGENT,) and incoming.endswith("My phone is slow.")
    assert DOMAINS["telecom"].policy() in incoming and "Status Bar: " not in incoming[-100:]
    assert scenario not in incoming and "- check_status_bar():" not in incoming
    assert not act(world, "check_status_bar()").valid
    assert act(world, "Call me Ann.").observation.text == "Call me Ann."
    assert world.acting() == (USER,)
    ended = act(world, f"Bye. {STOP}")
    assert ended.terminated and ended.rewards == {AGENT: 0.0, USER: 0.0}


def test_each_side_can_look_at_what_came_last() -> None:
    world = Tau2("telecom:users")
    first = world.reset(all_tasks("telecom")[0])
    assert world.observe(USER) == first and "not your turn" in world.observe(AGENT).text
    told = act(world, "My phone is slow.").observation
    assert world.observe(AGENT) == told and "not your turn" in world.observe(USER).text
    other = Tau2("telecom:users")
    other.restore(world.snapshot())
    assert other.observe(AGENT) == told
    ended = act(world, "How can I help?", f"Not at all. {STOP}")
    assert ended.terminated and world.acting() == ()
    assert world.observe(AGENT) == world.observe(USER) == ended.observation


def test_one_player_receives_what_the_scripted_user_would_say() -> None:
    id = all_tasks("telecom")[4].parameters["task"]
    one, two = Tau2("telecom"), Tau2("telecom:users")
    incoming = [one.reset(task_of("telecom", id)).text]
    for action in one.oracle():
        step = one.step(action)
        if action.call is None:
            incoming.append(step.observation.text)
    two.reset(task_of("telecom", id))
    spoken = []
    for action in two.oracle():
        if two.acting() == (USER,) and action.call is None:
            spoken.append(action.text)
        two.step(action)
    assert spoken == incoming and len(incoming) > 10


def scripted(domain: str, id: str) -> ScriptedUser:
    scenario = Desk(domain, id).task.user_scenario.instructions
    return ScriptedUser(scenario, published.tools(domain, USER))


def test_the_scripted_user_tells_everything_and_then_ends() -> None:
    user, talk = scripted("retail", "3"), list[Utterance]()
    replies = []
    for words in ("", "Hello.", "Your name?", "More?", "Shall I?", "Anything else?", "Done."):
        if words:
            talk.append(Utterance(AGENT, words))
        reply = user.reply(talk)
        assert isinstance(reply, str)
        replies.append(reply)
        talk.append(Utterance(USER, reply))
    assert replies[0].startswith("I want to know how many tshirt options")
    assert replies[1] == "I am Yusuf Rossi in zipcode 19122."
    assert replies[2:5] == [
        "I do not remember my email address",
        "I am a private person that does not want to reveal much about myself.",
        "Yes.",
    ]
    assert STOP in replies[5] and STOP in replies[6]
    assert user.reply([*talk, Utterance(AGENT, TRANSFERRED)]) == TRANSFER


@pytest.mark.parametrize(
    ("words", "reply"),
    [
        ("Please reboot device.", ToolCall("reboot_device", {})),
        ("Toggle data saver mode!", ToolCall("toggle_data_saver_mode", {})),
        ("Use reset_apn_settings() now.", ToolCall("reset_apn_settings", {})),
        (
            "`check_app_status('messaging')`",
            ToolCall("check_app_status", {"app_name": "messaging"}),
        ),
        ("First toggle_data, then reboot_device.", "I cannot do several things at once."),
        (
            "Please grant_app_permission.",
            "I do not know how to do that. grant_app_permission needs",
        ),
        ("Do reboot_device and reboot_device().", ToolCall("reboot_device", {})),
    ],
)
def test_the_scripted_user_does_one_thing_at_a_time(words: str, reply: str | ToolCall) -> None:
    user = scripted("telecom", all_tasks("telecom")[0].parameters["task"])
    output = user.reply([Utterance(USER, user.parts[0]), Utterance(AGENT, words)])
    if isinstance(reply, ToolCall):
        assert output == reply
        report = user.reply([Utterance(AGENT, words), Utterance(USER, "It works.", reply)])
        assert isinstance(report, str) and report.endswith("My phone says: It works.")
    else:
        assert isinstance(output, str) and output.startswith(reply)


# ── bad input ────────────────────────────────────────────────────────────────


def test_foreign_tasks_are_refused() -> None:
    world = Tau2("airline")
    for task in (all_tasks("retail")[0], Task("train/0", "tau2/airline", 0)):
        with pytest.raises(InputError, match="take tasks of that environment"):
            world.reset(task)
    unknown = Task("x", "tau2/airline", 0, parameters={"domain": "airline", "task": "99"})
    with pytest.raises(InputError, match="no task '99'"):
        world.reset(unknown)
    with pytest.raises(InputError, match="reset"):
        Tau2("airline").step(Action("Hello."))


def test_snapshots_of_other_worlds_are_refused() -> None:
    world = started("airline", "0")
    with pytest.raises(InputError, match="'tau2/airline'"):
        Tau2("airline:users").restore(world.snapshot())
    with pytest.raises(InputError, match="version"):
        world.restore(world.snapshot().replace(b" 0.", b" 9.", 1))


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("list_all_airports()", ToolCall("list_all_airports", {})),
        ("list_all_airports()\nThis helps.", ToolCall("list_all_airports", {})),
        ('{"name": "list_all_airports", "arguments": {}}', ToolCall("list_all_airports", {})),
        ('<tool_call>{"name": "list_all_airports"}</tool_call>', ToolCall("list_all_airports", {})),
        ("```\nlist_all_airports()\n```", ToolCall("list_all_airports", {})),
        ("I shall call list_all_airports() now.", "I shall call list_all_airports() now."),
        (" Hello. ", "Hello."),
        ("", None),
        ("reboot_device()", None),
        ("{}", None),
        ("send_certificate(user_id='a', amount=1e400)", None),
        ("send_certificate(user_id='a', amount=1" + "0" * 40 + ")", None),
        ("calculate(expression='\ud800')", None),
        ("\ud800", None),
    ],
)
def test_what_is_a_call_and_what_a_message(text: str, meaning: ToolCall | str | None) -> None:
    tools = published.tools("airline", AGENT)
    if meaning is None:
        with pytest.raises(NotACall):
            parse_action(Action(text), tools)
    else:
        assert parse_action(Action(text), tools) == meaning


@pytest.fixture(scope="module")
def worlds() -> dict[str, Tau2]:
    return {name: Tau2(name) for name in Tau2.names()}


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(Tau2.names()), seed=st.integers(0, 999), text=st.text(max_size=60))
def test_nothing_that_is_reported_raises(
    worlds: dict[str, Tau2], name: str, seed: int, text: str
) -> None:
    world, rng = worlds[name], random.Random(seed)
    world.reset(rng.choice(all_tasks(name.partition(":")[0])))
    calls = [random_call(world.tools, rng) for _ in range(2)]
    odd = ToolCall(calls[0].name, dict.fromkeys(calls[0].arguments, text))
    for action in (Action(text), Action("", calls[1]), Action(text, odd), Action(str(odd))):
        step = world.step(action)
        assert step.observation.text and world.state_key()
        assert step.valid or step.reward == 0.0


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    world = started("telecom", all_tasks("telecom")[0].parameters["task"])
    for action in world.oracle():
        world.step(action)
    act(world, DONE)
    assert capfd.readouterr() == ("", "")
