"""`palaestra judge`: measure a judge against the truth, then let it label episodes."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.cli import cluster_options
from palaestra.cli.export_command import choose
from palaestra.cli.interrupt import Stopped, run_until_interrupted, unbegun
from palaestra.cli.judge_output import show_calibration, show_judges, show_labels
from palaestra.core.errors import InputError

if TYPE_CHECKING:
    from palaestra.core.episode import Episode, Key
    from palaestra.core.model import Model
    from palaestra.evaluation.judges.calibration import Truth
    from palaestra.evaluation.judges.registry import JudgeRequest
    from palaestra.evaluation.judges.verdict import Judge, Verdict
    from palaestra.store.run_folder import RunFolder

EXAMPLE = "palaestra judge calibrate runs/eval-1 --judge smollm2-135m"
CALIBRATE, FIT = "calibrate", "fit"
WITHOUT_EFFECT_ON_FIT = (
    "judge", "truth", "measured", "unmeasured", "rubric", "probe", "prober", "without", "on"
)  # fmt: skip
VERDICTS_KEPT = "The verdicts so far are stored; the same command goes on after them."
NOTHING_MEASURED = "The measurement is not stored; give the same command again."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="+", metavar="[calibrate|fit] RUN",
        help="a run's folder or name; `calibrate` before it measures the judge first, `fit` makes "
        "a judge of trajectories of its solved episodes",
    )  # fmt: skip
    parser.add_argument(
        "--judge", metavar="NAME",
        help="seen:PATTERN, said:PATTERN, called:TOOL, shown:PATTERN, state:MODULE:FUNCTION, "
        "trajectory:FILE, label:NAME, or a model; without it, list the judges of the run",
    )  # fmt: skip
    parser.add_argument("--to", type=Path, metavar="FILE", help="with fit: the judge's file")
    parser.add_argument(
        "--truth", metavar="label:NAME",
        help="with calibrate: take labels by people as the truth, instead of the outcome",
    )  # fmt: skip
    parser.add_argument(
        "--measured",
        metavar="RUN",
        help="run in which the judge was calibrated (default: this run)",
    )
    parser.add_argument(
        "--unmeasured", action="store_true", help="use a judge that was never calibrated"
    )
    parser.add_argument("--rubric", type=Path, metavar="FILE", help="TOML: question and criteria")
    parser.add_argument(
        "--probe", action="append", default=[], metavar="ACTION",
        help="inspect the finished environment with this action before judging (repeatable)",
    )  # fmt: skip
    parser.add_argument("--prober", metavar="MODEL", help="a model that plans the probes")
    parser.add_argument(
        "--phase", action="append", default=[], metavar="PHASE", dest="phases",
        help="only these (repeatable; default: all)",
    )  # fmt: skip
    parser.add_argument("-n", type=int, metavar="N", help="maximum number of episodes")
    parser.add_argument(
        "--tokens",
        type=int,
        default=96,
        metavar="T",
        help="tokens per reply of a model on this machine",
    )
    parser.add_argument(
        "--without", action="append", default=[], metavar="PROBE",
        help="with calibrate: leave out the probe order, length, name or self (repeatable)",
    )  # fmt: skip
    cluster_options.add_to(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    with unbegun():
        return _run(options)


def _run(options: argparse.Namespace) -> int:
    mode, path = _words(options.words)
    if mode == FIT:
        return _fit(options, path)
    if options.to is not None:
        raise InputError(f"--to {options.to} has no effect without `judge fit`; drop it.")
    measuring = mode == CALIBRATE
    on = cluster_options.on_of(options)
    if on is not None and options.judge is None:
        raise InputError(f"--on {options.on} has no effect on a list of judges; drop it.")
    if options.truth is not None and not (measuring and options.truth.startswith("label:")):
        raise InputError(
            f"--truth {options.truth} is invalid; write label:NAME, with `judge calibrate`."
        )
    if measuring and (options.measured or options.unmeasured):
        raise InputError(
            "--measured and --unmeasured have no effect with `judge calibrate`; drop them."
        )
    if options.measured and options.unmeasured:
        raise InputError("--measured and --unmeasured exclude each other; drop one.")
    if options.judge is None:
        if measuring:
            raise InputError("The judge to calibrate is missing; name it with --judge.")
        return show_judges(path, options.json)
    from palaestra.core.errors import UnknownName
    from palaestra.evaluation.judges.calibration import PROBES
    from palaestra.store.run_folder import RunFolder

    for probe in options.without:
        if probe not in PROBES:
            raise UnknownName("probe of judges", probe, PROBES)
    if options.n is not None and options.n < 1:
        raise InputError(f"-n {options.n} leaves nothing to judge; give 1 or more.")
    with RunFolder.open(path) as opened:
        names = choose(opened.database.phases(), options.phases)
        episodes = [e for name in names for e in opened.database.episodes(name)][: options.n]
        kept = NOTHING_MEASURED if measuring else VERDICTS_KEPT
        if on is not None:
            work = _work_on(on, options, measuring, episodes, opened)
        else:
            judge, models = _judge(options, path)
            work = (_measure if measuring else _label)(options, judge, models, episodes, opened)
        try:
            result = run_until_interrupted(work)
        except Stopped:
            print(f"\nStopped. {kept}", file=sys.stderr)
            return 130
        except KeyboardInterrupt as error:
            error.add_note(kept)
            raise
    if options.json:
        print(json.dumps(result))
    else:
        (show_calibration if measuring else show_labels)(result)
    return 0


def episodes_of(names: Sequence[str], phases: list[str]) -> Iterator[Episode]:
    """Yield the finished episodes of several runs, of the given phases or of all."""
    from palaestra.store.run_folder import RunFolder, run_path

    for name in dict.fromkeys(names):
        with RunFolder.read(run_path(name)) as opened:
            for phase in choose(opened.database.phases(), phases):
                yield from opened.database.episodes(phase)


def loaded(name: str) -> Model:
    """Load a model that judges."""
    from palaestra.evaluation.judges.registry import load_to_judge
    from palaestra.runtime.progress import Reporter

    return load_to_judge(name, Reporter().say)


# ── work ─────────────────────────────────────────────────────────────


def _words(words: Sequence[str]) -> tuple[str, Path]:
    """Return what is to be done (empty: judge), and the run."""
    from palaestra.store.run_folder import run_path

    mode = words[0] if words[0] in (CALIBRATE, FIT) and len(words) > 1 else ""
    left = words[1:] if mode else words
    if len(left) != 1:
        raise InputError(f"'{' '.join(left)}' is not one run; judge one run at a time.")
    return mode, run_path(left[0])


def _fit(options: argparse.Namespace, path: Path) -> int:
    """Make a judge of trajectories of a run's solved episodes, and write its file."""
    from palaestra.evaluation.judges.case import case_of
    from palaestra.evaluation.judges.trajectory_features import FEATURES, trajectory_of
    from palaestra.evaluation.judges.trajectory_judge import fit
    from palaestra.store.run_folder import RunFolder

    if options.to is None:
        raise InputError("The file of the judge is missing; name it with --to FILE.")
    for option in WITHOUT_EFFECT_ON_FIT:
        if getattr(options, option):
            raise InputError(f"--{option} has no effect with `judge fit`; drop it.")
    with RunFolder.read(path) as opened:
        names = choose(opened.database.phases(), options.phases)
        episodes = [e for name in names for e in opened.database.episodes(name)][: options.n]
    verifier = fit([trajectory_of(case_of(one)) for one in episodes if one.outcome.solved])
    verifier.save(options.to)
    weights = dict(zip(FEATURES, verifier.weights.tolist(), strict=True))
    learned = {"trajectories": len(verifier.library.trajectories), "weights": weights}
    if options.json:
        print(json.dumps({"judge": f"trajectory:{options.to}", **learned}))
        return 0
    print(f"trajectory:{options.to} has learned from {learned['trajectories']} right trajectories.")
    for name, weight in sorted(weights.items(), key=lambda one: one[1]):
        print(f"  {weight:+.2f}  {name}")
    return 0


