"""Sheets (xlsx), letters (docx) and pages (pdf): read, edited and compared, as bytes in base64.

Equal edits of equal documents give equal bytes: dates are fixed, and no id is random. Two documents
mean the same if their cells, paragraphs or pages do, whatever their bytes are (`meaning`).

The packages that read and write them (openpyxl, python-docx, pypdf, fpdf2) are imported where they
are used; `require_packages` says which are missing.

What was read or edited is remembered: forks of a world do the same to the same document again and
again, and each edit takes some 30 ms.
"""

from __future__ import annotations

import base64
import re
import zipfile
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from importlib.util import find_spec
from io import BytesIO
from typing import Any

from palaestra.core.errors import MissingPackage
from palaestra.environments.families.apps.compiler.blueprint import LONGEST

Cell = str | int | float | bool | None
PACKAGES = {"openpyxl": "openpyxl", "docx": "python-docx", "pypdf": "pypdf", "fpdf": "fpdf2"}
"""Packages by the name of their module."""

ROWS, COLUMNS = 1000, 26  # of a sheet
CELL = re.compile(r"([A-Z])([1-9]\d{0,3})")
NUMBER = re.compile(r"-?(0|[1-9]\d{0,14})(\.\d+)?")  # what a sheet stores as a number
UNSTORABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # XML lacks them
PDF = b"%PDF"
SHEET_PART = "xl/workbook.xml"  # that only an xlsx has
MADE = datetime(2026, 1, 1, tzinfo=UTC)  # the date in all documents
ENTRY_DATE = (1980, 1, 1, 0, 0, 0)  # of the files in a zip
REMEMBERED = 512  # documents, for each way to read or edit them


class DocumentError(Exception):
    """Something that a document of that kind cannot hold, or does not have; one sentence."""


def require_packages() -> None:
    """Raise MissingPackage unless all packages for documents are installed."""
    missing = [name for module, name in PACKAGES.items() if find_spec(module) is None]
    if missing:
        raise MissingPackage(
            f"Documents of office programs need {', '.join(missing)}, which {_is(missing)} not "
            "installed; install the extra with: pip install 'palaestra[documents]'."
        )


# ── sheets ───────────────────────────────────────────────────────────────────


def sheet(rows: Sequence[Sequence[Cell]]) -> str:
    """Return a new sheet with these rows."""
    from openpyxl import Workbook

    book = Workbook()
    for row in rows:
        book.active.append(list(row))
    return _saved(book)


@lru_cache(maxsize=REMEMBERED)
def sheet_rows(document: str) -> tuple[tuple[Cell, ...], ...]:
    """Return all cells of a sheet, row by row, as far as anything stands there."""
    page = _book(document).active
    if page.max_row == page.max_column == 1 and page["A1"].value is None:
        return ()
    return tuple(page.iter_rows(values_only=True))


@lru_cache(maxsize=REMEMBERED, typed=True)
def with_cell(document: str, cell: str, value: Cell) -> str:
    """Return a sheet with another value in one cell; an empty text clears it.

    Raises:
        DocumentError: there is no such cell, or it cannot hold the value.
    """
    book = _book(document)
    column, row = _position(cell)
    _put(book.active, row, column, value)
    return _saved(book)


@lru_cache(maxsize=REMEMBERED, typed=True)
def with_row(document: str, values: tuple[Cell, ...]) -> str:
    """Return a sheet with a row below its last one; raises DocumentError as `with_cell` does."""
    book, row = _book(document), len(sheet_rows(document)) + 1
    if row > ROWS or len(values) > COLUMNS:
        raise DocumentError(f"A sheet has at most {ROWS} rows and {COLUMNS} columns.")
    for column, value in enumerate(values, 1):
        _put(book.active, row, column, value)
    return _saved(book)


def _position(cell: str) -> tuple[int, int]:
    """Return the column and the row of a cell such as B3, both from 1."""
    found = CELL.fullmatch(cell)
    if found is None or int(found[2]) > ROWS:
        raise DocumentError(f"'{cell}' is no cell; name one from A1 to Z{ROWS}, such as B3.")
    return ord(found[1]) - ord("A") + 1, int(found[2])


