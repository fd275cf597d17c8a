"""Agents for data, plugins and pages: tools fail, the process is killed, the page shows it all.

Source: Xie et al. 2023 (OpenAgents). A command runs an agent, and the viewer's page follows it.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from html import unescape
from pathlib import Path

import pytest

from palaestra.core.environment import Action
from palaestra.core.task import Task
from palaestra.environments.authoring import Refused, ToolWorld, tool
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.store.damage import NAME
from palaestra.store.database import Database
from palaestra.store.run_folder import RunFolder
from tests.training.runs import command, environment, in_this_process
from tests.viewer.stores import client_of

REGIONS = ("north", "south", "west")
RIGHT = "select region from sales group by region order by sum(amount) desc limit 1"
WRONG = RIGHT.replace("region", "area")


class Sales(ToolWorld, capabilities={"oracle"}, typical_turns=6):
    """Which region sold the most? The table is sales(region, amount)."""

    def begin(self, task: Task) -> str:
        rng = random.Random(task.seed)
        self.state = {"rows": [[rng.choice(REGIONS), rng.randrange(100)] for _ in range(12)]}
        self.state |= {"asked": 0, "answer": ""}
        return "The table has 12 rows."

    def _rows(self, query: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(":memory:")) as database:
            database.execute("create table sales (region text, amount integer)")
            database.executemany("insert into sales values (?, ?)", self.state["rows"])
            return database.execute(query).fetchall()

    @tool
    def sql(self, query: str) -> str:
        """Run a query."""
        self.state["asked"] += 1
        try:
            return str(self._rows(query))
        except sqlite3.Error as error:
            raise Refused(f"The query failed: {error}") from error

    @tool
    def answer(self, region: str) -> str:
        """Give the answer."""
        self.state["answer"] = region
        return "Noted."

    def verdict(self) -> bool | None:
        given = self.state["answer"]
        return self._rows(RIGHT)[0][0] == given if given else None

    def oracle(self) -> Sequence[Action]:
        """Return a plan whose first query fails, for the table has no such column."""
        queries = [self.call("sql", query=query) for query in (WRONG, RIGHT)]
        best = self.call("answer", region=self._rows(RIGHT)[0][0])
        return [*queries[self.state["asked"] :], best]


DATA = ("--env", "tests.viewer.test_recovered_agents:Sales?latency=1",
        "--agent", "code?sandbox=unsafe")  # fmt: skip
PLUGINS = ("--env", "apps/easy?errors=0.5&latency=1", "--agent", "direct")
PAGES = ("--env", "web/easy?errors=0.5&latency=1", "--agent", "direct")
FAILURES = {DATA: "The query failed: no such column: area", PLUGINS: "Something went wrong",
            PAGES: "Something went wrong"}  # fmt: skip


def recorded_steps(run: Path) -> int:
    if not (run / NAME).exists():
        return 0
    with closing(Database.open(run / NAME, readonly=True)) as database:
        return database.steps()


def test_the_table_of_sales_keeps_the_contract() -> None:
    for clause in CLAUSES:
        clause(Subject.of("tests.viewer.test_recovered_agents:Sales", steps=4, per_split=2))


@pytest.mark.slow
@pytest.mark.parametrize("asked", [DATA, PLUGINS, PAGES], ids=["data", "plugins", "pages"])
def test_a_killed_session_is_on_its_page_and_goes_on_where_it_was(
    tmp_path: Path, asked: tuple[str, ...]
) -> None:
    run = tmp_path / "run"
    process = subprocess.Popen(
        command("eval", *asked, "--model", "expert", "-n", "1", "--run", run),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(),
        start_new_session=True,
    )
    page = "/run/run/episode/eval/test/0.0"
    try:
        while process.poll() is None and recorded_steps(run) < 2:
            time.sleep(0.02)
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGSTOP)  # so that the page shows where it will be killed
        before = recorded_steps(run)
        begun = unescape(client_of(tmp_path).get(page).text)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    in_this_process("eval", "--resume", run)
    with RunFolder.read(run) as opened:
        (phase,) = opened.database.phases()
        (episode,) = opened.database.episodes(phase)
    assert episode.outcome.solved and len(episode.steps) > before >= 2
    ended = unescape(client_of(tmp_path).get(page).text)
    for turn, step in enumerate(episode.steps):
        shown = step.action.text.splitlines()[0][:20]
        assert shown in ended and (turn >= before or shown in begun)
    assert FAILURES[asked] in ended
