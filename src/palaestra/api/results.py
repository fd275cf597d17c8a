"""The results of an evaluation: print, inspect, compare, or turn them into a data frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from palaestra.api.result_document import result_of
from palaestra.api.result_text import as_html, as_text
from palaestra.api.waiting import wait
from palaestra.core.episode import Episode
from palaestra.core.errors import InputError, MissingPackage, UnknownName
from palaestra.evaluation.reports import cell_samples
from palaestra.evaluation.reports.run_diff import Diff, diff
from palaestra.evaluation.running.evaluation_plan import DOCUMENT, from_json
from palaestra.evaluation.running.evaluation_run import Done
from palaestra.evaluation.statistics import player_results
from palaestra.evaluation.statistics.intervals import task_scores
from palaestra.evaluation.statistics.player_results import PlayerScore
from palaestra.store.run_folder import RunFolder

if TYPE_CHECKING:
    import pandas

    from palaestra.api.judging import Judgement
    from palaestra.api.policy import Policy


@dataclass(frozen=True, slots=True)
class RecordedEpisode(Episode):
    """An episode of a run that can be shown."""

    @classmethod
    def of(cls, episode: Episode) -> RecordedEpisode:
        return cls(**{field.name: getattr(episode, field.name) for field in fields(Episode)})

    def show(self) -> None:
        """Print the episode turn by turn: observations, actions and rewards."""
        from palaestra.api.episode_text import show_episode
        from palaestra.api.reporting import console

        show_episode(self, None, console())

    def __str__(self) -> str:
        return (
            f"{self.key}: {self.outcome}, reward {self.reward:g}, {len(self.steps)} turns "
            f"({self.agent} on {self.task.environment})"
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """The difference between two evaluations, A and B, on their common tasks."""

    names: tuple[str, str]  # of A and B
    found: Diff  # the full comparison

    @property
    def difference(self) -> float | None:
        """Success of B minus that of A; None for a single task."""
        return None if self.found.difference is None else self.found.difference.mean

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of `difference`, over tasks."""
        of = self.found.difference
        return None if of is None else (of.low, of.high)

    @property
    def p(self) -> float:
        """The p-value of the permutation test on tasks."""
        return self.found.permutation

    def __str__(self) -> str:
        a, b = (f"{100 * of.mean:.1f} %" if of else "unknown" for of in self.found.success)
        lines = [f"A  {self.names[0]}: success {a}", f"B  {self.names[1]}: success {b}"]
        if self.difference is not None and self.interval is not None:
            low, high = (100 * bound for bound in self.interval)
            p = "< 0.001" if self.p < 0.001 else f"= {self.p:.3f}"
            lines.append(
                f"B - A: {100 * self.difference:+.1f} points (95 % interval {low:+.1f} to "
                f"{high:+.1f}, p {p}) on {self.found.tasks} tasks; "
                f"{len(self.found.gained)} gained, {len(self.found.lost)} lost"
            )
        return "\n".join([*lines, *([self.found.warning] if self.found.warning else [])])


class Judging(TypedDict, total=False):
    """The options of `Results.judge`."""

    rubric: str | Path | Mapping[str, Any]
    """The question for a model: {"question": …, "criteria": […]}, or a TOML file with it; by
    default whether the task was solved."""
    probes: Sequence[str]
    """Biases to measure as well: "order", "length", "name" and "self"; by default none."""
    max_tokens: int
    """Tokens per reply of a model; by default 96."""
    progress: bool
    """Whether to show progress on standard error; by default True."""


