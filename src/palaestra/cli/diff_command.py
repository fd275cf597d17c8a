"""`palaestra diff`: compare two runs on the same tasks, with tests and intervals."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.cli.tables import table
from palaestra.core.errors import InputError, UnknownName

if TYPE_CHECKING:
    from rich.console import Console

    from palaestra.core.episode import Episode
    from palaestra.evaluation.reports.run_diff import Diff, Flip, Measured
    from palaestra.evaluation.statistics.intervals import Interval

EXAMPLE = "palaestra diff runs/eval-GoToLocal-1 runs/default-1:test/rl"
USUAL = ("test/rl", "test/imitation", "test/base")  # of a training run, the latest stage first
OF_CELLS = (
    "agent", "model", "roles", "seed", "split", "repeats", "turns", "max_tokens", "temperature",
    "reasoning_tokens", "seconds", "tokens", "context", "keep_thoughts",
)  # fmt: skip
LONGEST = 20  # flipped tasks of each kind, and settings, that the terminal shows
PERCENT = ("progress", "invalid_rate", "repetition_rate", "loop_rate")


@dataclass(frozen=True, slots=True)
class Side:
    """One of the compared runs."""

    name: str  # as the user gave the run, and the phase
    folder: Path
    phase: str
    episodes: list[Episode]
    evaluated: bool  # by `palaestra eval`: its settings are those of the compared cells
    settings: dict[str, Any]  # flat
    versions: dict[str, str]  # of its environments, where they were recorded


def configure(parser: argparse.ArgumentParser) -> None:
    explained = "a run's folder or name, or RUN:PHASE for one of its phases, e.g. test/base"
    parser.add_argument("first", metavar="RUN_A", help=explained)
    parser.add_argument("second", metavar="RUN_B", help="the same; differences are B minus A")
    parser.add_argument(
        "more", nargs="*", metavar="RUN_C",
        help="more runs to compare with A, with p-values corrected for multiple tests",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(options: argparse.Namespace) -> int:
    from palaestra.evaluation.reports.run_diff import diff
    from palaestra.evaluation.running.environment_versions import refuse_other_versions

    a, *others = map(read_side, (options.first, options.second, *options.more))
    if any((a.folder, a.phase) == (b.folder, b.phase) for b in others):
        raise InputError(f"{a.name} is compared with itself; name another run or RUN:PHASE.")
    refuse_other_versions([(side.name, side.versions) for side in (a, *others)])
    if options.more:
        return _several(a, others, options.json)
    b = others[0]
    found = diff(a.episodes, b.episodes, (a.name, b.name))
    changed = settings_that_differ(a, b)
    if options.json:
        sides = {
            letter: {"run": str(side.folder), "phase": side.phase, "episodes": len(side.episodes)}
            for letter, side in (("a", a), ("b", b))
        }
        print(json.dumps({**sides, "settings": changed, **asdict(found)}))
    else:
        from rich.console import Console

        _show(found, a, b, changed, Console(highlight=False))
    return 0


def _several(a: Side, others: Sequence[Side], as_json: bool) -> int:
    from palaestra.cli import multi_run_diff

    sides = [(side.name, side.episodes) for side in others]
    found = multi_run_diff.against((a.name, a.episodes), sides)
    if as_json:
        print(json.dumps(found))
    else:
        from rich.console import Console

        multi_run_diff.show(found, Console(highlight=False))
    return 0


def read_side(name: str) -> Side:
    """Read the episodes of RUN or RUN:PHASE; a phase includes the phases below it.

    Raises:
        InputError: no such run, or no phase is the obvious one.
        UnknownName: the run has no such phase.
    """
    from palaestra.evaluation.running.environment_versions import DOCUMENT
    from palaestra.store.run_folder import RunFolder
    from palaestra.training.renamed_keys import with_present_names

    folder, phase = _split(name)
    with RunFolder.read(folder) as opened:
        database = opened.database
        plan = database.get("plan")
        cells = plan.get("cells", []) if isinstance(plan, dict) else []
        players = {cell["phase"]: f"{cell['agent']} with {cell['model']}" for cell in cells}
        phase, chosen = choose_phases(database.phases(), phase, players, name)
        selected = [cell for cell in cells if cell["phase"] in chosen]
        recipe = with_present_names(database.get("recipe") or {})
        return Side(
            name=f"{name.removesuffix(f':{phase}')}:{phase}",
            folder=opened.path.resolve(),
            phase=phase,
            episodes=[episode for one in chosen for episode in database.episodes(one)],
            evaluated=bool(selected),
            settings=_of_cells(selected) if selected else _flat(recipe),
            versions=database.get(DOCUMENT) or {},
        )


def choose_phases(
    phases: Sequence[str], wanted: str | None, players: Mapping[str, str], name: str
) -> tuple[str, list[str]]:
    """Return the name of the selected episodes, and their phases.

    Args:
        phases: of the run.
        wanted: a phase, or a prefix of phases up to a slash; None for the phases by which the
            run is judged: its evaluation, else the last test of its training.
        players: agent and model of each phase of an evaluation.
        name: of the run, for errors.

    Raises:
        InputError: no phase is obvious, or the phases have several agents or models.
        UnknownName: no such phase.
    """
    if wanted is None:
        evaluated = any(phase.startswith("eval/") for phase in phases)
        tested = [phase for phase in USUAL if phase in phases]
        obvious = ["eval"] if evaluated else tested or phases
        if not tested and not evaluated and len(phases) != 1:
            known = f"it has {', '.join(phases)}" if phases else "no episode of it has finished"
            raise InputError(f"'{name}' is ambiguous: {known}; name a phase, as RUN:PHASE.")
        wanted = obvious[0]
    chosen = [phase for phase in phases if phase == wanted or phase.startswith(f"{wanted}/")]
    if not chosen:
        raise UnknownName("phase", wanted, phases)
    acting = sorted({players[phase] for phase in chosen if phase in players})
    if len(acting) > 1:
        raise InputError(
            f"{name} holds several: {', '.join(acting[:6])}; choose one by its phase, such as "
            f"RUN:{_before_environment(chosen[0])}."
        )
    return (chosen[0] if len(chosen) == 1 else wanted), chosen


def _before_environment(phase: str) -> str:
    """Return the part of an evaluation's phase that names split, agent and model."""
    return "/".join(phase.split("/")[:4])


