"""Time: events happen in order, whatever the steps in which it passes; any moment can be saved."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.environments.families.apps.composing.goal import MAIN
from palaestra.environments.families.apps.events import At, Event, Every, Once, Poisson, Timing
from palaestra.environments.families.apps.state import State
from palaestra.environments.families.apps.world import World
from tests.environments.families.apps.small_world import address, mail, subjects, world

TIMINGS: st.SearchStrategy[Timing] = st.one_of(
    st.builds(At, st.integers(0, 900)),
    st.builds(Every, st.integers(0, 300), st.integers(60, 400)),
    st.builds(Poisson, st.sampled_from([10.0, 60.0]), st.integers(0, 9)),
    st.builds(lambda after: Once(_written, after), st.integers(0, 300)),
)
SCHEDULES = st.lists(TIMINGS, max_size=4).map(
    lambda timings: [mail(f"event{n}", one, 2 + n % 3) for n, one in enumerate(timings)]
)
PAUSES = st.lists(st.integers(0, 300), min_size=1, max_size=6)


def _written(state: State) -> bool:
    return bool(state.count("mail.message", "subject = 'Hi'"))


def use(made: World, pauses: Sequence[int]) -> list[str]:
    """Let time pass, and write one mail between; return what the agent was told."""
    told = []
    for number, pause in enumerate(pauses):
        made.advance(pause)
        if number == len(pauses) // 2:
            text = {"subject": "Hi", "body": "Hello."}
            reply = made.call("mail.send_message", {"recipient": address(3), **text}, MAIN)
            told += [str(reply)]
    return told + list(made.take_notifications())


def test_events_of_one_second_happen_in_the_order_of_the_schedule() -> None:
    made = world([mail("late", At(90)), mail("b", At(60)), mail("a", At(60)), mail("first", At(5))])
    made.advance(60)
    assert subjects(made) == ["first 0", "b 0", "a 0"]
    made.advance(30)
    assert subjects(made)[3:] == ["late 0"]
    assert made.schedule.seconds_of("late") == (90,)


def test_an_event_that_recurs_keeps_its_period() -> None:
    made = world([mail("tick", Every(10, 25))])
    made.advance(100)
    assert made.schedule.seconds_of("tick") == (10, 35, 60, 85)


def test_a_condition_lets_an_event_happen_once_some_seconds_later() -> None:
    made = world([mail("answer", Once(_written, 30))])
    made.advance(500)
    assert made.schedule.silent() == ["answer"]
    text = {"subject": "Hi", "body": "Hello."}
    made.call("mail.send_message", {"recipient": address(3), **text}, MAIN)
    assert made.seconds == 520  # the call takes 20
    made.advance(29 - 20)
    assert made.schedule.silent() == ["answer"]
    made.advance(1000)
    assert made.schedule.seconds_of("answer") == (530,)


def test_gaps_of_a_poisson_process_have_its_mean_and_are_those_of_its_seed() -> None:
    one, second, seconds = Poisson(60.0, 7), 0, []
    for times in range(4000):
        second = one.following(times, second)
        seconds.append(second)
    assert seconds[-1] / 4000 == pytest.approx(60, rel=0.05)
    gaps = [b - a for a, b in zip([0, *seconds], seconds, strict=False)]
    # Exponential: the standard deviation is the mean, and e⁻¹ of the gaps are longer than it.
    assert sum(gap > 60 for gap in gaps) / 4000 == pytest.approx(0.368, abs=0.03)
    assert Poisson(60.0, 7).first() == seconds[0] != Poisson(60.0, 8).first()


def test_what_a_service_refuses_did_not_happen() -> None:
    def nothing(times: int):  # type: ignore[no-untyped-def]
        yield "mail.delete_message", {"message_id": 10**6}

    made = world([Event("wrong", 2, At(10), nothing)])
    made.advance(60)
    assert made.schedule.silent() == ["wrong"]
    assert made.state.changes() == []


@settings(max_examples=25, deadline=None)
@given(SCHEDULES, PAUSES, st.data())
def test_equal_schedules_and_deeds_give_equal_worlds_from_any_saved_moment(
    events: list[Event], pauses: list[int], data: st.DataObject
) -> None:
    first, second = world(events), world(events)
    assert use(first, pauses) == use(second, pauses)
    assert first.key() == second.key()
    cut = data.draw(st.integers(0, sum(pauses)))
    first.advance(cut)
    fork, restored = first.fork(), world(events)
    restored.restore(first.snapshot())
    told = [use(one, pauses) for one in (first, fork, restored)]
    assert told[0] == told[1] == told[2]
    assert first.key() == fork.key() == restored.key()


@settings(max_examples=25, deadline=None)
@given(SCHEDULES, PAUSES)
def test_time_that_passes_in_parts_is_the_same_time(events: list[Event], parts: list[int]) -> None:
    whole, divided = world(events), world(events)
    whole.advance(sum(parts))
    for part in parts:
        divided.advance(part)
    assert whole.key() == divided.key()
    assert whole.state.changes() == divided.state.changes() == []
    happened = [s for one in whole.schedule.progress for s in one.seconds]
    assert all(second <= whole.seconds for second in happened)


@settings(max_examples=25, deadline=None)
@given(SCHEDULES)
def test_waiting_for_a_notification_stops_at_the_first_one(events: list[Event]) -> None:
    made = world(events)
    made.advance(600, until_notified=True)
    happened = [second for one in made.schedule.progress for second in one.seconds]
    assert happened in ([], [made.seconds])
    assert len(made.take_notifications()) == len(happened)
    assert happened or made.seconds == 600
    whole = world(events)
    whole.advance(600)
    all_of_them = [second for one in whole.schedule.progress for second in one.seconds]
    assert made.seconds == min(all_of_them, default=600)
