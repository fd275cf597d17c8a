"""What a tracker can do: hand tickets to people, and close them."""

from __future__ import annotations

from palaestra.environments.families.apps.compiler.api import ApiError, Caller
from palaestra.environments.families.apps.compiler.verbs import verb
from palaestra.environments.families.apps.state import Row

TICKET = "tracker.ticket"


def _move(call: Caller, ticket_id: int, before: tuple[str, ...], to: str) -> Row:
    """Change a ticket's status, from one of those before."""
    ticket = call.read(TICKET, ticket_id)
    if ticket["status"] not in before:
        raise ApiError(409, f"This ticket is {ticket['status']}.")
    call.state.update(TICKET, ticket_id, {"status": to})
    return {"ticket_id": ticket_id, "status": to}


@verb
def assign_ticket(call: Caller, ticket_id: int, email: str) -> Row:
    """Say who shall do a ticket.

    Args:
        email: the address of a colleague, or yours

    Returns:
        ticket_id: integer
        assignee: string

    Raises:
        404: there is no such ticket, or nobody of your company has that address
    """
    call.read(TICKET, ticket_id)
    company = call.email().partition("@")[2]
    if email.partition("@")[2] != company or not call.state.find("supervisor.person", email=email):
        raise ApiError(404, f"Nobody of your company has the address '{email}'.")
    call.state.update(TICKET, ticket_id, {"assignee": email})
    return {"ticket_id": ticket_id, "assignee": email}


@verb
def start_ticket(call: Caller, ticket_id: int) -> Row:
    """Say that work on a ticket began.

    Returns:
        ticket_id: integer
        status: string

    Raises:
        404: there is no such ticket
        409: it is not open
    """
    return _move(call, ticket_id, ("open",), "started")


@verb
def close_ticket(call: Caller, ticket_id: int, text: str) -> Row:
    """Close a ticket, and say in a comment what was done.

    Args:
        text: the comment

    Returns:
        ticket_id: integer
        status: string

    Raises:
        404: there is no such ticket
        409: it is closed already
    """
    answer = _move(call, ticket_id, ("open", "started"), "closed")
    if not 1 <= len(text) <= 400:
        raise ApiError(422, "A comment has 1 to 400 characters.")
    row = {"owner": call.person, "ticket_id": ticket_id, "author": call.email()}
    call.state.insert("tracker.comment", row | {"text": text, "written": call.now})
    return answer


@verb
def reopen_ticket(call: Caller, ticket_id: int) -> Row:
    """Open a closed ticket again.

    Returns:
        ticket_id: integer
        status: string

    Raises:
        404: there is no such ticket
        409: it is not closed
    """
    return _move(call, ticket_id, ("closed",), "open")


VERBS = (assign_ticket, start_ticket, close_ticket, reopen_ticket)
