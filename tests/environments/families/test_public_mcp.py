"""Public MCP servers as they are published: tasks from files, restored state, end-state checks.

After MCPMark (Wu et al. 2025), whose tasks are read-and-write workflows with a curated initial
state and a check of what is left at the end; these are ours, four over each of three servers.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

import palaestra as pa
from palaestra.core.environment import Action
from palaestra.core.task import Split

pytest.importorskip("mcp.server.mcpserver", reason="needs the package mcp, version 2")
from palaestra.environments.families.mcp.environment import McpEnvironment

DESCRIBED = Path(__file__).parent / "public_mcp"
pytestmark = pytest.mark.slow


def files(folder: Path) -> None:
    (folder / "debts.csv").write_text("Ida,12\nOmar,7\n")


def memory(folder: Path) -> None:
    person = {"type": "entity", "entityType": "person"}
    ida = person | {"name": "Ida Marsh", "observations": ["lives in Ulm"]}
    omar = person | {"name": "Omar Reed", "observations": ["lives in Bern", "plays chess"]}
    works = {"type": "relation", "from": "Ida Marsh", "to": "Omar Reed"}
    lines = [ida, omar, works | {"relationType": "works with"}]
    (folder / "memory.jsonl").write_text("\n".join(map(json.dumps, lines)))


def database(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "shop.db")) as shop:
        shop.executescript(
            "CREATE TABLE item (name TEXT, price INTEGER);"
            "CREATE TABLE sold (number INTEGER, name TEXT, pieces INTEGER);"
            "INSERT INTO item VALUES ('tea', 5), ('jam', 3);"
            "INSERT INTO sold VALUES (1, 'jam', 4), (2, 'tea', 1);"
        )


STARTS: dict[str, Callable[[Path], None]] = {
    "filesystem": files,
    "memory": memory,
    "sqlite": database,
}
"""How each server's tasks begin: what is written into the folder that each episode copies."""


@pytest.fixture(params=STARTS)
def described(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The file of a server's tasks, beside the folder with which they begin."""
    name: str = request.param
    file = shutil.copy(DESCRIBED / f"{name}.toml", tmp_path)
    if shutil.which(f"mcp-server-{name}") is None:
        command = Path(file).read_text().partition("\n")[0].removeprefix("# ")
        pytest.skip(f"needs mcp-server-{name}: {command}")
    shutil.copy(DESCRIBED / "told.py", tmp_path)
    (tmp_path / "start").mkdir()
    STARTS[name](tmp_path / "start")
    return Path(file)


def test_every_solution_passes_its_check_from_the_state_that_is_restored(described: Path) -> None:
    start = {file: file.read_bytes() for file in (described.parent / "start").iterdir()}
    done = pa.evaluate(f"mcp/{described}", model="expert", n=8, progress=False, workers=0)
    assert done.success == 1
    assert {file: file.read_bytes() for file in start} == start


def test_the_solution_of_another_task_and_none_are_no_success(described: Path) -> None:
    env, tasks = McpEnvironment(str(described)), McpEnvironment.tasks(f"mcp/{described}")
    every = tasks.take(Split.TEST, tasks.count(Split.TEST) or 0)
    assert len(every) == 4
    for task, other in zip(every, [*every[1:], every[0]], strict=True):
        env.reset(other)
        plan = env.oracle()
        env.reset(task)
        assert not [env.step(action) for action in plan][-1].success
        env.reset(task)
        assert not env.step(Action("It is 7, I think.")).success
    env.close()
