"""A judge on another machine: it makes the judge, with its models, and judges what it is sent.

One case is judged; of two, the better one is chosen.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from palaestra.cluster.placement import Kind
from palaestra.cluster.supervised_process import Driver
from palaestra.cluster.worker_messages import Call
from palaestra.core.episode import Key
from palaestra.evaluation.judges.case import Case
from palaestra.evaluation.judges.registry import JudgeRequest
from palaestra.evaluation.judges.verdict import Judge, Preference, Verdict

MODULE = "palaestra.cluster.judge_process"


def judge_kind(most: int = 8) -> Kind:
    """Return the kind of the judges; see `placement.Kind`."""
    note = "each holds the judge's model, if it is local"
    return Kind("judge", "judges", MODULE, "cases", 1, most, 1.0, note=note)


@dataclass(frozen=True, slots=True)
class Appoint:
    """The judge to make."""

    wanted: JudgeRequest
    rubric: str | None  # the text of its file
    labels: Mapping[Key, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Appointed:
    """What the judge says of itself."""

    name: str
    rule: str
    model: str  # the model behind it; empty if there is none


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict on the case of that number, or a preference between its two cases."""

    number: int
    verdict: Verdict | Preference


def serve(call: Call) -> None:
    """Judge until the driver ends the connection, or ends itself.

    Raises:
        OSError: the driver cannot be reached.
        InputError: the judge cannot be made here.
    """
    loop = asyncio.new_event_loop()
    with Driver(call) as driver:
        from palaestra.environments.registry import make
        from palaestra.evaluation.judges.registry import load_to_judge, make_judge

        asked: Appoint = driver.receive()
        judge, models = make_judge(
            _with_rubric(asked),
            make,
            lambda name: load_to_judge(name, lambda said: None),
            asked.labels,
        )
        driver.send(Appointed(judge.name, judge.rule, models[0].name if models else ""))
        while True:
            number, cases = driver.receive()
            driver.send(Judged(number, loop.run_until_complete(_judged(judge, cases))))


async def _judged(judge: Judge, cases: Sequence[Case]) -> Verdict | Preference:
    return await (judge.judge(cases[0]) if len(cases) == 1 else judge.prefer(cases[0], cases[1]))


def _with_rubric(asked: Appoint) -> JudgeRequest:
    """Return what was asked for, with the file of its rubric on this machine."""
    if asked.rubric is None:
        return asked.wanted
    assert isinstance(asked.wanted.rubric, Path)
    file = Path(tempfile.mkdtemp(prefix="palaestra-")) / asked.wanted.rubric.name
    file.write_text(asked.rubric, encoding="utf-8")
    return replace(asked.wanted, rubric=file)
