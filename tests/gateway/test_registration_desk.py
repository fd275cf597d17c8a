"""The desk at which processes register: no question is lost, and none waits without an end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.agents.memory.retrieval import best
from palaestra.core.errors import AgentFault
from palaestra.gateway import registration_desk
from palaestra.gateway.http_errors import HTTPError
from palaestra.gateway.registration_desk import BURST, HANDED, Desk, Process

ROLES = {"critic": "Say what is wrong with the proposal.", "author": "Write the proposal."}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock of the desk, in seconds, to be set."""
    now = [0.0]
    monkeypatch.setattr(registration_desk, "ran", lambda: now[0])
    return now


def desk(told: list[Mapping[str, Any]] | None = None) -> Desk:
    """Return a desk whose processes are gone after 3 seconds; questions wait for 10."""

    def nearest(capability: str, texts: Any) -> int | None:
        return next(iter(best(capability, texts, 1)), None)

    return Desk(ROLES, nearest, 1.0, 10.0, (lambda _: None) if told is None else told.append)


def wait(one: Desk, clock: list[float], seconds: float) -> None:
    """Let time pass, in which the desk looks twice a second."""
    for _ in range(round(2 * seconds)):
        clock[0] += 0.5
        one.look()


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 20))


async def asked(one: Desk, role: str = "critic") -> asyncio.Future[str]:
    task = asyncio.ensure_future(one.ask(role, {"messages": []}))
    await asyncio.sleep(0)
    return task


def status(error: pytest.ExceptionInfo[HTTPError]) -> int:
    return error.value.status


def test_a_question_of_a_silent_process_is_put_to_another_one_and_the_first_may_come_back(
    clock: list[float],
) -> None:
    async def test() -> None:
        told: list[Mapping[str, Any]] = []
        one = desk(told)
        first, second = one.register("critic", ""), one.register("critic", "")
        task = await asked(one)
        question = await one.next(first)
        assert question is not None and question is await one.next(first)
        wait(one, clock, 2.0)
        one.process(second.id, second.token)
        clock[0] += 60.0  # in which the desk could receive nothing
        one.look()
        assert one.process(first.id, first.token) is first
        wait(one, clock, 2.0)
        one.process(second.id, second.token)
        wait(one, clock, 1.5)
        assert await one.next(second) is question
        with pytest.raises(HTTPError, match="register again") as gone:
            one.process(first.id, first.token)
        assert status(gone) == 404
        with pytest.raises(HTTPError, match="is not this process's") as late:
            one.reply(first, question.number, "too late")
        assert status(late) == 409
        one.reply(second, question.number, "wrong")
        assert await task == "wrong"
        again, task = one.register("critic", ""), await asked(one)
        question = await one.next(again)
        assert question is not None
        one.reply(again, question.number, "accept")
        assert await task == "accept"
        assert [event["because"] for event in told if "gone" in event] == [
            "no heartbeat for 3.5 seconds"
        ]

    run(test)


def test_a_request_that_is_cut_off_or_repeated_loses_no_question() -> None:
    async def test() -> None:
        one = desk()
        process = one.register("critic", "")
        cut_off = asyncio.ensure_future(one.next(process))
        await asyncio.sleep(0)
        cut_off.cancel()
        await asyncio.wait({cut_off})
        first, second = (asyncio.ensure_future(one.next(process)) for _ in range(2))
        await asyncio.sleep(0)
        task = await asked(one)
        assert await first is None  # the later request waits
        question = await second
        assert question is not None
        one.reply(process, question.number, "accept")
        assert await task == "accept"

    run(test)


def test_a_question_without_a_process_waits_for_one_and_then_the_member_forfeits(
    clock: list[float],
) -> None:
    async def test() -> None:
        one = desk()
        one.register("author", "")  # of another role
        task = await asked(one)
        wait(one, clock, 10.0)
        assert not task.done()
        wait(one, clock, 0.5)
        with pytest.raises(AgentFault, match="no process was registered for 'critic' in 10"):
            await task

    run(test)


