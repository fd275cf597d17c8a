"""Pictures and elements on demand: from this process, from a worker, and within a trial."""

from __future__ import annotations

import asyncio

import pytest

from palaestra.core.agent import Agent
from palaestra.core.environment import Action, AsyncEnvironment, Sight
from palaestra.core.errors import CapabilityMissing
from palaestra.core.rare_capabilities import sight_of
from palaestra.core.session import Session
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.families.probe.environment import Probe
from palaestra.rollout.guarded_environment import LocalEnvironment
from palaestra.rollout.worker_pool import WorkerPool
from tests.core.small import run_episode
from tests.environments.order_form import OrderForm

FORM = "tests.environments.order_form:OrderForm"
TASK = registry.tasks(FORM).task(Split.TRAIN, 0)
LINES = ("click [agree]", "scroll down 50")


async def looked_at(environment: AsyncEnvironment) -> list[Sight]:
    """What there is to see before and after each action."""
    await environment.reset(TASK)
    sights = [await environment.look()]
    for line in LINES:
        await environment.step(Action(line))
        sights.append(await environment.look())
    await environment.close()
    return sights


def test_a_look_shows_the_same_in_any_process() -> None:
    async def from_worker() -> list[Sight]:
        async with WorkerPool(1) as pool:
            return await looked_at(await pool.make(FORM))

    plain = OrderForm()
    plain.reset(TASK)
    expected = [sight_of(plain)]
    for line in LINES:
        plain.step(Action(line))
        expected.append(sight_of(plain))
    here = asyncio.run(looked_at(LocalEnvironment(OrderForm())))
    there = asyncio.run(from_worker())
    assert here == there == expected
    pictures = [sight.picture.data if sight.picture else b"" for sight in there]
    assert len(set(pictures)) == 3
    assert pictures == [sight.picture.data for sight in expected if sight.picture]


def test_a_look_in_a_trial_shows_the_tried_state() -> None:
    checked: list[tuple[str, ...]] = []

    class Looking(Agent):
        name = "looking"

        async def run(self, session: Session) -> None:
            async def states() -> tuple[str, ...]:
                sight = await session.environment.look()
                return next(one.states for one in sight.elements if one.id == "agree")

            checked.append(await states())
            async with session.trial() as trial:
                await trial.act("click [agree]")
                checked.append(await states())
            checked.append(await states())

    run_episode(Looking(), world=LocalEnvironment(OrderForm()))
    assert checked == [(), ("checked", "focused"), ()]


def test_what_shows_nothing_is_refused() -> None:
    environment = LocalEnvironment(Probe("sea-6"))

    async def look() -> None:
        await environment.reset(registry.tasks("probe/sea-6").task(Split.TRAIN, 0))
        await environment.look()

    with pytest.raises(CapabilityMissing, match="Probe does not declare 'elements'"):
        asyncio.run(look())
