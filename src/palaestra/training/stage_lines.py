"""The stages of a recorded recipe as text: a line each, with the keys that were set.

A run records every key of its recipe. Here a stage has those that differ from their defaults, in
the form in which a recipe has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from palaestra.core.errors import InputError
from palaestra.training.toml_text import is_set, toml_value

if TYPE_CHECKING:
    from palaestra.training.stage_sources import StagePart

Row = Mapping[str, Any]


def stage_lines(recipe: Row) -> list[str]:
    """Return the lines of a recipe's stages; those of a repeat are indented below it.

    Args:
        recipe: as a run recorded it.
    """
    return list(_lines(_given(recipe), ""))


def besides_stages(recipe: Row) -> dict[str, Any]:
    """Return the recipe without its stages, and without the tables that they replace."""
    replaced = ("stage", "imitation", "rl") if recipe.get("stage") else ()
    return {key: one for key, one in recipe.items() if key not in replaced}


def _given(recipe: Row) -> Sequence[Row]:
    """Return the stages without defaults; with all keys where these are not known."""
    try:
        from palaestra.training.recipe import read_recorded  # needs torch

        stages = read_recorded(recipe).stage
    except InputError:  # a key or a value of another version
        return list(recipe["stage"])
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return list(recipe["stage"])
    return [_set_keys(stage) for stage in stages]


def _set_keys(stage: StagePart) -> dict[str, Any]:
    """Return the keys of a stage without defaults; a table that has only defaults is whole."""
    whole, found = (stage.model_dump(mode="json", exclude_defaults=on) for on in (False, True))
    found |= {key: whole[key] for key, value in found.items() if value == {}}
    inner = getattr(stage, "stages", ())
    return found | ({"stages": [_set_keys(one) for one in inner]} if inner else {})


def _lines(stages: Sequence[Row], indent: str) -> Iterator[str]:
    for stage in stages:
        does, name = stage["do"], stage.get("name")
        keys = {key: one for key, one in stage.items() if key not in ("do", "name", "stages")}
        given = ", ".join(f"{k} = {_value(k, v)}" for k, v in keys.items() if is_set(v))
        yield f"{indent}{f'{name} ({does})' if name else does}{'  ' if given else ''}{given}"
        yield from _lines(stage.get("stages") or (), indent + "  ")


def _value(key: str, value: Any) -> str:
    """Return a value as a recipe has it: one source without a list, and a stage by its name."""
    if key != "from":
        return toml_value(value)
    sources = [_source(one) for one in value]
    return toml_value(sources[0] if len(sources) == 1 else sources)


def _source(source: Any) -> Any:
    alone = isinstance(source, Mapping) and list(source) == ["stage"]
    return source["stage"] if alone else source
