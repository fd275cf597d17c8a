"""MCP servers as environments: the contract, checks, faults, and servers that end in time."""

from __future__ import annotations

import asyncio
import gc
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from palaestra.core.environment import Action, Capability, Transition
from palaestra.core.errors import (
    CapabilityMissing,
    EnvironmentFault,
    InputError,
    MissingSystemPart,
    UnknownName,
)
from palaestra.core.message import ToolCall
from palaestra.core.task import Split, Task
from palaestra.rollout.guarded_environment import GuardedEnvironment
from palaestra.rollout.worker_pool import WorkerPool

pytest.importorskip("mcp.server.mcpserver", reason="needs the package mcp, version 2")
from mcp import Client, StdioServerParameters

from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.mcp import environment, link
from palaestra.environments.families.mcp.description import (
    PYTHON,
    Assignment,
    Description,
    Made,
    Use,
    Wanted,
)
from palaestra.environments.families.mcp.environment import McpEnvironment
from palaestra.environments.families.mcp.link import MARK
from tests.processes import children_with

HERE = Path(__file__).parent
TODO = str(HERE / "todo.toml")
TARGET = f"{environment.__name__}:McpEnvironment"
MILK = Assignment(
    id="milk", instruction="Milk, please.", check=Wanted(tool="show", equals=["milk"])
)
RECEIVED: list[Any] = []
"""The arguments that a check received."""


def hear(task: Assignment, calls: Any, words: str) -> bool:
    RECEIVED[:] = [task.id, *calls, words]
    return False


HEAR = Assignment(id="hear", instruction="Act.", check=hear)
ADD = MILK.model_copy(
    update={"id": "add", "solution": (Use(tool="add", arguments={"text": "milk"}),)}
)


def described(*modes: str, **changes: Any) -> Description:
    """The to-do list's server in that mode, with tasks described in Python."""
    fields: dict[str, Any] = {"tasks": (MILK, HEAR), "command": PYTHON, "folder": HERE, **changes}
    return Description(arguments=("todo_server.py", *modes), **fields)


def world_of(description: Description) -> McpEnvironment:
    class Described(McpEnvironment):
        @classmethod
        def describe(cls, name: str) -> Description:
            return description

    return Described("mine")


class Stable:
    """Worlds of the to-do list for use again and again: each start of a server takes a second."""

    def __init__(self) -> None:
        self.all: list[McpEnvironment] = []
        self.idle: list[McpEnvironment] = []

    def world(self) -> McpEnvironment:
        if not self.idle:
            self.all.append(McpEnvironment(TODO))
            self.idle.append(self.all[-1])
        return self.idle.pop()

    def back(self) -> None:
        for world in self.all:  # the kit takes down what is done with a world
            vars(world).pop("reset", None)
            vars(world).pop("step", None)
        self.idle = [*self.all]

    def close(self) -> None:
        for world in self.all:
            world.close()


@pytest.fixture(scope="module")
def stable() -> Iterator[Stable]:
    stable = Stable()
    yield stable
    stable.close()


@pytest.fixture
def todo(stable: Stable) -> Iterator[McpEnvironment]:
    yield stable.world()
    stable.back()


@pytest.fixture(scope="module")
def odd() -> Iterator[McpEnvironment]:
    """A world whose server can misbehave."""
    world = world_of(described("misbehaving", reset="clear", tasks=(MILK, HEAR, ADD)))
    yield world
    world.close()


@pytest.fixture
def before(stable: Stable, odd: McpEnvironment) -> set[int]:
    """Servers that are there already."""
    return servers()


def task(id: str = "milk", split: Split = Split.TEST) -> Task:
    return Task(f"{split}/0", f"mcp/{TODO}", 2, split, parameters={"task": id})


def use(world: McpEnvironment, tool: str, **arguments: Any) -> Transition:
    return world.step(Action("", ToolCall(tool, arguments)))


