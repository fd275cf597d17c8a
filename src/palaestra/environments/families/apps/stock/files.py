"""What files can do: grow, be copied, and be shared."""

from __future__ import annotations

from palaestra.environments.families.apps.compiler.api import ApiError, Caller
from palaestra.environments.families.apps.compiler.blueprint import LONGEST
from palaestra.environments.families.apps.compiler.verbs import verb
from palaestra.environments.families.apps.state import Row

FILE, SHARE = "files.file", "files.share"


@verb
def append_to_file(call: Caller, file_id: int, line: str) -> Row:
    """Add a line at the end of a file.

    Returns:
        file_id: integer
        lines: integer

    Raises:
        403: the file is somebody else's
        404: there is no such file
    """
    file = call.own(FILE, file_id)
    text = f"{file['text']}\n{line}".strip("\n")
    if len(text) > LONGEST:
        raise ApiError(422, f"A file has at most {LONGEST} characters.")
    call.state.update(FILE, file_id, {"text": text})
    return {"file_id": file_id, "lines": len(text.splitlines())}


@verb
def copy_file(call: Caller, file_id: int, folder_id: int, name: str) -> Row:
    """Copy a file that you may read into one of your folders.

    Returns:
        file_id: integer

    Raises:
        404: there is no such file or folder
        409: the folder has a file of that name
    """
    file = call.read(FILE, file_id)
    call.own("files.folder", folder_id)
    if not 1 <= len(name) <= 80:
        raise ApiError(422, "A name has 1 to 80 characters.")
    if call.state.find(FILE, owner=call.person, folder_id=folder_id, name=name):
        raise ApiError(409, f"The folder has a file '{name}'.")
    row = {"owner": call.person, "folder_id": folder_id, "name": name, "text": file["text"]}
    return {"file_id": call.state.insert(FILE, row | {"made": call.now})}


@verb
def share_file(call: Caller, file_id: int, email: str) -> Row:
    """Let somebody else read a file of yours.

    Returns:
        share_id: integer
        shared_with: string

    Raises:
        403: the file is somebody else's
        404: there is no such file, or nobody else has that address
        409: they may read it already
    """
    call.own(FILE, file_id)
    if email == call.email() or not call.state.find("supervisor.person", email=email):
        raise ApiError(404, f"Nobody else has the address '{email}'.")
    if call.state.find(SHARE, file_id=file_id, email=email):
        raise ApiError(409, f"'{email}' may read it already.")
    id = call.state.insert(SHARE, {"owner": call.person, "file_id": file_id, "email": email})
    return {"share_id": id, "shared_with": email}


VERBS = (append_to_file, copy_file, share_file)
