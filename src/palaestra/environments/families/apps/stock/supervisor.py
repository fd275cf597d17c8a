"""What an assistant may ask about the person for whom it acts."""

from __future__ import annotations

from palaestra.environments.families.apps.compiler.api import Caller
from palaestra.environments.families.apps.compiler.verbs import reading
from palaestra.environments.families.apps.state import Row


@reading
def show_profile(call: Caller) -> Row:
    """Show the person's name, address, birthday, email and phone.

    Returns:
        name: string
        email: string
        phone: string
        birthday: string
        address: string
    """
    person = call.state.get("supervisor.person", call.person)
    return {key: value for key, value in (person or {}).items() if key not in ("id", "owner")}


VERBS = (show_profile,)