def servers() -> set[int]:
    """Process ids of the servers that worlds of this process have started."""
    found = set()
    for child in psutil.Process().children(recursive=True):
        try:
            if MARK in child.environ() and child.status() != psutil.STATUS_ZOMBIE:
                found.add(child.pid)
        except psutil.Error:
            continue
    return found


# ── the contract ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_the_contract_holds(stable: Stable, clause: Callable[[Subject], None]) -> None:
    try:
        clause(Subject(stable.world, McpEnvironment.tasks(f"mcp/{TODO}"), 8, 1))
    finally:
        stable.back()


def test_tools_and_results_are_the_servers_own(todo: McpEnvironment) -> None:
    calls = [
        ("add", {"text": "ünïcödé"}),
        ("add", {"text": ""}),
        ("finish", {"number": 7}),
        ("show", {}),
        ("finish", {"number": 1}),
        ("sheet", {}),
    ]

    async def directly() -> tuple[dict[str, Any], list[tuple[str, bool]]]:
        server = StdioServerParameters(command=sys.executable, args=["todo_server.py"], cwd=HERE)
        async with Client(server) as client:
            tools = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
            shown = []
            for name, arguments in calls:
                result = await client.call_tool(name, arguments)
                text = "\n".join(getattr(block, "text", "?") for block in result.content)
                shown.append((text, result.is_error))
            return tools, shown

    tools, shown = asyncio.run(directly())
    del tools["clear"]
    assert {tool.name: tool.parameters for tool in todo.tools} == tools
    todo.reset(task())
    steps = [use(todo, name, **arguments) for name, arguments in calls]
    assert [step.observation.text for step in steps] == [text for text, _ in shown]
    assert [failed for _, failed in shown] == [False, False, True, False, False, False]
    assert all(step.valid for step in steps)


def every_task() -> list[Task]:
    listed = McpEnvironment.tasks(f"mcp/{TODO}")
    return [one for split in Split for one in listed.take(split, listed.count(split) or 0)]


def test_the_oracle_solves_every_task_through_a_keeper(todo: McpEnvironment) -> None:
    keeper = GuardedEnvironment(todo, "todo")
    assert len(every_task()) == 3
    for one in every_task():
        keeper.reset(one)
        steps = [keeper.step(action).value[0] for action in keeper.oracle().value]
        assert steps[-1].success
        assert not any(step.success or step.reward for step in steps[:-1])


def test_worlds_live_in_worker_processes(todo: McpEnvironment, before: set[int]) -> None:
    here: list[Any] = [todo.tools, todo.reset(task())]
    here += [todo.step(action) for action in todo.oracle()]

    async def run() -> list[Any]:
        async with WorkerPool(1, 60.0) as pool:
            world = await pool.make(f"{TARGET}/{TODO}")
            seen: list[Any] = [world.tools, (await world.reset(task()))[0]]
            for number, action in enumerate(await world.oracle()):
                if number == 1:  # it is brought back by a replay in another worker
                    for process in children_with("palaestra.rollout.worker"):
                        process.kill()
                    await asyncio.sleep(0.3)
                seen.append((await world.step(action))[0])
            assert pool.restarts == 1
            return seen

    assert asyncio.run(run()) == here
    assert here[-1].success
    assert gone(servers() - before)


def gone(pids: set[int]) -> bool:
    """Whether these processes end soon."""
    until = time.monotonic() + 10
    while any(map(psutil.pid_exists, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    return not any(map(psutil.pid_exists, pids))


# ── words, calls and verdicts ────────────────────────────────────────────────


def test_a_tool_that_fails_was_understood(todo: McpEnvironment) -> None:
    todo.reset(task())
    shown = use(todo, "finish", number=3)
    assert shown.valid
    assert "there is no entry 3" in shown.observation.text


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("", "Call a tool"),
        ("clear()", "no tool 'clear'"),
        ("add(txt='milk')", "needs the argument 'text'"),
        ("finish('one')", "must be integer"),
        ("finish(", "Call one tool"),
    ],
)
def test_a_call_that_does_not_fit_never_reaches_the_server(
    todo: McpEnvironment, words: str, hint: str
) -> None:
    todo.reset(task("first"))
    shown = todo.step(Action(words))
    assert (shown.valid, shown.terminated) == (False, False)
    assert hint in shown.observation.text
    assert todo.oracle()  # nothing has happened


