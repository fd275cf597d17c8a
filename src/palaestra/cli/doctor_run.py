"""`palaestra doctor RUN`: whether a run is whole; if not, what is left of it becomes a new run."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from palaestra.store.examine import Examination
    from palaestra.store.salvage import Salvaged


def check(name: str, to: str | None, *, as_json: bool) -> int:
    """Check the run of that path or name, mend what can be, and say so; returns the exit code.

    Raises:
        InputError: there is nothing of a run, or `to` is taken.
        RunLocked: a process works on it.
    """
    from palaestra.store.damage import NAME
    from palaestra.store.examine import examine
    from palaestra.store.run import run_path
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
    """A folder beside the run that is not there yet."""
    to, number = run.with_name(f"{run.name}-salvaged"), 2
    while to.exists():
        to, number = run.with_name(f"{run.name}-salvaged-{number}"), number + 1
    return to


def _document(found: Examination, rebuilt: bool, saved: Salvaged | None) -> dict[str, Any]:
    told = asdict(saved) | {"run": str(saved.run)} if saved else None
    return {
        "run": str(found.run),
        "sound": found.sound,
        "faults": [*([found.about] if found.about else []), *found.database, *found.others],
        "rebuilt": ["run.json"] if rebuilt else [],
        "salvaged": told,
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
        say("run.json was written anew, from what the database says of itself.")
    if saved is not None:
        _render_saved(saved, say)
    elif found.database:
        say("There is no record to save anything from; start the run again.")
    elif found.others:
        say("The record is sound. A corrupt checkpoint is passed over when the run is resumed.")


def _render_saved(saved: Salvaged, say: Any) -> None:
    say(f"\nWhat can be read was saved into {saved.run}; the damaged run stays as it is.")
    for phase, episodes in saved.episodes.items():
        say(f"  {phase}: {episodes} finished episodes")
    if saved.unfinished:
        say(f"  {saved.unfinished} episodes that were under way")
    if saved.dropped:
        say(f"  {saved.dropped} more could be read only in part, and were left out")
    if saved.left:
        say(f"  left out, as they are damaged themselves: {', '.join(saved.left)}")
    if saved.recipe:
        say(f"Look at it with `palaestra show {saved.run}`; what is resumed goes on from it.")
    else:
        say(f"Its recipe is lost, so it can be looked at (`palaestra show {saved.run}`) only.")