def _judge(options: argparse.Namespace, path: Path) -> tuple[Judge, list[Model]]:
    from palaestra.environments.registry import make
    from palaestra.evaluation.judges.registry import make_judge
    from palaestra.store.notes import labelled

    return make_judge(_wanted(options), make, loaded, labelled(path))


def _wanted(options: argparse.Namespace) -> JudgeRequest:
    from palaestra.evaluation.judges.registry import JudgeRequest

    return JudgeRequest(
        options.judge, options.rubric, options.probe, options.prober, options.tokens
    )


async def _work_on(
    on: str,
    options: argparse.Namespace,
    measuring: bool,
    episodes: list[Episode],
    opened: RunFolder,
) -> dict[str, Any]:
    """Judge or measure the judge on a cluster."""
    from palaestra.cluster.remote_judges import judging
    from palaestra.runtime.progress import Reporter
    from palaestra.store.notes import labelled

    labels, say = labelled(opened.path), Reporter().say
    async with judging(on, _wanted(options), labels, say) as (judge, lanes):
        if measuring:
            return await _measured(options, judge, judge.model, episodes, opened)
        return await _label(options, judge, [], episodes, opened, lanes)


async def _measure(
    options: argparse.Namespace,
    judge: Judge,
    models: list[Model],
    episodes: list[Episode],
    opened: RunFolder,
) -> dict[str, Any]:
    try:
        model = models[0].name if models else ""
        return await _measured(options, judge, model, episodes, opened)
    finally:
        for one in models:
            await one.close()


