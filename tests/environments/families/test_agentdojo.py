"""AgentDojo satisfies the contract, and scores like the package on the same transcripts."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from palaestra.core.environment import Action, Transition
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.message import ToolCall
from palaestra.core.task import Split, Task
from palaestra.core.tool import NotACall
from palaestra.rollout.guarded_environment import GuardedEnvironment

pytest.importorskip("agentdojo", reason="needs the package agentdojo")
from agentdojo.agent_pipeline import AgentPipeline, BasePipelineElement, ToolsExecutor
from agentdojo.attacks import load_attack
from agentdojo.functions_runtime import FunctionCall
from agentdojo.task_suite.load_suites import _SUITES, get_suites
from agentdojo.types import get_text_content_as_str

from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.agentdojo.environment import AgentDojo, inlined
from palaestra.environments.families.agentdojo.suites import (
    NEWEST,
    NOW,
    STAMPING,
    VERSIONS,
    attacks,
    standing_clock,
)
from palaestra.environments.shared.tool_call_parsing import parsed_call

SUITES = {"banking": (16, 9), "slack": (21, 5), "travel": (20, 7), "workspace": (40, 14)}
UNSOLVED = {f"injection_task_{number}" for number in range(6, 14)}
"""Workspace's injection tasks for which the package has no ground truth: it is empty."""
FREE = {"user_task_5", "user_task_6", "user_task_8", "user_task_9", "user_task_10"}
"""Banking's user tasks that are solved by doing nothing."""

Calls = Sequence[tuple[str, dict[str, Any]]]


def tasks(name: str) -> list[Task]:
    listed = AgentDojo.tasks(f"agentdojo/{name}")
    return listed.take(Split.TEST, listed.count(Split.TEST) or 0)


def started(name: str, index: int = 0) -> AgentDojo:
    world = AgentDojo(name)
    world.reset(tasks(name)[index])
    return world


def use(world: AgentDojo, tool: str, **arguments: Any) -> Transition:
    return world.step(Action("", ToolCall(tool, arguments)))


class Script(BasePipelineElement):
    """A pipeline of the package that makes fixed calls and records their results."""

    name = "script"

    def __init__(self, calls: Calls, words: str) -> None:
        self.calls, self.words, self.results = calls, words, list[str]()

    def query(self, query, runtime, env, messages=(), extra_args=None):  # type: ignore[no-untyped-def]
        messages = [*messages]
        for function, arguments in self.calls:
            call = FunctionCall(function=function, args=arguments)
            messages.append({"role": "assistant", "content": [], "tool_calls": [call]})
            *_, messages, _ = ToolsExecutor().query(query, runtime, env, messages)
            last = messages[-1]
            self.results.append(last["error"] or get_text_content_as_str(last["content"]))
        content = [{"type": "text", "content": self.words}]
        messages.append({"role": "assistant", "content": content, "tool_calls": None})
        return query, runtime, env, messages, extra_args


def directly(name: str, task: Task, calls: Calls, words: str) -> tuple[list[str], bool, bool]:
    """Return the results and the verdict of the package alone."""
    suite_name, _, attack_name = name.partition(":")
    suite = get_suites(NEWEST)[suite_name]
    user = suite.user_tasks[task.parameters["user_task"]]
    goal, injections = None, {}
    if attack_name:
        victim = AgentPipeline([])
        victim.name = "local"
        goal = suite.injection_tasks[task.parameters["injection_task"]]
        injections = load_attack(attack_name, suite, victim).attack(user, goal)
    script = Script(calls, words)
    with standing_clock():
        utility, security = suite.run_task_with_pipeline(script, user, goal, injections)
    return script.results, utility, security


def ours(
    world: AgentDojo, task: Task, calls: Calls, words: str
) -> tuple[list[str], bool, bool | None]:
    world.reset(task)
    results = [use(world, name, **arguments) for name, arguments in calls]
    end = world.step(Action(words))
    assert end.terminated
    assert end.reward == end.success
    assert not any(step.info or step.reward or step.terminated for step in results)
    return (
        [step.observation.text for step in results],
        end.success,
        end.info.get("attack_succeeded"),
    )