def test_what_the_protocol_refuses_is_not_valid(odd: McpEnvironment) -> None:
    odd.reset(task("hear"))
    shown = use(odd, "refuse")
    assert (shown.valid, shown.observation.text) == (False, "not like this")
    odd.step(Action("Done."))
    assert RECEIVED == ["hear", "Done."]  # no call was made


def test_reset_tools_get_the_tasks_parameters(todo: McpEnvironment) -> None:
    todo.reset(task("first"))
    assert use(todo, "show").observation.text == "call Ada\nsleep"
    todo.reset(task("milk"))
    assert use(todo, "show").observation.text == '{"result": []}'


def test_functions_and_results_decide(todo: McpEnvironment) -> None:
    todo.reset(task("first"))
    assert todo.step(Action("call Ada")).reward == 0  # it has not looked
    todo.reset(task("first"))
    use(todo, "sheet")
    end = todo.step(Action("First comes: call Ada"))
    assert (end.reward, end.success, end.terminated) == (1.0, True, True)
    todo.reset(task("all", Split.TRAIN))
    use(todo, "finish", number=1)
    end = todo.step(Action("Half of it."))
    assert (end.reward, end.success, end.terminated) == (0.5, False, True)
    assert not use(todo, "show").valid


@pytest.mark.parametrize(
    ("equals", "text", "data", "met"),
    [
        ("2 open", "2 open", None, True),
        ("2 open", "2", {"result": "2 open"}, True),
        ({"open": []}, "…", {"open": []}, True),
        ({"result": 1}, "1", {"result": 1}, True),
        ([1, 2], "[1, 2]", None, True),
        ([1, 2], "1\n2", {"result": [1, 3]}, False),
        ("", "nothing", None, False),
    ],
)
def test_what_equals_a_result(equals: Any, text: str, data: Any, met: bool) -> None:
    assert Wanted(tool="t", equals=equals).met_by(text, data) is met


def test_the_oracle_is_what_is_left_of_the_solution(todo: McpEnvironment) -> None:
    todo.reset(task())
    path = todo.oracle()
    todo.step(path[0])
    assert todo.oracle() == path[1:]
    use(todo, "add", text="beer")
    assert todo.oracle() == []


def test_the_solution_may_leave_out_the_last_words(odd: McpEnvironment) -> None:
    odd.reset(task("add"))
    path = odd.oracle()
    assert [action.text for action in path] == ["add(text='milk')", "Done."]
    assert [odd.step(action) for action in path][-1].success


def test_check_functions_see_calls_with_results(odd: McpEnvironment) -> None:
    odd.reset(task("hear"))
    use(odd, "add", text="tea")
    use(odd, "finish", number=5)
    odd.step(Action("I give up."))
    id, added, failed, words = RECEIVED
    assert added == Made("add", {"text": "tea"}, "1 open", {"result": "1 open"})
    assert failed.failed
    assert (id, words) == ("hear", "I give up.")


def test_pictures_are_named(odd: McpEnvironment) -> None:
    odd.reset(task())
    assert use(odd, "picture").observation.text == "[image/png]"


# ── servers that misbehave ───────────────────────────────────────────────────


def fault(call: Callable[[], object]) -> EnvironmentFault:
    with pytest.raises(EnvironmentFault) as caught:
        call()
    return caught.value


