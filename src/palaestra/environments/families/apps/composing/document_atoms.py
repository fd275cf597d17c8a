"""Goals over documents of office programs: sheets, letters and invoices."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence

from palaestra.environments.families.apps.composing.draws import WORDS
from palaestra.environments.families.apps.composing.goal import (
    Atom,
    Gap,
    Path,
    Slots,
    Steps,
    call,
    findable,
    first,
    mine,
    swapped,
)
from palaestra.environments.families.apps.composing.people_atoms import FACT
from palaestra.environments.families.apps.office_formats import (
    Cell,
    page_texts,
    paragraphs,
    sheet_rows,
)
from palaestra.environments.families.apps.world import World

DOCUMENT = "documents.document"
PAYEE = re.compile(r"Pay to: (\S+)")
AMOUNT = re.compile(r"^(.+): (\d+\.\d\d)$", re.MULTILINE)
TOTAL = "Total"


class DocumentAtom(Atom):
    """A goal about a document that is named."""

    apps = frozenset({"documents"})
    kind = "sheet"

    def documents(self, world: World) -> dict[str, str]:
        """Return the contents of the person's documents of this kind, by their names."""
        rows = [row for row in mine(world, DOCUMENT) if row["kind"] == self.kind]
        return {row["name"]: row["content"] for row in findable(world, DOCUMENT, "name", rows)}

    def document(self, slots: Slots) -> Steps:
        """Yield a search for the document; return its id."""
        found = yield from first("documents.search_documents", query=slots["document"])
        return found["id"]