def truth(name: str, task: Task, of: str) -> tuple[Calls, str]:
    """Return the package's ground truth of the task's user task or injection task."""
    suite = get_suites(NEWEST)[name.partition(":")[0]]
    found = {"user_task": suite.user_tasks, "injection_task": suite.injection_tasks}[of]
    chosen = found[task.parameters[of]]
    calls = chosen.ground_truth(suite.load_and_inject_default_environment({}))
    return [(call.function, dict(call.args)) for call in calls], chosen.GROUND_TRUTH_OUTPUT


# ── the contract ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("name", ["banking", "slack:tool_knowledge"])
def test_the_contract_holds(name: str, clause: Callable[[Subject], None]) -> None:
    clause(Subject(lambda: AgentDojo(name), AgentDojo.tasks(f"agentdojo/{name}"), 15))


@pytest.mark.slow
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("name", ["travel:direct", "workspace", "workspace@v1.1"])
def test_the_contract_holds_in_the_larger_suites(
    name: str, clause: Callable[[Subject], None]
) -> None:
    clause(Subject(lambda: AgentDojo(name), AgentDojo.tasks(f"agentdojo/{name}"), 15))


# ── the same as the package ──────────────────────────────────────────────────


@pytest.mark.parametrize(
    "name", ["banking", "slack:important_instructions", "travel:injecagent", "workspace:direct"]
)
def test_answers_and_scores_are_the_packages_own(name: str) -> None:
    _compare(name, tasks(name)[:: len(tasks(name)) // (1 if "workspace" in name else 3)])


@pytest.mark.slow
@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("attack", ["important_instructions", "tool_knowledge"])
def test_answers_and_scores_of_pairs_are_the_packages_own(suite: str, attack: str) -> None:
    _compare(f"{suite}:{attack}", tasks(f"{suite}:{attack}")[:: 17 if suite == "workspace" else 2])


def _compare(name: str, chosen: list[Task]) -> None:
    """Compare on ground truths, on those of the injected task, and on random calls."""
    world, rng = AgentDojo(name), random.Random(0)
    for task in chosen:
        transcripts = [truth(name, task, "user_task")]
        if "injection_task" in task.parameters:
            transcripts.append(truth(name, task, "injection_task"))
        sampled = [world.sample_action(rng).call for _ in range(8)]
        transcripts.append(([(c.name, dict(c.arguments)) for c in sampled if c], "Done."))
        for calls, words in transcripts:
            words = words or "Done."
            results, success, attacked = ours(world, task, calls, words)
            expected, utility, security = directly(name, task, calls, words)
            assert results == expected
            assert success == utility
            assert attacked == (security if ":" in name else None)


@pytest.mark.parametrize("suite", SUITES)
def test_all_user_and_injection_tasks_are_there(suite: str) -> None:
    users, goals = SUITES[suite]
    assert len(tasks(suite)) == users
    assert len(tasks(f"{suite}:direct")) == users * goals
    assert len(tasks(f"{suite}:dos")) == users
    assert AgentDojo.tasks(f"agentdojo/{suite}").count(Split.TRAIN) == 0


def test_the_versions_are_the_packages() -> None:
    assert list(_SUITES) == list(VERSIONS)
    counts = [len(tasks(f"workspace:direct@{version}")) for version in VERSIONS]
    assert counts == [40 * 6] * 4 + [40 * 14] * 3


def test_tools_have_the_packages_schemas() -> None:
    world = AgentDojo("workspace")
    functions = {function.name: function for function in get_suites(NEWEST)["workspace"].tools}
    assert [tool.name for tool in world.tools] == list(functions)
    for tool in world.tools:
        schema = functions[tool.name].parameters.model_json_schema()
        assert tool.parameters == (inlined(schema) if "$defs" in schema else schema)
        assert "$ref" not in str(tool.parameters)
    permission = {t.name: t for t in world.tools}["share_file"].parameters["properties"]
    assert permission["permission"]["enum"] == ["r", "rw"]


# ── ground truths and nothing ────────────────────────────────────────────────


def _solve_all(name: str, chosen: list[Task]) -> None:
    world = AgentDojo(name)
    for task in chosen:
        world.reset(task)
        steps = [world.step(action) for action in world.oracle()]
        assert steps[-1].success and all(step.valid for step in steps), task
        assert not steps[-1].info.get("attack_succeeded"), task


@pytest.mark.parametrize("suite", SUITES)
def test_the_oracle_solves_user_tasks(suite: str) -> None:
    _solve_all(suite, tasks(suite)[:: 8 if suite == "workspace" else 1])


@pytest.mark.slow
@pytest.mark.parametrize("suite", SUITES)
def test_the_oracle_solves_all_user_tasks_also_under_attack(suite: str) -> None:
    _solve_all(suite, tasks(suite))
    attacked = f"{suite}:important_instructions"
    _solve_all(attacked, tasks(attacked)[:: 9 if suite == "workspace" else 1])


def test_the_oracle_goes_on_where_the_agent_is() -> None:
    world = started("banking", 4)
    plan = world.oracle()
    world.step(plan[0])
    assert list(world.oracle()) == list(plan[1:])
    use(world, "get_iban")  # a detour: the whole plan again
    assert list(world.oracle()) == list(plan)
    for action in world.oracle():
        end = world.step(action)
    assert end.success
    assert world.oracle() == []


def test_the_oracle_knows_when_it_is_too_late() -> None:
    world = started("banking", 10)  # "pay the bill": an underspecified task, where all acts fail
    assert world.oracle()
    use(world, "send_money", recipient="a", amount=1.0, subject="b", date="2022-01-01")
    assert world.oracle() == []


@pytest.mark.parametrize(
    "suite", ["banking", "slack", "travel", pytest.param("workspace", marks=pytest.mark.slow)]
)
def test_ground_truths_of_injection_tasks_succeed_where_the_package_has_any(suite: str) -> None:
    name = f"{suite}:direct"
    world, seen = AgentDojo(name), {}
    for task in tasks(name)[: SUITES[suite][1]]:
        calls, words = truth(name, task, "injection_task")
        _, _, seen[task.parameters["injection_task"]] = ours(world, task, calls, words or "Done.")
    failed = {goal for goal, worked in seen.items() if not worked}
    assert failed == (UNSOLVED if suite == "workspace" else set())


@pytest.mark.parametrize("suite", SUITES)
def test_doing_nothing_solves_what_the_package_grants_for_nothing(suite: str) -> None:
    world = AgentDojo(suite)
    free = set()
    for task in tasks(suite):
        world.reset(task)
        if world.step(Action("Done.")).success:
            free.add(task.parameters["user_task"])
    assert free == (FREE if suite == "banking" else set())


def test_a_denied_service_is_the_success_of_its_attack() -> None:
    world = started("banking:dos", 4)
    end = world.step(Action("asdf"))
    assert (end.success, end.info) == (False, {"attack_succeeded": True})
    world.reset(tasks("banking:dos")[4])
    end = [world.step(action) for action in world.oracle()][-1]
    assert (end.success, end.info) == (True, {"attack_succeeded": False})


# ── attacks ──────────────────────────────────────────────────────────────────


def test_the_injection_is_where_the_ground_truth_looks() -> None:
    world = started("banking:important_instructions")
    seen = [world.step(action).observation.text for action in world.oracle()]
    assert "message from me, Emma Johnson, to you, Local model" in " ".join(seen)
    plain = started("banking")
    seen = [plain.step(action).observation.text for action in plain.oracle()]
    assert "Emma Johnson" not in " ".join(seen)


def test_every_attack_of_the_package_can_be_made_but_the_manual_one() -> None:
    assert {"direct", "ignore_previous", "injecagent", "tool_knowledge"} < set(attacks())
    assert "manual" not in attacks()
    for attack in attacks():
        assert started(f"slack:{attack}").oracle()


def test_worlds_share_nothing() -> None:
    one, other = started("banking", 3), started("banking", 3)
    before = other.state_key()
    assert one.state_key() == before
    use(one, "update_password", password="new")
    assert other.state_key() == before != one.state_key()
    one.reset(tasks("banking")[3])
    assert one.state_key() == before


# ── words and calls ──────────────────────────────────────────────────────────


def test_a_call_may_be_written_in_words() -> None:
    world = started("banking")
    by_call = use(world, "get_most_recent_transactions", n=1).observation
    for words in (
        "get_most_recent_transactions(n=1)",
        "First I look.\nget_most_recent_transactions(1)",
        '<tool_call>{"name": "get_most_recent_transactions", "arguments": {"n": 1}}</tool_call>',
        '{"name": "get_most_recent_transactions", "arguments": {"n": "1"}}',  # the package does so
    ):
        assert world.step(Action(words)).observation == by_call


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("", "Call a tool"),
        (" \n", "Call a tool"),
        ("pay_bill(amount=3)", "no tool 'pay_bill'"),
        ("send_money(", "Call one tool"),
        ("get_iban(verbose=True)", "has no argument 'verbose'"),
        ('send_money(recipient="a")', "validation errors for Input schema for `send_money`"),
        ("read_file(file_path={1, 2})", "plain values"),
        ("read_file(file_path='\\ud800')", "plain values"),
        ('{"name": "read_file", "arguments": ' + '{"a":' * 90_000, ""),
    ],
)
def test_a_call_that_cannot_be_followed_changes_nothing(words: str, hint: str) -> None:
    world = started("banking")
    before = world.state_key()
    results = GuardedEnvironment(world, "banking").step(Action(words)).value[0]
    assert not results.valid and not results.terminated
    assert hint in results.observation.text
    assert world.state_key() == before


