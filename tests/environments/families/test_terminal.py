"""The terminal worlds hold the contract; their checkers look at files and at nothing else."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator

import psutil
import pytest

from palaestra.core.environment import Action
from palaestra.core.errors import MissingSystemPart, UnknownName
from palaestra.core.message import ToolCall
from palaestra.core.task import Split, Task
from palaestra.environments import registry
from palaestra.environments.conformance import clauses
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject, follow
from palaestra.environments.families.terminal.environment import Terminal
from palaestra.environments.families.terminal.tasks import FAMILIES
from palaestra.environments.shared.folder_archive import Entry, read_archive, restore_command
from palaestra.environments.shared.folder_environment import SUBMIT, command_of
from palaestra.rollout.worker_pool import WorkerPool
from palaestra.sandbox.base import WORK
from palaestra.sandbox.factory import open_sandbox

ID = "terminal/mixed-hard@unsafe"
SOME = (
    clauses.restoring_equals_replaying,
    clauses.garbage_is_answered_in_words,
    clauses.a_closed_world_leaves_nothing,
)


def task(id: str, index: int = 0, split: Split = Split.TRAIN) -> Task:
    return registry.tasks(id).task(split, index)


@pytest.fixture
def worlds() -> Iterator[Callable[[str], Terminal]]:
    made: list[Terminal] = []

    def world(name: str) -> Terminal:
        made.append(Terminal(f"{name}@unsafe"))
        return made[-1]

    yield world
    for one in made:
        one.close()


@pytest.mark.parametrize("clause", SOME, ids=lambda clause: clause.__name__)
def test_the_contract_holds(clause: Callable[[Subject], None]) -> None:
    clause(Subject.of(ID, steps=4, per_split=1))


@pytest.mark.slow
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_contract_holds_in_every_family(family: str, clause: Callable[[Subject], None]) -> None:
    clause(Subject.of(f"terminal/{family}@unsafe", steps=8))


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_solved_by_submitting_and_all_by_the_oracle(
    worlds: Callable[[str], Terminal], family: str
) -> None:
    world, todo = worlds(f"{family}-hard"), task(f"terminal/{family}-hard", 1)
    world.reset(todo)
    assert world.progress() == 0.0
    ended = world.step(Action(SUBMIT))
    assert ended.terminated and not ended.success and ended.reward == 0.0
    world.reset(todo)
    assert follow(world, world.oracle())[-1][0].success


@pytest.mark.slow
@pytest.mark.parametrize("name", Terminal.names())
def test_the_oracle_solves_many_tasks(worlds: Callable[[str], Terminal], name: str) -> None:
    world = worlds(name)
    for split in Split:
        for index in range(10):
            world.reset(task(f"terminal/{name}", index, split))
            assert world.progress() < 0.9
            assert follow(world, world.oracle())[-1][0].success


def test_a_call_of_a_tool_is_refused_and_not_run(worlds: Callable[[str], Terminal]) -> None:
    world = worlds("mixed")
    world.reset(task("terminal/mixed"))
    call = ToolCall("touch", {})
    before = world.folder
    assert not world.step(Action("touch made.txt", call)).valid and world.folder == before
    assert world.step(Action("touch made.txt")).valid and world.folder != before


def test_the_oracle_repairs_what_was_damaged(worlds: Callable[[str], Terminal]) -> None:
    world = worlds("count")
    world.reset(task("terminal/count"))
    for command in ("mkdir deep && cd deep", "rm -r ../logs", "echo ada 1 > ../counts.txt"):
        world.step(Action(command))
    assert follow(world, world.oracle())[-1][0].success


def test_what_should_stay_must_stay(worlds: Callable[[str], Terminal]) -> None:
    world = worlds("extract")
    world.reset(task("terminal/extract"))
    *path, submit = world.oracle()
    follow(world, path)
    assert world.progress() == 0.9
    world.step(Action("echo >> people.csv"))
    assert not world.step(submit).success


def test_a_lookalike_answer_is_not_the_answer(worlds: Callable[[str], Terminal]) -> None:
    world = worlds("find")
    world.reset(task("terminal/find"))
    world.step(Action("find docs -type f | LC_ALL=C sort > found.txt"))  # all, not only the hits
    assert 0.0 < world.progress() < 0.9
    assert not world.step(Action(SUBMIT)).success


def test_folder_and_variables_last_and_a_snapshot_holds_both(
    worlds: Callable[[str], Terminal],
) -> None:
    world = worlds("rename")
    world.reset(task("terminal/rename"))
    world.step(Action("cd notes; A=3; f() { echo $A; }"))
    saved, key = world.snapshot(), world.state_key()
    world.step(Action("A=4; rm -f *; cd"))
    assert world.state_key() != key
    world.restore(saved)
    assert world.state_key() == key
    assert world.step(Action("pwd; f")).observation.text == f"{WORK}/notes\n3"


def test_equal_folders_reached_in_two_ways_have_equal_keys(
    worlds: Callable[[str], Terminal],
) -> None:
    world, keys = worlds("config"), set()
    for command in ("echo x > a", "printf 'x\\n' > b; mv b a"):
        world.reset(task("terminal/config"))
        world.step(Action(command))
        keys.add(world.state_key())
    assert len(keys) == 1


@pytest.mark.parametrize(
    "command", ["sleep 100", "exit 3", "kill -9 $$", "yes | head -c 200000000"]
)
def test_a_command_that_goes_wrong_is_an_observation(
    worlds: Callable[[str], Terminal], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    world = worlds("join")
    world.reset(task("terminal/join"))
    assert world._shell is not None
    monkeypatch.setattr(world._shell, "seconds", 0.3)
    seen = world.step(Action(command))
    assert seen.valid and len(seen.observation.text) < 9000
    monkeypatch.undo()
    assert follow(world, world.oracle())[-1][0].success


def test_what_was_done_outside_of_the_folder_is_gone_in_the_next_episode(
    worlds: Callable[[str], Terminal],
) -> None:
    world = worlds("config")
    world.reset(task("terminal/config"))
    world.step(Action('echo x > "$TMPDIR/left"; chmod 000 .'))
    world.reset(task("terminal/config"))
    assert world.step(Action('ls "$TMPDIR"')).observation.text == "(no output)"
    assert follow(world, world.oracle())[-1][0].success


@pytest.mark.parametrize("reply", ["ls", " ls\n", "```bash\nls\n```", "So:\n```\nls\n```\nDone."])
def test_what_is_fenced_is_the_command(reply: str) -> None:
    assert command_of(reply) == "ls"


def test_a_file_is_rebuilt_byte_for_byte() -> None:
    box = open_sandbox("unsafe")
    data = bytes(range(256)) + b"-%s \\n 'x'\n"
    for number, start in enumerate((b"", b"-", b"plain\n", b"%d'\"")):
        entry = Entry(start + data * bool(start), 0o640)
        box.run(["bash", "-c", restore_command(f"a b/{number}", entry)])
        assert read_archive(box.save())[f"a b/{number}"] == entry
    box.close()


def test_random_actions_are_understood_and_come_to_an_end(
    worlds: Callable[[str], Terminal],
) -> None:
    world, rng = worlds("logs"), random.Random(0)
    world.reset(task("terminal/logs"))
    for _ in range(12):
        seen = world.step(world.sample_action(rng))
        assert seen.valid
        if seen.terminated:
            break


@pytest.mark.parametrize("name", ["finde", "find@nothing"])
def test_an_unknown_name_is_reported_in_one_sentence(name: str) -> None:
    with pytest.raises(UnknownName, match="Known: "):
        registry.make(f"terminal/{name}")


def test_a_world_dies_with_its_worker_and_leaves_no_process() -> None:
    async def roll_out() -> None:
        async with WorkerPool(1) as pool:
            world = await pool.make("terminal/find@unsafe")
            await world.reset(task("terminal/find"))
            await world.step(Action("sleep 1000 & sleep 1000 & echo started"))

    before = {child.pid for child in psutil.Process().children(recursive=True)}
    asyncio.run(roll_out())
    sleepers = [
        p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "1000"]
    ]
    _, alive = psutil.wait_procs(sleepers, timeout=5)
    assert not alive
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before


def test_within_walls_the_world_is_the_same() -> None:
    world = Terminal("rename-hard")
    try:
        world.reset(task("terminal/rename-hard"))
    except MissingSystemPart as error:
        pytest.skip(str(error))
    assert "passwd" not in world.step(Action("cat ~root/.bashrc; ls /root /home")).observation.text
    assert follow(world, world.oracle())[-1][0].success
    world.close()