def test_a_question_that_kills_each_process_ends_the_members_part(clock: list[float]) -> None:
    async def test() -> None:
        one = desk()
        task = await asked(one)
        for _ in range(HANDED):
            process = one.register("critic", "")
            assert await one.next(process) is not None
            one.leave(process, "it crashed")
        with pytest.raises(AgentFault, match=f"{HANDED} processes got the question"):
            await task

    run(test)


def test_one_that_shows_that_it_is_alive_but_never_replies_is_taken_off(clock: list[float]) -> None:
    async def test() -> None:
        one = desk()
        process, task = one.register("critic", ""), await asked(one)
        assert await one.next(process) is not None
        while clock[0] <= registration_desk.REPLY:
            wait(one, clock, 2.0)
            if clock[0] <= registration_desk.REPLY:
                one.process(process.id, process.token)
        other = one.register("critic", "")
        question = await one.next(other)
        assert question is not None
        one.reply(other, question.number, "wrong")
        assert await task == "wrong"

    run(test)


def test_a_capability_finds_the_role_whose_instructions_fit() -> None:
    async def test() -> None:
        one = desk()
        assert one.register(None, "I find what is wrong").role == "critic"
        assert one.register(None, "can write well").role == "author"
        for role, capability in ((None, "juggling"), ("judge", "")):
            with pytest.raises(HTTPError, match="name one of critic, author") as refused:
                one.register(role, capability)
            assert status(refused) == 422

    run(test)


def test_tokens_that_are_wrong_and_floods_are_refused(clock: list[float]) -> None:
    async def test() -> None:
        one = desk()
        with pytest.raises(HTTPError) as refused:
            one.check_token("stolen")
        assert status(refused) == 401
        first, second = one.register("critic", ""), one.register("critic", "")
        for id, token in ((first.id, second.token), ("none", first.token), (first.id, "")):
            with pytest.raises(HTTPError) as refused:
                one.process(id, token)
            assert status(refused) == 401
        for _ in range(int(BURST)):
            one.process(first.id, first.token)
        with pytest.raises(HTTPError, match="send fewer") as flood:
            one.process(first.id, first.token)
        assert status(flood) == 429
        one.process(second.id, second.token)  # the others are served
        clock[0] += 1.0
        one.process(first.id, first.token)
        one.close()
        with pytest.raises(HTTPError, match="over") as over:
            one.process(second.id, second.token)
        assert status(over) == 410

    run(test)


MOVES = st.lists(
    st.tuples(st.sampled_from(["ask", "next", "reply", "leave", "cancel"]), st.integers(0, 3)),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(MOVES)
def test_whatever_processes_do_each_question_gets_one_reply_or_a_reason(
    moves: list[tuple[str, int]],
) -> None:
    async def test() -> None:
        one = desk()
        one.heartbeat = 0.001  # how long a request without a question waits
        processes: list[Process] = []
        tasks: list[asyncio.Future[str]] = []
        right: dict[int, str] = {}
        for kind, at in moves:
            while len(processes) < 4:
                processes.append(one.register("critic", ""))
            process = processes[at]
            if kind == "ask":
                tasks.append(await asked(one))
            elif kind == "next":
                question = await one.next(process)
                if question is not None:
                    right.setdefault(question.number, f"reply {question.number}")
            elif kind == "reply" and process.question is not None:
                number = process.question.number
                if not process.question.reply.done():
                    one.reply(process, number, right[number])
            elif kind == "leave":
                one.leave(process)
                processes.remove(process)
            elif kind == "cancel" and tasks:
                tasks[at % len(tasks)].cancel()
                await asyncio.sleep(0)
        while not all(task.done() for task in tasks):  # a process that replies to all that is left
            last = one.register("critic", "")
            for process in processes:
                if process.question is not None and not process.question.reply.done():
                    number = process.question.number
                    one.reply(process, number, right[number])
            while (question := await one.next(last)) is not None:
                one.reply(last, question.number, f"reply {question.number}")
            await asyncio.sleep(0)
        for number, task in enumerate(tasks):
            if not task.cancelled():
                error = task.exception()
                assert (
                    isinstance(error, AgentFault) if error else task.result() == f"reply {number}"
                )

    run(test)
