"""BFCL satisfies the contract, and its texts, results and verdicts equal the package's."""

from __future__ import annotations

import copy
import decimal
import gc
import importlib
import json
import os
import random
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, patch

import pytest

from palaestra.core.environment import Action, Transition
from palaestra.core.errors import InputError, UnknownName
from palaestra.core.message import ToolCall
from palaestra.core.rare_capabilities import signals_of
from palaestra.core.task import Split, Task
from palaestra.core.tool import random_call

pytest.importorskip("bfcl_eval")
pytest.importorskip("mpmath")
import mpmath
from bfcl_eval.eval_checker.multi_turn_eval import multi_turn_utils
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code import long_context
from bfcl_eval.eval_checker.multi_turn_eval.func_source_code.posting_api import TwitterAPI

from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.bfcl.apps import Apps, judged
from palaestra.environments.families.bfcl.data import CATEGORIES, Conversation, by_id, conversations
from palaestra.environments.families.bfcl.environment import DONE, Bfcl, parts

BASE, FUNC, PARAM, LONG = CATEGORIES
HINT = " Note that the provided function is in Python 3 syntax."
LIMIT = 21  # steps after which the package ends a turn
Script = list[list[list[ToolCall]]]  # turns, steps, calls


def task(id: str) -> Task:
    category, _, number = id.rpartition("_")
    return Task(f"test/{number}", f"bfcl/{category}", 0, Split.TEST, parameters={"id": id})


def plan_of(id: str) -> Conversation:
    return by_id(id.rpartition("_")[0])[id]


def started(id: str) -> Bfcl:
    world = Bfcl(id.rpartition("_")[0])
    world.reset(task(id))
    return world


def act(world: Bfcl, *texts: str) -> Transition:
    """Return the transition of the last text."""
    return [world.step(Action(text)) for text in texts][-1]


def solve(world: Bfcl) -> list[Transition]:
    return [world.step(action) for action in world.oracle()]


# ── the contract ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("name", [BASE, FUNC, LONG])
def test_the_contract_holds(name: str, clause: Callable[[Subject], None]) -> None:
    id = f"bfcl/{name}"
    clause(Subject(lambda: Bfcl(name), Bfcl.tasks(id), steps=15))


@pytest.mark.parametrize("name", CATEGORIES)
def test_each_category_has_its_200_tasks_in_the_test_split_only(name: str) -> None:
    tasks = Bfcl.tasks(f"bfcl/{name}")
    assert [tasks.count(split) for split in Split] == [0, 0, 200]
    ids = [task.parameters["id"] for task in tasks.take(Split.TEST, 200)]
    assert ids == [f"{name}_{number}" for number in range(200)]


# ── the package beside it ────────────────────────────────────────────────────


CONSTANTS = {name: copy.deepcopy(value) for name, value in vars(long_context).items()}


def clean(model: str) -> None:
    """Undo the package's changes to the process: apps, constants and default arguments.

    It generates and evaluates in two processes; here both happen in one.
    """
    for name in [name for name in vars(multi_turn_utils) if name.startswith(model)]:
        delattr(multi_turn_utils, name)
    for default in TwitterAPI.post_tweet.__defaults__:
        default.clear()
    for name in ("CREDIT_CARD_EXTENSION", "BOOKING_RECORD_EXTENSION"):
        constant = getattr(long_context, name)
        constant.clear()
        constant.update(copy.deepcopy(CONSTANTS[name]))


