"""Environments that need programs outside Python report it before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from palaestra.core.errors import MissingSystemPart
from palaestra.environments.registry import make
from palaestra.rollout.worker_pool import WorkerPool
from tests.rollout.faulty import Counting


class JavaCounting(Counting, needs=("java",)):
    """An environment that needs Java."""


ID = f"{__name__}:JavaCounting"


def test_without_java_a_world_that_needs_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingSystemPart, match=r"needs the program 'java'.*apt install"):
        make(ID)


async def _hosted() -> None:
    async with WorkerPool(1) as pool:
        await pool.make(ID)


def test_the_same_error_comes_back_from_a_worker_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import asyncio

    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingSystemPart, match="java"):
        asyncio.run(_hosted())