def _put(page: Any, row: int, column: int, value: Cell) -> None:
    """Write a value as it would be typed: 12.50 is a number, an empty text nothing."""
    if isinstance(value, str) and NUMBER.fullmatch(value):
        value = float(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value in ("", None):
        page._cells.pop((row, column), None)  # what was never written has no trace
        return
    page.cell(row, column).value = _storable(value) if isinstance(value, str) else value


def _book(document: str) -> Any:
    from openpyxl import load_workbook

    return load_workbook(BytesIO(base64.b64decode(document)))


# ── letters ──────────────────────────────────────────────────────────────────


def letter(paragraphs: Sequence[str]) -> str:
    """Return a new letter with these paragraphs."""
    from docx import Document

    text = Document()
    relations = text.part.package.rels
    for key in [key for key, one in relations.items() if one.reltype.endswith("/thumbnail")]:
        del relations[key]  # a picture of an empty page, two thirds of the file
    for words in paragraphs:
        text.add_paragraph(words)
    return _saved(text)


@lru_cache(maxsize=REMEMBERED)
def paragraphs(document: str) -> tuple[str, ...]:
    """Return the paragraphs of a letter."""
    return tuple(one.text for one in _letter(document).paragraphs)


@lru_cache(maxsize=REMEMBERED, typed=True)
def with_paragraph(document: str, words: str) -> str:
    """Return a letter with one more paragraph at its end; raises DocumentError."""
    text = _letter(document)
    text.add_paragraph(_storable(words))
    return _saved(text)


@lru_cache(maxsize=REMEMBERED, typed=True)
def with_other_paragraph(document: str, number: int, words: str) -> str:
    """Return a letter with other words in a paragraph, from 1; an empty text removes it.

    Raises:
        DocumentError: there is no such paragraph, or it cannot hold the words.
    """
    text = _letter(document)
    if not 1 <= number <= len(text.paragraphs):
        raise DocumentError(f"The letter has the paragraphs 1 to {len(text.paragraphs)}.")
    chosen = text.paragraphs[number - 1]
    if not words:
        chosen._element.getparent().remove(chosen._element)
        return _saved(text)
    chosen.text = _storable(words)
    return _saved(text)


def _letter(document: str) -> Any:
    from docx import Document

    return Document(BytesIO(base64.b64decode(document)))


# ── pages ────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=REMEMBERED)
def pages(lines: tuple[str, ...]) -> str:
    """Return a new PDF with lines of text, on as many pages as they need.

    Raises:
        DocumentError: a line has characters that the fonts of every PDF reader do not have.
    """
    from fpdf import FPDF

    pdf = FPDF()
    pdf.set_creation_date(MADE)
    pdf.set_font("Helvetica", size=11)
    pdf.add_page()
    for line in lines:
        try:
            line.encode("latin-1")
        except UnicodeEncodeError:
            raise DocumentError(f"A PDF cannot show all characters of '{line}'.") from None
        pdf.multi_cell(0, 6, line, new_x="LMARGIN", new_y="NEXT")
    return base64.b64encode(bytes(pdf.output())).decode()


@lru_cache(maxsize=REMEMBERED)
def page_texts(document: str) -> tuple[str, ...]:
    """Return the text of each page of a PDF."""
    from pypdf import PdfReader

    found = PdfReader(BytesIO(base64.b64decode(document)))
    return tuple(page.extract_text() for page in found.pages)


# ── of all kinds ─────────────────────────────────────────────────────────────


def lines_of(document: str) -> list[str]:
    """Return what a document of any kind says, as lines: the cells of a row are one."""
    kind, parts = _parts(document)
    if kind == "sheet":
        return [" | ".join("" if cell is None else str(cell) for cell in row) for row in parts]
    return [line for part in parts for line in part.splitlines()]


@lru_cache(maxsize=REMEMBERED)
def meaning(document: str | None) -> tuple[Any, ...]:
    """Return what a document says, so that two that say the same are equal; None: nothing.

    Case and spacing of texts do not count, and 25 is 25.0.
    """
    if document is None:
        return ()
    kind, parts = _parts(document)
    if kind != "sheet":
        return (kind, *(_plain(part) for part in parts))
    cells = [
        (row, column, _plain(value))
        for row, values in enumerate(parts)
        for column, value in enumerate(values)
        if value is not None
    ]
    return (kind, *cells)


def _parts(document: str) -> tuple[str, Sequence[Any]]:
    """Return the kind of a document, and its rows, paragraphs or pages."""
    data = base64.b64decode(document)
    if data.startswith(PDF):
        return "pdf", page_texts(document)
    with zipfile.ZipFile(BytesIO(data)) as parts:
        if SHEET_PART in parts.namelist():
            return "sheet", sheet_rows(document)
    return "letter", paragraphs(document)


def _plain(value: Cell) -> Any:
    if isinstance(value, str):
        return " ".join(value.casefold().split())
    return value if isinstance(value, bool) or value is None else float(value)


def _saved(document: Any) -> str:
    """Return the bytes of a sheet or a letter, in which no time is that of its making."""
    written, fixed = BytesIO(), BytesIO()
    document.save(written)
    date = rb">" + MADE.strftime("%Y-%m-%dT%H:%M:%SZ").encode() + rb"</dcterms:\1>"
    with zipfile.ZipFile(written) as old, zipfile.ZipFile(fixed, "w") as new:
        for name in old.namelist():
            entry = zipfile.ZipInfo(name, ENTRY_DATE)
            part = re.sub(rb">[^<]*</dcterms:(created|modified)>", date, old.read(name))
            new.writestr(entry, part, zipfile.ZIP_DEFLATED)
    return base64.b64encode(fixed.getvalue()).decode()


def _storable(text: str) -> str:
    """Return a text that a document can hold; raises DocumentError for any other."""
    if UNSTORABLE.search(text):
        raise DocumentError("The text has characters that a document cannot hold.")
    if len(text) > LONGEST:
        raise DocumentError(f"A text in a document has at most {LONGEST} characters.")
    return text


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
