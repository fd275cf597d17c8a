"""Where Python's callers are told how the work goes."""

from __future__ import annotations

from rich.console import Console

from palaestra.experiment.progress import Reporter


def reporter(progress: bool) -> Reporter:
    """One that speaks on standard error, or one that says nothing."""
    return Reporter(Console(stderr=True, quiet=not progress))
