"""`palaestra sandbox`: one command in a sandbox, and how it ended."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, fields
from pathlib import Path

from palaestra.core.errors import InputError
from palaestra.core.visible import visible
from palaestra.safety.sandbox import Limits, Mount, Settings

EXAMPLE = "palaestra sandbox --limit seconds=5 -- python3 -c 'print(6 * 7)'"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kind", default="auto", help="bubblewrap, gvisor, wasm or unsafe (auto)")
    parser.add_argument(
        "--limit", action="append", default=[], metavar="NAME=VALUE",
        help=f"one of {', '.join(field.name for field in fields(Limits))}",
    )  # fmt: skip
    parser.add_argument(
        "--mount", action="append", default=[], metavar="OUTSIDE:INSIDE", help="seen, not written"
    )
    parser.add_argument(
        "--host", action="append", default=[], metavar="NAME:PORT", help="may be reached"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("program", nargs="+", metavar="COMMAND", help="after `--`")


def run(options: argparse.Namespace) -> int:
    from palaestra.safety.opening import open_sandbox

    settings = Settings(
        Limits().but(options.limit),
        tuple(_mount(text) for text in options.mount),
        tuple(options.host),
    )
    sandbox = open_sandbox(options.kind, settings)
    try:
        ran = sandbox.run(options.program)
    finally:
        sandbox.close()
    if options.json:
        print(json.dumps({"kind": sandbox.name, **asdict(ran)}))
    else:
        print(visible(ran.stdout), end="")  # a program's codes give the terminal no orders
        print(visible(ran.stderr), end="", file=sys.stderr)
        code = "" if ran.code is None else f" with code {ran.code}"
        print(f"{sandbox.name}: {ran.ended}{code} after {ran.seconds:.2f} s", file=sys.stderr)
    return 0 if ran.code == 0 else 1


def _mount(text: str) -> Mount:
    outside, _, inside = text.rpartition(":")
    if not outside:
        raise InputError(f"The mount '{text}' lacks a place inside; write '{text}:/data', say.")
    return Mount(Path(outside), inside)
