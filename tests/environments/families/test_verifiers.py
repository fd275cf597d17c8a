"""Environments of verifiers: scores equal its own rollout's, and unsupported ones are refused."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import psutil
import pytest

from palaestra.core.environment import Action, Capability, Transition
from palaestra.core.errors import CapabilityMissing, EnvironmentFault, InputError
from palaestra.core.message import ToolCall
from palaestra.core.task import Split, Task
from palaestra.rollout.guarded_environment import GuardedEnvironment

pytest.importorskip("verifiers.v1", reason="needs the package verifiers, 0.4 or later")

import verifiers.v1 as vf
from verifiers.v1.harnesses.utils.launch import CHAT_PROGRAM_SOURCE
from verifiers.v1.runtimes import SubprocessRuntime

from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.verifiers.environment import Verifiers

WORLDS = Path(__file__).parent / "verifiers_worlds"


class Promised(Verifiers, deterministic=True):
    """The same, for environments of which we know that equal replies have equal answers."""


@pytest.fixture(scope="module", autouse=True)
def importable() -> Iterator[None]:
    """As if the modules were installed, here and in the servers of their tools."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(WORLDS))
        known = os.environ.get("PYTHONPATH")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(WORLDS), *([known] if known else [])]))
        yield


@pytest.fixture
def worlds() -> Iterator[Callable[[str], Promised]]:
    made: list[Promised] = []

    def new(name: str) -> Promised:
        made.append(Promised(name))
        return made[-1]

    yield new
    for world in made:
        world.close()


def task_of(name: str, split: Split = Split.TEST, index: int = 0) -> Task:
    return Verifiers.tasks(f"verifiers/{name}").task(split, index)


def act(world: Verifiers, words: str) -> Transition:
    return world.step(Action(words))


def use(world: Verifiers, tool: str, **arguments: Any) -> Transition:
    return world.step(Action("", ToolCall(tool, arguments)))


# ── the contract ─────────────────────────────────────────────────────────────


class Stable:
    """Worlds for use again and again: a start of one with tools takes seconds."""

    def __init__(self) -> None:
        self.all: dict[str, list[Promised]] = {}
        self.used = 0

    def world(self, name: str) -> Promised:
        known = self.all.setdefault(name, [])
        if self.used == len(known):
            known.append(Promised(name))
        self.used += 1
        return known[self.used - 1]

    def back(self) -> None:
        self.used = 0
        for world in (world for each in self.all.values() for world in each):
            vars(world).pop("reset", None)  # the kit takes down what is done with a world
            vars(world).pop("step", None)


@pytest.fixture(scope="module")
def stable(importable: None) -> Iterator[Stable]:
    stable = Stable()
    yield stable
    for world in (world for each in stable.all.values() for world in each):
        world.close()


