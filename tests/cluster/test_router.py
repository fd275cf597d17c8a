"""The router over random schedules of births, deaths, updates, and answers that come late."""

from __future__ import annotations

import math
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.cluster.router import SLACK, Router, Ticket

SCHEDULES = 10_000  # in all: examples times schedules of each
EXAMPLES = 40


class Schedule:
    """A random order of events, with a plain model of what is true beside the router."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.sessions = self.rng.randint(1, 12)
        self.router = Router(self.sessions)
        self.alive: dict[int, int | None] = {}  # engines, with the version that they confirmed
        self.leaving: list[int] = []  # still answer the calls that they have
        self.dead: list[int] = []
        self.wanted: int | None = None
        self.under_way: dict[Ticket, str] = {}
        self.over: list[Ticket] = []
        self.last: dict[str, int] = {}  # the engine of each session's latest call
        self.births = 0

    def run(self, events: int = 30) -> None:
        choices = [self.bear, self.die, self.leave, self.update, self.late]
        choices += [self.confirm] * 2
        choices += [self.call] * 4 + [self.answer] * 3
        for _ in range(events):
            self.rng.choice(choices)()
            assert self.router.serving == sum(
                v is not None and v == self.wanted for v in self.alive.values()
            )

    def bear(self) -> None:
        if len(self.alive) < 4:
            self.births += 1
            self.alive[self.births] = None

    def leave(self) -> None:
        if self.alive:
            engine = self.rng.choice(sorted(self.alive))
            del self.alive[engine]
            self.leaving.append(engine)
            self.router.retire(engine)

    def die(self) -> None:
        if not [*self.alive, *self.leaving]:
            return
        engine = self.rng.choice([*sorted(self.alive), *self.leaving])
        self.alive.pop(engine, None)
        if engine in self.leaving:
            self.leaving.remove(engine)
        self.dead.append(engine)
        lost = self.router.lose(engine)
        assert set(lost) == {t for t in self.under_way if t.engine == engine}
        for ticket in lost:
            self.over.append(ticket)
            del self.under_way[ticket]

    def update(self) -> None:
        self.wanted = 0 if self.wanted is None else self.wanted + self.rng.randint(1, 2)
        self.router.want(self.wanted)

    def confirm(self) -> None:
        """Any engine confirms any version; also one that leaves, or counts as dead already."""
        gone = [*self.leaving, *self.dead]
        engine = self.rng.choice([*self.alive, *gone] or [9])
        version = self.rng.randint(0, self.wanted or 0)
        version = self.rng.choice([version, self.wanted or 0])
        if engine in self.alive or engine in gone:
            self.router.confirm(engine, version)
        if engine in self.alive:
            self.alive[engine] = version

    def call(self) -> None:
        number = self.rng.randrange(self.sessions)
        session = f"s{number}"
        ticket = self.router.place(session, f"g{number // 3}")
        serving = {e for e, v in self.alive.items() if v is not None and v == self.wanted}
        if ticket is None:  # nobody may answer, or its own engine is about to
            assert not serving or any(
                v is not None and v != self.wanted for v in self.alive.values()
            )
            return
        assert ticket.engine in serving and ticket.version == self.wanted
        if self.last.get(session) in self.alive:
            assert ticket.engine == self.last[session]  # its earlier tokens are there
        self.last[session] = ticket.engine
        self.under_way[ticket] = session

    def answer(self) -> None:
        """A call is answered, by tokens of any known or unknown versions."""
        if not self.under_way:
            return
        ticket = self.rng.choice(list(self.under_way))
        assert self.wanted is not None
        versions = [self.rng.randint(ticket.version - 1, self.wanted + 1) for _ in range(2)]
        versions = self.rng.choice([versions, [ticket.version] * 2, []])
        right = bool(versions) and all(ticket.version <= v <= self.wanted for v in versions)
        assert self.router.accept(ticket, versions) == right
        self.over.append(ticket)
        del self.under_way[ticket]

    def late(self) -> None:
        """An answer to a call that is over, or was asked again elsewhere."""
        if self.over:
            ticket = self.rng.choice(self.over)
            refused = self.router.refused
            assert not self.router.accept(ticket, [ticket.version])
            assert self.router.refused == refused + 1


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.integers(0, 2**32))
def test_only_engines_with_the_wanted_weights_answer_and_late_answers_never_count(
    seed: int,
) -> None:
    for number in range(SCHEDULES // EXAMPLES):
        Schedule(seed * SCHEDULES + number).run()


def serving(engines: int, sessions: int) -> Router:
    router = Router(sessions)
    router.want(0)
    for engine in range(1, engines + 1):
        router.confirm(engine, 0)
    return router


@given(st.integers(1, 6), st.integers(1, 20), st.integers(1, 8))
def test_groups_stay_together_and_no_engine_has_more_than_its_share_and_a_half(
    engines: int, groups: int, members: int
) -> None:
    router = serving(engines, groups * members)
    homes: dict[int, list[int]] = {}
    for group in range(groups):
        for member in range(members):
            ticket = router.place(f"{group}.{member}", f"{group}")
            assert ticket is not None
            homes.setdefault(group, []).append(ticket.engine)
    loads = [sum(home.count(engine) for home in homes.values()) for engine in range(1, 7)]
    most = math.ceil(SLACK * groups * members / engines)
    assert max(loads) <= most
    if members <= most and groups >= 2 * engines:
        whole = sum(len(set(home)) == 1 for home in homes.values())
        assert whole >= groups - engines


def test_sessions_of_a_dead_engine_move_and_new_ones_go_to_the_reborn() -> None:
    router = serving(2, 8)
    first = [router.place(f"{n // 2}.{n % 2}", f"{n // 2}") for n in range(8)]
    assert [t.engine for t in first if t] == [1, 1, 2, 2, 1, 1, 2, 2]
    assert len(router.lose(1)) == 4
    moved = [router.place(f"{n // 2}.{n % 2}", f"{n // 2}") for n in range(8)]
    assert {t.engine for t in moved if t} == {2}
    router.confirm(3, 0)
    fresh = [router.place(f"9.{n}", "9") for n in range(4)]
    assert {t.engine for t in fresh if t} == {3}


def test_sessions_wait_for_their_own_engine_to_get_new_weights() -> None:
    router = serving(2, 4)
    assert [t.engine for n in range(2) if (t := router.place(f"{n}.0", f"{n}"))] == [1, 2]
    router.want(1)
    router.confirm(2, 1)
    assert router.place("0.0", "0") is None
    router.confirm(1, 1)
    found = router.place("0.0", "0")
    assert found is not None and (found.engine, found.version) == (1, 1)
