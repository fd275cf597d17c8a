"""What documents can do: be read, be edited, and become a PDF."""

from __future__ import annotations

from collections.abc import Callable

from palaestra.environments.families.apps import office_formats
from palaestra.environments.families.apps.compiler.api import ApiError, Caller
from palaestra.environments.families.apps.compiler.verbs import reading, verb
from palaestra.environments.families.apps.office_formats import Cell, DocumentError
from palaestra.environments.families.apps.state import Row

DOCUMENT = "documents.document"
SHOWN = 50  # rows of a sheet that one call returns
LARGEST = 400_000  # characters of a document in base64


@reading
def read_sheet(call: Caller, document_id: int, first_row: int = 1) -> Row:
    """Read up to 50 rows of a sheet; rows count from 1, and columns from A.

    Returns:
        rows: array
        total_rows: integer

    Raises:
        404: there is no such document
        409: it is no sheet
    """
    document = _content(call, document_id, "sheet")
    rows = [list(row) for row in office_formats.sheet_rows(document)]
    if first_row < 1:
        raise ApiError(422, "Rows count from 1.")
    return {"rows": rows[first_row - 1 :][:SHOWN], "total_rows": len(rows)}


@verb
def set_cell(call: Caller, document_id: int, cell: str, value: str | float) -> Row:
    """Write a value into a cell of a sheet, such as B3; an empty text clears it.

    Returns:
        document_id: integer

    Raises:
        404: there is no such document
        409: it is no sheet
    """
    document = _content(call, document_id, "sheet")
    return _write(call, document_id, lambda: office_formats.with_cell(document, cell, value))


@verb
def append_row(call: Caller, document_id: int, values: list[str | float]) -> Row:
    """Add a row below the last one of a sheet.

    Returns:
        document_id: integer

    Raises:
        404: there is no such document
        409: it is no sheet
    """
    document, cells = _content(call, document_id, "sheet"), tuple[Cell, ...](values)
    return _write(call, document_id, lambda: office_formats.with_row(document, cells))


@reading
def read_letter(call: Caller, document_id: int) -> Row:
    """Read the paragraphs of a letter; they count from 1.

    Returns:
        paragraphs: array

    Raises:
        404: there is no such document
        409: it is no letter
    """
    return {"paragraphs": [*office_formats.paragraphs(_content(call, document_id, "letter"))]}


@verb
def append_paragraph(call: Caller, document_id: int, text: str) -> Row:
    """Add a paragraph at the end of a letter.

    Returns:
        document_id: integer

    Raises:
        404: there is no such document
        409: it is no letter
    """
    document = _content(call, document_id, "letter")
    return _write(call, document_id, lambda: office_formats.with_paragraph(document, text))


@verb
def replace_paragraph(call: Caller, document_id: int, number: int, text: str) -> Row:
    """Write other words into a paragraph of a letter; an empty text removes it.

    Args:
        number: which paragraph; they count from 1

    Returns:
        document_id: integer

    Raises:
        404: there is no such document
        409: it is no letter
    """
    document = _content(call, document_id, "letter")
    return _write(
        call, document_id, lambda: office_formats.with_other_paragraph(document, number, text)
    )


@reading
def read_pdf(call: Caller, document_id: int) -> Row:
    """Read the text of a PDF, page by page.

    Returns:
        pages: array

    Raises:
        404: there is no such document
        409: it is no PDF
    """
    return {"pages": [*office_formats.page_texts(_content(call, document_id, "pdf"))]}


@verb
def export_pdf(call: Caller, document_id: int, name: str) -> Row:
    """Save a sheet or a letter as a PDF beside it, under a new name.

    Returns:
        document_id: integer

    Raises:
        404: there is no such document
        409: it is a PDF, or the folder has a document of that name
    """
    row = call.own(DOCUMENT, document_id)
    if row["kind"] == "pdf":
        raise ApiError(409, "It is a PDF.")
    if not 1 <= len(name) <= 80:
        raise ApiError(422, "A name has 1 to 80 characters.")
    beside = {"owner": call.person, "folder_id": row["folder_id"], "name": name}
    if call.state.find(DOCUMENT, **beside):
        raise ApiError(409, f"The folder has a document '{name}'.")
    try:
        content = office_formats.pages(tuple(office_formats.lines_of(row["content"])))
    except DocumentError as error:
        raise ApiError(422, str(error)) from None
    made = {"kind": "pdf", "content": content, "made": call.now}
    return {"document_id": call.state.insert(DOCUMENT, beside | made)}


VERBS = (
    read_sheet,
    set_cell,
    append_row,
    read_letter,
    append_paragraph,
    replace_paragraph,
    read_pdf,
    export_pdf,
)


def _content(call: Caller, document_id: int, kind: str) -> str:
    """Return a document of the caller's; raises ApiError if it is of another kind."""
    row = call.own(DOCUMENT, document_id)
    if row["kind"] != kind:
        raise ApiError(409, f"'{row['name']}' is a {row['kind']}, and no {kind}.")
    return str(row["content"])


def _write(call: Caller, document_id: int, edited: Callable[[], str]) -> Row:
    """Keep what an edit makes of a document; raises ApiError if the document refuses it."""
    try:
        content = edited()
    except DocumentError as error:
        raise ApiError(422, str(error)) from None
    if len(content) > LARGEST:
        raise ApiError(422, f"A document has at most {LARGEST * 3 // 4} bytes.")
    call.state.update(DOCUMENT, document_id, {"content": content})
    return {"document_id": document_id}
