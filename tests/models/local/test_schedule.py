"""Schedules: the order of requests, and no starvation."""

import pytest

from palaestra.core.errors import UnknownName
from palaestra.core.model import Sampling
from palaestra.models.local.cache import Past
from palaestra.models.local.request import Request
from palaestra.models.local.schedule import AttainedService, FirstComeFirstServed, schedule_of


def request(program, since=0):
    return Request([1], Sampling(), 0, program, since)


def test_first_come_first_served_knows_no_levels():
    schedule = FirstComeFirstServed()
    schedule.served(request("a"), 10_000)
    assert schedule.level(request("a"), 0) == schedule.level(request("b"), 10**9) == 0


def test_levels_rise_with_the_service_of_the_whole_program_and_grow_eightfold():
    schedule = AttainedService(quantum=10)
    levels = {}
    for service in range(1, 6500):
        schedule.served(request("a"), 1)  # by any call
        levels.setdefault(schedule.level(request("a"), 0), service)
    assert levels == {0: 1, 1: 10, 2: 80, 3: 640, 4: 5120}
    assert schedule.level(request("b"), 0) == 0


def test_who_waits_too_long_for_what_its_program_had_goes_first_until_answered():
    schedule = AttainedService(quantum=10, patience=4)
    served = request("a", since=100)
    schedule.served(served, 90)
    assert schedule.level(served, 100 + 4 * 90) == 2
    assert schedule.level(served, 100 + 4 * 90 + 1) == 0
    served.past = Past()  # it runs, and is not displaced again
    assert schedule.level(served, 10_000) == 0
    running = request("a", since=100)
    running.past = Past()
    assert schedule.level(running, 10_000) == 2


def test_programs_served_longest_ago_are_forgotten():
    schedule = AttainedService(quantum=1, programs=2)
    for program in "abac":
        schedule.served(request(program), 8)
    assert [schedule.level(request(p), 0) for p in "abc"] == [2, 0, 2]


def test_of_programs_alike_the_older_one_goes_first_whichever_call_came_first():
    schedule = AttainedService(quantum=10)
    first, second, again = request("a"), request("b"), request("a")
    assert schedule.order(first, 0) < schedule.order(second, 0)
    assert sorted([second, again], key=lambda r: schedule.order(r, 0)) == [again, second]
    schedule.served(first, 20)
    assert schedule.order(second, 0) < schedule.order(again, 0)


def test_schedules_have_names():
    assert isinstance(schedule_of("fcfs"), FirstComeFirstServed)
    assert isinstance(schedule_of("attained"), AttainedService)
    with pytest.raises(UnknownName, match="attained"):
        schedule_of("attainted")
