"""Sheets, letters and PDFs: what is written is read, equal edits are equal bytes."""

from __future__ import annotations

import base64
import io
import string
import time
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestra.core.errors import MissingPackage
from palaestra.environments.families.apps import office_formats as formats
from palaestra.environments.families.apps.office_formats import PACKAGES, Cell, DocumentError

for module in PACKAGES:
    pytest.importorskip(module, reason="needs the extra palaestra[documents]")

ROWS: tuple[tuple[Cell, ...], ...] = (("Item", "Price"), ("Tea", 12.5), ("Jam", 3))
TEXTS = st.text(string.ascii_letters + "äß ,.", min_size=1, max_size=12).map(str.strip)
WORDS = TEXTS.filter(bool)


def test_a_sheet_is_read_as_it_was_written_and_edited() -> None:
    sheet = formats.sheet(ROWS)
    assert formats.sheet_rows(sheet) == ROWS
    edited = formats.with_row(formats.with_cell(sheet, "B2", "13.50"), ("Bread", 4.0))
    assert formats.sheet_rows(edited) == (
        ("Item", "Price"),
        ("Tea", 13.5),
        ("Jam", 3),
        ("Bread", 4),
    )
    assert formats.sheet_rows(formats.with_cell(sheet, "B3", ""))[2] == ("Jam", None)
    assert formats.sheet_rows(formats.sheet([])) == ()
    for cell in ("b2", "A0", "AA1", "A1001", ""):
        with pytest.raises(DocumentError, match="is no cell"):
            formats.with_cell(sheet, cell, 1)
    with pytest.raises(DocumentError, match="cannot hold"):
        formats.with_cell(sheet, "A1", "\x07")


@settings(max_examples=15, deadline=None)
@given(value=st.one_of(WORDS, st.integers(-999, 999)), row=st.integers(2, 6))
def test_a_cell_that_is_set_back_leaves_the_bytes_of_before(value: Cell, row: int) -> None:
    sheet = formats.sheet(ROWS)
    before = (formats.sheet_rows(sheet)[row - 1 : row] or (("", ""),))[0][1]
    other = formats.with_cell(sheet, f"B{row}", value)
    assert formats.meaning(other) != formats.meaning(sheet) or value == before
    assert formats.with_cell(other, f"B{row}", before) == sheet


@settings(max_examples=6, deadline=None)
@given(paragraphs=st.lists(WORDS, min_size=1, max_size=4), words=WORDS)
def test_a_paragraph_that_is_set_back_leaves_the_bytes_of_before(
    paragraphs: list[str], words: str
) -> None:
    letter = formats.letter(paragraphs)
    assert formats.paragraphs(letter) == (*paragraphs,)
    other = formats.with_other_paragraph(letter, 1, words)
    assert formats.paragraphs(other) == (words, *paragraphs[1:])
    assert formats.with_other_paragraph(other, 1, paragraphs[0]) == letter
    longer = formats.with_paragraph(letter, words)
    assert formats.paragraphs(longer) == (*paragraphs, words)
    assert formats.with_other_paragraph(longer, len(paragraphs) + 1, "") == letter


def test_paragraphs_that_are_not_there_are_named() -> None:
    with pytest.raises(DocumentError, match="1 to 2"):
        formats.with_other_paragraph(formats.letter(["One", "Two"]), 3, "Three")
    with pytest.raises(DocumentError, match="cannot hold"):
        formats.with_paragraph(formats.letter([]), "\x00")


def test_a_pdf_says_line_by_line_what_was_written_on_as_many_pages_as_it_needs() -> None:
    short = formats.page_texts(formats.pages(("Invoice 7", "Total: 4.50")))
    assert [text.splitlines() for text in short] == [["Invoice 7", "Total: 4.50"]]
    long = formats.page_texts(formats.pages(tuple(f"Line {n}" for n in range(100))))
    assert len(long) > 1
    assert "\n".join(long).split() == " ".join(f"Line {n}" for n in range(100)).split()
    with pytest.raises(DocumentError, match="cannot show"):
        formats.pages(("日本",))


def test_documents_that_say_the_same_mean_the_same_whatever_their_bytes() -> None:
    sheet = formats.sheet(ROWS)
    parts = zipfile.ZipFile(io.BytesIO(base64.b64decode(sheet)))
    stored = io.BytesIO()
    with zipfile.ZipFile(stored, "w", zipfile.ZIP_STORED) as again:
        for name in parts.namelist():
            again.writestr(name, parts.read(name))
    other = base64.b64encode(stored.getvalue()).decode()
    assert other != sheet
    assert formats.meaning(other) == formats.meaning(sheet)
    assert formats.meaning(formats.letter(["A  b"])) == formats.meaning(formats.letter(["a B"]))
    assert formats.meaning(formats.letter(["Tea"])) != formats.meaning(formats.pages(("Tea",)))
    assert formats.meaning(formats.sheet([["Tea", 1]])) != formats.meaning(
        formats.sheet([["Tea", 2]])
    )


def test_no_time_and_no_chance_is_in_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    def made() -> list[str]:
        return [formats.sheet(ROWS), formats.letter(["Dear Ida,"]), formats.pages(("Total: 3.00",))]

    first, now = made(), time.time()
    monkeypatch.setattr(time, "time", lambda: now + 10**7)
    assert made() == first


def test_missing_packages_are_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    formats.require_packages()
    monkeypatch.setitem(PACKAGES, "no_such_module", "no-such-package")
    with pytest.raises(MissingPackage, match=r"need no-such-package, which is.*\[documents\]"):
        formats.require_packages()