class Package:
    """The package's own loop, reader, converter and scorer, without its models."""

    def __init__(self, folder: Path) -> None:
        plain = ModuleType("overrides")
        plain.final = lambda method: method  # type: ignore[attr-defined]
        absent = {
            name: MagicMock()
            for name in (
                *("tree_sitter", "tree_sitter_java", "tree_sitter_javascript", "tenacity"),
                *("dotenv", "tqdm", "filelock", "bfcl_eval.constants.model_config"),
                "bfcl_eval.eval_checker.eval_runner_helper",
            )
        }
        place = {"BFCL_PROJECT_ROOT": str(folder)}  # it makes folders there when it is imported
        with (
            patch.dict("os.environ", place),
            patch.dict(sys.modules, {**absent, "overrides": plain}),
        ):
            self.handler = importlib.import_module("bfcl_eval.model_handler.base_handler")
            self.runner = importlib.import_module("bfcl_eval.eval_checker.eval_runner")
            self.words = importlib.import_module("bfcl_eval.model_handler.utils")
            self.types = importlib.import_module("bfcl_eval.constants.type_mappings")
            self.reader = importlib.import_module("bfcl_eval.utils")
        self.entries = {
            entry["id"]: entry
            for category in CATEGORIES
            for entry in self.reader.load_dataset_entry(category)
        }
        self.runs = 0

    def roll_out(self, plan: Conversation, script: Script) -> SimpleNamespace:
        """Run an episode in the package's loop; return messages, tools, results and the score."""
        self.runs += 1
        package, model = self, f"model_{self.runs}"
        queue = [
            *(
                item
                for turn in script
                for item in (
                    *([{c.name: json.dumps(dict(c.arguments))} for c in step] for step in turn),
                    "done",
                )
            )
        ]
        outputs: list[Any] = []

        class Handler(self.handler.BaseHandler):  # type: ignore[misc, name-defined]
            def _pre_query_processing_FC(self, data: Any, entry: Any) -> Any:
                return data

            def _compile_tools(self, data: Any, entry: Any) -> Any:
                return {"tools": package.tools(entry["function"])}

            def add_first_turn_message_FC(self, data: Any, messages: Any) -> Any:
                outputs.append(("user", [m["content"] for m in messages], data["tools"]))
                return data

            _add_next_turn_user_message_FC = add_first_turn_message_FC

            def _query_FC(self, data: Any) -> Any:
                return queue.pop(0), 0.0

            def _parse_query_response_FC(self, response: Any) -> Any:
                return {"model_responses": response, "input_token": 0, "output_token": 0}

            def _add_assistant_message_FC(self, data: Any, response: Any) -> Any:
                return data

            def _add_execution_results_FC(self, data: Any, results: Any, response: Any) -> Any:
                outputs.append(("results", results))
                return data

            def decode_execute(self, result: Any, has_tool_call_tag: bool) -> Any:
                return package.words.convert_to_function_call(result)

        handler = Handler(model, 0, model, True)
        entry = copy.deepcopy(self.entries[plan.id])
        with patch("builtins.print"):
            result, _ = handler.inference(entry, False, True)
        clean(model)
        score = self.runner._evaluate_single_multi_turn_entry(
            handler, plan.id, result, plan.truth, entry, model, plan.category
        )
        clean(model)
        failure = "" if score["valid"] else score["error"]["error_type"]
        return SimpleNamespace(outputs=outputs, valid=score["valid"], failure=failure)

    def tools(self, functions: Any) -> list[dict[str, Any]]:
        style = self.words.ModelStyle.OPENAI_COMPLETIONS
        found = self.words.convert_to_tool(functions, self.types.GORILLA_TO_OPENAPI, style)
        return [
            {
                "name": tool["function"]["name"],
                "description": tool["function"]["description"].removesuffix(HINT),
                "parameters": tool["function"]["parameters"],
            }
            for tool in found
        ]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    return Package(tmp_path_factory.mktemp("bfcl"))


def perfect(plan: Conversation, rng: random.Random) -> Script:
    return [
        [list(turn)] if len(turn) >= LIMIT else [[call] for call in turn] for turn in plan.solution
    ]


def empty(plan: Conversation, rng: random.Random) -> Script:
    return [[] for _ in plan.solution]


def wrong(plan: Conversation, rng: random.Random) -> Script:
    """Return the true calls with one left out, added, replaced, misspelt or reordered."""
    script = perfect(plan, rng)
    for _ in range(rng.randint(1, 2)):
        turn = rng.choice([turn for turn in script if turn] or [script[0]])
        place = rng.randrange(len(turn) + 1)
        match rng.choice(("more", "less", "other", "order", "argument", "number")):
            case "less":
                del turn[place : place + 1]
            case "more":
                turn.insert(place, [random_call(plan.tools, rng)])
            case "other":
                turn[place : place + 1] = [[random_call(plan.tools, rng)]]
            case "order":
                rng.shuffle(turn)
            case kind if turn:
                call = rng.choice(turn)[0]
                if call.arguments:
                    name = rng.choice(list(call.arguments))
                    value = 17 if kind == "number" else f"{call.arguments[name]} x"
                    turn[-1] = [ToolCall(call.name, {**call.arguments, name: value})]
    return script


