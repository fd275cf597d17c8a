"""Evaluations in a run folder: `evaluate`, `aevaluate` and `palaestra eval`.

The plan of an evaluation is fixed when the run begins. Every episode is stored as soon as it ends,
so a run that stops, by Ctrl-C or otherwise, can be resumed and runs no episode twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from palaestra.agents.registry import make_agent
from palaestra.api import evaluation_request, registering
from palaestra.api.evaluation_request import Effort, Environments, Evaluating, Naming
from palaestra.api.naming import several
from palaestra.api.policy import Policy
from palaestra.api.reporting import reporter
from palaestra.api.result_document import result_of, settings_of, title_of
from palaestra.api.results import Results
from palaestra.api.waiting import wait
from palaestra.cluster.driver import CALL_SECONDS, check_agent
from palaestra.cluster.on_ray import Elsewhere as StartWorkers
from palaestra.cluster.on_ray import OnRay, check_importable, connected
from palaestra.core.agent import Agent
from palaestra.core.episode import Episode
from palaestra.core.errors import InputError, PalaestraError
from palaestra.core.model import Model
from palaestra.environments.registry import spec
from palaestra.evaluation.reports.cell_samples import summary, totals
from palaestra.evaluation.running import desired_state, environment_versions
from palaestra.evaluation.running.evaluation_plan import DOCUMENT, Cell, Plan, as_json, from_json
from palaestra.evaluation.running.evaluation_run import Done
from palaestra.evaluation.running.evaluation_run import evaluate as run_plan
from palaestra.evaluation.running.matrix import MatrixRequest, plan
from palaestra.evaluation.statistics.intervals import task_scores
from palaestra.evaluation.statistics.player_results import has_success
from palaestra.evaluation.statistics.power import foresight
from palaestra.models.registry import (
    REGISTERED,
    REVISIONS,
    RUNS_BY,
    check_context,
    checkpoint,
    is_local,
    load_model,
    prepare_models,
)
from palaestra.runtime.concurrency import usual
from palaestra.runtime.machine import as_document
from palaestra.runtime.progress import Reporter
from palaestra.store.run_folder import RunFolder, default_root, new_run_path
from palaestra.store.schema import Durability

if TYPE_CHECKING:
    from palaestra.gateway.registration_desk import Desk
    from palaestra.models.local.bases import LoadedBases


def evaluate(env: Environments | None = None, **options: Unpack[Evaluating]) -> Results:
    """Evaluate agents and models on held-out tasks of environments.

    Args:
        env: an id of `palaestra list`, a class of your own, or several; None with `suite`.
        **options: see `palaestra.api.evaluation_request.Evaluating`; `model` must be given.

    Raises:
        InputError: an option is invalid; nothing was started.
        TooManyFaults, WorkersUnavailable: the work could not go on; finished episodes are kept.
        KeyboardInterrupt: Ctrl-C; finished episodes are kept, and the run can be resumed.
    """
    return wait(lambda: aevaluate(env, **options))


async def aevaluate(env: Environments | None = None, **options: Unpack[Evaluating]) -> Results:
    """Evaluate like `evaluate`, to be awaited."""
    given = evaluation_request.given_options(options)
    models = several(given.get("model", ""))
    with Evaluation.begin(
        evaluation_request.asked(env, given),
        evaluation_request.effort(env, given),
        given.get("run"),
        reporter=reporter(given.get("progress", True)),
        policies={one.name: one for one in models if isinstance(one, Policy)},
    ) as evaluation:
        return await finished(evaluation)


async def finished(evaluation: Evaluation) -> Results:
    """Run an evaluation and return its results; if it stops early, report how to resume it."""
    resume = f'resume it with: pa.Run("{evaluation.folder}").resume()'
    try:
        result = await evaluation.execute()
    except asyncio.CancelledError:
        evaluation.reporter.say(f"stopped; finished episodes are kept, {resume}")
        raise
    if evaluation.done.stopped is not None:
        evaluation.reporter.say(f"stopped because {evaluation.done.stopped}; {resume}")
    return Results(result, evaluation.run.path)


class Evaluation:
    """An evaluation with its run open: `begin` or `resume` it, then `execute` it in the `with`."""

    def __init__(
        self,
        made: Plan,
        run: RunFolder,
        folder: Path,
        reporter: Reporter,
        effort: Effort,
        policies: Mapping[str, Policy],
        elsewhere: StartWorkers | None,
    ) -> None:
        self.plan, self.run, self.folder, self.reporter = made, run, folder, reporter
        self.done = Done()
        self._effort, self._policies, self._elsewhere = effort, policies, elsewhere
        self._summaries: dict[str, dict[str, Any]] = {}  # of cells, by phase
        self._scores: dict[str, dict[int, float]] = {}  # of their tasks, by phase
        self._desk: Desk | None = None  # where processes register, if any replies

    @classmethod
    @contextmanager
    def begin(
        cls,
        asked: MatrixRequest,
        effort: Effort,
        folder: str | Path | None = None,
        *,
        reporter: Reporter,
        durability: Durability = Durability.NORMAL,
        policies: Mapping[str, Policy] | None = None,
        name: Naming = str,
    ) -> Iterator[Evaluation]:
        """Create a run that holds the plan of an evaluation.

        Args:
            asked: what to evaluate.
            effort: concurrency, workers and budgets.
            folder: of the run; None chooses one in the folder of runs.
            reporter: receives progress.
            durability: of the record.
            policies: models that are loaded already, by the names in `asked`.
            name: how errors spell options.

        Raises:
            InputError: an option is invalid, a model cannot be had or used, or the folder holds a
                run.
        """
        made, notes = plan(asked)
        effort.check(made, name)
        where = place_of(made, effort)
        path = Path(folder) if folder else new_folder(asked)
        given = policies or {}
        revisions = prepare_models(sorted(made.models - given.keys()), reporter.say)
        made, notes = plan(asked)  # a model that was downloaded may turn out to read text only
        check_local(asked, made.models, given, reporter, name)
        versions = {cell.environment: spec(cell.environment).version for cell in made.cells}
        documents = {DOCUMENT: as_json(made), "machine": as_document(), REVISIONS: revisions}
        documents[environment_versions.DOCUMENT] = versions
        with (
            connected(where) as elsewhere,
            RunFolder.create(
                path, settings_of(made), documents=documents, durability=durability
            ) as run,
        ):
            reporter.say(f"[bold]{path}[/bold]: {title_of(made)}")
            one_success = any(has_success(cell.environment) for cell in made.cells)
            for note in (*notes, *([foresight(made.tasks)] if one_success else [])):
                reporter.say(note)
            yield cls(made, run, path, reporter, effort, given, elsewhere)

    @classmethod
    @contextmanager
    def resume(
        cls,
        folder: Path,
        effort: Effort,
        *,
        reporter: Reporter,
        name: Naming = str,
        take_over: bool = False,
    ) -> Iterator[Evaluation]:
        """Open a run that stopped; episodes that infrastructure broke will run again.

        With `take_over`, take it from a process that is frozen or cannot be reached.

        Raises:
            InputError: the run does not exist, or is no evaluation.
        """
        with RunFolder.open(folder, take_over=take_over) as run:
            with run.explaining_versions():
                made = from_json(run.database.get(DOCUMENT), folder)
            effort.check(made, name)
            if effort.concurrency:  # it is newer than the desired state from outside
                desired_state.change(folder, concurrency=None)
            reporter.say(f"resuming [bold]{folder}[/bold]: {title_of(made)}")
            if version_note := run.note_version():
                reporter.say(version_note)
            with connected(place_of(made, effort)) as elsewhere:
                yield cls(made, run, folder, reporter, effort, {}, elsewhere)

    async def execute(self) -> dict[str, Any]:
        """Run the remaining episodes, and store and return the result.

        Raises:
            PalaestraError: the work could not go on; finished episodes are kept.
        """
        effort, started = self._effort, None
        try:
            async with AsyncExitStack() as held:
                if self._elsewhere is not None:
                    start = self._elsewhere(
                        effort.workers, CALL_SECONDS, self.reporter.say, self.run.database
                    )
                    started = await held.enter_async_context(start)
                if REGISTERED in self.plan.models:
                    opened = registering.opened(self.plan, effort.registration)
                    self._desk = await held.enter_async_context(opened)
                self.done = await run_plan(
                    self.plan,
                    self.run,
                    self.reporter,
                    load=self._load,
                    concurrency=effort.concurrency,
                    budget=effort.allowance,
                    on_cell=self._summarize,
                    workers=effort.workers,
                    elsewhere=None if started is None else started.workers.session,
                )
        except ExceptionGroup as group:
            raise first_error(group) from None
        found, folder = self._summaries, str(self.folder)
        result = result_of(self.plan, self.done, found, folder, self._scores)
        database = self.run.database
        database.put("evaluation", result)
        database.put("totals", {**(database.get("totals") or {}), **totals([result])})
        return result

    @cached_property
    def _bases(self) -> LoadedBases:
        from palaestra.models.local.bases import LoadedBases  # and torch

        return LoadedBases()

    def _load(self, name: str, agent: Agent) -> Model:
        if name in self._policies:
            return self._policies[name].model
        if self._desk is not None and name == REGISTERED:
            from palaestra.gateway.registered_model import RegisteredModel

            return RegisteredModel(self._desk, agent)
        given = self._effort.concurrency.get(name) or self._effort.concurrency.get("")
        most = given or max(usual(cell.environment, cell.agent) for cell in self.plan.cells)
        slots = min(most, self.plan.episodes) + 2
        recorded = self.run.database.get(REVISIONS) or {}  # runs of older versions have none
        model = load_model(
            name,
            agent,
            slots=slots,
            context=self.plan.cells[0].context,  # of all cells
            keep_thoughts=self.plan.cells[0].keep_thoughts,
            progress=self.reporter.say,
            revision=recorded.get(name),
            bases=self._bases if is_local(name) else None,
        )
        if is_local(name):
            from palaestra.models.local.bases import runs_by

            known = self.run.database.get(RUNS_BY) or {}
            self.run.database.put(RUNS_BY, {**known, name: runs_by(model)})
        return model

    def _summarize(self, cell: Cell, episodes: list[Episode]) -> None:
        self._summaries[cell.phase] = summary(episodes, self.plan.prices)
        self._scores[cell.phase] = task_scores(episodes)


def check_local(
    asked: MatrixRequest,
    models: Iterable[str],
    loaded: Iterable[str],
    reporter: Reporter,
    name: Naming,
) -> None:
    """Check the options that only models loaded here have."""
    options = ("context", asked.context is not None), ("keep_thoughts", asked.keep_thoughts)
    for option in (option for option, given in options if given):
        if not any(is_local(model) for model in models):
            raise InputError(
                f"{name(option)} has no effect: none of the models runs in this process; drop it."
            )
        if set(models) & set(loaded):
            raise InputError(
                f"{name(option)} does not change a policy that is loaded already; give its name "
                "or folder as the model instead."
            )
    if asked.context is not None:
        for model in filter(is_local, sorted(models)):
            folder = checkpoint(model, reporter.say).folder
            check_context(model, folder, asked.context, name("context"))


def place_of(made: Plan, effort: Effort) -> OnRay | None:
    """Return where the sessions run; None: in this process. Raises InputError if they cannot."""
    if effort.on is None:
        return None
    for name in sorted({cell.agent for cell in made.cells}):
        check_agent(make_agent(name))
    check_importable(name for cell in made.cells for name in (cell.agent, cell.environment))
    return OnRay.parse(effort.on)


def new_folder(asked: MatrixRequest) -> Path:
    """Return a path in the folder of runs that is free for this evaluation."""
    environment = asked.entries[0].environment
    name, asks, knobs = (environment.partition("/")[2] or environment).partition("?")
    short = f"{name.rpartition(':')[2]}{asks}{knobs}"
    title = asked.suite.name if asked.suite is not None else short
    return new_run_path(default_root(), f"eval-{title}")


def first_error(group: ExceptionGroup[Any]) -> Exception:
    """Return palaestra's error in a group (the cause of the others), or else the group."""
    for error in group.exceptions:
        inner = first_error(error) if isinstance(error, ExceptionGroup) else error
        if isinstance(inner, PalaestraError):
            return inner
    return group
