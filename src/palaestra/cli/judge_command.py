"""`palaestra judge`: measure a judge against the truth, then let it label episodes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.cli.export_command import choose
from palaestra.cli.interrupt import Stopped, run_until_interrupted
from palaestra.core.errors import InputError

if TYPE_CHECKING:
    from palaestra.core.episode import Episode, Key
    from palaestra.core.model import Model
    from palaestra.evaluation.judges.calibration import Calibration, Truth
    from palaestra.evaluation.judges.verdict import Judge, Verdict
    from palaestra.store.run import RunFolder

EXAMPLE = "palaestra judge calibrate runs/eval-1 --judge smollm2-135m"
CONTEXT = 4096  # tokens of a question to a resident model


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="+", metavar="[calibrate] RUN",
        help="a run's folder or name; `calibrate` before it measures the judge first",
    )  # fmt: skip
    parser.add_argument(
        "--judge", metavar="NAME",
        help="seen:PATTERN, said:PATTERN, called:TOOL, shown:PATTERN, state:MODULE:FUNCTION, "
        "label:NAME, or a model; without it, the judges of the run are listed",
    )  # fmt: skip
    parser.add_argument(
        "--truth", metavar="label:NAME",
        help="with calibrate: what persons said is the truth, instead of the outcome",
    )  # fmt: skip
    parser.add_argument(
        "--measured", metavar="RUN", help="where the judge was calibrated (default: in this run)"
    )
    parser.add_argument(
        "--unmeasured", action="store_true", help="label by a judge that was never calibrated"
    )
    parser.add_argument("--rubric", type=Path, metavar="FILE", help="TOML: question and criteria")
    parser.add_argument(
        "--probe", action="append", default=[], metavar="ACTION",
        help="look at the finished world by this action before judging (repeatable)",
    )  # fmt: skip
    parser.add_argument("--prober", metavar="MODEL", help="a model that plans the probes")
    parser.add_argument(
        "--phase", action="append", default=[], metavar="PHASE", dest="phases",
        help="only these (repeatable; default: all)",
    )  # fmt: skip
    parser.add_argument("-n", type=int, metavar="N", help="at most so many episodes")
    parser.add_argument("--tokens", type=int, default=96, metavar="T", help="per reply of a model")
    parser.add_argument(
        "--without", action="append", default=[], metavar="PROBE",
        help="with calibrate: leave out the probe order, length, name or self (repeatable)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    measuring, path = _words(options.words)
    if options.truth is not None and not (measuring and options.truth.startswith("label:")):
        raise InputError(f"--truth {options.truth}: give label:NAME, with `judge calibrate`.")
    if measuring and (options.measured or options.unmeasured):
        raise InputError("`judge calibrate` measures; leave --measured and --unmeasured out.")
    if options.measured and options.unmeasured:
        raise InputError("A judge is measured or not; give --measured RUN or --unmeasured.")
    if options.judge is None:
        if measuring:
            raise InputError("Which judge is to be measured? Name it with --judge.")
        return _list(path, options.json)
    from palaestra.core.errors import UnknownName
    from palaestra.evaluation.judges.calibration import PROBES
    from palaestra.store.run import RunFolder

    for probe in options.without:
        if probe not in PROBES:
            raise UnknownName("probe of judges", probe, PROBES)
    if options.n is not None and options.n < 1:
        raise InputError(f"-n {options.n} leaves nothing to judge; give 1 or more.")
    with RunFolder.open(path) as opened:
        names = choose(opened.database.phases(), options.phases)
        episodes = [e for name in names for e in opened.database.episodes(name)][: options.n]
        judge, held = _judge(options, path)
        try:
            work = _measure if measuring else _label
            result = run_until_interrupted(work(options, judge, held, episodes, opened))
        except Stopped:
            print("\nStopped; verdicts given so far are kept.")
            return 130
    if options.json:
        print(json.dumps(result))
    else:
        (_show_calibration if measuring else _show_labels)(result)
    return 0


def episodes_of(names: Sequence[str], phases: list[str]) -> Iterator[Episode]:
    """The finished episodes of several runs, each run once; of all phases, if none is wanted."""
    from palaestra.store.run import RunFolder, run_path

    for name in dict.fromkeys(names):
        with RunFolder.read(run_path(name)) as opened:
            for phase in choose(opened.database.phases(), phases):
                yield from opened.database.episodes(phase)


def loaded(name: str) -> Model:
    """A model that reads, ready to answer."""
    from palaestra.agents.direct import DirectAgent
    from palaestra.experiment.progress import Reporter
    from palaestra.models.registry import load_model

    return load_model(name, DirectAgent(), slots=2, context=CONTEXT, progress=Reporter().say)


# ── what is done ─────────────────────────────────────────────────────────────


def _words(words: Sequence[str]) -> tuple[bool, Path]:
    from palaestra.store.run import run_path

    measuring = words[0] == "calibrate" and len(words) > 1
    left = words[measuring:]
    if len(left) != 1:
        raise InputError(f"One run is judged at a time, not {' '.join(left)}.")
    return measuring, run_path(left[0])


def _judge(options: argparse.Namespace, path: Path) -> tuple[Judge, list[Model]]:
    from palaestra.environments.registry import make
    from palaestra.evaluation.judges.naming import Wanted, make_judge
    from palaestra.store.notes import labelled

    wanted = Wanted(options.judge, options.rubric, options.probe, options.prober, options.tokens)
    return make_judge(wanted, make, loaded, labelled(path))


async def _measure(
    options: argparse.Namespace,
    judge: Judge,
    held: list[Model],
    episodes: list[Episode],
    opened: RunFolder,
) -> dict[str, Any]:
    from palaestra.evaluation.judges import records
    from palaestra.evaluation.judges.calibration import PROBES, calibrate, solved

    probes = [probe for probe in PROBES if probe not in options.without]
    try:
        model = held[0].name if held else ""
        truth = _truth(options.truth, opened.path) if options.truth else solved
        found, _ = await calibrate(judge, episodes, model=model, probes=probes, truth=truth)
    finally:
        for one in held:
            await one.close()
    records.keep_calibration(opened.database, found)
    return _document(found)


def _truth(name: str, path: Path) -> Truth:
    """What persons said of the episodes of the run, by the label in `label:NAME`."""
    from palaestra.store.notes import labelled, says

    label, given = name.partition(":")[2], labelled(path)
    return lambda episode: says(given.get(episode.key, {}), label)


async def _label(
    options: argparse.Namespace,
    judge: Judge,
    held: list[Model],
    episodes: list[Episode],
    opened: RunFolder,
) -> dict[str, Any]:
    from palaestra.evaluation.judges import records
    from palaestra.evaluation.judges.calibration import trusted
    from palaestra.evaluation.judges.case import case_of
    from palaestra.evaluation.judges.verdict import PASS, Cost

    known = _known(options, judge, opened)
    before = records.verdicts(opened.database, judge.name)
    fresh: dict[Key, Verdict] = {}
    given: dict[str, Any] = {}
    cost = Cost()
    try:
        for episode in episodes:
            old = before.get(str(episode.key))
            if old and old["identity"] == judge.identity and old["value"] is not None:
                given[str(episode.key)] = old
                continue
            verdict = trusted(await judge.judge(case_of(episode)), known)
            fresh[episode.key] = verdict
            given[str(episode.key)] = verdict.as_json()
            cost += verdict.cost
            records.keep_verdicts(opened.database, judge.name, {episode.key: verdict})
    finally:
        for one in held:
            await one.close()
    values = [verdict["value"] for verdict in given.values()]
    spoken = [value for value in values if value is not None]
    return {
        "judge": judge.name,
        "identity": judge.identity,
        "episodes": len(values),
        "judged_now": len(fresh),
        "solved": sum(value >= PASS for value in spoken),
        "no_verdict": len(values) - len(spoken),
        "calibration": known["short"] if known else None,
        "seconds": cost.seconds,
        "verdicts": given,
    }


def _known(options: argparse.Namespace, judge: Judge, opened: RunFolder) -> dict[str, Any] | None:
    """What was measured of the judge as it is now; None only where that is wanted."""
    from palaestra.evaluation.judges import records
    from palaestra.store.run import RunFolder, run_path

    where = options.measured or options.words[-1]
    if options.measured:
        with RunFolder.read(run_path(options.measured)) as measured:
            known = records.calibration(measured.database, judge.name)
    else:
        known = records.calibration(opened.database, judge.name)
    if known is not None and known["identity"] == judge.identity:
        return known
    if options.unmeasured or judge.name.startswith("label:"):  # persons: what truth is made of
        return None
    why = "has never been measured" if known is None else "was measured as it was before a change"
    raise InputError(
        f"The judge '{judge.name}' {why} against the truth in '{where}'; run `palaestra judge "
        "calibrate RUN --judge …` first, name that run with --measured, or say --unmeasured."
    )


def _list(path: Path, as_json: bool) -> int:
    from palaestra.evaluation.judges import records
    from palaestra.store.run import RunFolder

    with RunFolder.read(path) as opened:
        found: dict[str, dict[str, Any]] = {
            name: {
                "verdicts": len(records.verdicts(opened.database, name)),
                "calibration": (records.calibration(opened.database, name) or {}).get("short"),
            }
            for name in records.judges(opened.database)
        }
    if as_json:
        print(json.dumps(found))
        return 0
    for name, row in found.items():
        print(f"{name}: {row['verdicts']} verdicts; {_trust(row['calibration'])}")
    if not found:
        print("No judge has judged in this run; name one with --judge.")
    return 0


# ── what is shown ────────────────────────────────────────────────────────────


def _document(found: Calibration) -> dict[str, Any]:
    return {**found.as_json(), "few": found.agreement.few}


def _show_calibration(result: dict[str, Any]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    agreed = result["agreement"]
    table = Table(box=box.SIMPLE, show_header=False, title=result["judge"], title_justify="left")
    table.add_row("cases", f"{agreed['cases']}, of {', '.join(result['phases'])}")
    table.add_row("no verdict", str(agreed["silent"]))
    table.add_row("truly solved", f"{agreed['solved']} of those with a verdict")
    for name in ("accuracy", "kappa", "precision", "recall", "specificity"):
        table.add_row(name, _bounds(agreed[name]))
    for effect in result["effects"]:
        flips = effect["flipped"]
        changed = f"; verdict changed in {100 * flips['mean']:.0f} %" if flips else ""
        if effect["silent"]:
            changed += f"; {effect['silent']} left out without a verdict"
        why = f"not measured: {effect['note']}"
        measured = _bounds(effect["effect"]) if effect["effect"] else why
        table.add_row(f"bias: {effect['probe']}", f"{measured}{changed}")
    cost = result["cost"]
    read, acted = f"{cost['prompt_tokens']} tokens read", f"{cost['actions']} actions"
    table.add_row("one pass", f"{cost['calls']} calls, {read}, {acted}, {cost['seconds']:.1f} s")
    console = Console()
    console.print(table)
    if result["few"]:
        console.print("Few solved or few unsolved cases: this says little about the judge.")


def _show_labels(result: dict[str, Any]) -> None:
    spoken = result["episodes"] - result["no_verdict"]
    print(
        f"{result['judge']}: {result['solved']} of {spoken} judged solved, "
        f"{result['no_verdict']} without a verdict; {result['judged_now']} judged now in "
        f"{result['seconds']:.1f} s"
    )
    print(_trust(result["calibration"]))


def _trust(short: dict[str, Any] | None) -> str:
    if short is None:
        return "never measured against the truth; do so with `palaestra judge calibrate`"
    return (
        f"measured on {short['cases']} cases: accuracy {_triple(short['accuracy'])}, "
        f"kappa {_triple(short['kappa'])}"
    )


def _bounds(found: dict[str, Any] | None) -> str:
    if found is None:
        return "does not exist here"
    return _triple([found["mean"], found["low"], found["high"]])


def _triple(found: Sequence[float] | None) -> str:
    if found is None:
        return "none"
    return f"{found[0]:.2f} ({found[1]:.2f} to {found[2]:.2f})"
