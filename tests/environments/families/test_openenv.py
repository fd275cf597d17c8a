"""OpenEnv servers as environments: the package's client sees the same, and faults are faults."""

from __future__ import annotations

import gc
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

pytest.importorskip("websockets.sync.client", reason="needs the package websockets")
pytest.importorskip("openenv.core.env_server.http_server", reason="needs the package openenv")

from openenv import GenericEnvClient

from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.openenv import link
from palaestra.environments.families.openenv.description import (
    ActionFormat,
    Description,
    Solved,
)
from palaestra.environments.families.openenv.environment import OpenEnv
from palaestra.environments.families.openenv.link import Link
from palaestra.environments.shared.server_description import DescribedTask
from tests.processes import children_with

HERE = Path(__file__).parent
GRID = str(HERE / "grid.toml")
ORDER = ActionFormat(text="order")
PAID = Solved(reward=1.0)
PLANS = "north east east south west north south east".split()


@pytest.fixture(scope="module")
def root() -> Iterator[str]:
    """The address of all apps, each under its name, in one server: a start takes seconds."""
    described = description("everything", url="", app="openenv_apps:everything", folder=HERE)
    server = link._Server(described)
    yield f"http://127.0.0.1:{server.port()}"
    server.end()


def description(
    name: str,
    root: str = "",
    action: ActionFormat = ORDER,
    **changes: Any,
) -> Description:
    fields: dict[str, Any] = {"url": f"{root}/{name}", "timeout": 60.0, "solved": PAID, **changes}
    return Description(action=action, **fields)


def world_of(described: Description) -> OpenEnv:
    class Described(OpenEnv):
        @classmethod
        def describe(cls, name: str) -> Description:
            return described

    return Described("mine")


def grid(root: str) -> Description:
    """The description of the file, of a server that runs already."""
    return Description.load(Path(GRID)).model_copy(update={"app": "", "url": f"{root}/grid"})


def guessing(root: str, **changes: Any) -> Description:
    return description("guessing", root, ActionFormat(tool="guess"), deterministic=True, **changes)


def spelled(root: str, **changes: Any) -> Description:
    return description("guessing", root, ActionFormat(text="number"), deterministic=True, **changes)


def till(root: str) -> Description:
    return description("till", root, ActionFormat(mcp=True), deterministic=True)


def odd(root: str, **changes: Any) -> Description:
    return description("odd", root, **changes)


def task(id: str = "usual", split: Split = Split.TEST, seed: int = 2) -> Task:
    return Task(f"{split}/0", f"openenv/{GRID}", seed, split, parameters={"task": id})


def seeded(seed: int) -> Task:
    return Task(f"test/{seed}", "openenv/mine", seed)


def act(world: OpenEnv, words: str) -> Transition:
    return world.step(Action(words))


def use(world: OpenEnv, tool: str, **arguments: Any) -> Transition:
    return world.step(Action("", ToolCall(tool, arguments)))


# ── the contract ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize("described", [grid, guessing, spelled, till], ids=lambda of: of.__name__)
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_the_contract_holds(
    root: str, clause: Callable[[Subject], None], described: Callable[[str], Description]
) -> None:
    worlds: list[OpenEnv] = []

    def new() -> OpenEnv:
        while len(worlds) > 5:  # a server has room for eight sessions
            worlds.pop(0).close()
        worlds.append(world_of(described(root)))
        return worlds[-1]

    tasks = type(new()).tasks("openenv/mine")
    try:
        clause(Subject(new, tasks, 8, 1))
    finally:
        for world in worlds:
            world.close()


# ── the package's own client sees the same ───────────────────────────────────


def directly(url: str, resets: dict[str, Any], actions: list[dict[str, Any]]) -> list[Any]:
    """Return the observations, rewards and ends that the package's client receives."""
    with GenericEnvClient(base_url=url).sync() as client:
        results = [client.reset(**resets)]
        results += [client.step(action) for action in actions]
    return [(result.observation, result.reward, result.done) for result in results]


@pytest.mark.parametrize("seed", range(4))
def test_rewards_observations_and_ends_are_those_of_the_packages_client(
    root: str, seed: int
) -> None:
    actions = [{"direction": path, "loud": True} for path in PLANS]
    first, *then = directly(f"{root}/grid", {"seed": seed, "size": 6}, actions)
    world = world_of(grid(root))
    received = "You are at ({x}, {y}). It is {hint}."
    seen = world.reset(task("large", seed=seed)).text
    assert seen == "This square is a large one.\n" + received.format(**first[0])
    for path, (observation, reward, done) in zip(PLANS, then, strict=True):
        step = act(world, path)
        assert step.observation.text == received.format(**observation)
        assert (step.reward, step.terminated) == (reward, done)
        assert (step.success, step.truncated) == (observation["found"] and done, False)
        if done:
            break
    world.close()


