"""The loss on held-out general text after each stage that trains, so that forgetting is seen."""

from __future__ import annotations

from statistics import fmean

from palaestra.core.episode import Key
from palaestra.core.errors import InputError
from palaestra.evaluation.reports.report import GENERAL_LOSS
from palaestra.learning.compute.text_loss import row_logprobs
from palaestra.learning.data.examples.mixture import GENERAL
from palaestra.learning.data.examples.text_examples import text_rows
from palaestra.training.general_text import digests, general_files, held_out_paragraphs
from palaestra.training.run_context import RunContext

FILES = "general_files"  # document: hashes of the files by name
MOST = 8192  # held-out tokens that are read each time


class GeneralLoss:
    """The held-out general text of a run, and what each version of the policy loses on it."""

    def __init__(self, context: RunContext) -> None:
        """Read the text; without any, nothing is measured.

        Raises:
            InputError: a file has changed since the run began.
        """
        self._context, files = context, general_files(context.whole)
        known, now = context.store.get(FILES), digests(files)
        for file in files:
            if known is not None and known[file] != now[file]:
                raise InputError(
                    f"The general text '{file}' has changed since the run began; restore it, or "
                    "begin a new run."
                )
        if files and known is None:
            context.store.put(FILES, now)
        renderer, limit = context.policy.renderer, context.recipe.model.context
        rows = [
            row
            for paragraph in held_out_paragraphs(files)
            for row in text_rows(paragraph, renderer, limit, Key(GENERAL, 0))
        ]
        self._rows, read = [], 0
        for row in rows:
            if read < MOST:
                self._rows.append(row)
            read += row.trained

    def lacks(self, version: str) -> bool:
        """Return whether the loss of a version is to be measured, and is not yet."""
        return bool(self._rows) and version not in self._known()

    def measure(self, version: str) -> None:
        """Record and show the loss of the policy as it is now."""
        context = self._context
        found = row_logprobs(context.policy.network, self._rows)
        loss = -fmean(lp for row in found for lp in row)
        known = self._known()
        context.store.put(GENERAL_LOSS, {**known, version: loss})
        context.tracking.log(version, 0, {GENERAL_LOSS: loss})
        before = next(reversed(known.values()), None)
        was = "" if before is None else f" (before: {before:.3f})"
        context.reporter.say(f"{version}: loss on held-out general text {loss:.3f} nats{was}")

    def _known(self) -> dict[str, float]:
        return dict(self._context.store.get(GENERAL_LOSS) or {})