def test_a_dead_server_is_an_error_and_the_next_reset_starts_another(odd: McpEnvironment) -> None:
    odd.reset(task())
    shown = fault(lambda: use(odd, "die"))
    assert shown.kind == "crash"
    assert "mcp/mine: die" in shown.detail and "I am about to die" in shown.detail
    assert "gone" in fault(lambda: use(odd, "show")).detail
    odd.reset(task())
    pid = int(use(odd, "whoami").observation.text)
    psutil.Process(pid).kill()
    assert fault(lambda: odd.step(Action("Done."))).kind == "crash"
    odd.reset(task())
    assert use(odd, "add", text="milk").observation.text == "1 open"


def test_without_a_tool_that_resets_each_task_has_a_server_of_its_own(before: set[int]) -> None:
    world = world_of(described("misbehaving", timeout=3.0))
    [first] = servers() - before
    world.reset(task())
    use(world, "add", text="milk")
    assert use(world, "whoami").observation.text == str(first)  # the first is not wasted
    world.reset(task())
    assert use(world, "show").observation.text == '{"result": []}'
    assert use(world, "whoami").observation.text != str(first)
    began = time.monotonic()
    shown = fault(lambda: use(world, "sleep", seconds=60.0))
    assert (shown.kind, "over 3 s" in shown.detail) == ("hang", True)
    assert time.monotonic() - began < 15
    assert servers() == before


def test_a_server_that_does_not_end_is_killed(before: set[int]) -> None:
    world = world_of(described("stubborn"))
    [server] = servers() - before
    began = time.monotonic()
    world.close()
    world.close()
    assert time.monotonic() - began < 2.5
    assert gone({server})


def test_a_world_that_no_one_closes_takes_its_server_along(before: set[int]) -> None:
    world = world_of(described())
    [server] = servers() - before
    del world
    gc.collect()
    assert gone({server})


def test_a_program_that_ends_takes_its_servers_along() -> None:
    script = (
        f"from {environment.__name__} import McpEnvironment as M; import psutil\n"
        f"world = M({TODO!r})\n"
        "print(*(child.pid for child in psutil.Process().children()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert gone({int(done.stdout)})


def test_servers_that_do_not_start_report_why(before: set[int]) -> None:
    shown = fault(lambda: world_of(described("stillborn")))
    assert (shown.kind, "I was never meant to be" in shown.detail) == ("crash", True)
    with pytest.raises(MissingSystemPart, match="no-such-program"):
        world_of(described(command="no-such-program"))
    with pytest.raises(InputError, match="no folder"):
        world_of(described(folder=HERE / "none"))
    assert servers() == before


def test_a_server_that_never_answers_is_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "STARTING", 1.0)
    silent = Description(
        tasks=(MILK,), command=PYTHON, arguments=("-c", "import time; time.sleep(60)")
    )
    shown = fault(lambda: world_of(silent))
    assert (shown.kind, "does not answer" in shown.detail) == ("hang", True)


def test_a_server_behind_a_url() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(HERE / "todo_server.py"), "http", str(port)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        url = f"http://127.0.0.1:{port}/mcp"
        there = Description(tasks=(MILK,), url=url, reset="clear", timeout=10)
        worlds = [world_of(there), world_of(there)]
        worlds[0].reset(task())
        use(worlds[0], "add", text="milk")
        assert worlds[0].step(Action("Done.")).success
        worlds[1].close()
        worlds[0].reset(task())
        server.kill()
        server.wait()
        assert fault(lambda: use(worlds[0], "show")).kind == "crash"
        assert fault(lambda: worlds[0].reset(task())).kind == "crash"


