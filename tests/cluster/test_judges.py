"""Judges as plain processes that are killed, and on Ray by the command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from palaestra.cluster.judge_process import Appoint, judge_kind
from palaestra.cluster.remote_judges import Judges
from palaestra.core.environment import Observation, Transition
from palaestra.core.episode import Episode, Key
from palaestra.core.errors import ClusterFailed
from palaestra.evaluation.judges.case import case_of
from palaestra.evaluation.judges.registry import JudgeRequest, make_judge
from palaestra.evaluation.judges.verdict import Verdict
from tests.cluster.processes import Processes
from tests.store.samples import episode
from tests.training.runs import palaestra


def appoint(name: str) -> Appoint:
    return Appoint(JudgeRequest(name), None, {})


def arrived(room: int) -> Transition:
    return Transition(Observation(f"room {room}"))


def test_verdicts_are_those_of_a_judge_here_although_one_is_killed() -> None:
    episodes = [
        replace(lived, steps=(replace(lived.steps[0], transition=arrived(number % 3)),))
        for number in range(40)
        for lived in [episode(Key("x", number), turns=1)]
    ]
    wanted = JudgeRequest("seen:room 2")
    here, _ = make_judge(wanted, lambda name: pytest.fail(name), lambda name: pytest.fail(name))

    async def run() -> list[Verdict]:
        launcher, said = Processes(2), list[str]()
        async with Judges(launcher, said.append, judge_kind(2), appoint("seen:room 2")) as judges:
            there = judges.judge()
            assert (there.name, there.identity) == (here.name, here.identity)

            async def one(lived: Episode) -> Verdict:
                return await there.judge(case_of(lived))

            while len(judges._appointed) < 2:  # one alone could be done before the other is there
                await asyncio.sleep(0.01)
            working = asyncio.gather(*(one(lived) for lived in episodes))
            while not judges.load(1):
                await asyncio.sleep(0)
            launcher.running[1].kill()
            verdicts = list(await working)
        assert any("judge 1 on" in line and "cases go on elsewhere" in line for line in said)
        return verdicts

    async def expected() -> list[Verdict]:
        return [await here.judge(case_of(lived)) for lived in episodes]

    found, wanted_verdicts = asyncio.run(run()), asyncio.run(expected())
    assert [v.value for v in found] == [v.value for v in wanted_verdicts]
    assert [v.reason for v in found] == [v.reason for v in wanted_verdicts]
    assert len({v.value for v in found}) == 2


@pytest.mark.slow
def test_a_judge_that_cannot_be_made_there_stops_the_work_with_the_reason() -> None:
    async def run() -> None:
        with pytest.raises(ClusterFailed, match=r"(?s)Five judges died .*no_such_module"):
            async with Judges(
                Processes(1), print, judge_kind(1), appoint("state:no_such_module:check")
            ):
                pass

    asyncio.run(run())


@pytest.fixture
def cluster() -> Iterator[str]:
    ray = pytest.importorskip("ray", reason="needs palaestra[ray]")
    context = ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield context.address_info["address"]
    ray.shutdown()


@pytest.mark.slow
def test_the_command_line_judges_on_a_cluster_as_it_does_here(cluster: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    palaestra("eval", "--env", "babyai/GoToObjS4", "--model", "expert", "-n", "6", "--run", run)
    asked = ("judge", run, "--judge", "seen:ball", "--unmeasured", "--json")
    there = json.loads(palaestra(*asked, f"--on=ray={cluster}").stdout)
    assert there["judged_now"] == 6
    again = json.loads(palaestra(*asked).stdout)  # what is stored is not judged again
    assert again["judged_now"] == 0 and again["verdicts"] == there["verdicts"]
    measure = ("judge", "calibrate", run, "--judge", "seen:ball", "--json")
    measured, here = (
        json.loads(palaestra(*measure, *on).stdout) for on in ((f"--on=ray={cluster}",), ())
    )
    assert measured["agreement"] == here["agreement"]
    assert measured["effects"] == here["effects"]
    refused = palaestra("judge", run, "--on=ray", check=2)
    assert "has no effect on a list of judges" in " ".join(refused.stderr.split())
