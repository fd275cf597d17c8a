"""The resident model: many sessions, one copy of the weights."""

import asyncio
import random
from dataclasses import replace

import pytest
import torch

from palaestra.core.errors import ContextTooLong
from palaestra.core.message import user
from palaestra.core.model import Finish, Prompt, Sampling
from palaestra.models.local.engine import OnUpdate
from palaestra.models.local.resident import ResidentModel
from tests.learning.made import resident, tiny


def prompt(tokens, seed=0, *, temperature=1.0, most=12):
    return Prompt((user("hello"),), tuple(tokens), Sampling(temperature, most), seed)


async def session(model: ResidentModel, number: int, rest: random.Random):
    """An agent of three turns, with pauses that differ from run to run."""
    output = []
    tokens = [1, 3, 4, 5, 6, 7, 8 + number % 4]
    with model.participant():
        for turn in range(2 + number % 3):
            for _ in range(rest.randrange(4)):
                await asyncio.sleep(rest.choice([0, 0, 0.001]))
            reply = await model.generate(prompt(tokens, 100 * number + turn))
            output.append((reply.tokens, reply.logprobs))
            tokens = [*tokens, *reply.tokens, 1, 3 + turn]
    return output


def roll_out(chance: int, *, slots: int = 8):
    model = resident(tiny(), lockstep=True, slots=slots)
    rest = random.Random(chance)

    async def together():
        order = list(range(6))
        rest.shuffle(order)
        found = await asyncio.gather(*(session(model, i, rest) for i in order))
        return dict(zip(order, found, strict=True))

    return asyncio.run(together())


@pytest.mark.parametrize("slots", [8, 3])
def test_in_lockstep_equal_seeds_give_equal_bits_whatever_the_timing(slots):
    wanted = roll_out(0, slots=slots)
    for chance in range(1, 6):
        assert roll_out(chance, slots=slots) == wanted


def test_in_lockstep_a_session_that_asks_for_several_replies_still_waits_for_the_others():
    """Otherwise the batches would depend on the order of requests."""

    async def one(model, number, rest):
        with model.participant():
            for turn in range(3):
                await asyncio.sleep(rest.random() * 0.01)
                asked = prompt([1, 3 + number, 4 + turn], 100 * number + 10 * turn, most=4)
                samples = [
                    replace(asked, seed=asked.seed + k, program=f"session {number}")
                    for k in range(3)
                ]
                await asyncio.gather(*map(model.generate, samples))

    def batches(chance):
        model, rest, found = resident(tiny(), lockstep=True), random.Random(chance), []
        step = model.engine.step

        def seen():
            found.append(sorted(r.seed for r in (*model.engine.waiting, *model.engine.running)))
            return step()

        model.engine.step = seen

        async def together():
            await asyncio.gather(*(one(model, number, rest) for number in range(3)))

        asyncio.run(together())
        return found

    wanted = batches(0)
    assert len(wanted[0]) == 9
    for chance in range(1, 6):
        assert batches(chance) == wanted


def test_a_listener_receives_each_token_once_and_changes_nothing():
    async def both():
        model = resident(tiny(), slots=1)  # preempted replies continue later
        shown = []
        asked = [prompt([1, 3, 4, 5, 6, 7, 8 + n], n) for n in range(3)]
        silent = await asyncio.gather(*map(model.generate, asked))
        listened = replace(asked[1], listen=lambda *news: shown.append(news))
        incoming = await asyncio.gather(*map(model.generate, [asked[0], listened, asked[2]]))
        assert [reply.tokens for reply in incoming] == [reply.tokens for reply in silent]
        assert tuple(t for tokens, _ in shown for t in tokens) == incoming[1].tokens
        assert tuple(lp for _, known in shown for lp in known) == incoming[1].logprobs
        assert len(shown) == len(incoming[1].tokens) > 1
        assert not model._subscriptions

    asyncio.run(both())


