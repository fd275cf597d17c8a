"""Ids: what they name, and what version of it."""

from __future__ import annotations

import pytest

from palaestra.core.errors import InputError
from palaestra.core.task import Split
from palaestra.environments import registry
from palaestra.environments.text.probe import Probe


def test_an_id_may_ask_for_the_version_that_is_here() -> None:
    world = registry.make("probe/memory-4@1?turns=3")
    assert world.name == "memory-4"
    task = registry.tasks("probe/memory-4@1").task(Split.TEST, 0)
    assert world.reset(task).text


@pytest.mark.parametrize("id", ["probe/memory-4@2", "probe/memory-4@01?turns=3"])
def test_another_version_is_refused(id: str) -> None:
    for ask in (registry.make, registry.tasks):
        with pytest.raises(InputError, match=r"version 1 is here: their results do not compare"):
            ask(id)


def test_a_version_that_rose_leaves_older_results_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Probe, "version", "2")
    with pytest.raises(InputError, match="Write @2"):
        registry.make("probe/memory-4@1")
    assert registry.make("probe/memory-4@2").name == "memory-4"
