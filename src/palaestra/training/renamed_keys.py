"""Recipe keys of older versions, and their present names.

Recipes use the present names; an old key is refused with one sentence that names the present one.
A recipe that an older version recorded in a run is read under the present names, so that the run
can still be resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palaestra.core.errors import RecipeError

RENAMED = {
    "environment.unparsed": "environment.max_invalid_actions",
    "imitation.speaker": "imitation.demonstrator",
    "rl.enough": "rl.quorum",
    "rl.minutes": "minutes",
    "rl.replay": "rl.success_replay",
    "rl.world_reward": "rl.environment_reward",
}
"""Old key to present key, of the same table or of none."""


def refuse_renamed(recipe: Mapping[str, Any]) -> None:
    """Raise RecipeError for the first old key of a recipe."""
    for table, section in recipe.items():
        for key in section if isinstance(section, Mapping) else ():
            refuse_renamed_key(f"{table}.{key}")


def refuse_renamed_key(key: str) -> None:
    """Raise RecipeError if a dotted key is an old one."""
    if key in RENAMED:
        raise RecipeError(f"The recipe key '{key}' was renamed; use '{RENAMED[key]}'.")


def with_present_names(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recorded recipe with the present names in place of old ones."""
    found: dict[str, Any] = {}
    for name, section in recorded.items():
        if not isinstance(section, Mapping):
            found[name] = section
            continue
        found[name] = {}
        for key, value in section.items():
            old = f"{name}.{key}"
            table, _, present = RENAMED.get(old, old).rpartition(".")
            (found[table] if table else found)[present] = value
    return found
