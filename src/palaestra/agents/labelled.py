"""Labelled attempts: every prompt says that the attempt goes well.

Source: feedback-aware fine-tuning (FAFT, Chen et al. 2024): good and bad attempts are both learned,
each under a label that says which it was, and the agent acts under the good one. The rule of
examples `feedback-labels` makes such examples; how the paper words its labels is not verified.
"""

from __future__ import annotations

from palaestra.agents.direct import DirectAgent

GOOD = "Feedback on this attempt: good."
BAD = "Feedback on this attempt: bad."


class LabelledAgent(DirectAgent):
    """As `direct`, under a label that says that this attempt goes well."""

    name = "labelled"

    def opening(self, instructions: str) -> str:
        return f"{instructions}\n{GOOD}"
