"""`palaestra train --dry-run`: the resolved recipe, and an estimate of its resources."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from palaestra.cli.resources import estimate, models_beside, of_learners
from palaestra.cli.stage_plan import graph
from palaestra.training.recipe import Recipe
from palaestra.training.toml_text import is_set, toml_value


def describe(recipe: Recipe, folder: str, as_json: bool, on: str | None = None) -> int:
    """Print the estimate and the recipe as TOML, or both as JSON; return the exit code.

    Args:
        recipe: of the run.
        folder: of the run.
        as_json: print one JSON object.
        on: the cluster whose machines would run the sessions, as after `--on`.

    Raises:
        InputError: a name or a size in the recipe is invalid.
    """
    from palaestra.api.train_run import place_of
    from palaestra.runtime.concurrency import note
    from palaestra.training.recipe_check import check_recipe
    from palaestra.training.role_adapters import described, learning

    check_recipe(recipe)
    where = place_of(recipe, on)
    placed = [] if where is None else where.plan()
    found = estimate(recipe)
    if as_json:
        document = {
            "recipe": recipe.model_dump(mode="json"),
            "parameters": found.size.parameters,
            "trained_parameters": found.size.trained,
            "runs_by": found.size.way,
            "memory_bytes": _with_total(asdict(found.memory)),
            "learners": of_learners(recipe),
            "seconds": _with_total(found.seconds),
            "disk_bytes": _with_total(found.disk),
            "learns": list(learning(recipe)),
            "note": found.size.note,
            "placed": placed,
            "stages": graph(recipe) if recipe.stage else [],
        }
        print(json.dumps(document))
        return 0
    times = ", ".join(f"{name} {value / 60:.1f}" for name, value in found.seconds.items())
    print(f"# time: {found.minutes} ({times})")
    parts = ", ".join(f"{name} {value / 1e9:.2f}" for name, value in asdict(found.memory).items())
    print(f"# memory: about {found.memory.total / 1e9:.1f} GB ({parts})")
    written = ", ".join(f"{name} {value / 1e9:.2f}" for name, value in found.disk.items())
    print(f"# writes: about {sum(found.disk.values()) / 1e9:.2f} GB to {folder} ({written})")
    print("# A rough estimate, from speeds measured elsewhere and this machine's matrix products.")
    size = found.size
    millions = f"{size.parameters / 1e6:.1f} million parameters, {size.trained / 1e6:.1f} trained"
    print(f"# {millions}; runs by: {size.way}")
    concurrency_note = note(
        recipe.environment.id, recipe.concurrency, "--set concurrency=", recipe.agent.chosen
    )
    models = ", ".join(model.name for model in models_beside(recipe, size)[1])
    beside = f"beside the policy: {models}" if models else ""
    stages = graph(recipe) if recipe.stage else []
    learners = of_learners(recipe)
    notes = (beside, size.note, concurrency_note, learners)
    for line in (*described(recipe), *notes, *placed, *stages):
        if line:
            print(f"# {line}")
    print()
    print(toml(recipe), end="")
    return 0


def _with_total(parts: dict[str, float]) -> dict[str, float]:
    return parts | {"total": sum(parts.values())}


def toml(recipe: Recipe) -> str:
    """Return the recipe with every key as TOML; unset keys are comments."""
    data = recipe.model_dump(mode="json")
    stages = data.pop("stage")
    lines = _table(
        {k: v for k, v in data.items() if not stages or k not in ("imitation", "rl")}, ""
    )
    for stage in stages:
        lines += ["\n[[stage]]", *(f"{k} = {toml_value(v)}" for k, v in stage.items() if is_set(v))]
    return "\n".join(lines).strip() + "\n"


def _table(data: dict[str, Any], name: str) -> list[str]:
    """Return the lines of a table: its own keys first, then nested tables."""
    lines = [f"\n[{name}]"] if name else []
    for key, value in data.items():
        if not isinstance(value, dict):
            lines.append(f"# {key} is not set" if value is None else f"{key} = {toml_value(value)}")
    for key, value in data.items():
        if isinstance(value, dict):
            lines += _table(value, f"{name}.{key}" if name else key)
    return lines
