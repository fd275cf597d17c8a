"""Recipe keys of older versions, and their present names.

Recipes use the present names; an old key is refused with one sentence that names the present one.
A recipe that an older version recorded in a run is read under the present names, so that the run
can still be resumed, with the same rewards bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from palaestra.core.errors import RecipeError

RENAMED = {
    "environment.unparsed": "environment.max_invalid_actions",
    "imitation.speaker": "imitation.demonstrator",
    "rl.enough": "rl.quorum",
    "rl.environment_reward": "rl.rewards.environment",
    "rl.invalid_cost": "rl.rewards.invalid",
    "rl.minutes": "minutes",
    "rl.overlong": "rl.rewards.overlong",
    "rl.progress_reward": "rl.rewards.progress",
    "rl.replay": "rl.success_replay",
    "rl.turn_cost": "rl.reward_options.outcome.turn_cost",
    "rl.world_reward": "rl.rewards.environment",
}
"""Old key to present key, of the same table or of none. A stage that reinforces has those of rl."""

HINTS = {
    "rl.invalid_cost": ", with the opposite sign",
    "rl.overlong": " for its factor, and rl.reward_options.overlong for limit and buffer",
}
"""What else changed."""


def refuse_renamed(recipe: Mapping[str, Any]) -> None:
    """Raise RecipeError for the first old key of a recipe."""
    for table, section in recipe.items():
        for key in section if isinstance(section, Mapping) else ():
            refuse_renamed_key(f"{table}.{key}")
    for stage in _reinforcing(recipe.get("stage")):
        for key in stage:
            if f"rl.{key}" in RENAMED:
                old = f"The key '{key}' of a stage that reinforces"
                raise RecipeError(f"{old} was renamed; use {_present(f'rl.{key}', within='rl.')}.")


def refuse_renamed_key(key: str) -> None:
    """Raise RecipeError if a dotted key, or the table that it is in, is an old one."""
    old = next((one for one in RENAMED if key == one or key.startswith(f"{one}.")), None)
    if old is not None:
        raise RecipeError(f"The recipe key '{old}' was renamed; use {_present(old)}.")


def with_present_names(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recorded recipe with the present names in place of old ones."""
    found: dict[str, Any] = {}
    for name, section in recorded.items():
        if name == "stage" and isinstance(section, Sequence):
            found[name] = [_stage(part) for part in section]
        elif isinstance(section, Mapping):
            found.setdefault(name, {})
            for key, value in section.items():
                for path, present in _moved(f"{name}.{key}", value):
                    _put(found, path.split("."), present)
        else:
            found[name] = section
    return found


# ── details ──────────────────────────────────────────────────────────────────


def _present(old: str, within: str = "") -> str:
    """Return the present name of an old key in words; `within` names the table that holds it."""
    words = f"'{RENAMED[old].removeprefix(within)}'{HINTS.get(old, '')}"
    return words.replace(" rl.", " ") if within else words


def _moved(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the present keys of a recorded one, with their values."""
    if key in ("rl.environment_reward", "rl.world_reward", "rl.progress_reward") and not value:
        return  # a term that was not used
    if key == "rl.overlong":
        if value is not None:
            yield RENAMED[key], value.get("factor", 1.0)
            for name in value.keys() & {"limit", "buffer"}:
                yield f"rl.reward_options.overlong.{name}", value[name]
        return
    if key == "rl.turn_cost":
        yield "rl.rewards.outcome", 1.0  # of which it is an option
    yield RENAMED.get(key, key), -value if key == "rl.invalid_cost" else value


def _stage(part: Any) -> Any:
    """Return a recorded stage with the present names of its keys."""
    if not isinstance(part, Mapping):
        return part
    if part.get("do") == "reinforce":
        return with_present_names({"rl": part})["rl"]
    inner = part.get("stages")
    return dict(part) if inner is None else {**part, "stages": [_stage(one) for one in inner]}


def _reinforcing(stages: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the tables of stages that reinforce, also within repeats."""
    for part in stages if isinstance(stages, Sequence) else ():
        if isinstance(part, Mapping):
            if part.get("do") == "reinforce":
                yield part
            yield from _reinforcing(part.get("stages"))


def _put(table: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for name in path[:-1]:
        table = table.setdefault(name, {})
    table[path[-1]] = value
