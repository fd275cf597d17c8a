"""A training run in its folder, from a recipe or from where it stopped."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.markup import escape

from palaestra.agents.registry import make_agent
from palaestra.api.naming import name_of_class
from palaestra.cluster.copies import copy_kind
from palaestra.cluster.driver import check_agent, worker_kind
from palaestra.cluster.engines import engine_kind
from palaestra.cluster.fleet import DEATHS, WINDOW
from palaestra.cluster.learner_process import learner_kind
from palaestra.cluster.on_ray import Elsewhere, OnRay, check_importable, connected
from palaestra.core.errors import InputError, RankLost, RecipeError
from palaestra.environments.registry import spec
from palaestra.evaluation.reports.report import Report
from palaestra.evaluation.running import environment_versions
from palaestra.learning.methods.component import name_of
from palaestra.models.registry import REVISIONS
from palaestra.runtime.concurrency import note, usual
from palaestra.runtime.progress import Reporter
from palaestra.store.run_folder import RunFolder
from palaestra.training.policy_building import prepare_policy
from palaestra.training.ranks import Team
from palaestra.training.recipe import Recipe, load, read_recorded
from palaestra.training.recipe_check import check_recipe
from palaestra.training.recipe_sections import ClusterPart
from palaestra.training.run import execute, write_report
from palaestra.training.stage_program import environments_recorded


def recipe_of(
    name: str,
    overrides: list[str],
    sections: Mapping[str, Any] | None = None,
    *,
    env: str | None = None,
    algorithm: str | None = None,
    seed: int | None = None,
) -> Recipe:
    """Return the recipe of that name (or TOML file) with its overrides, in this order.

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
        # turns and transfer belong to the environment that the recipe names
        short += [f'environment.id="{env}"', "environment.transfer=", "environment.turns="]
    if algorithm is not None:
        short.append(f'rl.algorithm="{algorithm}"')
    if seed is not None:
        short.append(f"seed={seed}")
    return with_usual_concurrency(load(name, [*overrides, *short], _by_name(sections or {})))


def with_usual_concurrency(recipe: Recipe) -> Recipe:
    """Return the recipe with the usual number of concurrent sessions, if it sets none."""
    if "concurrency" in recipe.model_fields_set:
        return recipe
    found = usual(recipe.environment.id, recipe.agent.chosen)
    return recipe.model_copy(update={"concurrency": found})


def _subject(recipe: Recipe) -> str:
    """Return who is trained on what; a recipe's summary may tell of what was overridden."""
    return f"training {recipe.model.name} on {recipe.environment.id}"


