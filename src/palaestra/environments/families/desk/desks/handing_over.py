"""What every desk can do: hand a conversation over to a colleague."""

from __future__ import annotations

from palaestra.environments.families.apps.compiler.api import Caller
from palaestra.environments.families.apps.compiler.verbs import Verb, verb
from palaestra.environments.families.apps.state import Row


def handing_over(app: str) -> Verb:
    """Return the verb of a desk, whose app has the entity `hand_over`."""

    def hand_over(caller: Caller, reason: str) -> Row:
        """Hand the conversation over to a colleague, which ends it.

        Returns:
            handed_over: boolean
        """
        row = {"person": caller.person, "reason": reason[:200]}
        caller.state.insert(f"{app}.hand_over", row)
        return {"handed_over": True}

    return verb(hand_over)