class SumColumn(DocumentAtom):
    name = "sum a column"
    answers = True
    words = (
        "What do the values in the column '{column}' of the sheet '{document}' add up to?",
        "Add up the column '{column}' of my sheet '{document}' and tell me the sum.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        sheets = self.documents(world)
        if not sheets:
            return None
        name = rng.choice(list(sheets))
        head = sheet_rows(sheets[name])[0]
        return {"document": name, "column": rng.choice(head[1:]), "skipped": 0}

    def steps(self, slots: Slots) -> Steps:
        id = yield from self.document(slots)
        rows = (yield call("documents.read_sheet", document_id=id))["rows"]
        at = _place(rows[0], slots["column"])
        values = [row[at] for row in rows[1 + slots["skipped"] :]]
        return round(sum(value for value in values if isinstance(value, (int, float))), 2)

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        sheets = self.documents(world)
        head = sheet_rows(sheets[slots["document"]])[0]
        return swapped(slots, document=sheets, column=head[1:], skipped=[1])


class CorrectCell(DocumentAtom):
    name = "correct a cell"
    words = (
        "In the sheet '{document}', the {column} of '{item}' should be {value}. Correct it.",
        "Set the {column} of '{item}' to {value} in my sheet '{document}'.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        sheets = self.documents(world)
        if not sheets:
            return None
        name = rng.choice(list(sheets))
        head, *rows = sheet_rows(sheets[name])
        row, at = rng.choice(rows), rng.randrange(1, len(head))
        value = rng.choice([number for number in range(2, 60) if number != row[at]])
        return {"document": name, "column": head[at], "item": row[0], "value": value}

    def steps(self, slots: Slots) -> Steps:
        id = yield from self.document(slots)
        rows = (yield call("documents.read_sheet", document_id=id))["rows"]
        column = chr(ord("A") + _place(rows[0], slots["column"]))
        cell = f"{column}{_place([row[0] for row in rows], slots['item']) + 1}"
        yield call("documents.set_cell", document_id=id, cell=cell, value=slots["value"])

    def gaps(self, slots: Slots) -> Mapping[Path, Gap]:
        return {("value",): Gap("integer", slots.get("column", "value"))}

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        head, *rows = sheet_rows(self.documents(world)[slots["document"]])
        items: list[Cell] = [row[0] for row in rows]
        return swapped(slots, column=head[1:], item=items, value=[slots["value"] + 1])


class AmendLetter(DocumentAtom):
    name = "amend a letter"
    kind = "letter"
    words = (
        "In the letter '{document}', the {what} of the {thing} is out of date. It is {new} now; "
        "correct it.",
        "The {what} of the {thing} changed to {new}. Put that into my letter '{document}'.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        letters = self.documents(world)
        if not letters:
            return None
        name = rng.choice(list(letters))
        what, thing, old = rng.choice(_facts(letters[name]))
        new = rng.choice([str(n) for n in range(100, 999) if str(n) != old])
        return {"document": name, "what": what, "thing": thing, "new": new}

    def steps(self, slots: Slots) -> Steps:
        id = yield from self.document(slots)
        read = (yield call("documents.read_letter", document_id=id))["paragraphs"]
        begin = f"The {slots['what']} of the {slots['thing']} is "
        number = _place([text.startswith(begin) for text in read], True) + 1
        text = f"{begin}{slots['new']}."
        yield call("documents.replace_paragraph", document_id=id, number=number, text=text)

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        others = [
            {**slots, "document": name, "what": what, "thing": thing}
            for name, letter in self.documents(world).items()
            for what, thing, _ in _facts(letter)
            if (what, thing) != (slots["what"], slots["thing"])
        ]
        rng.shuffle(others)
        return [*others[:3], *swapped(slots, new=[f"{slots['new']}0"])]


class AddParagraph(DocumentAtom):
    name = "add a paragraph"
    kind = "letter"
    words = (
        "Add the paragraph '{line}' at the end of the letter '{document}'.",
        "My letter '{document}' should end with one more paragraph: '{line}'.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        letters, line = self.documents(world), " ".join(rng.sample(WORDS, 4)).capitalize()
        return {"document": rng.choice(list(letters)), "line": f"{line}."} if letters else None

    def steps(self, slots: Slots) -> Steps:
        id = yield from self.document(slots)
        yield call("documents.append_paragraph", document_id=id, text=slots["line"])

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        line = " ".join(rng.sample(WORDS, 3))
        return swapped(slots, document=self.documents(world), line=[line])


class ExportLetter(DocumentAtom):
    name = "export a letter"
    kind = "letter"
    words = (
        "Save the letter '{document}' as a PDF named '{new}'.",
        "I need my letter '{document}' as a PDF. Call it '{new}'.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        letters, new = self.documents(world), f"{'-'.join(rng.sample(WORDS, 2))}.pdf"
        return {"document": rng.choice(list(letters)), "new": new} if letters else None

    def steps(self, slots: Slots) -> Steps:
        id = yield from self.document(slots)
        yield call("documents.export_pdf", document_id=id, name=slots["new"])

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        return swapped(slots, document=self.documents(world), new=[f"{rng.choice(WORDS)}.pdf"])


class PayInvoice(DocumentAtom):
    name = "pay an invoice"
    apps = frozenset({"documents", "bank"})
    kind = "pdf"
    words = (
        "Pay the invoice '{document}'.",
        "The invoice '{document}' is due. Read it and transfer its total.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        invoices = self.documents(world)
        return {"document": rng.choice(list(invoices)), "line": TOTAL} if invoices else None

    def steps(self, slots: Slots) -> Steps:
        id = yield from self.document(slots)
        text = "\n".join((yield call("documents.read_pdf", document_id=id))["pages"])
        amounts, payees = dict(AMOUNT.findall(text)), PAYEE.findall(text)
        yield call("bank.send_money", payee=payees[0], amount=float(amounts[slots["line"]]))

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        invoices = self.documents(world)
        amounts = AMOUNT.findall("\n".join(page_texts(invoices[slots["document"]])))
        return swapped(slots, document=invoices, line=[line for line, _ in amounts])


KINDS: tuple[type[Atom], ...] = (
    SumColumn,
    CorrectCell,
    AmendLetter,
    AddParagraph,
    ExportLetter,
    PayInvoice,
)


def _place(values: Sequence[object], wanted: object) -> int:
    """Return the first place of a value, from 0; raises IndexError, at which a reference stops."""
    places = [at for at, value in enumerate(values) if value == wanted]
    return places[0]


def _facts(letter: str) -> list[tuple[str, str, str]]:
    return FACT.findall("\n".join(paragraphs(letter)))
