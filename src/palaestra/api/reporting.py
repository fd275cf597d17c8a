"""Progress messages for callers from Python."""

from __future__ import annotations

from rich.console import Console

from palaestra.runtime.progress import Reporter


def reporter(progress: bool) -> Reporter:
    """Return a reporter that writes to standard error, or a silent one."""
    return Reporter(console(stderr=True, quiet=not progress))


def console(*, stderr: bool = False, quiet: bool = False) -> Console:
    """Return a console; in a notebook, a console of plain lines.

    In a notebook, rich would make each line a separate output and use cursor movements.
    """
    found = Console(stderr=stderr, quiet=quiet)
    if not found.is_jupyter:
        return found
    return Console(stderr=stderr, quiet=quiet, force_jupyter=False, force_terminal=False)
