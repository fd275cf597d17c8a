"""A training run in its folder, from a recipe or from where it stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from palaestra.api.naming import name_of_class
from palaestra.core.errors import InputError
from palaestra.evaluation.report import Report
from palaestra.experiment.check import check_recipe
from palaestra.experiment.crowd import fitted, note
from palaestra.experiment.progress import Reporter
from palaestra.experiment.recipe import Recipe, check, load
from palaestra.experiment.run import execute, write_report
from palaestra.learning.component import name_of
from palaestra.store.run import RunFolder


def recipe_of(
    name: str,
    overrides: list[str],
    sections: Mapping[str, Any] | None = None,
    *,
    env: str | None = None,
    algorithm: str | None = None,
    seed: int | None = None,
) -> Recipe:
    """The recipe of that name (or TOML file) with its overrides, in this order.

    Args:
        name: of the recipe.
        overrides: `key=value`, as on the command line.
        sections: values by key, tables as mappings; a class or function stands for its name.
        env: the environment to learn in.
        algorithm: one of `palaestra list algorithms`.
        seed: of the whole run.

    Raises:
        UnknownName: no recipe or key of that name.
        RecipeError: a value that does not fit.
    """
    short = []
    if env is not None:
        # a level to carry over to belongs to the environment that the recipe names
        short += [f'environment.id="{env}"', "environment.transfer=", "environment.turns="]
    if algorithm is not None:
        short.append(f'rl.algorithm="{algorithm}"')
    if seed is not None:
        short.append(f"seed={seed}")
    return fitted(load(name, [*overrides, *short], _by_name(sections or {})))


class Training:
    """A training run that is open: `begin` or `resume` one, and `live` it within a `with`."""

    def __init__(self, recipe: Recipe, run: RunFolder, folder: Path, reporter: Reporter) -> None:
        self.recipe, self.run, self.folder, self.reporter = recipe, run, folder, reporter

    @classmethod
    @contextmanager
    def begin(
        cls,
        recipe: Recipe,
        folder: Path,
        *,
        reporter: Reporter,
        about: Callable[[Recipe], str] | None = None,
    ) -> Iterator[Training]:
        """A new run.

        Args:
            recipe: what to do.
            folder: of the run; must hold none.
            reporter: where to say how it goes.
            about: says how long it will take.

        Raises:
            InputError: the recipe cannot work, or the folder holds a run.
        """
        check_recipe(recipe)
        length = f" ({about(recipe)})" if about else ""
        settings = recipe.model_dump(mode="json")
        with RunFolder.create(folder, settings, durability=recipe.durability) as run:
            reporter.say(f"[bold]{folder}[/bold]: {recipe.summary}{length}")
            yield cls(recipe, run, folder, reporter)

    @classmethod
    @contextmanager
    def resume(cls, folder: Path, *, reporter: Reporter) -> Iterator[Training]:
        """A run that stopped, with its own recipe.

        Raises:
            InputError: there is no run, or it is no training run.
        """
        with RunFolder.open(folder) as run:
            stored = run.database.get("recipe")
            if not isinstance(stored, dict) or "rl" not in stored:
                raise InputError(
                    f"'{run.path}' is not a training run; `palaestra show` shows what it is."
                )
            with run.telling_versions():
                recipe = check(stored)
            reporter.say(f"resuming [bold]{folder}[/bold]: {recipe.summary}")
            if of_another := run.note_version():
                reporter.say(of_another)
            yield cls(recipe, run, folder, reporter)

    async def live(self) -> Report:
        """Do what is left; returns the report, which also lies in the run's folder.

        Where it is cancelled, what there is so far is reported there all the same.

        Raises:
            PalaestraError: the work could not go on; what is done is kept.
        """
        recipe = self.recipe
        crowded = note(
            recipe.environment.id, recipe.concurrency, "--set concurrency=", recipe.agent.chosen
        )
        if crowded is not None:
            self.reporter.say(crowded)
        try:
            return await execute(recipe, self.run, self.reporter)
        except asyncio.CancelledError:
            self.run.database.check_present()
            write_report(self.run)
            raise


def _by_name(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values, with names in place of classes and functions."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found[key] = _by_name(value)
        elif isinstance(value, type):
            found[key] = name_of_class(value)
        elif isinstance(value, Path):
            found[key] = str(value)
        else:
            found[key] = name_of(value) if callable(value) else value
    return found
