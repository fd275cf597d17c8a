"""A game whose players share their returns, for tests."""

from __future__ import annotations

from palaestra.core.environment import Stakes
from tests.core.games import Tally


class Lift(Tally, players=("l", "r"), stakes=Stakes("common")):
    """Two players, one return."""