def test_a_game_ends_as_it_does_for_the_packages_client(root: str) -> None:
    for seed in range(3):
        low, high, actions = 0, 99, []
        world = world_of(guessing(root))
        world.reset(seeded(seed))
        while True:  # by halves: at most seven guesses
            actions.append({"number": (low + high) // 2})
            step = use(world, "guess", **actions[-1])
            if step.terminated:
                break
            low, high = (
                (actions[-1]["number"] + 1, high)
                if step.observation.text == "too low"
                else (low, actions[-1]["number"] - 1)
            )
        assert (step.observation.text, step.reward, step.success) == ("right", 1.0, True)
        received = directly(f"{root}/guessing", {"seed": seed}, actions)
        assert [done for _, _, done in received] == [False] * len(actions) + [True]
        assert received[-1][:2] == ({"answer": "right", "metadata": {}}, 1.0)
        world.close()


def test_tools_of_a_server_are_called_as_the_packages_client_calls_them(root: str) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [("put", {"coins": 3}), ("count", {})] * 4
    actions: list[dict[str, Any]] = [{"type": "list_tools"}]
    actions += [{"type": "call_tool", "tool_name": n, "arguments": a} for n, a in calls]
    _, listed, *received = directly(f"{root}/till", {"seed": 4}, actions)
    world = world_of(till(root))
    named = {one["name"]: one["input_schema"] for one in listed[0]["tools"]}
    assert {tool.name for tool in world.tools} == set(named) == {"put", "count"}
    assert all(tool.parameters["type"] == "object" for tool in world.tools)
    world.reset(seeded(4))
    for (name, arguments), (observation, reward, done) in zip(calls, received, strict=True):
        step = use(world, name, **arguments)
        texts = [part["text"] for part in observation["result"]["content"]]
        assert step.observation.text == "\n".join(texts)
        assert (step.reward, step.terminated, step.success) == (reward, done, done)
        if done:
            break
    assert step.success
    world.close()


def test_the_packages_own_environment_echoes_alike(tmp_path: Path) -> None:
    """The one that ships with it: the template of `openenv init`."""
    made = subprocess.run(
        [sys.executable, "-m", "openenv.cli", "init", "echo_world"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert made.returncode == 0, made.stderr
    described = description(
        "",
        action=ActionFormat(text="message"),
        url="",
        app="echo_world.server.app:app",
        folder=tmp_path,
        observation="{echoed_message} ({message_length})",
    )
    output = ["hello", "ünïcödé 走れ", "a longer message than that"]
    world = world_of(described)
    assert world._link is not None
    url = world._link.root
    assert world.reset(seeded(0)).text == "Echo World environment ready! (0)"
    steps = [act(world, words) for words in output]
    world.close()
    first = [(step.observation.text, step.reward, step.terminated) for step in steps]
    assert url.startswith("http://127.0.0.1:")
    world = world_of(described)  # one session at a time is what the template allows
    assert world._link is not None
    world._link._session.close()
    received = directly(world._link.root, {"seed": 0}, [{"message": words} for words in output])
    world.close()
    shown = [
        (f"{seen['echoed_message']} ({seen['message_length']})", reward, done)
        for seen, reward, done in received[1:]
    ]
    assert first == shown


# ── words, actions and ends ──────────────────────────────────────────────────


def test_rewards_are_summed_and_may_end_a_task_that_the_server_does_not_end(root: str) -> None:
    world = world_of(odd(root, solved=Solved(total=2.0, ends=True)))
    world.reset(seeded(0))
    steps = [act(world, words) for words in ("one", "pay", "two")]
    assert [step.reward for step in steps] == [1.0, 0.5, 1.0]
    assert [(step.terminated, step.success) for step in steps] == [(False, False)] * 2 + [
        (True, True)
    ]
    assert not act(world, "more").valid
    world.close()


def test_what_is_met_before_the_end_is_no_success(root: str) -> None:
    world = world_of(odd(root))
    world.reset(seeded(0))
    step = act(world, "hello")
    assert (step.reward, step.terminated, step.success) == (1.0, False, False)
    world.close()


@pytest.mark.parametrize(
    ("described", "words", "hint"),
    [
        (grid, "up", "north, south, east, west"),
        (grid, "", "Say your action"),
        (guessing, "guess(100)", "less than or equal to 99"),
        (guessing, "guess('one')", "must be integer"),
        (guessing, "move(1)", "no tool 'move'"),
        (spelled, "one", "That is no number"),
        (spelled, "100", "less than or equal to 99"),
        (till, "put(coins='many')", "must be integer"),
        (odd, "\ud800", "plain values"),
    ],
)
def test_what_is_no_action_changes_nothing_and_is_answered_in_words(
    root: str, described: Callable[[str], Description], words: str, hint: str
) -> None:
    world = world_of(described(root))
    world.reset(task() if described is grid else seeded(2))
    step = act(world, words)
    assert (step.valid, step.terminated, step.reward) == (False, False, 0.0)
    assert hint in step.observation.text
    assert world._past == []
    world.close()


def test_any_words_are_an_action_where_the_field_is_any_string(root: str) -> None:
    world = world_of(odd(root, action=ActionFormat(text="order", samples=("hi",))))
    assert world.spec.free_text
    world.reset(seeded(0))
    assert act(world, "  ünïcödé 🏃 ").observation.text == "ünïcödé 🏃"
    assert not use(world, "say", order="x").valid
    world.close()


def test_without_a_template_every_field_that_says_something_is_reported(root: str) -> None:
    world = world_of(grid(root).model_copy(update={"observation": ""}))
    lines = world.reset(task()).text.splitlines()
    assert lines[0].startswith("x: 0") and lines[-1] == "found: false"
    world.close()


# ── servers that misbehave ───────────────────────────────────────────────────


def fault(call: Callable[[], object]) -> EnvironmentFault:
    with pytest.raises(EnvironmentFault) as caught:
        call()
    return caught.value


def test_a_dead_server_is_an_error_and_the_next_reset_starts_another() -> None:
    world = world_of(odd("", url="", app="openenv_apps:odd", folder=HERE))
    server = world._link._server.process.pid
    world.reset(seeded(0))
    received = fault(lambda: act(world, "die"))
    assert received.kind == "crash"
    assert "openenv/mine" in received.detail and "I am about to die" in received.detail
    assert "gone" in fault(lambda: act(world, "hello")).detail
    assert not psutil.pid_exists(server)
    world.reset(seeded(0))
    pid = int(act(world, "pay").observation.text)
    assert pid != server
    psutil.Process(pid).kill()
    assert fault(lambda: act(world, "hello")).kind == "crash"
    world.reset(seeded(0))
    assert pids()
    world.close()
    assert not pids()


def test_a_world_that_no_one_closes_takes_its_server_along() -> None:
    def use_and_forget() -> set[int]:
        world = world_of(odd("", url="", app="openenv_apps:odd", folder=HERE))
        world.reset(seeded(0))
        return pids()

    [server] = use_and_forget()
    gc.collect()
    assert gone(server)


def test_a_program_that_is_killed_takes_its_servers_along() -> None:
    script = (
        "import os, psutil\n"
        f"from {OpenEnv.__module__} import OpenEnv\n"
        f"world = OpenEnv({GRID!r})\n"
        "print(*(child.pid for child in psutil.Process().children()), flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert gone(int(done.stdout))


def pids() -> set[int]:
    """The worlds' own servers; the one of all tests serves another app."""
    return {
        child.pid
        for child in children_with("openenv/server.py")
        if "everything" not in " ".join(child.cmdline())
    }


def gone(pid: int) -> bool:
    until = time.monotonic() + 10
    while psutil.pid_exists(pid) and time.monotonic() < until:
        time.sleep(0.05)
    return not psutil.pid_exists(pid)


def test_a_server_that_is_mute_is_a_hang(root: str) -> None:
    world = world_of(odd(root, timeout=1.5))
    world.reset(seeded(0))
    began = time.monotonic()
    received = fault(lambda: act(world, "sleep"))
    assert (received.kind, "over 1.5 s" in received.detail) == ("hang", True)
    assert time.monotonic() - began < 15


def test_a_server_that_fails_is_an_error_never_a_score(root: str) -> None:
    world = world_of(odd(root, tasks=(DescribedTask(id="bad", parameters={"broken": True}),)))
    bad = Task("test/0", "openenv/mine", 2, Split.TEST, parameters={"task": "bad"})
    received = fault(lambda: world.reset(bad))
    assert (received.kind, "cannot begin" in received.detail) == ("reset", True)
    world = world_of(odd(root))
    world.reset(seeded(0))
    received = fault(lambda: GuardedEnvironment(world, "odd").step(Action("fail")))
    assert (received.kind, "no such order" in received.detail) == ("step", True)
    world.reset(seeded(0))  # a new session
    assert act(world, "hello").reward == 1.0
    world.close()


@pytest.mark.parametrize(
    "output",
    [
        "nothing",
        "[]",
        '{"type": "state"}',
        '{"type": "observation", "data": 3}',
        '{"type": "observation", "data": {"observation": {}, "done": "yes"}}',
        '{"type": "observation", "data": {"observation": {}, "reward": "much"}}',
    ],
)
def test_rubbish_is_an_error(root: str, output: str) -> None:
    world = world_of(description("rubbish", root))
    assert world.reset(seeded(0)).text == "b"
    assert fault(lambda: act(world, output)).kind == "rubbish"
    world.close()


def test_an_app_that_does_not_start_reports_why(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise RuntimeError('I was never meant to be')")
    received = fault(lambda: world_of(odd("", url="", app="broken:app", folder=tmp_path)))
    assert (received.kind, "I was never meant to be" in received.detail) == ("crash", True)
    with pytest.raises(InputError, match="no folder"):
        world_of(odd("", url="", app="a:b", folder=tmp_path / "none"))
    with pytest.raises(MissingSystemPart, match="no-such-python"):
        world_of(odd("", url="", app="a:b", folder=tmp_path, python="no-such-python"))
    assert not pids()


def test_no_one_at_the_address_is_an_error() -> None:
    received = fault(lambda: world_of(odd("http://127.0.0.1:9")))
    assert (received.kind, "no session at http://127.0.0.1:9" in received.detail) == ("crash", True)


# ── bad input ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "action: Field required"),
        ("app = 'a:b'\n[action]\n[solved]\ntotal=1", "give one of text, words, tool and mcp"),
        (
            "app = 'a:b'\n[action]\ntext='a'\n[solved]",
            "give one of field, reward and total",
        ),
        ("[action]\ntext='a'\n[solved]\ntotal=1", "either `app` or `url`"),
        ("url = 'x'\n[action]\ntext='a'\n[solved]\ntotal=1", "must begin with http://"),
        ("app = 'a:b'\nspeed = 3\n[action]\ntext='a'\n[solved]\ntotal=1", "speed: Extra"),
        ("app = 'a:b'\nobservation = '{}'\n[action]\ntext='a'\n[solved]\ntotal=1", "not the name"),
        ("app = ", "cannot be read"),
    ],
)
def test_a_file_that_is_no_description_is_refused(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "world.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=why):
        OpenEnv.spec_of(str(file))


def test_a_description_that_does_not_fit_its_server_is_refused(root: str) -> None:
    for action, why in (
        (ActionFormat(text="message"), "has no field 'message'; it has: order"),
        (ActionFormat(text="order", fixed={"loud": True}), "has no field 'loud'"),
        (ActionFormat(words={"go": {"where": 1}}), "has no field 'where'"),
    ):
        with pytest.raises(InputError, match=why):
            world_of(odd(root, action=action))
    with pytest.raises(InputError, match="lists no tools"):
        world_of(odd(root, action=ActionFormat(mcp=True)))
    world = world_of(odd(root, observation="{reply}"))
    with pytest.raises(InputError, match=r"'reply'.*they have: metadata, report"):
        world.reset(seeded(0))
    world.close()


def test_names_tasks_and_snapshots_of_others_are_refused(root: str) -> None:
    with pytest.raises(UnknownName, match="installed description of an OpenEnv world 'none'"):
        OpenEnv("none")
    with pytest.raises(InputError, match="cannot be read"):
        OpenEnv.tasks("openenv/none.toml")
    world = world_of(grid(root))
    with pytest.raises(InputError, match="call reset with a task first"):
        act(world, "north")
    for other in (seeded(0), task("none"), task("small", Split.TEST)):
        with pytest.raises(InputError, match="is not a task of openenv/mine"):
            world.reset(other)
    world.reset(task())
    saved = world.snapshot()
    with pytest.raises(InputError, match="cannot be restored"):
        world.restore(saved.replace(b"openenv/", b"openenv/x", 1))
    world.close()
    free = world_of(odd(root))
    assert Capability.SNAPSHOT not in free.spec.capabilities and not free.spec.deterministic
    with pytest.raises(CapabilityMissing):
        free.snapshot()
    with pytest.raises(InputError, match="is not a task of"):
        free.reset(task())
    free.close()


def test_sessions_are_the_links_own(root: str) -> None:
    first, second = Link(grid(root)), Link(grid(root))
    assert first.reset({"seed": 1}).observation["x"] == 0
    second.reset({"seed": 1})
    first.step({"direction": "east"})
    assert second.step({"direction": "north"}).observation["x"] == 0
    first.close()
    first.close()
    assert "over" in fault(lambda: first.step({"direction": "east"})).detail
    second.close()
