"""Leases over random schedules: one holder at a time, and no write of any other is recorded."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from palaestra.cluster.leases import Lease, Leases

KEYS = st.sampled_from("abc")
BIRTHS = st.integers(1, 4)


class Schedule(RuleBasedStateMachine):
    """Sessions move between workers that die; workers go on writing whatever they held."""

    def __init__(self) -> None:
        super().__init__()
        self.leases: Leases[str] = Leases()
        self.ever: list[tuple[str, Lease]] = []  # what workers remember, over or not
        self.holder: dict[str, Lease] = {}
        self.record: dict[str, list[int]] = {}  # of each session: what was admitted
        self.turns: dict[Lease, int] = {}  # how far each worker got
        self.refused = 0

    @rule(key=KEYS, birth=BIRTHS)
    def grant(self, key: str, birth: int) -> None:
        lease = self.leases.grant(key, birth)
        assert lease not in [known for _, known in self.ever]
        self.ever.append((key, lease))
        self.holder[key] = lease
        self.turns[lease] = len(self.record.get(key, []))  # it replays the record, then goes on

    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        if not self.ever:
            return
        key, lease = data.draw(st.sampled_from(self.ever))
        admitted = self.leases.admit(lease)
        assert admitted == (self.holder.get(key) == lease)
        if admitted:
            self.record.setdefault(key, []).append(self.turns[lease])
        else:
            self.refused += 1
        self.turns[lease] += 1

    @rule(birth=BIRTHS)
    def die(self, birth: int) -> None:
        lost = self.leases.end_all(birth)
        assert sorted(lost) == sorted(k for k, one in self.holder.items() if one.birth == birth)
        for key in lost:
            del self.holder[key]

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        if self.ever:
            key, lease = data.draw(st.sampled_from(self.ever))
            self.leases.end(lease)
            if self.holder.get(key) == lease:
                del self.holder[key]

    @invariant()
    def no_turn_is_recorded_twice_and_none_is_missing(self) -> None:
        for turns in self.record.values():
            assert turns == list(range(len(turns)))

    @invariant()
    def loads_and_refusals_add_up(self) -> None:
        assert sum(self.leases.load(birth) for birth in range(1, 5)) == len(self.holder)
        assert self.leases.refused == self.refused


TestSchedules = Schedule.TestCase
