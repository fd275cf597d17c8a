"""Evaluations of plans: resumed, shared out, stopped and steered without changing a score."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from rich.console import Console

from palaestra.core.agent import Agent
from palaestra.core.environment import AsyncEnvironment
from palaestra.core.episode import Episode
from palaestra.core.errors import InfrastructureFault, InputError
from palaestra.core.model import Finish, Generation, Model, Prompt
from palaestra.evaluation.reports.cell_samples import read
from palaestra.evaluation.reports.leaderboard import build
from palaestra.evaluation.running import desired_state
from palaestra.evaluation.running.evaluation_plan import DOCUMENT, Plan, Shard, as_json, from_json
from palaestra.evaluation.running.evaluation_run import Done, evaluate
from palaestra.evaluation.running.matrix import MatrixRequest, plan
from palaestra.evaluation.running.spending_budget import SpendingBudget
from palaestra.evaluation.running.suite import Entry, Limits, Suite
from palaestra.evaluation.statistics.costs import Price
from palaestra.models.scripted.random_choice import RandomModel
from palaestra.runtime.progress import Reporter
from palaestra.store.liveness import worker
from palaestra.store.run_folder import RunFolder
from tests.training.runs import command, environment, essence, in_this_process, palaestra

WORLD, OTHER = "probe/umbrella-4", "probe/memory-4"


def asked(*worlds: str, tasks: int = 6, **given: object) -> Plan:
    entries = [Entry(environment=world, tasks=tasks) for world in worlds or (WORLD, OTHER)]
    terms: dict[str, object] = {"entries": entries, "agents": ["direct"], "models": ["random"]}
    return plan(MatrixRequest(**(terms | given)))[0]  # type: ignore[arg-type]


def chance(name: str, agent: Agent) -> Model:
    return RandomModel(agent)


@dataclass
class Lived(Done):
    """Return the result, with the reported episodes."""

    episodes: dict[str, list[Episode]] = field(default_factory=dict)


def run_episode(
    made: Plan,
    folder: Path,
    *,
    load: Callable[[str, Agent], Model] = chance,
    concurrency: int = 4,
    budget: SpendingBudget | None = None,
) -> Lived:
    """Work on the plan in this process; goes on where the folder already holds a run."""
    shown: dict[str, list[Episode]] = {}
    new = not (folder / "run.json").exists()
    with RunFolder.create(folder, {}) if new else RunFolder.open(folder) as run:
        run.database.put(DOCUMENT, as_json(made))
        work = evaluate(
            made,
            run,
            Reporter(Console(quiet=True)),
            load=load,
            concurrency={"": concurrency},
            budget=budget or SpendingBudget(),
            on_cell=lambda cell, episodes: shown.update({cell.phase: episodes}),
            workers=0,
        )
        done = asyncio.run(work)
    return Lived(done.stopped, done.seconds, done.cell_seconds, shown)


def essences(done: Lived) -> dict[str, list[object]]:
    return {phase: [essence(e) for e in episodes] for phase, episodes in done.episodes.items()}


def stored(folder: Path) -> dict[str, Episode]:
    with RunFolder.read(folder) as run:
        phases = run.database.phases()
        return {str(e.key): e for phase in phases for e in run.database.episodes(phase)}


class Counting(RandomModel):
    """Chance that costs 10 tokens to ask and 2 to answer; `before` is called with each prompt."""

    def __init__(
        self,
        agent: Agent,
        before: Callable[[Prompt], None] = lambda prompt: None,
        delay: float = 0.0,
        environment: AsyncEnvironment | None = None,
    ) -> None:
        super().__init__(agent, environment=environment)
        self.before, self.delay = before, delay

    def for_environment(self, environment: AsyncEnvironment) -> Counting:
        return Counting(self.agent, self.before, self.delay, environment)

    async def generate(self, prompt: Prompt) -> Generation:
        self.before(prompt)
        await asyncio.sleep(self.delay)
        reply = await super().generate(prompt)
        return replace(reply, computed_tokens=10, logprobs=(0.0, 0.0), finish=Finish.STOP)


# ── what is planned ──────────────────────────────────────────────────────────


def test_a_plan_is_every_agent_with_every_model_everywhere_under_every_seed() -> None:
    made = asked(agents=["direct", "react"], models=["random", "expert"], seeds=[1, 2])
    assert len(made.cells) == len({cell.phase for cell in made.cells}) == 2 * 2 * 2 * 2
    assert made.cells[0].phase == "eval/test/direct/random/probe/umbrella-4/seed-1"
    assert {cell.max_tokens for cell in made.cells if cell.agent == "react"} == {128}
    assert from_json(json.loads(json.dumps(as_json(made))), "run") == made


def test_a_single_cell_keeps_its_short_phase() -> None:
    assert [cell.phase for cell in asked(WORLD).cells] == ["eval/test"]


def test_names_that_would_break_a_phase_are_made_plain_and_stay_apart() -> None:
    made = asked(WORLD, agents=["direct?history=2", "direct?history=4"])
    phases = [cell.phase for cell in made.cells]
    assert len(set(phases)) == 2
    assert all("?" not in phase for phase in phases)


def test_what_cannot_be_is_left_out_with_the_reason_if_something_is_left() -> None:
    made = asked(WORLD, "minigrid/Empty-5x5", models=["random", "expert"])
    assert len(made.cells) == 3
    reason = made.skipped["direct with expert on minigrid/Empty-5x5"]
    assert "has no expert" in reason
    with pytest.raises(InputError, match="has no expert"):
        asked("minigrid/Empty-5x5", models=["random", "expert"])


def test_a_suite_with_a_missing_environment_says_which_and_whose() -> None:
    suite = Suite(name="odd", version=1, entries=(Entry(environment="probe/umbrela-4", tasks=1),))
    with pytest.raises(InputError, match="The suite 'odd' names 'probe/umbrela-4'") as raised:
        plan(MatrixRequest(suite.entries, ["direct"], ["random"], suite=suite))
    assert "umbrella-4" in str(raised.value)


# ── scores do not depend on how the work is done ─────────────────────────────


def test_joined_shards_equal_the_whole_exactly(tmp_path: Path) -> None:
    whole = asked(tasks=7, seeds=[1, 2])
    run_episode(whole, tmp_path / "whole")
    for number in (3, 1, 2):  # in any order
        shard = replace(whole, shard=Shard(number, 3))
        run_episode(shard, tmp_path / f"shard{number}", concurrency=number)
    board = build(read(tmp_path / "whole"))
    joined = build([p for number in (1, 2, 3) for p in read(tmp_path / f"shard{number}")])
    one, other = board.candidates[0], joined.candidates[0]
    assert one.ranked and other.ranked
    assert one.success == other.success
    assert one.scores == other.scores
    for metric in ("reward", "turns", "tokens", "invalid"):
        assert one.means[metric] == other.means[metric]
    episodes = [stored(tmp_path / name) for name in ("whole", "shard1", "shard2", "shard3")]
    keys = [set(of) for of in episodes]
    assert keys[0] == keys[1] | keys[2] | keys[3]
    assert sum(map(len, keys[1:])) == len(keys[0])
    for of in episodes[1:]:
        assert all(essence(e) == essence(episodes[0][key]) for key, e in of.items())


def test_neither_concurrency_nor_other_cells_change_an_episode(tmp_path: Path) -> None:
    alone = run_episode(asked(), tmp_path / "a", concurrency=1)
    beside = run_episode(
        asked(models=["expert", "random"]), tmp_path / "b", load=_both, concurrency=9
    )
    for phase, episodes in essences(alone).items():
        assert essences(beside)[phase] == episodes


def _both(name: str, agent: Agent) -> Model:
    from palaestra.models.scripted.expert import ExpertModel

    return ExpertModel(agent) if name == "expert" else RandomModel(agent)


# ── resuming ─────────────────────────────────────────────────────────────────


def test_what_infrastructure_broke_is_run_again_and_nothing_else(tmp_path: Path) -> None:
    made = asked(WORLD, tasks=5)
    asking: list[str | None] = []

    def breaks(prompt: Prompt) -> None:
        asking.append(prompt.program)
        if prompt.program == "eval/test/3.0":
            raise InfrastructureFault("model", "the server went away")

    first = run_episode(made, tmp_path, load=lambda _, agent: Counting(agent, breaks))
    assert [str(e.outcome) for e in first.episodes["eval/test"]].count(
        "error(model, infrastructure)"
    ) == 1
    asking.clear()
    second = run_episode(made, tmp_path, load=lambda _, agent: Counting(agent, asking_of(asking)))
    assert set(asking) == {"eval/test/3.0"}
    assert all(e.outcome.scored for e in second.episodes["eval/test"])
    kept = [e for e in first.episodes["eval/test"] if e.key.group != 3]
    assert [e for e in second.episodes["eval/test"] if e.key.group != 3] == kept


def asking_of(found: list[str | None]) -> Callable[[Prompt], None]:
    return lambda prompt: found.append(prompt.program)


def test_a_finished_run_asks_no_model_again(tmp_path: Path) -> None:
    first = run_episode(asked(), tmp_path)

    def none(name: str, agent: Agent) -> Model:
        raise AssertionError(f"{name} is not needed")

    assert run_episode(asked(), tmp_path, load=none).episodes == first.episodes


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come to that in time"
        time.sleep(0.02)


def ended(folder: Path) -> int:
    with suppress(InputError), RunFolder.read(folder) as run:
        return len(run.database.summaries("eval/"))
    return 0


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the command line in a process of its own; ends what is left at the end."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str | Path) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command(*arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(),
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


MANY = ("eval", "--env", WORLD, "--env", OTHER, "--model", "random", "--workers", "0")
FEW = ("-n", "200", "--concurrency", "4")


def test_a_killed_evaluation_goes_on_and_repeats_no_finished_sample(
    tmp_path: Path, running: Callable[..., subprocess.Popen[str]]
) -> None:
    run = tmp_path / "killed"
    process = running(*MANY, *FEW, "--run", run)
    wait_for(lambda: ended(run) >= 40)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(10)
    before = stored(run)
    assert 40 <= len(before) < 400
    result = json.loads(in_this_process("eval", "--resume", run, "--json", "--workers", "0"))
    assert (result["episodes"], result["planned"], result["complete"]) == (400, 400, True)
    after = stored(run)
    # to the microsecond: they were not run again
    assert {key: after[key] for key in before} == before
    known = json.loads(in_this_process(*MANY, *FEW, "--run", tmp_path / "whole", "--json"))
    for one, other in zip(result["cells"], known["cells"], strict=True):
        for name in ("success", "interval", "reward", "turns", "outcomes", "episodes"):
            assert one[name] == other[name]


# ── limits ───────────────────────────────────────────────────────────────────


def test_the_budget_of_tokens_ends_the_work_at_the_call_that_spends_it(tmp_path: Path) -> None:
    made = asked(WORLD, tasks=8)
    calls: list[str | None] = []

    def load(name: str, agent: Agent) -> Model:
        return Counting(agent, asking_of(calls))

    first = run_episode(made, tmp_path, load=load, concurrency=1, budget=SpendingBudget(tokens=60))
    assert first.stopped == "its budget of 60 tokens is spent"
    assert len(calls) == 5  # of 12 tokens each
    assert len(first.episodes["eval/test"]) == 1  # of four turns
    second = run_episode(made, tmp_path, load=load, concurrency=1, budget=SpendingBudget(tokens=60))
    assert (second.stopped, len(calls)) == (first.stopped, 5)  # what was spent stays spent
    third = run_episode(made, tmp_path, load=load, concurrency=1)
    assert third.stopped is None
    assert len(third.episodes["eval/test"]) == 8
    turns = sum(len(episode.steps) for episode in third.episodes["eval/test"])
    assert len(calls) == turns  # the interrupted episode went on after its recorded call


def test_the_budget_of_money_counts_with_the_prices(tmp_path: Path) -> None:
    made = replace(asked(WORLD), prices={"random": Price(read=1e5, sampled=5e5)})
    calls: list[str | None] = []

    def load(name: str, agent: Agent) -> Model:
        return Counting(agent, asking_of(calls))

    tight = SpendingBudget(money=5.0)  # a call costs 1 for reading and 1 for the reply
    done = run_episode(made, tmp_path, load=load, concurrency=1, budget=tight)
    assert done.stopped == "its budget of 5 in money is spent"
    assert len(calls) == 3
    run_episode(made, tmp_path, load=load)
    assert build(read(tmp_path)).candidates[0].means["money"] == 2.0 * 4  # turns


def test_the_budget_of_seconds_ends_the_work(tmp_path: Path) -> None:
    made = asked(WORLD, tasks=40)
    slow = 0.05

    def load(name: str, agent: Agent) -> Model:
        return Counting(agent, delay=slow)

    done = run_episode(made, tmp_path, load=load, concurrency=1, budget=SpendingBudget(seconds=0.6))
    assert done.stopped == "its budget of 0.6 seconds is spent"
    assert 0 < len(done.episodes["eval/test"]) < 40
    assert done.seconds < 5


def test_a_straggler_is_cut_off_by_the_deadline_of_its_episode(tmp_path: Path) -> None:
    made = asked(WORLD, tasks=3, limits=Limits(seconds=0.2))

    def load(name: str, agent: Agent) -> Model:
        return Counting(agent, delay=30.0)

    done = run_episode(made, tmp_path, load=load)
    assert [str(e.outcome) for e in done.episodes["eval/test"]] == ["truncated(seconds)"] * 3


# ── control from outside ─────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_pause_stops_the_work_and_its_end_goes_on_with_equal_scores(
    tmp_path: Path, running: Callable[..., subprocess.Popen[str]]
) -> None:
    run = tmp_path / "run"
    process = running(*MANY, "-n", "500", "--concurrency", "2", "--run", run)
    wait_for(lambda: ended(run) >= 10)
    desired_state.change(run, paused=True)
    paused = json.loads(palaestra("ctl", run, "pause", "--json").stdout)  # once more: the same
    assert (paused["state"], paused["obeyed"]) == ("paused", True)
    there = ended(run)
    time.sleep(0.5)
    assert ended(run) == there < 1000
    tuned = json.loads(palaestra("ctl", run, "concurrency", "16", "--json").stdout)
    assert (tuned["state"], tuned["concurrency"]) == ("paused", 16)
    palaestra("ctl", run, "resume")
    assert process.wait(100) in (0, 1)
    assert ended(run) == 1000
    palaestra(*MANY, "-n", "500", "--run", tmp_path / "undisturbed", check=None)
    boards = [build(read(folder)) for folder in (run, tmp_path / "undisturbed")]
    assert boards[0].candidates[0].scores == boards[1].candidates[0].scores


@pytest.mark.slow
def test_a_cancelled_evaluation_reports_what_is_done_and_can_be_gone_on_with(
    tmp_path: Path, running: Callable[..., subprocess.Popen[str]]
) -> None:
    run = tmp_path / "run"
    process = running(*MANY, "-n", "9000", "--concurrency", "8", "--json", "--run", run)
    wait_for(lambda: ended(run) >= 10)
    in_this_process("ctl", run, "cancel")
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    result = json.loads(output.splitlines()[-1])
    assert result["stopped"] == "it was cancelled from outside"
    assert 10 <= result["episodes"] == ended(run) < 18000
    status = json.loads(in_this_process("ctl", run, "status", "--json"))
    assert (status["state"], status["worker"]) == ("stopped", None)
    refused = palaestra("ctl", run, "cancel", check=1)
    assert "no process works on it" in refused.stderr
    done = palaestra("eval", "--resume", run, "--budget-seconds", "1", "--json", check=None)
    assert json.loads(done.stdout)["stopped"] != "it was cancelled from outside"


def test_a_pause_outlasts_the_process_that_obeyed_it_and_costs_no_time(tmp_path: Path) -> None:
    RunFolder.create(tmp_path, {}).close()
    assert desired_state.change(tmp_path, paused=True) == desired_state.change(
        tmp_path, paused=True
    )
    rest = 1.0  # seconds
    shown: list[int] = []

    async def paused_first() -> tuple[int, Done]:
        with RunFolder.open(tmp_path) as run:
            work = evaluate(
                asked(),
                run,
                Reporter(Console(quiet=True)),
                load=chance,
                concurrency={"": 4},
                budget=SpendingBudget(),
                on_cell=lambda cell, episodes: shown.append(len(episodes)),
                workers=0,
            )
            task = asyncio.create_task(work)
            await asyncio.sleep(rest)
            before = len(run.database.summaries())
            desired_state.change(tmp_path, paused=False)
            return before, await task

    before, done = asyncio.run(paused_first())
    assert before == 0
    assert shown == [6, 6]
    assert done.seconds < rest + sum(done.cell_seconds.values()) - 0.5
    assert sum(done.cell_seconds.values()) < rest


def test_desired_states_of_many_processes_are_all_kept(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path\n"
        "from palaestra.evaluation.running.desired_state import change\n"
        "for i in range(20): change(Path(sys.argv[1]), concurrency=int(sys.argv[2]) + i)"
    )
    interpreter = command()[0]
    processes = [
        subprocess.Popen(
            [interpreter, "-c", program, str(tmp_path), str(100 * n)], env=environment()
        )
        for n in (1, 2, 3)
    ]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert desired_state.read(tmp_path).serial == 60


def test_no_one_works_on_a_run_whose_process_was_killed(tmp_path: Path) -> None:
    (tmp_path / "run.lock").write_text(f"{os.getpid()}\n")
    assert worker(tmp_path) == os.getpid()
    os.utime(tmp_path / "run.lock", (1, 1))  # older than this process: the number was reused
    assert worker(tmp_path) is None
