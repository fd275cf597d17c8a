"""What a repository can do: reviews decide whether changes are merged."""

from __future__ import annotations

from typing import Literal

from palaestra.environments.families.apps.compiler.api import ApiError, Caller
from palaestra.environments.families.apps.compiler.verbs import verb
from palaestra.environments.families.apps.state import Row

CHANGE = "repository.change"


def _open(call: Caller, change_id: int) -> Row:
    change = call.read(CHANGE, change_id)
    if change["status"] != "open":
        raise ApiError(409, f"This change is {change['status']}.")
    return change


@verb
def review_change(
    call: Caller, change_id: int, verdict: Literal["approve", "reject"], comment: str = ""
) -> Row:
    """Approve or reject somebody else's change.

    Returns:
        review_id: integer

    Raises:
        403: it is your own
        404: there is no such change
        409: it is no longer open
    """
    change = _open(call, change_id)
    if change["owner"] == call.person:
        raise ApiError(403, "Nobody reviews a change of their own.")
    if len(comment) > 300:
        raise ApiError(422, "A comment has at most 300 characters.")
    row = {"owner": call.person, "change_id": change_id, "reviewer": call.email()}
    row |= {"verdict": verdict, "comment": comment, "written": call.now}
    return {"review_id": call.state.insert("repository.review", row)}


@verb
def merge_change(call: Caller, change_id: int) -> Row:
    """Give files the texts of a change, if its last review approves of it.

    Returns:
        change_id: integer
        files: integer

    Raises:
        404: there is no such change
        409: it is no longer open, or its last review does not approve of it
    """
    _open(call, change_id)
    reviews = call.state.find("repository.review", change_id=change_id)
    if not reviews or reviews[-1]["verdict"] != "approve":
        raise ApiError(409, "The last review of this change does not approve of it.")
    edits = call.state.find("repository.edit", change_id=change_id)
    for edit in edits:
        new = {"text": edit["text"], "merged": call.now}
        call.state.update("repository.file", edit["file_id"], new)
    call.state.update(CHANGE, change_id, {"status": "merged"})
    return {"change_id": change_id, "files": len(edits)}


@verb
def close_change(call: Caller, change_id: int) -> Row:
    """Give up a change of your own without merging it.

    Returns:
        change_id: integer

    Raises:
        403: it is somebody else's
        404: there is no such change
        409: it is no longer open
    """
    _open(call, change_id)
    call.own(CHANGE, change_id)
    call.state.update(CHANGE, change_id, {"status": "closed"})
    return {"change_id": change_id}


VERBS = (review_change, merge_change, close_change)
