"""A public MCP server as it is published: tasks from a file, restored state, end-state checks.

After MCPMark (Wu et al. 2025), whose tasks are read-and-write workflows with a curated initial
state and a check of what is left at the end; these are four of ours over its filesystem server.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import palaestra as pa
from palaestra.core.environment import Action
from palaestra.core.task import Split

pytest.importorskip("mcp.server.mcpserver", reason="needs the package mcp, version 2")
from palaestra.environments.families.mcp.environment import McpEnvironment

SERVER = "mcp-server-filesystem"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which(SERVER) is None,
        reason=f"needs {SERVER}: npm install -g @modelcontextprotocol/server-filesystem",
    ),
]
TASKS = """\
command = "sh"
arguments = ["-c", '''
    episode=$(mktemp -d ./episode.XXXXXX) && cp -r start/. $episode
    cd $episode && exec mcp-server-filesystem .''']
deterministic = true
tools = [
    "create_directory", "list_directory", "move_file", "read_text_file", "write_file"
]

[[tasks]]
id = "create"
instruction = "Write 'bread' into the new file list.txt."
check = { tool = "read_text_file", arguments = { path = "list.txt" }, equals = "bread" }
solution = [{ tool = "write_file", arguments = { path = "list.txt", content = "bread" } }, "Done."]

[[tasks]]
id = "read"
instruction = "What does Ida owe, according to debts.csv?"
check = "debts:told"
solution = [{ tool = "read_text_file", arguments = { path = "debts.csv" } }, "Ida owes 12."]

[[tasks]]
id = "update"
instruction = "Ida owes 15 now; correct debts.csv."
solution = [
    { tool = "write_file", arguments = { path = "debts.csv", content = "Ida,15\\nOmar,7" } },
    "Done.",
]

[tasks.check]
tool = "read_text_file"
arguments = { path = "debts.csv" }
equals = "Ida,15\\nOmar,7"

[[tasks]]
id = "move"
instruction = "Move debts.csv into the new folder old, and leave nothing else."
check = { tool = "list_directory", arguments = { path = "." }, equals = "[DIR] old" }
solution = [
    { tool = "create_directory", arguments = { path = "old" } },
    { tool = "move_file", arguments = { source = "debts.csv", destination = "old/debts.csv" } },
    "Done.",
]
"""
CHECKS = """\
def told(task, calls, words):
    return "12" in words and "7" not in words
"""


@pytest.fixture
def described(tmp_path: Path) -> Path:
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "debts.csv").write_text("Ida,12\nOmar,7\n")
    (tmp_path / "debts.py").write_text(CHECKS)
    (tmp_path / "files.toml").write_text(TASKS)
    return tmp_path / "files.toml"


def test_every_solution_passes_its_check_from_the_state_that_is_restored(described: Path) -> None:
    done = pa.evaluate(f"mcp/{described}", model="expert", n=8, progress=False, workers=0)
    assert done.success == 1
    assert (described.parent / "start" / "debts.csv").read_text() == "Ida,12\nOmar,7\n"


def test_another_end_state_is_no_success(described: Path) -> None:
    env, tasks = McpEnvironment(str(described)), McpEnvironment.tasks(f"mcp/{described}")
    every = tasks.take(Split.TEST, tasks.count(Split.TEST) or 0)
    for task, other in zip(every, [*every[1:], every[0]], strict=True):
        env.reset(other)
        plan = env.oracle()
        env.reset(task)
        assert not [env.step(action) for action in plan][-1].success
    env.reset(every[1])
    assert not env.step(Action("Ida owes 7, not 12.")).success
    env.close()
