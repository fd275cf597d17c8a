"""Evaluations in a run folder: `evaluate` and `aevaluate`, and what `palaestra eval` does.

What is evaluated is settled when the run begins. Every episode is kept as soon as it has ended,
so a run that stops, by Ctrl-C or otherwise, is gone on with and lives nothing twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Unpack

from palaestra.api import asking
from palaestra.api.asking import Effort, Environments, Evaluating, Naming
from palaestra.api.naming import several
from palaestra.api.policy import Policy
from palaestra.api.result import result_of, settings_of, title_of
from palaestra.api.results import Results
from palaestra.api.telling import reporter
from palaestra.api.waiting import wait
from palaestra.core.agent import Agent
from palaestra.core.episode import Episode
from palaestra.core.errors import PalaestraError
from palaestra.core.model import Model
from palaestra.evaluation.plan import DOCUMENT, Cell, Plan, as_json, from_json
from palaestra.evaluation.power import foresight
from palaestra.evaluation.samples import summary, totals
from palaestra.experiment import control
from palaestra.experiment.crowd import usual
from palaestra.experiment.evaluating import Done
from palaestra.experiment.evaluating import evaluate as live_plan
from palaestra.experiment.machine import as_document
from palaestra.experiment.matrix import CONTEXT, Asked, plan
from palaestra.experiment.progress import Reporter
from palaestra.models.registry import load_model
from palaestra.store.run import RunFolder, default_root, new_run_path
from palaestra.store.schema import Durability


def evaluate(env: Environments | None = None, **options: Unpack[Evaluating]) -> Results:
    """How agents and models do on environments' held-out tasks.

    Args:
        env: an id of `palaestra list`, a class of your own, or several; None with `suite`.
        **options: see `palaestra.api.asking.Evaluating`; `model` must be given.

    Raises:
        InputError: something that cannot be; nothing was started.
        TooManyFaults, WorkersUnavailable: the work could not go on; what is done is kept.
        KeyboardInterrupt: Ctrl-C came; what is done is kept, and the run can be resumed.
    """
    return wait(lambda: aevaluate(env, **options))


async def aevaluate(env: Environments | None = None, **options: Unpack[Evaluating]) -> Results:
    """`evaluate`, to be awaited."""
    given = asking.said(options)
    models = several(given.get("model", ""))
    with Evaluation.begin(
        asking.asked(env, given),
        asking.effort(env, given),
        given.get("run"),
        reporter=reporter(given.get("progress", True)),
        policies={one.name: one for one in models if isinstance(one, Policy)},
    ) as evaluation:
        return await finished(evaluation)


async def finished(evaluation: Evaluation) -> Results:
    """The results, once all is done; where it is stopped before, it is said how to go on."""
    go_on = f'go on with: pa.open_run("{evaluation.folder}").resume()'
    try:
        result = await evaluation.live()
    except asyncio.CancelledError:
        evaluation.reporter.say(f"stopped; finished episodes are kept, {go_on}")
        raise
    if evaluation.done.stopped is not None:
        evaluation.reporter.say(f"stopped because {evaluation.done.stopped}; {go_on}")
    return Results(result, evaluation.run.path)


class Evaluation:
    """An evaluation whose run is open: `begin` or `resume` one, and `live` it within a `with`."""

    def __init__(
        self,
        made: Plan,
        run: RunFolder,
        folder: Path,
        reporter: Reporter,
        effort: Effort,
        policies: Mapping[str, Policy],
    ) -> None:
        self.plan, self.run, self.folder, self.reporter = made, run, folder, reporter
        self.done = Done()
        self._effort, self._policies = effort, policies
        self._summaries: dict[str, dict[str, Any]] = {}  # of cells, by phase

    @classmethod
    @contextmanager
    def begin(
        cls,
        asked: Asked,
        effort: Effort,
        folder: str | Path | None = None,
        *,
        reporter: Reporter,
        durability: Durability = Durability.NORMAL,
        policies: Mapping[str, Policy] | None = None,
        name: Naming = str,
    ) -> Iterator[Evaluation]:
        """A new run that holds the plan of what was asked.

        Args:
            asked: what to evaluate.
            effort: how to work on it.
            folder: of the run; None names one in the folder of runs.
            reporter: where to say how it goes.
            durability: of what is recorded.
            policies: models that are loaded already, by the names in `asked`.
            name: how errors spell options.

        Raises:
            InputError: what was asked cannot be, or the folder holds a run.
        """
        made, notes = plan(asked)
        effort.check(made, name)
        environment = asked.entries[0].environment
        world = (environment.partition("/")[2] or environment).rpartition(":")[2]
        title = asked.suite.name if asked.suite is not None else world
        path = Path(folder) if folder else new_run_path(default_root(), f"eval-{title}")
        documents = {DOCUMENT: as_json(made), "machine": as_document()}
        with RunFolder.create(
            path, settings_of(made), documents=documents, durability=durability
        ) as run:
            reporter.say(f"[bold]{path}[/bold]: {title_of(made)}")
            for note in (*notes, foresight(made.tasks)):
                reporter.say(note)
            yield cls(made, run, path, reporter, effort, policies or {})

    @classmethod
    @contextmanager
    def resume(
        cls,
        folder: Path,
        effort: Effort,
        *,
        reporter: Reporter,
        name: Naming = str,
    ) -> Iterator[Evaluation]:
        """A run that stopped; what infrastructure broke in it is lived again.

        Raises:
            InputError: there is no run, or it is no evaluation.
        """
        with RunFolder.open(folder) as run:
            with run.telling_versions():
                made = from_json(run.database.get(DOCUMENT), folder)
            effort.check(made, name)
            if effort.concurrency:  # said later than what was wished from outside
                control.change(folder, concurrency=None)
            reporter.say(f"resuming [bold]{folder}[/bold]: {title_of(made)}")
            if of_another := run.note_version():
                reporter.say(of_another)
            yield cls(made, run, folder, reporter, effort, {})

    async def live(self) -> dict[str, Any]:
        """Live what is left, and store the result.

        Raises:
            PalaestraError: the work could not go on; what is done is kept.
        """
        try:
            self.done = await live_plan(
                self.plan,
                self.run,
                self.reporter,
                load=self._load,
                concurrency=self._effort.concurrency,
                allowance=self._effort.allowance,
                told=self._tell,
                workers=self._effort.workers,
            )
        except ExceptionGroup as group:
            raise first_error(group) from None
        result = result_of(self.plan, self.done, self._summaries, str(self.folder))
        database = self.run.database
        database.put("evaluation", result)
        database.put("totals", {**(database.get("totals") or {}), **totals([result])})
        return result

    def _load(self, name: str, agent: Agent) -> Model:
        if name in self._policies:
            return self._policies[name].model
        said = self._effort.concurrency.get(name) or self._effort.concurrency.get("")
        most = said or max(usual(cell.environment, cell.agent) for cell in self.plan.cells)
        slots = min(most, self.plan.episodes) + 2
        return load_model(name, agent, slots=slots, context=CONTEXT, progress=self.reporter.say)

    def _tell(self, cell: Cell, episodes: list[Episode]) -> None:
        self._summaries[cell.phase] = summary(episodes, self.plan.prices)


def first_error(group: ExceptionGroup[Any]) -> Exception:
    """The error of ours in a group (the others followed from it), or else the group."""
    for error in group.exceptions:
        inner = first_error(error) if isinstance(error, ExceptionGroup) else error
        if isinstance(inner, PalaestraError):
            return inner
    return group