async def _measured(
    options: argparse.Namespace,
    judge: Judge,
    model: str,
    episodes: list[Episode],
    opened: RunFolder,
) -> dict[str, Any]:
    """Measure a judge behind which is that model, or none, and store what was found."""
    from palaestra.evaluation.judges import stored_verdicts
    from palaestra.evaluation.judges.calibration import PROBES, calibrate, solved

    probes = [probe for probe in PROBES if probe not in options.without]
    truth = _truth(options.truth, opened.path) if options.truth else solved
    found, _ = await calibrate(judge, episodes, model=model, probes=probes, truth=truth)
    stored_verdicts.store_calibration(opened.database, found)
    return {**found.as_json(), "few": found.agreement.few}


def _truth(name: str, path: Path) -> Truth:
    """Return the truth by people's labels of the run, from `label:NAME`."""
    from palaestra.store.notes import labelled, matches_label

    label, given = name.partition(":")[2], labelled(path)
    return lambda episode: matches_label(given.get(episode.key, {}), label)


async def _label(
    options: argparse.Namespace,
    judge: Judge,
    models: list[Model],
    episodes: list[Episode],
    opened: RunFolder,
    lanes: int = 1,
) -> dict[str, Any]:
    """Judge episodes, so many at once; verdicts are stored as they come."""
    from palaestra.api.evaluating import first_error
    from palaestra.evaluation.judges import stored_verdicts
    from palaestra.evaluation.judges.calibration import trusted
    from palaestra.evaluation.judges.case import case_of
    from palaestra.evaluation.judges.verdict import PASS, Cost

    known = _known(options, judge, opened)
    before = stored_verdicts.verdicts(opened.database, judge.name)
    fresh: dict[Key, Verdict] = {}
    given: dict[str, Any] = {}
    cost = Cost()

    async def label(left: Iterator[Episode]) -> None:
        for episode in left:
            await label_one(episode)

    async def label_one(episode: Episode) -> None:
        nonlocal cost
        old = before.get(str(episode.key))
        if old and old["identity"] == judge.identity and old["value"] is not None:
            given[str(episode.key)] = old
            return
        verdict = trusted(await judge.judge(case_of(episode)), known)
        fresh[episode.key] = verdict
        given[str(episode.key)] = verdict.as_json()
        cost += verdict.cost
        stored_verdicts.store_verdicts(opened.database, judge.name, {episode.key: verdict})

    left = iter(episodes)
    try:
        if lanes == 1:  # without a task, so that a second Ctrl-C ends it at once
            await label(left)
        else:
            async with asyncio.TaskGroup() as group:
                for _ in range(lanes):
                    group.create_task(label(left))
    except ExceptionGroup as group_error:
        raise first_error(group_error) from None
    finally:
        for one in models:
            await one.close()
    values = [verdict["value"] for verdict in given.values()]
    decided = [value for value in values if value is not None]
    return {
        "judge": judge.name,
        "identity": judge.identity,
        "episodes": len(values),
        "judged_now": len(fresh),
        "solved": sum(value >= PASS for value in decided),
        "no_verdict": len(values) - len(decided),
        "calibration": known["short"] if known else None,
        "seconds": cost.seconds,
        "verdicts": {str(episode.key): given[str(episode.key)] for episode in episodes},
    }


def _known(options: argparse.Namespace, judge: Judge, opened: RunFolder) -> dict[str, Any] | None:
    """Return the calibration of the judge's current version; None only with --unmeasured."""
    from palaestra.evaluation.judges import stored_verdicts
    from palaestra.store.run_folder import RunFolder, run_path

    where = options.measured or options.words[-1]
    if options.measured:
        with RunFolder.read(run_path(options.measured)) as measured:
            known = stored_verdicts.calibration(measured.database, judge.name)
    else:
        known = stored_verdicts.calibration(opened.database, judge.name)
    if known is not None and known["identity"] == judge.identity:
        return known
    if options.unmeasured or judge.name.startswith("label:"):  # people's labels are the truth
        return None
    why = "has never been measured" if known is None else "was measured before it changed"
    raise InputError(
        f"The judge '{judge.name}' {why} against the truth in '{where}'; run `palaestra judge "
        "calibrate RUN --judge …` first, name that run with --measured, or use --unmeasured."
    )
