"""The fleet over random schedules of births, deaths, beats and clocks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from palaestra.cluster.fleet import DEATHS, SILENT, WINDOW, Fleet


class Schedule(RuleBasedStateMachine):
    """Any order of events; a plain model of it beside the fleet."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet, self.now = Fleet(4), 0.0
        self.known: list[int] = []  # every birth ever
        self.dead: list[tuple[int, float]] = []
        self.left: set[int] = set()  # those whose ends were no deaths

    @rule(seconds=st.floats(0, 400))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(fits=st.integers(0, 8))
    def start(self, fits: int) -> None:
        before = len(self.fleet.asked | self.fleet.up)
        fresh = self.fleet.due(self.now, fits)
        assert not set(fresh) & set(self.known)  # no number twice
        assert len(fresh) <= max(0, min(4, fits) - before)
        recent = [at for _, at in self.dead if at > self.now - WINDOW]
        if len(recent) >= DEATHS:
            assert not fresh
        elif len(recent) <= 1:
            assert len(fresh) == max(0, min(4, fits) - before)  # the first death costs no pause
        self.known += fresh

    @rule(data=st.data())
    def rise(self, data: st.DataObject) -> None:
        birth = data.draw(st.sampled_from(self.known or [1]))
        asked = birth in self.fleet.asked
        assert self.fleet.rise(birth) == asked

    @rule(data=st.data(), blameless=st.booleans())
    def die(self, data: st.DataObject, blameless: bool) -> None:
        birth = data.draw(st.sampled_from(self.known or [1]))
        leaving = birth in self.fleet.leaving
        alive = birth in self.fleet.asked | self.fleet.up | self.fleet.leaving
        assert self.fleet.lose(birth, self.now, blameless=blameless) == alive
        if leaving or (alive and blameless):
            self.left.add(birth)
        elif alive:
            self.dead.append((birth, self.now))

    @rule(data=st.data())
    def dismiss(self, data: st.DataObject) -> None:
        birth = data.draw(st.sampled_from(self.known or [1]))
        up = birth in self.fleet.up
        assert self.fleet.dismiss(birth) == up
        assert birth not in self.fleet.up and (not up or birth in self.fleet.leaving)

    @rule(data=st.data())
    def hear(self, data: st.DataObject) -> None:
        self.fleet.hear(data.draw(st.sampled_from(self.known or [1])))

    @rule()
    def beat(self) -> None:
        assert set(self.fleet.beat()) <= self.fleet.up | self.fleet.leaving

    @invariant()
    def nobody_is_two_things_and_the_dead_stay_dead(self) -> None:
        asked, up, leaving = self.fleet.asked, self.fleet.up, self.fleet.leaving
        assert not asked & up and not asked & leaving and not up & leaving
        assert len(asked) + len(up) <= 4
        gone = {birth for birth, _ in self.dead} | self.left
        assert not gone & (asked | up | leaving)

    @invariant()
    def five_deaths_in_five_minutes_stop_the_run(self) -> None:
        recent = [at for _, at in self.dead if at > self.now - WINDOW]
        assert self.fleet.failed(self.now) == (len(recent) >= DEATHS)


TestSchedules = Schedule.TestCase


@given(st.lists(st.booleans(), max_size=80))
def test_a_process_is_frozen_after_ten_beats_without_a_sign_of_life(signs: list[bool]) -> None:
    fleet = Fleet(1)
    (birth,) = fleet.due(0.0, 1)
    fleet.rise(birth)
    silent = 0
    for sign in signs:
        if sign:
            fleet.hear(birth)
        silent = 1 if sign else silent + 1
        assert fleet.beat() == ([birth] if silent >= SILENT else [])


def test_each_further_death_doubles_the_pause_before_the_next_start() -> None:
    fleet, now, pauses = Fleet(1), 0.0, []
    for _ in range(DEATHS):
        (birth,) = fleet.due(now, 1)
        fleet.lose(birth, now)
        pauses.append(max(0.0, fleet.resumes - now))
        now += pauses[-1]
    assert pauses == [0.0, 0.25, 0.5, 1.0, 2.0]
    assert fleet.due(now + 100, 1) == [] and fleet.failed(now + 100)
    assert fleet.due(now + WINDOW, 1)  # and later it would go on
