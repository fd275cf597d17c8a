"""Comparisons with other libraries; each runs where that library can be imported.

`make check-peers` makes the environments and runs them; elsewhere they are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

TOLERANCE = 1e-5  # relative to the largest entry; of a single number up to 1 absolute
DEVIATIONS = pytest.StashKey[dict[str, list[float]]]()

Agree = Callable[..., None]


def pytest_configure(config: pytest.Config) -> None:
    for peer in ("verl", "trl"):
        config.addinivalue_line("markers", f"{peer}: compares with {peer}, see make check-peers")
    config.stash[DEVIATIONS] = {}


@pytest.fixture
def agree(request: pytest.FixtureRequest) -> Agree:
    """Fails unless our numbers are the peer's; the largest deviation is reported by name."""
    found = request.config.stash[DEVIATIONS]

    def compare(name: str, ours: Tensor | float, theirs: Tensor | float) -> None:
        a, b = (torch.as_tensor(x).detach().double() for x in (ours, theirs))
        assert a.shape == b.shape, f"{name}: shapes {tuple(a.shape)} and {tuple(b.shape)}"
        largest = float(b.abs().max())
        scale = max(largest, 1.0) if b.numel() == 1 else largest or 1.0
        deviation = float((a - b).abs().max()) / scale
        found.setdefault(name, []).append(deviation)
        assert deviation <= TOLERANCE, f"{name}: deviates by {deviation:.2g}\n{a}\n{b}"

    return compare


def agree_both(
    agree: Agree, name: str, mine: tuple[Tensor, Tensor], theirs: tuple[Tensor, Tensor]
) -> None:
    """Compare a loss and its gradient."""
    agree(name, mine[0], theirs[0])
    agree(f"{name}, gradient", mine[1], theirs[1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a trainer would write."""
    return tmp_path_factory.mktemp("trainer")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    found = terminalreporter.config.stash[DEVIATIONS]
    if not found:
        return
    terminalreporter.section("agreement with the peer")
    for name, deviations in sorted(found.items()):
        terminalreporter.write_line(f"{name:<44} {len(deviations):>5}   {max(deviations):.1e}")
    every = [deviation for deviations in found.values() for deviation in deviations]
    terminalreporter.write_line(f"{'all':<44} {len(every):>5}   {max(every):.1e}")
