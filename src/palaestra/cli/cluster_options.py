"""The options of commands whose sessions can run on a cluster."""

from __future__ import annotations

import argparse

from palaestra.core.errors import InputError


def add_to(group: argparse._ActionsContainer, *, more: str = "") -> None:
    """Add --on and --wait to a parser; `more` ends the help of --on."""
    group.add_argument(
        "--on", metavar="ray[=ADDRESS]",
        help="run the sessions on the machines of a Ray cluster: at ADDRESS or RAY_ADDRESS, else "
        f"a Ray on this machine{more}",
    )  # fmt: skip
    group.add_argument(
        "--wait", type=float, metavar="SECONDS",
        help="with --on: how long to wait for a cluster that is large enough (default: forever); "
        "then end with exit code 2",
    )  # fmt: skip


def on_of(options: argparse.Namespace) -> str | None:
    """Return the cluster in the words of the Python interface; None: this process.

    Raises:
        InputError: --wait without --on, or of negative length.
    """
    on: str | None = options.on
    if options.wait is None:
        return on
    if on is None:
        raise InputError("--wait has no effect without --on ray; add it, or drop --wait.")
    if not options.wait >= 0:
        raise InputError(f"--wait {options.wait:g} is no time; give seconds, 0 or more.")
    return f"{on},wait={options.wait:g}"