class Training:
    """A training run that is open: `begin` or `resume` one, and `execute` it within a `with`."""

    def __init__(
        self,
        recipe: Recipe,
        run: RunFolder,
        folder: Path,
        reporter: Reporter,
        elsewhere: Elsewhere | None,
    ) -> None:
        self.recipe, self.run, self.folder, self.reporter = recipe, run, folder, reporter
        self._elsewhere = elsewhere

    @classmethod
    @contextmanager
    def begin(
        cls,
        recipe: Recipe,
        folder: Path,
        *,
        reporter: Reporter,
        about: Callable[[Recipe], str] | None = None,
        on: str | None = None,
    ) -> Iterator[Training]:
        """Create a run.

        Args:
            recipe: of the run.
            folder: of the run; must not hold one yet.
            reporter: receives progress.
            about: returns the expected duration as text.
            on: the cluster whose machines run the sessions, as after `--on`; None: this process.

        Raises:
            InputError: the recipe is invalid, its model cannot be had or used, or the folder holds
                a run.
        """
        check_recipe(recipe)
        where = place_of(recipe, on)
        revisions = prepare_policy(recipe, reporter.say)
        length = f" ({about(recipe)})" if about else ""
        settings = recipe.model_dump(mode="json")
        versions = {id: spec(id).version for id in environments_recorded(recipe)}
        documents = {REVISIONS: revisions, environment_versions.DOCUMENT: versions}
        with (
            connected(where) as elsewhere,
            RunFolder.create(
                folder, settings, documents=documents, durability=recipe.durability
            ) as run,
        ):
            reporter.say(f"[bold]{folder}[/bold]: {_subject(recipe)}{length}")
            yield cls(recipe, run, folder, reporter, elsewhere)

    @classmethod
    @contextmanager
    def resume(
        cls,
        folder: Path,
        *,
        reporter: Reporter,
        on: str | None = None,
        take_over: bool = False,
    ) -> Iterator[Training]:
        """Open a run that stopped, with its recorded recipe.

        Args:
            folder: of the run.
            reporter: receives progress.
            on: see `begin`; the run may have begun elsewhere.
            take_over: whether to take it from a process that is frozen or cannot be reached.

        Raises:
            InputError: the run does not exist, or is no training run.
        """
        with RunFolder.open(folder, take_over=take_over) as run:
            stored = run.database.get("recipe")
            if not isinstance(stored, dict) or "rl" not in stored:
                raise InputError(
                    f"'{run.path}' is not a training run; `palaestra show` shows what it is."
                )
            with run.explaining_versions():
                recipe = read_recorded(stored)
            reporter.say(f"resuming [bold]{folder}[/bold]: {_subject(recipe)}")
            if version_note := run.note_version():
                reporter.say(version_note)
            if recipe.cluster is not None and on is None:
                reporter.say("this process runs the sessions; --on ray uses the recipe's [cluster]")
                recipe = recipe.model_copy(update={"cluster": None})
            with connected(place_of(recipe, on)) as elsewhere:
                yield cls(recipe, run, folder, reporter, elsewhere)

    async def execute(self, team: Team | None = None) -> Report:
        """Do the remaining work and return the report, which is also in the run's folder.

        If cancelled, write the report of the results so far.

        Args:
            team: processes that learn together; None: this one learns alone.

        Raises:
            PalaestraError: the work could not go on; finished work is kept.
        """
        recipe = self.recipe
        concurrency_note = note(
            recipe.environment.id, recipe.concurrency, "--set concurrency=", recipe.agent.chosen
        )
        if concurrency_note is not None:
            self.reporter.say(concurrency_note)
        try:
            if self._elsewhere is None:
                return await execute(recipe, self.run, self.reporter, team)
            return await self._execute_on(self._elsewhere)
        except asyncio.CancelledError:
            self.run.database.check_present()
            write_report(self.run)
            raise

    async def _execute_on(self, elsewhere: Elsewhere) -> Report:
        """Do the work on a cluster; begin again where a rank's part of the state is lost with it.

        Raises:
            RankLost: five times within five minutes.
        """
        part, say, lost = self.recipe.environment, self.reporter.say, list[float]()
        while True:
            try:
                async with elsewhere(part.workers, part.timeout, say, self.run.database) as started:
                    return await execute(
                        self.recipe,
                        self.run,
                        self.reporter,
                        started.team,
                        elsewhere=started.workers.session,
                        engines=started.engines,
                    )
            except RankLost as error:
                now = time.monotonic()
                lost = [*(at for at in lost if at > now - WINDOW), now]
                if self.recipe.sharing == 1 or len(lost) == DEATHS or _cancelled():
                    raise
                say(f"{escape(str(error))}; the run goes on from its last checkpoint")


def _cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def place_of(recipe: Recipe, on: str | None) -> OnRay | None:
    """Return where the sessions of a recipe run; None: in this process.

    Raises:
        InputError: `on` or the recipe's [cluster] is invalid, or has no effect.
    """
    if on is None:
        if recipe.cluster is not None:
            raise RecipeError(
                "The recipe key 'cluster' has no effect without --on ray; add it, or unset the "
                "section with --set cluster="
            )
        return None
    check_agent(make_agent(recipe.agent.chosen))
    check_importable([recipe.agent.chosen, recipe.environment.id, recipe.environment.transfer])
    found, part = OnRay.parse(on), recipe.cluster or ClusterPart()
    engines = learners = None
    if part.engines is not None:
        engines = engine_kind(
            part.engines,
            part.engine_cpus or 1.0,
            part.engine_gpus or 0.0,
            part.engine or "resident",
        )
    if part.learners > 1:
        learners = learner_kind(
            part.learners - 1,
            part.learner_cpus or 1.0,
            part.learner_gpus or 0.0,
            shard=part.shard,
        )
    return replace(
        found,
        workers=worker_kind(*part.workers, part.worker_cpus),
        engines=engines,
        learners=learners,
        copies=copy_kind(part.copies - 1) if part.copies > 1 else None,
    )


def _by_name(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with names in place of classes and functions."""
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
