"""What a calendar can do: invite people, and answer invitations."""

from __future__ import annotations

from typing import Literal

from palaestra.environments.families.apps.compiler.api import ApiError, Caller
from palaestra.environments.families.apps.compiler.verbs import verb
from palaestra.environments.families.apps.state import Row

INVITATION = "calendar.invitation"


@verb
def invite(call: Caller, event_id: int, email: str) -> Row:
    """Invite somebody to an event.

    Returns:
        invitation_id: integer
        invited: string

    Raises:
        404: you have no such event, or nobody has that address
        409: they are invited already
    """
    call.own("calendar.event", event_id)
    if not call.state.find("supervisor.person", email=email):
        raise ApiError(404, f"Nobody has the address '{email}'.")
    if call.state.find(INVITATION, event_id=event_id, email=email):
        raise ApiError(409, f"'{email}' is invited already.")
    row = {"owner": call.person, "event_id": event_id, "email": email, "answer": "waiting"}
    return {"invitation_id": call.state.insert(INVITATION, row), "invited": email}


@verb
def answer_invitation(
    call: Caller, invitation_id: int, answer: Literal["accepted", "declined"]
) -> Row:
    """Accept or decline an invitation that you got.

    Returns:
        invitation_id: integer
        answer: string

    Raises:
        403: somebody else is invited
        404: there is no such invitation
    """
    invitation = call.read(INVITATION, invitation_id)
    if invitation["email"] != call.email():
        raise ApiError(403, "This invitation is not yours to answer.")
    call.state.update(INVITATION, invitation_id, {"answer": answer})
    return {"invitation_id": invitation_id, "answer": answer}


VERBS = (invite, answer_invitation)