def truncated(plan: Conversation, rng: random.Random) -> Script:
    """Return the true calls with too many harmless calls in one turn."""
    script = perfect(plan, rng)
    turn = rng.randrange(len(script))
    steps = script[turn]
    steps += [[random_call(plan.tools, rng)] for _ in range(LIMIT - len(steps))]
    return script[: turn + 1]


def in_parallel(plan: Conversation, rng: random.Random) -> Script:
    """Return all calls of a turn in one message."""
    return [[list(turn)] if turn else [] for turn in plan.solution]


KINDS = (perfect, wrong, empty, truncated, in_parallel)


def actions(step: Sequence[ToolCall]) -> Action:
    if len(step) == 1:
        return Action("", step[0])
    return Action("[" + ", ".join(map(str, step)) + "]")


def compare(package: Package, plan: Conversation, script: Script) -> Transition:
    """Run both environments; require equal texts and an equal score."""
    theirs = package.roll_out(plan, script)
    world = Bfcl(plan.category)
    seen = [world.reset(task(plan.id)).text]
    last: Transition | None = None
    outputs = iter(theirs.outputs)
    for turn in script:
        _, messages, tools = next(outputs)
        assert [seen[-1].rpartition("\nUser: ")[2].removeprefix("User: ")] == messages
        assert [
            {"name": t.name, "description": t.description, "parameters": dict(t.parameters)}
            for t in world.tools
        ] == tools
        for step in turn:
            last = world.step(actions(step))
            assert last.valid
            results = next(outputs)[1]
            if last.truncated or last.terminated:
                assert last.observation.text.startswith("\n".join(results))
            else:
                assert last.observation.text == "\n".join(results)
        if last is None or not (last.truncated or last.terminated):
            last = world.step(Action(DONE))
            seen.append(last.observation.text)
    assert last is not None
    assert next(outputs, None) is None
    assert last.success == theirs.valid and last.reward == float(theirs.valid)
    assert last.terminated or last.truncated
    assert last.info.get("failure", "") == theirs.failure
    assert (world.progress() == 1) == theirs.valid
    return last


def sample(category: str) -> list[Conversation]:
    return list(conversations(category)[3::20])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("category", CATEGORIES)
