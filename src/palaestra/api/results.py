"""What an evaluation found: print it, look at its episodes, compare it, make a data frame of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.api.result import result_of
from palaestra.api.result_text import as_html, as_text
from palaestra.core.episode import Episode
from palaestra.core.errors import InputError, MissingPackage
from palaestra.evaluation import samples
from palaestra.evaluation.diff import Diff, diff
from palaestra.evaluation.plan import DOCUMENT, from_json
from palaestra.experiment.evaluating import Done
from palaestra.store.run import RunFolder

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True)
class RecordedEpisode(Episode):
    """An episode of a run, which can be shown."""

    @classmethod
    def of(cls, episode: Episode) -> RecordedEpisode:
        return cls(**{field.name: getattr(episode, field.name) for field in fields(Episode)})

    def show(self) -> None:
        """Print it turn by turn: what the agent saw, did and earned."""
        from rich.console import Console

        from palaestra.api.episode_text import show_episode

        show_episode(self, None, Console())

    def __str__(self) -> str:
        return (
            f"{self.key}: {self.outcome}, reward {self.reward:g}, {len(self.steps)} turns "
            f"({self.agent} on {self.task.environment})"
        )


@dataclass(frozen=True, slots=True)
class Comparison:
    """What changed from one evaluation, A, to another, B, on the tasks that both have."""

    names: tuple[str, str]  # of A and B
    found: Diff  # all of it

    @property
    def difference(self) -> float | None:
        """Success of B minus that of A; None for a single task."""
        return None if self.found.difference is None else self.found.difference.mean

    @property
    def interval(self) -> tuple[float, float] | None:
        """Of `difference`, 95 %, over tasks."""
        of = self.found.difference
        return None if of is None else (of.low, of.high)

    @property
    def p(self) -> float:
        """Of the permutation test on tasks."""
        return self.found.permutation

    def __str__(self) -> str:
        a, b = (f"{100 * of.mean:.1f} %" if of else "unknown" for of in self.found.success)
        lines = [f"A  {self.names[0]}: success {a}", f"B  {self.names[1]}: success {b}"]
        if self.difference is not None and self.interval is not None:
            low, high = (100 * bound for bound in self.interval)
            chance = "< 0.001" if self.p < 0.001 else f"= {self.p:.3f}"
            lines.append(
                f"B - A: {100 * self.difference:+.1f} points (95 % interval {low:+.1f} to "
                f"{high:+.1f}, p {chance}) on {self.found.tasks} tasks; "
                f"{len(self.found.gained)} gained, {len(self.found.lost)} lost"
            )
        return "\n".join([*lines, *([self.found.warning] if self.found.warning else [])])


class Results:
    """What an evaluation found. `print` shows it, and a notebook shows a table.

    One agent with one model in one environment is a cell. Results of several have `cells` and
    `to_pandas()`, but no single success.
    """

    def __init__(self, data: Mapping[str, Any], folder: Path) -> None:
        self.data = dict(data)
        """All of it: what `palaestra eval --json` prints."""
        self.folder = folder
        """The run's folder, for `open_run` and the command line."""

    @classmethod
    def read(cls, folder: Path) -> Results:
        """Those of a run; of one that was stopped, what there is.

        Raises:
            InputError: there is no run, or it is no evaluation.
        """
        with RunFolder.read(folder) as run:
            stored = run.database.get("evaluation")
            if stored is not None:
                return cls(stored, folder)
            made = from_json(run.database.get(DOCUMENT), folder)
            found = {
                cell.phase: samples.summary(run.database.episodes(cell.phase), made.prices)
                for cell in made.cells
            }
            totals = run.database.get("totals") or {}
            done = Done("it was interrupted", totals.get("seconds", 0.0), totals.get("cells") or {})
            return cls(result_of(made, done, found, str(folder)), folder)

    @property
    def cells(self) -> list[dict[str, Any]]:
        """One entry per agent, model, environment and seed."""
        return list(self.data.get("cells", [self.data]))

    @property
    def success(self) -> float | None:
        """Share of tasks solved; None where no episode could be scored.

        Raises:
            InputError: there are several cells.
        """
        return self._only("success")["success"]

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 %, over tasks; None for fewer than two. Raises like `success`."""
        found = self._only("interval")["interval"]
        return None if found is None else (found[0], found[1])

    @property
    def complete(self) -> bool:
        """Whether all that was planned has been done."""
        return bool(self.data["complete"])

    @property
    def excluded(self) -> int:
        """Episodes that count neither as solved nor as failed: something else broke them."""
        return int(self.data["episodes"] - self.data["scored"])

    @property
    def tokens(self) -> int:
        """Read and sampled."""
        return int(self.data["prompt_tokens"] + self.data["sampled_tokens"])

    @property
    def money(self) -> float | None:
        """What calls to models with a price have cost; None where no model has one."""
        return self.data["money"]

    @cached_property
    def episodes(self) -> list[RecordedEpisode]:
        """Those that have ended, cell by cell, in the order of their tasks."""
        with RunFolder.read(self.folder) as run:
            phases = [cell["phase"] for cell in self.cells]
            return [RecordedEpisode.of(e) for p in phases for e in run.database.episodes(p)]

    def compare(self, other: Results) -> Comparison:
        """What changed from these results (A) to others (B), on the tasks that both have.

        Raises:
            InputError: either has several cells, or they have no task in common.
        """
        names = tuple(str(one._only("compare")["summary"]) for one in (self, other))
        found = diff(self.episodes, other.episodes, (names[0], names[1]))
        return Comparison((names[0], names[1]), found)

    def to_pandas(self) -> pandas.DataFrame:
        """One row per episode.

        Raises:
            MissingPackage: pandas is not installed.
        """
        rows = []
        for part in samples.read(self.folder):
            cell = part.cell
            named = {
                "environment": cell.environment,
                "agent": cell.agent,
                "model": cell.model,
            }
            rows += [{**named, **asdict(sample)} for sample in part.samples]
        return frame(rows)

    def _only(self, what: str) -> dict[str, Any]:
        if len(self.cells) > 1:
            raise InputError(
                f"These results have {len(self.cells)} cells, so there is no single answer to "
                f"'{what}'; look at `cells`, or evaluate one agent, model and environment."
            )
        return self.cells[0]

    def __str__(self) -> str:
        return as_text(self.data)

    def __repr__(self) -> str:
        return f"<Results of {self.data['summary']}: {self.data['episodes']} episodes>"

    def _repr_html_(self) -> str:
        return as_html(self.data)


def frame(rows: Sequence[Mapping[str, Any]]) -> pandas.DataFrame:
    """Rows as a data frame; raises MissingPackage where pandas is not installed."""
    try:
        import pandas
    except ImportError as error:
        raise MissingPackage(
            "Data frames need the package 'pandas', which is not installed; install it with: "
            "pip install 'palaestra[pandas]'."
        ) from error
    return pandas.DataFrame(list(rows))
