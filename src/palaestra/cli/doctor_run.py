"""`palaestra doctor RUN`: check a run, and salvage a damaged one into a new run."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from palaestra.store.examine import Examination
    from palaestra.store.salvage import Salvaged


def migrate(name: str) -> int:
    """Convert the run of that path or name to the current format; return the exit code.

    Raises:
        InputError: no such run, or its format is neither the current nor the previous one.
        RunLocked: a process works on it.
    """
    from palaestra.store.run_folder import RunFolder, run_path
    from palaestra.store.schema import FORMAT

    with RunFolder.open(run_path(name)) as opened:
        before = opened.record.format
        path = opened.path
    done = (
        f"is of format {FORMAT} already"
        if before == str(FORMAT)
        else (f"was of format {before}, and is of format {FORMAT} now")
    )
    print(f"{path} {done}.")
    return 0


def check(name: str, to: str | None, *, as_json: bool) -> int:
    """Check the run of that path or name, repair or salvage it, and return the exit code.

    Raises:
        InputError: no such run, or `to` exists.
        RunLocked: a process works on it.
    """
    from palaestra.store.damage import NAME
    from palaestra.store.examine import examine
    from palaestra.store.run_folder import run_path
    from palaestra.store.salvage import rebuild_about, salvage

    found = examine(run_path(name))
    saved: Salvaged | None = None
    rebuilt = bool(found.about) and not found.database
    if rebuilt:
        rebuild_about(found.run)
    elif found.database and (found.run / NAME).is_file():
        saved = salvage(found.run, Path(to) if to else _free(found.run))
    if as_json:
        print(json.dumps(_document(found, rebuilt, saved)))
    else:
        _render(found, rebuilt, saved)
    return 1 if found.database or found.others else 0


def _free(run: Path) -> Path:
    """Return a new folder name beside the run."""
    to, number = run.with_name(f"{run.name}-salvaged"), 2
    while to.exists():
        to, number = run.with_name(f"{run.name}-salvaged-{number}"), number + 1
    return to


def _document(found: Examination, rebuilt: bool, saved: Salvaged | None) -> dict[str, Any]:
    salvaged = asdict(saved) | {"run": str(saved.run)} if saved else None
    return {
        "run": str(found.run),
        "sound": found.sound,
        "faults": [*([found.about] if found.about else []), *found.database, *found.others],
        "rebuilt": ["run.json"] if rebuilt else [],
        "salvaged": salvaged,
    }


def _render(found: Examination, rebuilt: bool, saved: Salvaged | None) -> None:
    from rich.console import Console

    console = Console(highlight=False)

    def say(text: str) -> None:
        console.print(text, markup=False, soft_wrap=True)

    if found.sound:
        say(f"{found.run} is sound: {found.episodes} finished episodes, every record readable.")
        return
    say(f"{found.run} is damaged:")
    for fault in (found.about, *found.database, *found.others):
        if fault:
            say(f"  {fault}")
    if rebuilt:
        say("run.json was rebuilt from the database.")
    if saved is not None:
        _render_saved(saved, say)
    elif found.database:
        say("No record is left to salvage; start the run again.")
    elif found.others:
        say("The record is sound. A corrupt checkpoint is skipped when the run is resumed.")


def _render_saved(saved: Salvaged, say: Any) -> None:
    say(f"\nReadable data was saved into {saved.run}; the damaged run is unchanged.")
    for phase, episodes in saved.episodes.items():
        say(f"  {phase}: {episodes} finished episodes")
    if saved.unfinished:
        say(f"  {saved.unfinished} unfinished episodes")
    if saved.dropped:
        say(f"  {saved.dropped} more could be read only in part, and were left out")
    if saved.left:
        say(f"  left out because damaged: {', '.join(saved.left)}")
    if saved.recipe:
        say(f"Look at it with `palaestra show {saved.run}`, or resume it.")
    else:
        say(f"Its recipe is lost: it cannot be resumed, only shown (`palaestra show {saved.run}`).")