def test_it_says_does_and_judges_what_the_package_does(
    package: Package, category: str, kind: Callable[[Conversation, random.Random], Script]
) -> None:
    for number, plan in enumerate(sample(category)):
        compare(package, plan, kind(plan, random.Random(number)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("category", CATEGORIES)
def test_it_says_does_and_judges_what_the_package_does_in_every_task(
    package: Package, category: str, kind: Callable[[Conversation, random.Random], Script]
) -> None:
    solved = 0
    for number, plan in enumerate(conversations(category)):
        solved += compare(package, plan, kind(plan, random.Random(number))).success
    assert kind is not perfect or solved == 200
    assert kind is not empty or solved == 0


# ── what is published ────────────────────────────────────────────────────────


def test_tools_and_tasks_are_complete() -> None:
    for tool in Bfcl(BASE).tools:
        assert tool.parameters["type"] == "object"
        assert set(tool.parameters["required"]) <= set(tool.parameters["properties"])
    for category in CATEGORIES:
        for plan in conversations(category):
            assert [len(turn) for turn in plan.solution] == [len(turn) for turn in plan.truth]
            assert len(plan.requests) == len(plan.truth) and all(plan.requests)
            assert bool(plan.later) == (category == FUNC) and all(plan.later.values())


def test_two_tasks_take_more_calls_for_one_request_than_the_limit_has_steps() -> None:
    long = [
        plan.id
        for category in CATEGORIES
        for plan in conversations(category)
        if max(map(len, plan.truth)) > LIMIT - 1
    ]
    assert long == [f"{LONG}_38", f"{LONG}_46"]
    for id in long:
        world = started(id)
        assert world.oracle()[0].text.startswith("[") and solve(world)[-1].success


def test_one_task_of_miss_func_needs_a_tool_before_it_is_on_offer() -> None:
    world = started(f"{FUNC}_49")
    assert "tail" not in [tool.name for tool in world.tools]
    assert "tail(file_name='file3.txt')" in [action.text for action in world.oracle()]
    assert solve(world)[-1].success


# ── the course of an episode ─────────────────────────────────────────────────


def test_the_first_observation_lists_the_tools_and_states_what_the_user_wants() -> None:
    world = Bfcl(BASE)
    tools, _, user = world.reset(task(f"{BASE}_0")).text.rpartition("\n\n")
    assert user.startswith("User: Move 'final_report.pdf' within document directory to 'temp'")
    lines = tools.splitlines()
    assert lines[0] == "Tools:" and len(lines) == 1 + len(world.tools) == 33
    assert lines[-1] == (
        "wc(file_name: string, mode: string = …): Count the number of lines, words, and characters "
        "in a file of any extension from current directory. file_name: Name of the file of current "
        "directory to perform wc operation on. mode: Mode of operation ('l' for lines, 'w' for "
        "words, 'c' for characters)."
    )


@pytest.mark.parametrize("words", [DONE, "", "I cannot do that (there is no such file).", "[]"])
def test_words_without_a_call_end_the_turn(words: str) -> None:
    transition = act(started(f"{BASE}_0"), words)
    assert transition.valid and not transition.terminated
    assert transition.observation.text.startswith("User: Perform a detailed search using grep")


def test_a_tool_that_was_held_back_is_announced_in_its_turn() -> None:
    world = started(f"{FUNC}_0")
    before = [tool.name for tool in world.tools]
    assert "sort" not in before
    transition = act(world, DONE, DONE, DONE)
    assert transition.observation.text == (
        "New tools:\nsort(file_name: string): Sort the contents of a file line by line. "
        "file_name: The name of the file appeared at current directory to sort.\n\n"
        "User: I have updated some more functions you can choose from. What about now?"
    )
    assert [tool.name for tool in world.tools] == [*before, "sort"]
    world.reset(task(f"{FUNC}_0"))
    assert [tool.name for tool in world.tools] == before


def test_a_held_back_tool_is_not_named_and_works_when_guessed_as_in_the_package() -> None:
    world = started(f"{FUNC}_0")
    assert "sort" not in act(world, "frobnicate(x=1)").observation.text
    guessed = act(world, "cd('document')", "sort(file_name='final_report.pdf')")
    assert guessed.valid and "sorted_content" in guessed.observation.text


def test_several_calls_in_one_message_are_one_step() -> None:
    texts = (
        "[cd(folder='document'), pwd()]",
        '[{"name": "cd", "arguments": {"folder": "document"}}, {"name": "pwd"}]',
        '<tool_call>{"name": "cd", "arguments": {"folder": "document"}}</tool_call>\n'
        '<tool_call>{"name": "pwd", "arguments": {}}</tool_call>',
        "```\n[cd('document'), pwd()]\n```",
    )
    for text in texts:
        outputs = act(started(f"{BASE}_0"), text).observation.text.splitlines()
        assert outputs == [
            '{"current_working_directory": "document"}',
            '{"current_working_directory": "' + "/".join(["", "workspace", "document"]) + '"}',
        ]
    world = started(f"{BASE}_0")
    for text in ("[cd(folder='document'), frobnicate()]", '[{"name": "pwd"}, {"a": 1}]'):
        assert not act(world, text).valid
    assert act(world, "pwd()").observation.text == '{"current_working_directory": "/workspace"}'


def test_the_step_limit_cuts_the_turn_after_the_21st_step() -> None:
    world = started(f"{BASE}_0")
    steps = [act(world, "ls()") for _ in range(LIMIT)]
    assert not any(step.truncated for step in steps[:-1])
    assert steps[-1].truncated and not steps[-1].terminated and not steps[-1].success
    assert steps[-1].info == {"failure": "multi_turn:force_terminated"}
    assert not act(world, "ls()").valid and world.oracle() == []
    copy = Bfcl(BASE)
    copy.restore(world.snapshot())
    assert signals_of(copy) == signals_of(world) and not act(copy, "ls()").valid


def test_who_has_done_all_before_the_limit_cuts_the_last_turn_has_solved_the_task() -> None:
    world = started(f"{BASE}_0")
    actions = world.oracle()[:-1]
    for action in actions:
        world.step(action)
    while not (last := act(world, "ls()")).terminated:
        assert not last.truncated
    assert last.success and not last.truncated and world.progress() == 1


def test_a_wrong_type_is_the_app_s_to_answer() -> None:
    transition = act(started(f"{BASE}_0"), "tail(file_name='a', lines='many')", "cd()")
    assert transition.valid and transition.observation.text.startswith("Error during execution: ")


def test_an_expert_who_looks_around_still_finds_the_path() -> None:
    world = started(f"{BASE}_0")
    act(world, "ls()", "pwd()")
    world.step(world.oracle()[0])
    act(world, "ls()")
    assert solve(world)[-1].success


def test_the_oracle_has_no_plan_where_the_past_cannot_be_fixed() -> None:
    world = started(f"{BASE}_0")
    act(world, "rm(file_name='document')")
    assert world.oracle() == []
    act(world, DONE)
    assert world.oracle() == [] and world.progress() == 0


def test_the_oracle_says_much_at_once_where_few_steps_are_left() -> None:
    world = started(f"{BASE}_0")
    for _ in range(LIMIT - 2):
        act(world, "ls()")
    assert world.oracle()[0].text.startswith("[cd(folder='document'), mkdir")
    assert solve(world)[-1].success
    world.reset(task(f"{BASE}_0"))
    for _ in range(LIMIT - 1):
        act(world, "ls()")
    assert world.oracle() == []


def test_progress_counts_turns_that_the_checker_accepts() -> None:
    world = started(f"{BASE}_0")
    seen = []
    for action in world.oracle():
        last = world.step(action)
        seen.append(world.progress())
    assert seen == [0, 0, 0, 0.25, 0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 0.75, 0.75, 0.75, 1]
    assert last.success


# ── nothing is shared ────────────────────────────────────────────────────────


def test_the_package_s_shared_list_of_mentions_is_not_shared_here() -> None:
    id = next(p.id for p in conversations(BASE) if p.apps == ("TwitterAPI", "GorillaFileSystem"))
    login = plan_of(id).start["TwitterAPI"]
    calls = (
        f"authenticate_twitter(username={login['username']!r}, password={login['password']!r})",
        "post_tweet(content='hello')",
        "mention(tweet_id=3, mentioned_usernames=['@you'])",
        "get_tweet(tweet_id=3)",
    )
    for _ in range(2):
        outputs = act(started(id), *calls).observation.text
        assert json.loads(outputs)["mentions"] == ["@you"]
    assert TwitterAPI.post_tweet.__defaults__ == ([], [])


def test_no_world_pays_with_another_one_s_credit_card() -> None:
    plan = next(p for p in conversations(LONG) if p.apps[0] == "TravelAPI")
    cards = long_context.CREDIT_CARD_EXTENSION
    card = max(cards, key=lambda name: cards[name]["balance"])
    first, second = Apps(plan), Apps(plan)
    token = plan.start["TravelAPI"]["access_token"]
    flight = (
        f"book_flight(access_token={token!r}, card_id={card!r}, travel_date='2026-11-10', "
        "travel_from='SFO', travel_to='LAX', travel_class='economy')"
    )
    balance = f"get_credit_card_balance(access_token={token!r}, card_id={card!r})"
    before = second.do([balance])
    budget = f"set_budget_limit(access_token={token!r}, budget_limit=0)"
    outputs = first.do([balance, budget, flight])
    assert outputs[0] == before[0] and "booking_id" in outputs[2]
    assert second.do([balance]) == before != first.do([balance])
    assert cards == CONSTANTS["CREDIT_CARD_EXTENSION"]


def test_calculations_leave_the_precision_of_others_alone() -> None:
    plan = next(plan for plan in conversations(BASE) if "MathAPI" in plan.apps)
    before = decimal.getcontext().prec, mpmath.mp.dps
    apps = Apps(plan)
    outputs = apps.do(
        ["square_root(number=2, precision=5)", "logarithm(value=8, base=2, precision=40)"]
    )
    assert "1.4142" in outputs[0] and "3.0" in outputs[1]
    assert (decimal.getcontext().prec, mpmath.mp.dps) == before


def test_a_text_that_mentions_a_function_is_the_same_in_every_world() -> None:
    outputs = {act(started(f"{BASE}_0"), "echo(content='try ls()')").observation.text for _ in "12"}
    assert len(outputs) == 1


def test_worlds_leave_no_apps_behind() -> None:
    plan = conversations(LONG)[0]
    before = set(vars(multi_turn_utils))
    world = started(plan.id)
    act(world, "ls()")
    assert world._apps is not None
    held = weakref.ref(world._apps)
    solve(world)
    world.close()
    gc.collect()
    assert held() is None
    assert set(vars(multi_turn_utils)) == before


def test_worlds_of_several_threads_do_not_disturb_each_other() -> None:
    won: list[bool] = []

    def play(number: int) -> None:
        won.append(solve(started(f"{LONG}_{number}"))[-1].success)

    threads = [threading.Thread(target=play, args=(n,)) for n in (0, 0, 60, 150, 150)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [True] * 5


def test_an_episode_is_the_same_in_another_process_and_time_zone() -> None:
    script = """
import random
from palaestra.core.rare_capabilities import signals_of
from palaestra.environments.families.bfcl.data import conversations
from tests.environments.families.test_bfcl import LONG, started
for plan in conversations(LONG)[::40]:
    world, dice = started(plan.id), random.Random(plan.id)
    print([world.step(world.sample_action(dice)) for _ in range(12)], signals_of(world))
"""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed, "TZ": zone},
            cwd=Path(__file__).parents[3],
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        for seed, zone in (("1", "UTC"), ("2", "Asia/Tokyo"))
    }
    assert len(outputs) == 1 and len(outputs.pop()) > 1000


def test_nothing_is_printed_and_no_folder_is_made(capfd: pytest.CaptureFixture[str]) -> None:
    script = (
        "import sys; from palaestra.environments.families.bfcl.environment import Bfcl; "
        "Bfcl.tasks('bfcl/"
        + BASE
        + "'); assert not {'bfcl_eval.utils', 'bfcl_eval.model_handler', 'filelock', 'openai'}"
        " & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
    solve(started(f"{BASE}_0"))
    assert capfd.readouterr() == ("", "")


# ── what agents say ──────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "call",
    [
        ToolCall("__import__", {"name": "os"}),
        ToolCall("open", {"file": "x", "mode": "w"}),
        ToolCall("cd", {"folder='document'), open(file": "x"}),
        ToolCall("cd", {"folder": {1, 2}}),
        ToolCall("cd", {"folder": "\ud800"}),
        ToolCall("_load_scenario", {"scenario": {}}),
    ],
)
def test_a_call_that_is_none_of_the_tools_is_refused_and_takes_no_step(call: ToolCall) -> None:
    world = started(f"{BASE}_0")
    before = world.state_key()
    transition = world.step(Action("", call))
    assert not transition.valid and transition.observation.text and transition.reward == 0
    assert world.state_key() == before


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        ("ls()", ["ls()"]),
        ("[ls(), cd(folder='a')]", ["ls()", "cd(folder='a')"]),
        ("`[ls()]`", ["ls()"]),
        ("[1, 2]", ["[1, 2]"]),
        ("[ls(", ["[ls("]),
        ("[" * 500 + "]" * 500, ["[" * 500 + "]" * 500]),
        ("[done]", ["[done]"]),
        ("", [""]),
    ],
)
def test_a_list_of_calls_falls_into_its_parts(reply: str, found: list[str]) -> None:
    assert parts(reply) == found