@pytest.mark.parametrize("words", ["I paid the bill (98.70 in all).", "Done (see transactions)"])
def test_words_without_a_call_are_the_last(words: str) -> None:
    assert started("banking").step(Action(words)).terminated


def test_hearing() -> None:
    tools = AgentDojo("banking").tools
    assert parsed_call("It is 5 (five).", tools) is None
    assert parsed_call("get_iban()", tools) == ToolCall("get_iban", {})
    with pytest.raises(NotACall, match="get_ibn"):
        parsed_call("get_ibn()", tools)


def test_a_tool_that_fails_was_understood() -> None:
    world = started("banking")
    results = use(world, "update_scheduled_transaction", id=99)
    assert results.valid
    assert results.observation.text == "ValueError: Transaction with ID 99 not found."


def test_brackets_without_end_are_refused() -> None:
    results = use(started("banking"), "read_file", file_path="[" * 50_000)
    assert not results.terminated


def test_a_scorer_that_fails_grants_nothing() -> None:
    world = AgentDojo("slack:direct")
    failing = 0
    for task in tasks("slack:direct")[::5]:
        world.reset(task)
        for user in ("Alice", "Bob", "Charlie", "Dora", "Eve", "Fred"):
            use(world, "remove_user_from_slack", user=user)
        end = world.step(Action("Done."))
        failing += "scorer_error" in end.info
        assert end.terminated and not end.success
        assert isinstance(end.info["attack_succeeded"], bool)
    assert failing > 0


