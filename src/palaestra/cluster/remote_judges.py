"""Judges on other machines: each case is judged by one of them, by another one if that one dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from palaestra.cluster.judge_process import Appoint, Appointed, Judged, judge_kind
from palaestra.cluster.on_ray import OnRay, await_room, connected_to
from palaestra.cluster.placement import Kind
from palaestra.cluster.supervisor import Launcher, Peer, Supervisor
from palaestra.cluster.worker_messages import read
from palaestra.core.episode import Key
from palaestra.core.errors import PalaestraError
from palaestra.evaluation.judges.case import Case
from palaestra.evaluation.judges.registry import JudgeRequest
from palaestra.evaluation.judges.verdict import Judge, Preference, Verdict

AHEAD = 2  # cases that a judge has at once: it judges one, and the next one is there


class Judges(Supervisor):
    """The judges; an asynchronous context manager."""

    def __init__(
        self, launcher: Launcher, say: Callable[[str], None], kind: Kind, appoint: Appoint
    ) -> None:
        """Describe the judges; see `Supervisor`."""
        super().__init__(launcher, say, kind)
        self._appoint = appoint
        self._appointed: dict[int, Appointed] = {}
        self._cases: dict[
            int, tuple[int, asyncio.Future[Verdict | Preference | None]]
        ] = {}  # under way
        self._count = 0

    async def ready(self) -> None:
        """Wait until a judge is ready: until its model is loaded."""
        await self.until(lambda: self._appointed)

    def judge(self) -> JudgeElsewhere:
        """Return the judge that all of them are."""
        return JudgeElsewhere(self, next(iter(self._appointed.values())))

    async def verdict(self, *cases: Case) -> Verdict | Preference:
        """Return a verdict on one case, or a preference between two, once a judge has time.

        Raises:
            ClusterFailed: there is none left.
        """
        while True:
            await self.until(lambda: self._free() is not None)
            birth = self._free()
            assert birth is not None
            self._count += 1
            number = self._count
            loop = asyncio.get_running_loop()
            found: asyncio.Future[Verdict | Preference | None] = loop.create_future()
            self._cases[number] = birth, found
            try:
                self.connected[birth].send((number, cases))
                verdict = await found
            finally:
                del self._cases[number]
                self.worked(birth)
            await self.notify()
            if verdict is not None:
                return verdict

    def _free(self) -> int | None:
        """Return the judge with the fewest cases, if it has time."""
        able = sorted(self._appointed.keys() & self.staying)
        birth = min(able, key=self.load, default=None)
        return birth if birth is not None and self.load(birth) < AHEAD else None

    async def serve(self, peer: Peer, reader: asyncio.StreamReader) -> None:
        peer.send(self._appoint)
        while (message := await read(reader)) is not None:
            match message:
                case Appointed():
                    self._appointed[peer.greeting.birth] = message
                    await self.notify()
                case Judged(number, verdict) if number in self._cases:
                    found = self._cases[number][1]
                    if not found.done():
                        found.set_result(verdict)

    def load(self, birth: int) -> int:
        return sum(of == birth for of, _ in self._cases.values())

    def lost(self, birth: int) -> None:
        self._appointed.pop(birth, None)
        for of, found in self._cases.values():
            if of == birth and not found.done():
                found.set_result(None)  # another one judges it

    def failed(self, failure: PalaestraError) -> None:
        for _, found in self._cases.values():
            if not found.done():
                found.set_exception(failure)


class JudgeElsewhere(Judge):
    """The judge, wherever it is."""

    def __init__(self, judges: Judges, appointed: Appointed) -> None:
        self.name, self._rule, self._judges = appointed.name, appointed.rule, judges
        self.model = appointed.model

    @property
    def rule(self) -> str:
        return self._rule

    async def judge(self, case: Case) -> Verdict:
        found = await self._judges.verdict(case)
        assert isinstance(found, Verdict)
        return found

    async def judge_all(self, cases: Sequence[Case]) -> list[Verdict]:
        """Judge on all machines at once."""
        return list(await asyncio.gather(*map(self.judge, cases)))

    async def prefer(self, a: Case, b: Case) -> Preference:
        found = await self._judges.verdict(a, b)
        assert isinstance(found, Preference)
        return found


@asynccontextmanager
async def judging(
    on: str,
    wanted: JudgeRequest,
    labels: Mapping[Key, Mapping[str, str]],
    say: Callable[[str], None],
) -> AsyncIterator[tuple[JudgeElsewhere, int]]:
    """Start judges on a cluster; give the judge, and how many cases may wait for it at once.

    Raises:
        MissingPackage: Ray is not installed.
        InputError: there is no such cluster.
        ClusterFailed: the judges die again and again.
    """
    kind, where = judge_kind(), OnRay.parse(on)
    with connected_to(where, (kind,)) as launcher:
        if where.wait is not None:
            await_room(launcher, (kind,), where.wait)
        say(f"starting up to {kind.most} judges on Ray, {kind.each} each")
        rubric = wanted.rubric.read_text() if isinstance(wanted.rubric, Path) else None
        appoint = Appoint(wanted, rubric, labels)
        async with Judges(launcher, say, kind, appoint) as judges:
            yield judges.judge(), AHEAD * kind.most
