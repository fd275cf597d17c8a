"""`palaestra agents knowledge`: write what was extracted in a run into a knowledge file."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from palaestra.core.errors import InputError

if TYPE_CHECKING:
    from argparse import ArgumentParser, _SubParsersAction

    from palaestra.core.episode import Episode

EXAMPLE = "palaestra agents knowledge runs/extraction --file diseases --to more.toml"


def configure(verbs: _SubParsersAction[ArgumentParser]) -> None:
    parser = verbs.add_parser(
        "knowledge",
        help="add what was extracted from documents to a knowledge file",
        epilog=f"Example: {EXAMPLE}",
    )
    parser.add_argument("run", metavar="RUN", help="of cases/record, or documents of your own")
    parser.add_argument("--file", required=True, metavar="FILE", help="the file that is known")
    parser.add_argument(
        "--to", required=True, type=Path, metavar="FILE", help="a new file: the known one and more"
    )
    parser.add_argument(
        "--phase", action="append", default=[], metavar="PHASE", dest="phases",
        help="only these (repeatable; default: all)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    from palaestra.cli.judge_command import episodes_of
    from palaestra.core.knowledge_file import load_entries
    from palaestra.core.knowledge_triples import added, file_text, refusal

    if options.to.exists():
        raise InputError(f"'{options.to}' exists; name a new file with --to.")
    known = entries = load_entries(options.file)
    refused: list[dict[str, str]] = []
    for episode in sorted(episodes_of([options.run], options.phases), key=_place):
        text = _answer(episode)
        why = refusal(text, entries) if text else None
        if why is not None:
            refused.append({"text": text, "reason": why})
        elif text:
            entries = added(entries, text)
    options.to.write_text(file_text(entries), encoding="utf-8")
    new, signs = len(entries) - len(known), sum(len(one.when) for one in entries)
    signs -= sum(len(one.when) for one in known)
    if options.json:
        found = {"file": str(options.to), "entries": len(entries), "new": new, "signs": signs}
        print(json.dumps({**found, "refused": refused}))
        return 0
    for one in refused:
        print(f"refused: {one['text']}\n  {one['reason']}")
    print(
        f"{options.to}: {len(entries)} entries, {new} of them new, and {signs} new signs; "
        f"{len(refused)} refused."
    )
    return 0


def _answer(episode: Episode) -> str:
    """Return the last action that the environment took; empty if it took none."""
    for step in reversed(episode.steps):
        note = step.transition.info.get("team", {})
        if "did" in note:
            return str(note["did"])
        if step.transition.valid and "does" not in note:
            return step.action.text
    return ""


def _place(episode: Episode) -> tuple[str, int, int]:
    key = episode.key
    return key.phase, key.group, key.member