def test_a_model_serves_one_event_loop_after_another():
    model = resident(tiny(), lockstep=True)

    async def two():
        return await asyncio.gather(*(session(model, i, random.Random(i)) for i in range(2)))

    first, second = asyncio.run(two()), asyncio.run(two())
    assert [[t for t, _ in s] for s in first] == [[t for t, _ in s] for s in second]


def test_a_reply_is_fully_described():
    model = resident(tiny())
    reply = asyncio.run(model.generate(prompt([1, 3, 4], most=5)))
    assert len(reply.tokens) == len(reply.logprobs) <= 5
    assert (reply.policy, reply.version, reply.prompt_tokens) == ("policy", 0, 3)
    assert (reply.finish is Finish.STOP) == (reply.tokens[-1] == 0)
    assert reply.text == model.renderer.text(reply.tokens)
    again = asyncio.run(model.generate(prompt([1, 3, 4], most=5)))
    assert (reply.computed_tokens, again.computed_tokens) == (3, 1)
    assert again.tokens == reply.tokens
    assert model.take_throughput().sampled == 2 * len(reply.tokens)
    assert model.take_throughput().sampled == 0


def test_a_session_that_gives_up_frees_what_it_holds():
    async def scene():
        model = resident(tiny(), slots=1)
        lost = asyncio.create_task(model.generate(prompt([1, 3, 4], most=100)))
        while not model.engine.running:
            await asyncio.sleep(0)
        lost.cancel()
        reply = await model.generate(prompt([1, 5, 6], most=3))
        return model, lost, reply

    model, lost, reply = asyncio.run(scene())
    assert lost.cancelled()
    assert reply.tokens
    assert model.engine.pending == 0
    assert model.engine.cache.available == model.engine.cache.blocks


def test_in_lockstep_others_go_on_when_one_gives_up():
    async def scene():
        model = resident(tiny(), lockstep=True)

        async def idle():
            with model.participant():
                await asyncio.sleep(0.05)

        async def speak():
            with model.participant():
                return await model.generate(prompt([1, 3, 4]))

        reply, _ = await asyncio.gather(speak(), idle())
        return reply

    assert asyncio.run(scene()).tokens


def test_a_prompt_beyond_the_context_is_refused_and_harms_no_one():
    async def scene():
        model = resident(tiny())
        return await asyncio.gather(
            model.generate(prompt([3] * 200)),
            model.generate(prompt([1, 3])),
            return_exceptions=True,
        )

    refused, fine = asyncio.run(scene())
    assert isinstance(refused, ContextTooLong)
    assert fine.tokens


def test_a_broken_engine_reaches_everyone_who_waits():
    async def scene():
        model = resident(tiny())
        return await asyncio.gather(
            model.generate(prompt([10_000])),  # no such token
            model.generate(prompt([1, 3])),
            return_exceptions=True,
        )

    found = asyncio.run(scene())
    assert all(isinstance(error, IndexError) for error in found)


def test_new_weights_raise_the_version_and_drop_the_cache():
    model = resident(tiny())
    question = prompt(range(1, 12), temperature=0.0, most=4)
    before = asyncio.run(model.generate(question))
    with torch.no_grad():
        model.network.blocks[0].qkv.weight.mul_(1.5)
    model.updated()
    after = asyncio.run(model.generate(question))
    other = resident(model.network)
    wanted = asyncio.run(other.generate(question))
    assert (before.version, after.version) == (0, 1)
    assert after.computed_tokens == 11
    assert after.tokens == wanted.tokens
    assert after.logprobs == pytest.approx(wanted.logprobs, abs=1e-6)


# ── new weights under replies ────────────────────────────────────────────────


