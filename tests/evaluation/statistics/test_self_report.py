"""Calibration: a truthful agent scores well, a boastful one is measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.episode import Episode
from palaestra.core.errors import GroupTooSmall, InputError
from palaestra.evaluation.statistics.self_report import calibration, report_of
from tests.evaluation.made import CRASH, FAILURE, SUCCESS, episode


def reported(group: int, solved: bool, output: object) -> Episode:
    recorded = episode("eval/test", group, SUCCESS if solved else FAILURE)
    return replace(recorded, labels={} if output is None else {"self_report": str(output)})


reports = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=2, max_size=40)


@settings(max_examples=40)
@given(reports)
def test_brier_is_numpys_mean_squared_error_and_bounds_hold(
    pairs: list[tuple[float, bool]],
) -> None:
    found = calibration([reported(i, solved, p) for i, (p, solved) in enumerate(pairs)])
    p, y = (np.array(side, dtype=float) for side in zip(*pairs, strict=True))
    assert found.brier == pytest.approx(np.mean((p - y) ** 2))
    assert abs(p.mean() - y.mean()) - 1e-9 <= found.ece <= 1
    assert found.overconfidence is not None
    assert found.overconfidence.mean == pytest.approx(p.mean() - y.mean())
    assert sum(bin.count for bin in found.bins) == found.n == len(pairs)
    assert all(b.low - 1e-9 <= b.reported <= b.high + 1e-9 for b in found.bins)


def test_the_calibration_error_is_that_of_the_bins_by_hand() -> None:
    episodes = [
        reported(0, True, 0.9),
        reported(1, False, 0.95),
        reported(2, False, 0.1),
        reported(3, False, 0.15),
    ]
    found = calibration(episodes, bins=2)
    assert [(b.count, b.solved) for b in found.bins] == [(2, 0.0), (2, 0.5)]
    assert found.ece == pytest.approx(0.5 * 0.125 + 0.5 * abs(0.925 - 0.5))


@pytest.mark.slow
def test_truthful_chances_are_well_calibrated_and_boasts_are_not() -> None:
    rng = np.random.default_rng(0)
    chances = rng.random(4000)
    solved = rng.random(4000) < chances
    truthful = calibration([reported(i, bool(solved[i]), chances[i]) for i in range(4000)])
    boasting = calibration([reported(i, bool(s), "success") for i, s in enumerate(solved)])
    assert truthful.ece < 0.03
    assert truthful.brier == pytest.approx(1 / 6, abs=0.01)
    assert truthful.overconfidence is not None
    assert truthful.overconfidence.low < 0 < truthful.overconfidence.high
    assert boasting.ece == pytest.approx(0.5, abs=0.03)
    assert boasting.overconfidence is not None and boasting.overconfidence.above_zero


@pytest.mark.parametrize(
    ("output", "chance"), [("success", 1.0), (" Yes ", 1.0), ("no", 0.0), ("0.25", 0.25), (1, 1.0)]
)
def test_words_and_numbers_are_read(output: object, chance: float) -> None:
    assert report_of(reported(0, True, output)) == chance


def test_silent_and_broken_episodes_are_counted_apart() -> None:
    episodes = [
        reported(0, True, 1),
        reported(1, True, None),
        replace(reported(2, True, 0), outcome=CRASH),
    ]
    found = calibration(episodes)
    assert (found.n, found.silent, found.overconfidence) == (1, 1, None)


def test_what_cannot_be_read_or_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="'perhaps'"):
        calibration([reported(0, True, "perhaps")])
    with pytest.raises(InputError, match=r"'1\.5'"):
        calibration([reported(0, True, 1.5)])
    with pytest.raises(GroupTooSmall, match="confidence=yes"):
        calibration([reported(0, True, None)])
    with pytest.raises(InputError, match="bins"):
        calibration([reported(0, True, 1)], bins=0)
