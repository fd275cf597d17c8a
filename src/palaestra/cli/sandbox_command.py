"""`palaestra sandbox`: run one command in a sandbox, and report how it ended."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, fields
from pathlib import Path

from palaestra.core.errors import InputError
from palaestra.runtime.visible_text import visible
from palaestra.sandbox.base import Limits, Mount, Settings

EXAMPLE = "palaestra sandbox --limit seconds=5 -- python3 -c 'print(6 * 7)'"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kind", default="auto", help="bubblewrap, gvisor, wasm or unsafe (auto)")
    parser.add_argument(
        "--limit", action="append", default=[], metavar="NAME=VALUE",
        help=f"one of {', '.join(field.name for field in fields(Limits))}",
    )  # fmt: skip
    parser.add_argument(
        "--mount", action="append", default=[], metavar="OUTSIDE:INSIDE", help="read-only mount"
    )
    parser.add_argument(
        "--host", action="append", default=[], metavar="NAME:PORT", help="host that can be reached"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("program", nargs="+", metavar="COMMAND", help="after `--`")


def run(options: argparse.Namespace) -> int:
    from palaestra.sandbox.factory import open_sandbox

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
        print(visible(ran.stdout), end="")  # no escape codes reach the terminal
        print(visible(ran.stderr), end="", file=sys.stderr)
        code = "" if ran.code is None else f" with code {ran.code}"
        print(f"{sandbox.name}: {ran.ended}{code} after {ran.seconds:.2f} s", file=sys.stderr)
    return 0 if ran.code == 0 else 1


def _mount(text: str) -> Mount:
    outside, _, inside = text.rpartition(":")
    if not outside:
        raise InputError(f"The mount '{text}' lacks a path inside; write e.g. '{text}:/data'.")
    return Mount(Path(outside), inside)
