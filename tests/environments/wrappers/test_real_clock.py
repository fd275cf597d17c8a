"""`clock=real`: pages live in real time, and what that costs is declared."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from palaestra.core.environment import Capability
from palaestra.core.errors import CapabilityMissing, InputError
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.conformance.checking import check_clause
from palaestra.environments.conformance.clauses import CLAUSES
from palaestra.environments.conformance.subject import Subject
from palaestra.environments.families.challenges.environment import Challenges
from palaestra.environments.wrappers.real_clock import RealClock
from tests.browser.needed import browser_missing

needs_browser = pytest.mark.skipif(bool(browser_missing()), reason=str(browser_missing()))
PAGE = "challenges/second-tab?clock=real"


def test_real_time_is_declared_as_not_repeatable() -> None:
    virtual, real = registry.spec("challenges/second-tab"), registry.spec(PAGE)
    assert virtual.deterministic and virtual.virtual_time
    assert not real.deterministic
    assert virtual.capabilities - real.capabilities == {
        Capability.SNAPSHOT,
        Capability.STATE_KEY,
    }


@pytest.mark.parametrize("id", ["probe/memory-4?clock=real", "web/easy?clock=real"])
def test_an_environment_without_a_clock_of_its_own_takes_none(id: str) -> None:
    with pytest.raises(InputError, match=r"clock=real is for .*; leave the knob out\."):
        registry.spec(id)


def test_there_is_no_other_clock() -> None:
    with pytest.raises(InputError, match=r"'clock=fast' in .* is not valid; give real\."):
        registry.spec("challenges/second-tab?clock=fast")


@needs_browser
def test_the_reference_solves_a_task_in_real_time_and_snapshots_are_refused() -> None:
    world = registry.make(PAGE)
    assert isinstance(world, RealClock) and isinstance(world.inner, Challenges)
    world.reset(registry.tasks(PAGE).task(Split.TEST, 0))
    assert world.inner._here().real_time
    for refused in (world.snapshot, lambda: world.restore(b"")):
        with pytest.raises(CapabilityMissing, match=r"clock=real has no snapshots, because .*\.$"):
            refused()
    plan = [*world.oracle()]
    assert [world.step(action) for action in plan][-1].success
    world.close()


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("clause", CLAUSES, ids=lambda clause: clause.__name__)
def test_real_time_keeps_the_contract(clause: Callable[[Subject], None]) -> None:
    finding = check_clause(Subject.of(PAGE, steps=4, per_split=1), clause)
    assert not finding.broken, finding.broken


@needs_browser
@pytest.mark.slow
@pytest.mark.parametrize("id", ["web/easy:browser", "sites/shop-easy", "miniwob/click-test"])
def test_each_family_of_pages_lives_in_real_time(id: str) -> None:
    world = registry.make(f"{id}?clock=real")
    world.reset(registry.tasks(id).task(Split.TEST, 0))
    transition = None
    for action in list(world.oracle()):
        transition = world.step(action)
    assert transition is not None and transition.success
    world.close()
