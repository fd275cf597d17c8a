"""What every desk demands: a yes of its own for each change."""

from __future__ import annotations

from palaestra.environments.families.apps.composing.policy import Rule


def one_yes_each(changes: str) -> Rule:
    """Return the rule that the user confirms each change after the one before.

    Args:
        changes: a formula that holds at a change.
    """
    return Rule(
        "confirmation",
        "Each needs a yes of its own.",
        f"(not {changes} W 'user.confirms') and G({changes} -> N(not {changes} W 'user.confirms'))",
        talk=True,
    )