def test_what_a_call_holds_is_never_run() -> None:
    world = started(f"{BASE}_0")
    text = "'), __import__('os').system('echo broken'), ('"
    outputs = world.step(Action("", ToolCall("echo", {"content": text}))).observation.text
    assert "__import__" in outputs and "broken" in outputs


# ── bad input ────────────────────────────────────────────────────────────────


def test_a_misspelt_category_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'multi_turn_base'"):
        Bfcl("multi_turn_bas")


@pytest.mark.parametrize("parameters", [{}, {"id": f"{LONG}_0"}, {"id": 3}])
def test_a_task_of_another_category_is_refused(parameters: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="not one of BFCL's 'multi_turn_base'"):
        Bfcl(BASE).reset(Task("t", "bfcl/x", 0, parameters=parameters))


def test_a_snapshot_of_another_category_is_refused() -> None:
    with pytest.raises(InputError, match="snapshot of 'bfcl/multi_turn_base'"):
        Bfcl(PARAM).restore(started(f"{BASE}_0").snapshot())


@pytest.mark.parametrize("use", ["step", "oracle", "snapshot", "state_key", "progress"])
def test_a_world_without_a_task_reports_it(use: str) -> None:
    world = Bfcl(BASE)
    with pytest.raises(InputError, match="call reset"):
        world.step(Action("ls()")) if use == "step" else getattr(world, use)()


def test_the_checker_judges_the_first_turns_of_a_conversation() -> None:
    plan = plan_of(f"{BASE}_0")
    done = [[list(turn)] for turn in plan.truth]
    assert all(judged(plan, done[:turns])["valid"] for turns in range(1, 5))
    assert judged(plan, [done[0], []])["error_type"] == "multi_turn:empty_turn_model_response"