def updated_in_between(on_update: OnUpdate):
    """Run two long replies, an update when both have begun, and a request during the update."""

    async def scene():
        model = resident(tiny(), on_update=on_update, slots=2)
        seen: dict[str, object] = {}

        async def trainer():
            while not all(r.completion for r in model.engine.running) or not model.engine.running:
                await asyncio.sleep(0)
            with model.held():
                while model.draining:
                    await asyncio.sleep(0)
                seen["under way"] = model.engine.under_way
                seen["later"] = asyncio.create_task(model.generate(prompt([1, 9], 5, most=3)))
                await asyncio.sleep(0.02)  # nothing is sampled meanwhile
                seen["version"] = model.version
                with torch.no_grad():
                    model.network.blocks[0].qkv.weight.mul_(1.5)
                model.updated()

        first, second, _ = await asyncio.gather(
            *(model.generate(prompt([1, 3 + i], i, most=60)) for i in range(2)), trainer()
        )
        return model, seen, [first, second, await seen["later"]]

    return asyncio.run(asyncio.wait_for(scene(), 30))


def test_an_update_that_drains_waits_for_running_replies():
    _, seen, (first, second, later) = updated_in_between(OnUpdate.DRAIN)
    assert not seen["under way"]
    assert {*first.versions, *second.versions} == {0}
    assert {*later.versions} == {1}
    assert later.version == 1


@pytest.mark.parametrize("on_update", [OnUpdate.RECOMPUTE, OnUpdate.KEEP])
def test_an_update_in_flight_changes_the_weights_in_the_middle_of_replies(on_update):
    model, seen, (first, second, later) = updated_in_between(on_update)
    assert seen["under way"]
    for reply in (first, second):
        assert list(reply.versions) == sorted(reply.versions)
        assert (reply.version, reply.versions[-1]) == (0, 1)
        assert len(reply.versions) == len(reply.tokens)
    assert {*later.versions} == {1}
    assert model.engine.cache.available == model.engine.cache.blocks


def test_the_weights_cannot_change_unannounced_under_a_reply_that_must_be_drained():
    async def scene():
        model = resident(tiny())
        asked = asyncio.create_task(model.generate(prompt([1, 3, 4], most=50)))
        while not model.engine.running:
            await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="while a reply was being sampled"):
            model.updated()
        assert model.version == 0
        return await asked

    assert {*asyncio.run(scene()).versions} == {0}


def test_an_update_of_an_idle_model_waits_for_no_one():
    async def scene():
        model = resident(tiny())
        with model.held():
            assert not model.draining
            model.updated()
        return await model.generate(prompt([1, 3, 4]))

    assert asyncio.run(scene()).version == 1


# ── who goes first, and where replies end ────────────────────────────────────


@pytest.mark.parametrize(
    ("schedule", "order"), [("fcfs", ["long", "short"]), ("attained", ["short", "long"])]
)
def test_the_calls_of_a_program_are_scheduled_together(schedule, order):
    async def scene():
        model = resident(tiny(), slots=1, schedule=schedule)
        done = []

        async def program(name, calls):
            asked = [
                prompt([1, *((7 * i + j) % 20 + 3 for j in range(20))], i) for i in range(calls)
            ]
            await asyncio.gather(*(model.generate(replace(p, program=name)) for p in asked))
            done.append(name)

        long = asyncio.create_task(program("long", 24))
        while model.engine.computed_tokens < 300:
            await asyncio.sleep(0)
        await asyncio.gather(long, program("short", 1))
        return done

    assert asyncio.run(scene()) == order


def test_a_stop_string_ends_a_reply_and_stays_in_it():
    model = resident(tiny())
    free = asyncio.run(model.generate(prompt([1, 3, 4], most=40)))
    word = free.text.split()[2]
    sampling = Sampling(1.0, 40, stop=(word,))
    stopped = asyncio.run(model.generate(Prompt((user("hello"),), (1, 3, 4), sampling, 0)))
    assert stopped.finish is Finish.STOP
    assert stopped.tokens == free.tokens[: len(stopped.tokens)]
    assert stopped.text.endswith(word)
