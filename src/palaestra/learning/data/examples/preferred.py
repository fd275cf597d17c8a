"""Preferences: responses of which one is better than the other, or judged good or bad alone.

A response is what some rows train: the rows of a whole rollout, or the one row of a single reply
after its history. Its log-probability is the sum over these rows' trained tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from palaestra.learning.data.rows import Row

Response = tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two responses to the same question."""

    chosen: Response
    rejected: Response
    margin: float  # by how much the chosen one scored better; positive


@dataclass(frozen=True, slots=True)
class Label:
    """One response, judged alone."""

    response: Response
    desirable: bool
