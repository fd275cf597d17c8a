"""The formats of quantised weights, by their names; nothing here needs torch."""

from __future__ import annotations

from typing import Literal, get_args

Quantisation = Literal["int8", "nf4"]
"""A format of quantised weights (see `quantised`)."""

FORMATS: tuple[Quantisation, ...] = get_args(Quantisation)