def settings_that_differ(a: Side, b: Side) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ, by name.

    For an evaluation and a training run, compare only the settings that both have.
    """
    names = [*a.settings, *(name for name in b.settings if name not in a.settings)]
    if a.evaluated is not b.evaluated:
        names = [name for name in a.settings if name in b.settings]
    pairs = {name: (a.settings.get(name), b.settings.get(name)) for name in names}
    return {name: (x, y) for name, (x, y) in pairs.items() if x != y}


# ── details ──────────────────────────────────────────────────────────────────


def _split(name: str) -> tuple[Path, str | None]:
    """Split RUN or RUN:PHASE into folder and phase; a folder's name may hold a colon."""
    from palaestra.store.run_folder import default_root, is_run

    run, colon, phase = name.rpartition(":")
    readings: list[tuple[str, str | None]] = [(name, None)]
    if colon and run and phase:
        readings.append((run, phase))
    for folder, part in readings:
        for path in (Path(folder), default_root() / folder):
            if is_run(path):
                return path, part
    return Path(readings[-1][0]), readings[-1][1]  # opening it raises the error


def _of_cells(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the settings of an evaluation's cells, without None and empty values."""
    found: dict[str, Any] = {}
    for name in OF_CELLS:
        values = [value for cell in cells if (value := cell.get(name)) not in (None, {})]
        distinct = [value for i, value in enumerate(values) if value not in values[:i]]
        if distinct:
            found[name] = distinct[0] if len(distinct) == 1 else distinct
    return found


def _flat(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{name}.")
        elif prefix + name != "summary":
            found[prefix + name] = value
    return found


def _show(
    found: Diff, a: Side, b: Side, changed: dict[str, tuple[Any, Any]], console: Console
) -> None:
    console.print(f"A  {a.folder}:{a.phase}", markup=False, soft_wrap=True)
    console.print(f"B  {b.folder}:{b.phase}", markup=False, soft_wrap=True)
    left = [
        f"{count} only {whose}"
        for count, whose in zip(
            (*found.only, found.broken), ("in A", "in B", "broken"), strict=True
        )
        if count
    ]
    more = f"; left out: {', '.join(left)}" if left else ""
    console.print(
        f"{found.tasks} tasks of {', '.join(found.environments)} in common{more}",
        markup=False,
        soft_wrap=True,
    )
    if changed:
        settings = [[name, _short(x), _short(y)] for name, (x, y) in changed.items()]
        console.print(table(["setting", "A", "B"], settings[:LONGEST]))
        if len(settings) > LONGEST:
            console.print(f"  and {len(settings) - LONGEST} more settings (--json)", style="dim")
    rows = [
        ["success", *(_percent(of.mean) if of else "" for of in found.success)],
        ["  95 % interval", *(_bounds(of) for of in found.success)],
    ]
    rows[0] += _change(found.difference, 100, 1)
    for name, measured in found.measures.items():
        rows.append([name.replace("_", " "), *_measured(measured, name in PERCENT)])
    columns = ["", "A", "B", "B - A", "95 % interval"]
    console.print(table(columns, [[*row, "", ""][: len(columns)] for row in rows]))
    console.print(_verdict(found), markup=False, soft_wrap=True)
    how = "only" if found.mcnemar is not None else "more often"
    for whose, of in (("B", found.gained), ("A", found.lost)):
        if of:
            _show_flips(f"solved {how} by {whose}", of, a, b, console)
    if found.warning:
        console.print(f"Warning: {found.warning}", style="yellow", soft_wrap=True)


def _show_flips(title: str, of: Sequence[Flip], a: Side, b: Side, console: Console) -> None:
    more = f" and {len(of) - LONGEST} more (--json)" if len(of) > LONGEST else ""
    tasks = ", ".join(flip.task for flip in of[:LONGEST])
    console.print(f"{title} ({len(of)}): {tasks}{more}", markup=False, soft_wrap=True)
    for side, key in zip((a, b), of[0].episodes, strict=True):
        command = f"  palaestra show {side.folder} {key}"
        console.print(command, markup=False, soft_wrap=True, style="dim")


def _verdict(found: Diff) -> str:
    tests = [f"permutation p {_p(found.permutation)}"]
    if found.mcnemar is not None:
        tests.insert(0, f"exact McNemar p {_p(found.mcnemar)}")
    flipped = f"{len(found.gained)} gained, {len(found.lost)} lost, {found.same} the same"
    return (
        f"{flipped}; {', '.join(tests)}; detectable difference {100 * found.detectable:.1f} points"
    )


def _measured(measured: Measured, share: bool) -> list[str]:
    before, after = measured.means
    if share:
        return [_percent(before), _percent(after), *_change(measured.difference, 100, 1)]
    largest = max(abs(before), abs(after))
    places = 1 if largest >= 10 else 2 if largest >= 1 else 3
    means = [f"{before:.{places}f}", f"{after:.{places}f}"]
    return [*means, *_change(measured.difference, 1, places)]


def _change(change: Interval | None, scale: float, places: int) -> list[str]:
    if change is None:
        return ["", ""]
    bounds = (change.low, change.mean, change.high)
    low, mean, high = (f"{round(scale * x, places) + 0.0:+.{places}f}" for x in bounds)
    return [mean, f"{low} to {high}"]


def _bounds(rate: Interval | None) -> str:
    return "" if rate is None else f"{100 * rate.low:.1f} to {100 * rate.high:.1f}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _p(value: float) -> str:
    return "< 0.0001" if value < 0.0001 else f"= {value:.4f}"


def _short(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
