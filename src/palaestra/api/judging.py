"""Judges of recorded episodes: their verdicts, and how well these agree with known outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestra.api.policy import Policy
from palaestra.api.reporting import reporter
from palaestra.api.result_text import html_table
from palaestra.core.episode import Episode
from palaestra.evaluation.judges import stored_verdicts
from palaestra.evaluation.judges.agreement import Agreement
from palaestra.evaluation.judges.calibration import Calibration, calibrate, trusted
from palaestra.evaluation.judges.registry import JudgeRequest, load_to_judge, make_judge
from palaestra.evaluation.judges.verdict import Verdict
from palaestra.store.notes import labelled
from palaestra.store.run_folder import RunFolder

if TYPE_CHECKING:
    from palaestra.core.model import Model


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdicts of one judge on an evaluation's episodes; `print` shows their accuracy."""

    calibration: Calibration
    verdicts: list[tuple[Episode, Verdict]]
    """Each episode with a known outcome, and the judge's verdict on it."""

    @property
    def agreement(self) -> Agreement:
        """Accuracy, kappa, precision, recall and specificity, with 95 % intervals over tasks."""
        return self.calibration.agreement

    @property
    def disagreements(self) -> list[tuple[Episode, Verdict]]:
        """The episodes whose verdict is wrong; episodes without a verdict are left out."""
        return [
            (episode, verdict)
            for episode, verdict in self.verdicts
            if verdict.solved is not None and verdict.solved != episode.outcome.solved
        ]

    def __str__(self) -> str:
        rows = calibration_rows(self.calibration.as_json())
        lines = [f"  {name:<14}{value}" for name, value in rows]
        return "\n".join([self.calibration.judge, *lines])

    def __repr__(self) -> str:
        return f"<Judgement of {len(self.verdicts)} episodes by {self.calibration.judge}>"

    def _repr_html_(self) -> str:
        rows = calibration_rows(self.calibration.as_json())
        return html_table(self.calibration.judge, (), rows)


async def judged(
    folder: Path,
    episodes: Sequence[Episode],
    judge: str | Policy,
    *,
    rubric: str | Path | Mapping[str, Any] | None = None,
    probes: Sequence[str] = (),
    max_tokens: int = 96,
    progress: bool = True,
) -> Judgement:
    """Judge episodes, measure the judge against their outcomes, and store both in the run."""
    from palaestra.environments.registry import make

    name = judge.name if isinstance(judge, Policy) else judge
    asked = Path(rubric) if isinstance(rubric, str) else rubric

    def load(name: str) -> Model:
        return judge.model if isinstance(judge, Policy) else _loaded(name, progress)

    wanted = JudgeRequest(name, asked, tokens=max_tokens)
    made, loaded = make_judge(wanted, make, load, labelled(folder))
    try:
        model = loaded[0].name if loaded else ""
        found, verdicts = await calibrate(made, episodes, model=model, probes=probes)
    finally:
        for one in [] if isinstance(judge, Policy) else loaded:
            await one.close()
    known = [e for e in episodes if e.outcome.scored]
    document = {"identity": found.identity, "short": found.short()}
    verdicts = [trusted(verdict, document) for verdict in verdicts]
    with RunFolder.open(folder) as run:
        stored_verdicts.store_calibration(run.database, found)
        given = {e.key: verdict for e, verdict in zip(known, verdicts, strict=True)}
        stored_verdicts.store_verdicts(run.database, found.judge, given)
    return Judgement(found, list(zip(known, verdicts, strict=True)))


def calibration_rows(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a judge's measurements as names and values; `found` is `Calibration.as_json()`."""
    agreed, cost = found["agreement"], found["cost"]
    rows = [
        ("cases", f"{agreed['cases']}, of {', '.join(found['phases'])}"),
        ("no verdict", str(agreed["silent"])),
        ("truly solved", f"{agreed['solved']} of those with a verdict"),
    ]
    for name in ("accuracy", "kappa", "precision", "recall", "specificity"):
        rows.append((name, _bounds(agreed[name])))
    for effect in found["effects"]:
        flips = effect["flipped"]
        changed = f"; verdict changed in {100 * flips['mean']:.0f} %" if flips else ""
        if effect["silent"]:
            changed += f"; {effect['silent']} left out without a verdict"
        why = f"not measured: {effect['note']}"
        measured = _bounds(effect["effect"]) if effect["effect"] else why
        rows.append((f"bias: {effect['probe']}", f"{measured}{changed}"))
    read, acted = f"{cost['prompt_tokens']} tokens read", f"{cost['actions']} actions"
    rows.append(("one pass", f"{cost['calls']} calls, {read}, {acted}, {cost['seconds']:.1f} s"))
    return rows


def _bounds(interval: Mapping[str, float] | None) -> str:
    if interval is None:
        return "undefined here"
    return f"{interval['mean']:.2f} ({interval['low']:.2f} to {interval['high']:.2f})"


def _loaded(name: str, progress: bool) -> Model:
    return load_to_judge(name, reporter(progress).say)
