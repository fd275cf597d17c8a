"""What `palaestra judge` prints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def show_judges(path: Path, as_json: bool) -> int:
    """Print the judges that have judged in a run; return the exit code."""
    from palaestra.evaluation.judges import stored_verdicts
    from palaestra.store.run_folder import RunFolder

    with RunFolder.read(path) as opened:
        found: dict[str, dict[str, Any]] = {
            name: {
                "verdicts": len(stored_verdicts.verdicts(opened.database, name)),
                "calibration": (stored_verdicts.calibration(opened.database, name) or {}).get(
                    "short"
                ),
            }
            for name in stored_verdicts.judges(opened.database)
        }
    if as_json:
        print(json.dumps(found))
        return 0
    for name, row in found.items():
        print(f"{name}: {row['verdicts']} verdicts; {_trust(row['calibration'])}")
    if not found:
        print("No judge has judged in this run; name one with --judge.")
    return 0


def show_calibration(result: dict[str, Any]) -> None:
    """Print how well a judge agrees with the truth."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from palaestra.api.judging import calibration_rows

    table = Table(box=box.SIMPLE, show_header=False, title=result["judge"], title_justify="left")
    for row in calibration_rows(result):
        table.add_row(*row)
    console = Console()
    console.print(table)
    if result["few"]:
        console.print("Few solved or few unsolved cases: the measurement is uncertain.")


def show_labels(result: dict[str, Any]) -> None:
    """Print how a judge labelled episodes."""
    decided = result["episodes"] - result["no_verdict"]
    print(
        f"{result['judge']}: {result['solved']} of {decided} judged solved, "
        f"{result['no_verdict']} without a verdict; {result['judged_now']} judged now in "
        f"{result['seconds']:.1f} s"
    )
    print(_trust(result["calibration"]))


def _trust(short: dict[str, Any] | None) -> str:
    if short is None:
        return "never measured against the truth; measure it with `palaestra judge calibrate`"
    return (
        f"measured on {short['cases']} cases: accuracy {_triple(short['accuracy'])}, "
        f"kappa {_triple(short['kappa'])}"
    )


def _triple(found: Sequence[float] | None) -> str:
    if found is None:
        return "none"
    return f"{found[0]:.2f} ({found[1]:.2f} to {found[2]:.2f})"