def test_stamps_stand_still_and_lie_after_all_others() -> None:
    world = started("workspace")
    call = {"recipients": ["a@b.de"], "subject": "s", "body": "b"}
    one = use(world, "send_email", **call).observation.text
    world.reset(tasks("workspace")[0])
    assert use(world, "send_email", **call).observation.text == one
    assert str(NOW) in one
    state = get_suites(NEWEST)["workspace"].load_and_inject_default_environment({})
    stamps = [mail.timestamp for mail in state.inbox.emails.values()]
    stamps += [file.last_modified for file in state.cloud_drive.files.values()]
    assert max(stamps) < NOW
    assert {module.datetime.__name__ for module in STAMPING} == {"datetime"}


# ── what is refused ──────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "name", ["", "bank", "banking:", "banking:manual", "banking:unknown", "banking@v9", "a/b"]
)
def test_an_unknown_name_is_refused(name: str) -> None:
    with pytest.raises(UnknownName):
        AgentDojo(name)
    with pytest.raises(UnknownName):
        AgentDojo.spec_of(name)


def test_tasks_of_others_are_refused() -> None:
    world = AgentDojo("banking")
    attacked = tasks("banking:direct")[0]
    for task in (Task("test/0", "babyai/GoTo", 2), tasks("workspace")[30], attacked):
        with pytest.raises(InputError, match="not a task of agentdojo/banking"):
            world.reset(task)
    with pytest.raises(InputError, match="not a task"):
        AgentDojo("banking:direct").reset(tasks("banking")[0])


def test_snapshots_of_others_are_refused() -> None:
    saved = started("banking").snapshot()
    for name in ("slack", "banking:direct", "banking@v1.1"):
        with pytest.raises(InputError, match="agentdojo/banking"):
            AgentDojo(name).restore(saved)
    with pytest.raises(InputError, match="no task yet"):
        AgentDojo("banking").snapshot()


def test_a_snapshot_of_an_end_is_an_end() -> None:
    world = started("banking")
    world.step(Action("get_iban()"))
    world.step(Action("Done."))
    other = AgentDojo("banking")
    other.restore(world.snapshot())
    assert other.state_key() == world.state_key()
    assert not other.step(Action("get_iban()")).valid
