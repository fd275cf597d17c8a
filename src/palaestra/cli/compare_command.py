"""`palaestra compare`: several credit rules on the same recorded episodes, without training."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.cli.interrupt import Stopped, run_until_interrupted
from palaestra.core.errors import InputError, PalaestraError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaestra.experiment.trace import Trace
    from palaestra.learning.comparison import Truth
    from palaestra.learning.credit.rule import CreditRule
    from palaestra.learning.trajectory import Trajectory

EXAMPLE = "palaestra compare runs/quick-20260101-120000 --credit rloo,grpo --html credit.html"
BUDGET = 2000  # episodes that --truth may live
Row = dict[str, Any]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "trace", metavar="TRACE", help="a run's folder or name, its run.sqlite, or a .parquet file"
    )
    parser.add_argument(
        "--credit", default="all", metavar="RULES",
        help="rules or sums of rules, separated by commas (default: all that the trace can feed)",
    )  # fmt: skip
    parser.add_argument("--phase", metavar="PHASE", help="default: the latest of RL, e.g. rl/36")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N groups")
    parser.add_argument(
        "--truth", type=int, metavar="N",
        help="live on N times from each turn with the run's policy, and compare with the outcome",
    )  # fmt: skip
    parser.add_argument(
        "--budget", type=int, default=BUDGET, metavar="N",
        help=f"episodes that --truth may live in all (default: {BUDGET})",
    )  # fmt: skip
    parser.add_argument("--html", metavar="FILE", help="write a page with heat maps")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    _check(options)
    from palaestra.experiment.trace import choose_phase, open_recorded, read_trace, words
    from palaestra.learning.comparison import as_json, compare

    recorded, folder = open_recorded(options.trace)
    try:
        phase = choose_phase(recorded.phases(), options.phase)
        trace = read_trace(recorded, phase, options.limit)
    finally:
        recorded.close()
    rules, skipped = choose_rules(options.credit, trace.batch)
    truth: Truth | None = None
    judge = ""
    if options.truth is not None:
        try:
            truth, judge = _truth(options, folder, trace)
        except Stopped:
            print("\nStopped; nothing was compared.", file=sys.stderr)
            return 130
    said: Row = {
        "trace": options.trace,
        "phase": phase,
        "environment": trace.environment,
        "policy": trace.policy,
        "left_out": trace.left_out,
        **as_json(compare(trace.batch, rules, truth)),
        "skipped": skipped,
    }
    if said["truth"]:
        said["truth"] |= {"samples": options.truth, "policy": judge}
    for trajectory, turns in zip(said["trajectories"], words(trace), strict=True):
        for turn, word in zip(trajectory["turns"], turns, strict=True):
            turn |= {"seen": word.seen, "said": word.said}
    if options.html:
        _write_page(Path(options.html), said)
    if options.json:
        print(json.dumps(said))
    else:
        from rich.console import Console

        from palaestra.cli.comparison_text import render

        render(said, Console(highlight=False))
        if options.html:
            print(f"The page is in {options.html}.")
    return 0


def choose_rules(
    text: str, batch: Sequence[Trajectory]
) -> tuple[dict[str, CreditRule], list[dict[str, str]]]:
    """The rules to run by expression, and those of `all` that cannot run, with the reason.

    Raises:
        UnknownName, RecipeError: an expression that means no rule.
        InputError: a rule that was asked for needs what the trace does not hold, or none
            can run.
    """
    from palaestra.learning.component import Kind, components
    from palaestra.learning.credit import compose
    from palaestra.learning.needs import refusal

    every = text.strip() == "all"
    names = list(components(Kind.CREDIT)) if every else _split(text)
    rules: dict[str, CreditRule] = {}
    skipped: list[dict[str, str]] = []
    for name in names:
        rule = compose.parse(name)
        reason = refusal(name, compose.needs(name), batch)
        if reason is None and every:
            reason = _objection(name, rule, batch)
        if reason is None:
            rules[name] = rule
        elif every:
            skipped.append({"rule": name, "reason": reason})
        else:
            raise InputError(f"The credit rule {reason}")
    if not rules:
        why = f": {skipped[0]['reason']}" if skipped else "; give a rule, such as --credit rloo."
        raise InputError(f"There is no credit rule to run{why}")
    return rules, skipped


def _split(text: str) -> list[str]:
    """The expressions between commas, each once."""
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _objection(name: str, rule: CreditRule, batch: Sequence[Trajectory]) -> str | None:
    """What the rule itself has against the batch: it may ask for more than `Need` can say."""
    try:
        rule(batch)
    except PalaestraError as error:
        return f"'{name}' cannot run here: {error}"
    return None


def _check(options: argparse.Namespace) -> None:
    """Find the mistakes in the options before anything starts."""
    for flag, value, least in (
        ("--limit", options.limit, 1),
        ("--truth", options.truth, 2),
        ("--budget", options.budget, 1),
    ):
        if value is not None and value < least:
            raise InputError(f"{flag} {value} is too small; give {least} or more.")
    if options.html and not Path(options.html).absolute().parent.is_dir():
        raise InputError(f"--html {options.html}: its folder does not exist; make it first.")


def _truth(options: argparse.Namespace, folder: Path | None, trace: Trace) -> tuple[Truth, str]:
    if folder is None:
        raise InputError(
            "--truth needs the run's policy: give the run's folder as the trace, not a copy of "
            "its episodes."
        )
    from palaestra.experiment.branches import ground_truth
    from palaestra.experiment.progress import Reporter
    from palaestra.store.run import RunFolder

    with RunFolder.read(folder) as opened:
        work = ground_truth(opened, trace, options.truth, options.budget, Reporter())
        return run_until_interrupted(work)


def _write_page(file: Path, said: Row) -> None:
    from palaestra.learning.comparison_page import page
    from palaestra.store.disk import is_full, replace_durably, storage_full

    try:
        replace_durably(file, page(said))
    except OSError as error:
        if is_full(error):
            raise storage_full(file.name, file.parent, error) from error
        raise InputError(f"--html {file} cannot be written: {error}. Give another path.") from error