class Results:
    """The results of an evaluation. `print` shows them as text, a notebook as a table.

    One agent with one model in one environment is a cell. Results of several cells have `cells`
    and `to_pandas()`, but no single success.
    """

    def __init__(self, data: Mapping[str, Any], folder: Path) -> None:
        self.data = dict(data)
        """The full result, as `palaestra eval --json` prints it."""
        self.folder = folder
        """The run's folder, for `Run` and the command line."""

    @classmethod
    def read(cls, folder: Path) -> Results:
        """Read the results of a run, partial ones if it was stopped.

        Raises:
            InputError: the run does not exist, or is no evaluation.
        """
        with RunFolder.read(folder) as run:
            stored = run.database.get("evaluation")
            if stored is not None:
                return cls(stored, folder)
            made = from_json(run.database.get(DOCUMENT), folder)
            episodes = {cell.phase: run.database.episodes(cell.phase) for cell in made.cells}
            found = {p: cell_samples.summary(of, made.prices) for p, of in episodes.items()}
            scores = {phase: task_scores(of) for phase, of in episodes.items()}
            totals = run.database.get("totals") or {}
            done = Done("it was interrupted", totals.get("seconds", 0.0), totals.get("cells") or {})
            return cls(result_of(made, done, found, str(folder), scores), folder)

    @property
    def cells(self) -> list[dict[str, Any]]:
        """One entry per agent, model, environment and seed."""
        return list(self.data.get("cells", [self.data]))

    @property
    def success(self) -> float | None:
        """Share of tasks solved; None if no episode could be scored, or each player has its own.

        Raises:
            InputError: there are several cells.
        """
        return self._only("success")["success"]

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of `success` over tasks; None for one task. Raises like `success`."""
        found = self._only("interval")["interval"]
        return None if found is None else (found[0], found[1])

    @property
    def players(self) -> dict[str, PlayerScore]:
        """The results of each of several players; empty for one. Raises like `success`."""
        return player_results.from_json(self._only("players").get("players") or {})

    @property
    def complete(self) -> bool:
        """Whether all planned episodes have run."""
        return bool(self.data["complete"])

    @property
    def excluded(self) -> int:
        """Episodes that count neither as solved nor as failed: an error broke them."""
        return int(self.data["episodes"] - self.data["scored"])

    @property
    def tokens(self) -> int:
        """Tokens read and sampled."""
        return int(self.data["prompt_tokens"] + self.data["sampled_tokens"])

    @property
    def money(self) -> float | None:
        """The cost of calls to models with a price; None if no model has one."""
        return self.data["money"]

    @cached_property
    def episodes(self) -> list[RecordedEpisode]:
        """The finished episodes, cell by cell, in the order of their tasks."""
        with RunFolder.read(self.folder) as run:
            phases = [cell["phase"] for cell in self.cells]
            return [RecordedEpisode.of(e) for p in phases for e in run.database.episodes(p)]

    def compare(self, other: Results) -> Comparison:
        """Compare these results (A) with others (B) on their common tasks.

        Raises:
            InputError: one of them has several cells, or they have no task in common.
        """
        names = tuple(str(one._only("compare")["summary"]) for one in (self, other))
        found = diff(self.episodes, other.episodes, (names[0], names[1]))
        return Comparison((names[0], names[1]), found)

    def judge(self, judge: str | Policy, **options: Unpack[Judging]) -> Judgement:
        """Let a judge label the episodes, and measure its agreement with their outcomes.

        Args:
            judge: a rule such as "seen:PATTERN" (docs/evaluation/judges.md lists them), a model's
                name, or what `load` returned.
            **options: see `palaestra.api.results.Judging`.

        Raises:
            InputError: no such judge, or no episode was scored.
        """
        return wait(lambda: self.ajudge(judge, **options))

    async def ajudge(self, judge: str | Policy, **options: Unpack[Judging]) -> Judgement:
        """Judge like `judge`, to be awaited."""
        from palaestra.api.judging import judged

        for option in options:
            if option not in Judging.__annotations__:
                raise UnknownName("option of judge", option, Judging.__annotations__)
        return await judged(self.folder, self.episodes, judge, **options)

    def to_pandas(self) -> pandas.DataFrame:
        """Return a data frame with one row per episode.

        The return of each of several players is in a column of its own, `return/PLAYER`.

        Raises:
            MissingPackage: pandas is not installed.
        """
        rows = []
        for part in cell_samples.read(self.folder):
            cell = part.cell
            named = {
                "environment": cell.environment,
                "agent": cell.agent,
                "model": cell.model,
            }
            rows += [{**named, **_columns(sample)} for sample in part.samples]
        return frame(rows)

    def _only(self, what: str) -> dict[str, Any]:
        if len(self.cells) > 1:
            raise InputError(
                f"'{what}' is undefined for results with {len(self.cells)} cells; look at "
                "`cells`, or evaluate one agent, model and environment."
            )
        return self.cells[0]

    def __str__(self) -> str:
        return as_text(self.data)

    def __repr__(self) -> str:
        return f"<Results of {self.data['summary']}: {self.data['episodes']} episodes>"

    def _repr_html_(self) -> str:
        return as_html(self.data)


def _columns(sample: cell_samples.Sample) -> dict[str, Any]:
    found = asdict(sample)
    del found["players"]
    returns = {f"return/{player}": one.total for player, one in sample.players.items()}
    return found | returns


def frame(rows: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """Return rows as a data frame; raise MissingPackage if pandas is not installed."""
    try:
        import pandas
    except ImportError as error:
        raise MissingPackage(
            "Data frames need the package 'pandas', which is not installed; install it with: "
            "pip install 'palaestra[pandas]'."
        ) from error
    return pandas.DataFrame(list(rows))
