"""`palaestra agents library`: show or serve the functions that an agent wrote."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from palaestra.core.errors import InputError

if TYPE_CHECKING:
    from argparse import ArgumentParser, _SubParsersAction

EXAMPLE = "palaestra agents library runs/library.jsonl --serve"


def configure(verbs: _SubParsersAction[ArgumentParser]) -> None:
    parser = verbs.add_parser(
        "library", help="show what an agent wrote, or serve it by MCP", epilog=f"Example: {EXAMPLE}"
    )
    parser.add_argument("library", metavar="FILE", help="the file of the agent code?library=FILE")
    parser.add_argument(
        "--serve", action="store_true", help="speak MCP on stdin and stdout: each function a tool"
    )
    parser.add_argument(
        "--sandbox", default="auto", metavar="KIND", help="where the functions run (auto)"
    )
    parser.add_argument(
        "--seconds", type=float, default=10.0, metavar="N", help="limit of a call (default: 10)"
    )


def run(options: argparse.Namespace) -> int:
    from palaestra.agents.code.library_server import serve
    from palaestra.sandbox.function_library import Library

    library = Library(options.library)
    if not Path(options.library).expanduser().is_file():
        raise InputError(f"There is no library '{options.library}'; name its file.")
    if options.serve:
        asyncio.run(serve(library, sandbox=options.sandbox, seconds=options.seconds))
        return 0
    versions = [function.name for function in library.versions()]
    for function in library.latest():
        count = versions.count(function.name)
        print(function.signature + (f", {count} versions" if count > 1 else ""))
    return 0
