"""What a chat can do: add people to rooms, and let them leave."""

from __future__ import annotations

from palaestra.environments.families.apps.compiler.api import ApiError, Caller
from palaestra.environments.families.apps.compiler.verbs import verb
from palaestra.environments.families.apps.state import Row

MEMBER = "chat.member"


@verb
def add_member(call: Caller, room_id: int, email: str) -> Row:
    """Add somebody to a room that you opened.

    Returns:
        room_id: integer
        added: string

    Raises:
        404: there is no such room, or nobody has that address
        409: they are in it already
    """
    call.own("chat.room", room_id)
    if not call.state.find("supervisor.person", email=email):
        raise ApiError(404, f"Nobody has the address '{email}'.")
    if email == call.email() or call.state.find(MEMBER, room_id=room_id, email=email):
        raise ApiError(409, f"'{email}' is in this room already.")
    call.state.insert(MEMBER, {"owner": call.person, "room_id": room_id, "email": email})
    return {"room_id": room_id, "added": email}


@verb
def leave_room(call: Caller, room_id: int) -> Row:
    """Leave a room to which you were added.

    Returns:
        left: integer

    Raises:
        404: there is no such room
        409: you opened it; delete it instead
    """
    call.read("chat.room", room_id)
    found = call.state.find(MEMBER, room_id=room_id, email=call.email())
    if not found:
        raise ApiError(409, "You opened this room; delete it instead.")
    call.state.delete(MEMBER, found[0]["id"])
    return {"left": room_id}


VERBS = (add_member, leave_room)
