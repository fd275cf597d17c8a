"""What notes can do: grow, and forget what is done."""

from __future__ import annotations

from palaestra.environments.families.apps.compiler.api import ApiError, Caller
from palaestra.environments.families.apps.compiler.verbs import verb
from palaestra.environments.families.apps.state import Row


@verb
def append_to_note(call: Caller, note_id: int, text: str) -> Row:
    """Add a line at the end of a note.

    Returns:
        note_id: integer
        text: string

    Raises:
        404: you have no note with that id
    """
    note = call.own("notes.note", note_id)
    whole = f"{note['text']}\n{text}".strip("\n")
    if len(whole) > 1000:
        raise ApiError(422, "A note has at most 1000 characters.")
    call.state.update("notes.note", note_id, {"text": whole})
    return {"note_id": note_id, "text": whole}


@verb
def clear_done_items(call: Caller, checklist_id: int) -> Row:
    """Delete the things of a list that are done.

    Returns:
        deleted: integer

    Raises:
        404: you have no list with that id
    """
    call.own("notes.checklist", checklist_id)
    done = call.state.find("notes.item", checklist_id=checklist_id, done=True)
    for item in done:
        call.state.delete("notes.item", item["id"])
    return {"deleted": len(done)}


VERBS = (append_to_note, clear_done_items)