# ── descriptions ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        ("turns = 8", "turns = 8\nturn = 9", "turn"),
        ('command = "{python}"', "", "either `command` or `url`"),
        ('command = "{python}"', 'command = "a"\nurl = "b"', "either `command` or `url`"),
        ('id = "first"', 'id = "milk"', "task ids repeat"),
        ("todo_checks:tells_first", "todo_checks:tells_last", "cannot be imported"),
        ("todo_checks:tells_first", "no_such_module:x", "no_such_module"),
        ('split = "train"', 'split = "training"', "train"),
        ("timeout = 20", "timeout = 0", "greater than 0"),
        ("[[tasks]]", "[[tasks", "cannot be read"),
        ('check = { tool = "show", equals', 'check = { tool = "show", like', "check"),
    ],
)
def test_a_wrong_description_is_refused_in_words(
    tmp_path: Path, old: str, new: str, hint: str
) -> None:
    (tmp_path / "todo_checks.py").write_text((HERE / "todo_checks.py").read_text())
    file = tmp_path / "todo.toml"
    file.write_text(Path(TODO).read_text().replace(old, new, 1))
    with pytest.raises(InputError, match=hint) as caught:
        McpEnvironment.spec_of(str(file))
    assert str(file) in str(caught.value)


def test_unknown_descriptions_and_tools_are_refused(tmp_path: Path, before: set[int]) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        McpEnvironment(str(tmp_path / "none.toml"))
    with pytest.raises(UnknownName, match="installed description"):
        McpEnvironment("none")
    with pytest.raises(UnknownName, match="Did you mean 'clear'"):
        world_of(described(reset="clean"))
    assert servers() == before
    assert McpEnvironment.tasks("mcp").count(Split.TEST) == 0


def test_installed_descriptions_have_names(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        def __init__(self, found: Any) -> None:
            self.load = lambda: found

    points = {"todo": Point(TODO), "mine": Point(described())}
    monkeypatch.setattr(McpEnvironment, "installed", lambda: points)
    assert McpEnvironment.names() == ["mine", "todo"]
    assert McpEnvironment.tasks("mcp/todo").count(Split.TRAIN) == 1
    assert McpEnvironment.tasks("mcp/mine").count(Split.TEST) == 2


def test_what_a_description_says_holds(monkeypatch: pytest.MonkeyPatch, before: set[int]) -> None:
    monkeypatch.setenv("PALAESTRA_TEST_SECRET", "secret")
    world = world_of(
        described(tools=("add",), instructions="Be brief.", environment={"GIVEN": "yes"})
    )
    assert world.instructions.startswith("Be brief.\n")
    assert world.instructions.endswith("\nadd(text: string): Put an entry on the list.")
    assert (world.spec.capabilities, world.spec.deterministic) == (frozenset(), False)
    [server] = servers() - before
    inherited = psutil.Process(server).environ()
    assert inherited["GIVEN"] == "yes" and "PALAESTRA_TEST_SECRET" not in inherited
    with pytest.raises(InputError, match="no task yet"):
        world.step(Action("show()"))
    world.reset(task())
    for call in (world.snapshot, world.oracle, lambda: world.restore(b"")):
        with pytest.raises(CapabilityMissing):
            call()
    assert not use(world, "show").valid  # the agent may not, but the check does
    use(world, "add", text="milk")
    assert world.step(Action("Done.")).success
    world.close()


def test_only_what_can_be_held_is_promised(todo: McpEnvironment) -> None:
    assert todo.spec.deterministic
    assert todo.spec.capabilities == {Capability.SNAPSHOT, Capability.ORACLE}
    assert todo.spec.typical_turns == 8
    with pytest.raises(ValueError, match="needs `reset`, a tool that resets"):
        Description(tasks=(MILK,), url="http://localhost", deterministic=True)


def test_tasks_and_snapshots_of_others_are_refused(todo: McpEnvironment) -> None:
    for other in (Task("test/0", "babyai/GoTo", 2), task("none"), task("all", Split.TEST)):
        with pytest.raises(InputError, match="is not a task of mcp/"):
            todo.reset(other)
    todo.reset(task())
    saved = todo.snapshot()
    edition = Description.load(Path(TODO)).edition.encode()
    for changed in (saved.replace(b"mcp/", b"mcp/x", 1), saved.replace(edition, b"0", 1)):
        assert changed != saved
        with pytest.raises(InputError, match="cannot be restored"):
            todo.restore(changed)
