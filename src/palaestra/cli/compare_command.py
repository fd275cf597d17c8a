"""`palaestra compare`: compare credit rules on the same recorded episodes, without training."""

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

    from palaestra.learning.credit.rule import CreditRule
    from palaestra.learning.data.trajectory import Trajectory
    from palaestra.learning.methods.credit_comparison import Truth
    from palaestra.training.trace import Trace

EXAMPLE = "palaestra compare runs/quick-20260101-120000 --credit rloo,grpo --html credit.html"
BUDGET = 2000  # episodes that --truth may run
Row = dict[str, Any]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "trace", metavar="TRACE", help="a run's folder or name, its run.sqlite, or a .parquet file"
    )
    parser.add_argument(
        "--credit", default="all", metavar="RULES",
        help="rules or sums of rules, separated by commas (default: all that work on the trace)",
    )  # fmt: skip
    parser.add_argument("--phase", metavar="PHASE", help="default: the latest of RL, e.g. rl/36")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N groups")
    parser.add_argument(
        "--truth", type=int, metavar="N",
        help="compare with the truth, estimated by N rollouts of the run's policy per turn",
    )  # fmt: skip
    parser.add_argument(
        "--budget", type=int, default=BUDGET, metavar="N",
        help=f"maximum episodes of --truth in total (default: {BUDGET})",
    )  # fmt: skip
    parser.add_argument("--html", metavar="FILE", help="write a page with heat maps")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    _check(options)
    from palaestra.learning.methods.credit_comparison import as_json, compare
    from palaestra.training.trace import choose_phase, open_recorded, read_trace, turn_texts

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
    result: Row = {
        "trace": options.trace,
        "phase": phase,
        "environment": trace.environment,
        "policy": trace.policy,
        "left_out": trace.left_out,
        **as_json(compare(trace.batch, rules, truth)),
        "skipped": skipped,
    }
    if result["truth"]:
        result["truth"] |= {"samples": options.truth, "policy": judge}
    for trajectory, turns in zip(result["trajectories"], turn_texts(trace), strict=True):
        for turn, text in zip(trajectory["turns"], turns, strict=True):
            turn |= {"observation": text.observation, "reply": text.reply}
    if options.html:
        _write_page(Path(options.html), result)
    if options.json:
        print(json.dumps(result))
    else:
        from rich.console import Console

        from palaestra.cli.credit_comparison_text import render

        render(result, Console(highlight=False))
        if options.html:
            print(f"The page is in {options.html}.")
    return 0


def choose_rules(
    text: str, batch: Sequence[Trajectory]
) -> tuple[dict[str, CreditRule], list[dict[str, str]]]:
    """Return the rules to run by expression, and those of `all` that cannot run, with the reason.

    Raises:
        UnknownName, RecipeError: an expression names no rule.
        InputError: a requested rule needs data that the trace lacks, or no rule can run.
    """
    from palaestra.learning.credit import compose
    from palaestra.learning.methods.component import Kind, components
    from palaestra.learning.methods.needs import unmet_needs_reason

    every = text.strip() == "all"
    names = list(components(Kind.CREDIT)) if every else _split(text)
    rules: dict[str, CreditRule] = {}
    skipped: list[dict[str, str]] = []
    for name in names:
        rule = compose.parse(name)
        reason = unmet_needs_reason(name, compose.needs(name), batch)
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
    """Return the expressions between commas, each once."""
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _objection(name: str, rule: CreditRule, batch: Sequence[Trajectory]) -> str | None:
    """Return why a rule refuses the batch, for requirements beyond its `Need`s, or None."""
    try:
        rule(batch)
    except PalaestraError as error:
        return f"'{name}' cannot run here: {error}"
    return None


def _check(options: argparse.Namespace) -> None:
    """Raise InputError for invalid options."""
    for flag, value, least in (
        ("--limit", options.limit, 1),
        ("--truth", options.truth, 2),
        ("--budget", options.budget, 1),
    ):
        if value is not None and value < least:
            raise InputError(f"{flag} {value} is too small; give {least} or more.")
    if options.html and not Path(options.html).absolute().parent.is_dir():
        raise InputError(f"--html {options.html}: its folder does not exist; create it first.")


def _truth(options: argparse.Namespace, folder: Path | None, trace: Trace) -> tuple[Truth, str]:
    if folder is None:
        raise InputError(
            "--truth needs the run's policy: give the run's folder as the trace, not a copy of "
            "its episodes."
        )
    from palaestra.runtime.progress import Reporter
    from palaestra.store.run_folder import RunFolder
    from palaestra.training.branch_values import ground_truth

    with RunFolder.read(folder) as opened:
        work = ground_truth(opened, trace, options.truth, options.budget, Reporter())
        return run_until_interrupted(work)


def _write_page(file: Path, result: Row) -> None:
    from palaestra.learning.methods.credit_comparison_page import page
    from palaestra.store.disk import is_full, replace_durably, storage_full

    try:
        replace_durably(file, page(result))
    except OSError as error:
        if is_full(error):
            raise storage_full(file.name, file.parent, error) from error
        raise InputError(f"--html {file} cannot be written: {error}. Give another path.") from error