@pytest.mark.parametrize(
    "name", ["vf_sums", "vf_guessing", pytest.param("vf_till", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_the_contract_holds(stable: Stable, clause: Callable[[Subject], None], name: str) -> None:
    tasks = Promised.tasks(f"verifiers/{name}")
    try:
        clause(Subject(lambda: stable.world(name), tasks, 4, 1))
    finally:
        stable.back()


# ── verifiers' own rollout scores alike ──────────────────────────────────────


class Scripted:
    """A model server with an OpenAI-compatible API and scripted replies."""

    def __init__(self, replies: list[str | ToolCall]) -> None:
        script, self.incoming = list(replies), []
        incoming = self.incoming

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                incoming.append(json.loads(self.rfile.read(length))["messages"])
                reply, number = script.pop(0), len(incoming)
                delta: dict[str, Any] = {"role": "assistant", "content": ""}
                if isinstance(reply, ToolCall):
                    asked = {"name": reply.name, "arguments": json.dumps(dict(reply.arguments))}
                    delta["tool_calls"] = [
                        {"index": 0, "id": f"c{number}", "type": "function", "function": asked}
                    ]
                else:
                    delta["content"] = reply
                end = "tool_calls" if isinstance(reply, ToolCall) else "stop"
                chunk = {
                    "id": "1",
                    "object": "chat.completion.chunk",
                    "created": 0,
                    "model": "scripted",
                    "choices": [{"index": 0, "delta": delta, "finish_reason": end}],
                }
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                self.wfile.write(f"data: {json.dumps(chunk)}\n\ndata: [DONE]\n\n".encode())

            def log_message(self, *others: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"


def directly(name: str, position: int, replies: list[str | ToolCall], **taskset: Any) -> Any:
    """Run verifiers' own rollout with its `null` harness; return its requests and the trace."""
    model = Scripted(replies)
    settings = vf.resolve_env_config({"taskset": {"id": name, **taskset}})
    [role] = [key for key, value in settings if isinstance(value, vf.AgentConfig)]
    seat = getattr(settings, role).model_copy(
        update={
            "harness": vf.harness_config_type("null").model_validate({"id": "null"}),
            "runtime": vf.SubprocessConfig(),
        }
    )

    async def play() -> Any:
        world = vf.load_environment(settings.model_copy(update={role: seat}))
        [row] = world.taskset.skip(position).take(1)
        client = vf.EvalClientConfig(base_url=model.url, api_key_var="NO_KEY_IS_NEEDED")
        async with world.serving():
            return await world.run_episode(row, vf.ModelContext(model="scripted", client=client))

    episode = asyncio.run(play())
    model.server.shutdown()
    assert episode.ok, episode.traces[0].errors
    [trace] = episode.traces
    return model.incoming, trace


@pytest.fixture(scope="module", autouse=True)
def null_harness() -> None:
    """The program of the `null` harness is run by this Python, not by one that uv would fetch."""
    import hashlib

    digest = hashlib.sha256(CHAT_PROGRAM_SOURCE.encode()).hexdigest()
    place = Path(SubprocessRuntime.scripts_dir) / f"{digest}.py"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(CHAT_PROGRAM_SOURCE)
    SubprocessRuntime._interpreters[str(place)] = sys.executable


def played(
    world: Verifiers, task: Task, replies: list[str | ToolCall]
) -> tuple[list[Any], list[Transition]]:
    """Return the requests to our agent's seat, and the steps."""
    world.reset(task)
    asked, steps = [list(world._seen)], []
    for reply in replies:
        action = Action("", reply) if isinstance(reply, ToolCall) else Action(reply)
        steps.append(world.step(action))
        if steps[-1].terminated or steps[-1].truncated:
            break
        asked.append(list(world._seen))
    return asked, steps


def plain(conversation: list[dict[str, Any]]) -> list[Any]:
    """A conversation without the names that two clients give to their calls."""
    return [
        (
            message["role"],
            message.get("content") or "",
            [
                (call["function"]["name"], json.loads(call["function"]["arguments"]))
                for call in message.get("tool_calls") or ()
            ],
        )
        for message in conversation
    ]


PUT = ToolCall("till_put", {"coins": 4})
SCRIPTS: list[tuple[str, Split, int, list[str | ToolCall], dict[str, Any]]] = [
    ("vf_sums", Split.TEST, 1, ["Please: 101 + 104 = 205"], {"split": "test"}),
    ("vf_sums", Split.TRAIN, 3, ["9"], {"split": "train"}),
    ("vf_sums", Split.TRAIN, 4, ["ünïcödé, please"], {"split": "train"}),
    ("vf_guessing", Split.TEST, 0, ["10", "15", "18", "20", "1", "2", "3", "4", "5"], {}),
    ("vf_guessing", Split.TRAIN, 1, ["10", "5", "3", "4", "2", "1", "6", "7"], {}),
    ("vf_guessing", Split.TRAIN, 0, ["10", "no idea"], {}),
    ("vf_till", Split.TEST, 0, [PUT, PUT, ToolCall("till_count", {}), "8 coins"], {}),
    ("vf_till", Split.TRAIN, 2, [ToolCall("till_put", {"coins": 10}), "13 coins."], {}),
    ("vf_till", Split.TRAIN, 0, [ToolCall("till_put", {"coins": -1}), "I cannot."], {}),
]


@pytest.mark.parametrize(
    ("name", "split", "index", "replies", "settings"),
    [
        # the package's harness is a program, and started again for each turn of a user
        pytest.param(*script, marks=[] if script[0] == "vf_sums" else pytest.mark.slow)
        for script in SCRIPTS
    ],
)
def test_rewards_and_messages_are_those_of_the_packages_own_rollout(
    worlds: Callable[[str], Promised],
    name: str,
    split: Split,
    index: int,
    replies: list[str | ToolCall],
    settings: dict[str, Any],
) -> None:
    task = task_of(name, split, index)
    position = task.parameters.get("position", task.seed)
    incoming, trace = directly(name, position, replies, **settings)
    asked, steps = played(worlds(name), task, replies)
    assert [*map(plain, asked)] == [*map(plain, incoming)]
    last = steps[-1]
    assert last.reward == trace.reward
    assert last.info["metrics"] == trace.metrics
    assert last.info["rewards"] == {key: one.value for key, one in trace.rewards.items()}
    assert (last.success, last.truncated) == (trace.reward >= 1, trace.is_truncated)
    assert all(step.reward == 0 and not step.terminated for step in steps[:-1])


# ── words, tools and ends ────────────────────────────────────────────────────


def test_the_first_observation_has_the_system_prompt_and_the_task(
    worlds: Callable[[str], Promised],
) -> None:
    world = worlds("vf_sums")
    even, odd = (task_of("vf_sums", Split.TRAIN, index) for index in (2, 3))
    assert world.reset(even).text == "What is 2 + 5?"
    assert world.reset(odd).text == "You are a pupil.\nWhat is 3 + 6?"
    end = act(world, "9, please")
    assert (end.reward, end.success, end.terminated) == (1.25, True, True)
    assert end.info == {"rewards": {"correct": 1.0, "polite": 0.25}, "metrics": {"length": 9.0}}


def test_an_engine_answers_turn_by_turn(worlds: Callable[[str], Promised]) -> None:
    world = worlds("vf_guessing")
    assert world.reset(task_of("vf_guessing")).text == "Guess a number from 1 to 20."
    low, high = 1, 20
    while not (step := act(world, str((low + high) // 2))).terminated:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if step.observation.text == "Too low." else (low, middle - 1)
    assert (step.reward, step.success) == (1.0, True)
    assert not act(world, "1").valid


def test_a_bound_of_the_environments_own_truncates(worlds: Callable[[str], Promised]) -> None:
    world = worlds("vf_guessing")
    assert world.spec.typical_turns == 8
    world.reset(task_of("vf_guessing"))
    wrong = str(
        world._rows.streams[Split.TEST].at(task_of("vf_guessing").seed).data.number % 20 + 1
    )
    steps = [act(world, wrong) for _ in range(8)]
    assert [step.truncated for step in steps] == [False] * 7 + [True]
    assert (steps[-1].terminated, steps[-1].success, steps[-1].reward) == (False, False, 0.0)


def test_tools_are_the_servers_own_and_calls_may_be_words(
    worlds: Callable[[str], Promised],
) -> None:
    world = worlds("vf_till")
    tools = {tool.name: tool for tool in world.tools}
    assert set(tools) == {"till_put", "till_count"}
    assert tools["till_put"].parameters["properties"]["coins"]["type"] == "integer"
    world.reset(task_of("vf_till", Split.TRAIN, 0))  # it begins with one coin
    assert act(world, "till_put(coins=2)").observation.text == "3 in the till"
    for words, hint in (
        ("till_put(coins='two')", "must be integer"),
        ("till_take(1)", "no tool 'till_take'"),
        ("", "Say something"),
        ("\ud800", "plain values"),
    ):
        shown = act(world, words)
        assert (shown.valid, shown.terminated) == (False, False)
        assert hint in shown.observation.text
    assert use(world, "till_count").observation.text == "3"
    failed = use(world, "till_put", coins=-1)
    assert failed.valid and "coins are not taken out" in failed.observation.text
    use(world, "till_put", coins=8)
    end = act(world, "There are 11.")
    assert (end.reward, end.success) == (1.0, True)


def test_an_episode_that_is_left_does_not_come_back(worlds: Callable[[str], Promised]) -> None:
    world = worlds("vf_guessing")
    first, second = (task_of("vf_guessing", Split.TRAIN, index) for index in (0, 1))
    world.reset(first)
    act(world, "20")
    for _ in range(3):
        assert world.reset(second).text == "Guess a number from 1 to 20."
        assert act(world, "20").observation.text in ("Too high.", "The task is over.")
    world.close()
    assert world.reset(first).text == "Guess a number from 1 to 20."


def test_a_snapshot_is_played_again(worlds: Callable[[str], Promised]) -> None:
    world, other = worlds("vf_guessing"), worlds("vf_guessing")
    world.reset(task_of("vf_guessing"))
    act(world, "20")
    saved = world.snapshot()
    other.restore(saved)
    assert [act(other, number) for number in "17"] == [act(world, number) for number in "17"]
    with pytest.raises(InputError, match="cannot be restored"):
        worlds("vf_sums").restore(saved)


def test_worlds_end_with_their_servers(worlds: Callable[[str], Promised]) -> None:
    before = {child.pid for child in psutil.Process().children(recursive=True)}

    def use_and_forget() -> set[int]:
        world = Promised("vf_till")
        world.reset(task_of("vf_till"))
        use(world, "till_put", coins=1)
        return {child.pid for child in psutil.Process().children(recursive=True)} - before

    assert use_and_forget()
    gc.collect()
    left = [c for c in psutil.Process().children(recursive=True) if c.pid not in before]
    assert not psutil.wait_procs(left, timeout=10)[1]


# ── tasks ────────────────────────────────────────────────────────────────────


def test_published_splits_are_kept() -> None:
    tasks = Verifiers.tasks("verifiers/vf_sums")
    assert [tasks.count(split) for split in Split] == [12, 0, 5]
    assert task_of("vf_sums", Split.TRAIN, 11).parameters == {"position": 11}


def test_rows_without_splits_are_dealt_to_ours() -> None:
    tasks = Verifiers.tasks("verifiers/vf_till")
    taken = {
        split: [task.parameters["position"] for task in tasks.take(split, tasks.count(split) or 0)]
        for split in Split
    }
    assert taken == {Split.TRAIN: [1, 2, 3, 4, 6], Split.VALIDATION: [5], Split.TEST: [0]}
    assert Verifiers.tasks("verifiers/vf_guessing").count(Split.TRAIN) is None


# ── what goes wrong ──────────────────────────────────────────────────────────


class Odd(Verifiers):
    """With settings, as a subclass gives them."""

    rows: ClassVar[list[str]] = ["fine", "setup", "reward", "image", "stopped", "none"]

    @classmethod
    def settings(cls, name: str) -> Any:
        return vf.resolve_env_config({"taskset": {"id": "vf_odd", "names": cls.rows}})


def row(position: int, split: Split) -> Task:
    return Task("x/0", "verifiers/vf_odd", 1, split, parameters={"position": position})


def test_what_fails_in_the_environment_is_an_error_never_a_score() -> None:
    world = Odd("odd")
    keeper = GuardedEnvironment(world, "odd")
    world.reset(row(0, Split.TEST))
    assert act(world, "Hi.").reward == 0.5
    for position, why in ((1, "TaskError.*no chalk"), (4, "ended before the agent was asked")):
        with pytest.raises(EnvironmentFault, match=why) as caught:
            keeper.reset(row(position, Split.TRAIN))
        assert caught.value.kind == "reset"
    keeper.reset(row(2, Split.TRAIN))
    with pytest.raises(EnvironmentFault, match="nobody counted") as caught:
        keeper.step(Action("Hi."))
    assert caught.value.kind == "step"
    keeper.reset(row(0, Split.TEST))  # it goes on
    assert keeper.step(Action("Hi.")).value[0].reward == 0.5
    world.close()


def test_tasks_that_need_a_container_or_are_of_others_are_refused(
    worlds: Callable[[str], Promised],
) -> None:
    world = Odd("odd")
    with pytest.raises(InputError, match="needs the container image 'box'"):
        world.reset(row(3, Split.TRAIN))
    for other in (row(0, Split.TRAIN), row(99, Split.TRAIN), Task("test/0", "babyai/GoTo", 2)):
        with pytest.raises(InputError, match=f"is not a task of {world.spec.id};"):
            world.reset(other)
    with pytest.raises(InputError, match="call reset with a task first"):
        act(world, "Hi.")
    world.close()
    assert Capability.SNAPSHOT not in world.spec.capabilities
    with pytest.raises(CapabilityMissing):
        world.snapshot()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "names no module"),
        ("vf-no-such-module", "no module of that name is installed"),
        ("vf_former", "exports no taskset of verifiers' `v1` interface"),
        ("vf_odd", "needs settings \\('taskset.names'"),
        ("vf_judged", "scored by a judge model \\('taskset.task.judge'\\)"),
        ("vf_debate", "several roles \\(one, other\\)"),
    ],
)
def test_what_cannot_be_played_is_refused_in_a_sentence(name: str, why: str) -> None:
    for refuse in (Verifiers, Verifiers.spec_of):
        with pytest.raises(InputError, match=why) as caught:
            refuse(name)
        assert "\n" not in str(caught.value)
