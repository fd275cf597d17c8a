"""Life services: what users leave open is hidden, and must be asked for; requests are merged."""

from __future__ import annotations

import pytest

from palaestra.core.environment import Action
from palaestra.environments.families.desk.drawing import DESKS, Drawn, drawn
from palaestra.environments.families.desk.user import mentions
from tests.environments.families.desk.test_desk import begun, number_of, task_of

KINDS = [kind.name for kind in DESKS["services"].kinds]


def first_of(kind: str) -> Drawn:
    return drawn("services", task_of("services", number_of("services", kind)).seed)


@pytest.mark.parametrize("kind", KINDS)
def test_no_request_tells_what_the_user_says_only_when_asked(kind: str) -> None:
    scenario = first_of(kind).scenario
    hidden = {*scenario.known} - {"name", "email", "birthday"}
    assert {slot for wish in scenario.final for slot in wish.needs} <= hidden
    wishes = [*scenario.wishes, *([scenario.change] if scenario.change else [])]
    for words in (words for wish in wishes for words in wish.words):
        for slot in hidden:
            assert not mentions(words, scenario.known[slot]), (words, slot)


def test_requests_are_merged_from_several_services() -> None:
    calls = [call for wish in first_of("evening").scenario.final for call in wish.calls]
    changes = [c.api for c in calls if DESKS["services"].suite.apis[c.api].changes]
    assert changes == ["travel.book_trip", "services.reserve_table", "delivery.order_meal"]
    scenario = first_of("evening").scenario
    assert scenario.change is not None and scenario.change is scenario.final[0]


def test_a_table_is_wanted_where_the_trip_leads_that_was_taken_in_the_end() -> None:
    found = first_of("evening")
    world, (trip, table, _) = found.open(), found.scenario.final
    booked = world.state.get("travel.trip", trip.calls[-1].arguments["trip_id"])
    venue = world.state.get("services.venue", table.calls[-1].arguments["venue_id"])
    assert booked is not None and venue is not None
    assert booked["destination"] == venue["town"]
    assert booked["departs"] < table.calls[-1].arguments["starts"]


def test_the_room_is_the_only_cheapest_one() -> None:
    journeys = (2 * pair + each for pair in range(4, 32, 8) for each in (0, 1))
    for number in journeys:
        found = drawn("services", task_of("services", number).seed)
        assert found.kind.name == "journey"
        room = found.scenario.final[1].calls
        reply = found.open().call(room[0].api, room[0].arguments, found.scenario.customer)
        prices = sorted((hotel["price"], hotel["id"]) for hotel in reply.body["hotels"])
        assert prices[0][0] < prices[1][0]
        assert prices[0][1] == room[-1].arguments["hotel_id"]


def test_who_assumes_an_address_fails() -> None:
    env = begun("services", number_of("services", "limit"))
    plan = env.oracle()
    wanted = plan[-2].text
    place = env.drawn.scenario.final[0].calls[-1].arguments["place_id"]
    rows = env.world.state.find("delivery.place", owner=env.drawn.scenario.customer)
    for other in (row["id"] for row in rows if row["id"] != place):
        env.reset(task_of("services", number_of("services", "limit")))
        guess = wanted.replace(f"place_id={place}", f"place_id={other}")
        assert guess != wanted
        last = [env.step(a) for a in [*plan[:-2], Action(guess), plan[-1]]][-1]
        assert last.terminated and not last.success and last.info["collateral"]


def test_the_agent_acts_in_the_name_of_the_user() -> None:
    env = begun("services", 0)
    seen = env.step(Action("delivery_list_places()")).observation.text
    me = env.drawn.scenario.customer
    ids = [row["id"] for row in env.world.state.find("delivery.place", owner=me)]
    assert seen.count('"id"') == len(ids) and all(f'"id": {id}' in seen for id in ids)
