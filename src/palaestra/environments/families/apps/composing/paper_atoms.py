"""Goals over what one keeps: notes, lists of things to do, and files."""

from __future__ import annotations

import random
from collections.abc import Sequence

from palaestra.environments.families.apps.composing.draws import WORDS
from palaestra.environments.families.apps.composing.goal import (
    Atom,
    Slots,
    Steps,
    call,
    findable,
    first,
    mine,
    swapped,
)
from palaestra.environments.families.apps.composing.stock_atoms import (
    ToContact,
    address,
    named_contacts,
)
from palaestra.environments.families.apps.world import World


class FinishList(Atom):
    name = "finish a list"
    apps = frozenset({"notes"})
    words = (
        "Mark everything on the list '{checklist}' as done.",
        "I did all that was on my list '{checklist}'. Tick off what is still open.",
    )

    def _open(self, world: World) -> dict[str, int]:
        """Return the lists with things that are not done, and how many."""
        rows = findable(world, "notes.checklist", "name")
        left = {
            row["name"]: len(world.state.find("notes.item", checklist_id=row["id"], done=False))
            for row in rows
        }
        return {name: number for name, number in left.items() if number}

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        lists = list(self._open(world))
        return {"checklist": rng.choice(lists), "most": 20} if lists else None

    def steps(self, slots: Slots) -> Steps:
        checklist = yield from first("notes.search_checklists", query=slots["checklist"])
        found = yield call(
            "notes.list_items", checklist_id=checklist["id"], done=False, per_page=20
        )
        for item in found["items"][: slots["most"]]:
            yield call("notes.update_item", item_id=item["id"], done=True)

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        lists = self._open(world)
        return swapped(slots, checklist=lists, most=[lists[slots["checklist"]] - 1])


class MoveNote(Atom):
    name = "move a note"
    apps = frozenset({"notes"})
    words = (
        "Move the note '{note}' into the notebook '{notebook}'.",
        "The note '{note}' belongs into the notebook '{notebook}'. Put it there.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        notes, books = findable(world, "notes.note", "title"), mine(world, "notes.notebook")
        if not notes:
            return None
        note = rng.choice(notes)
        others = [row["name"] for row in books if row["id"] != note["notebook_id"]]
        return {"note": note["title"], "notebook": rng.choice(others)} if others else None

    def steps(self, slots: Slots) -> Steps:
        note = yield from first("notes.search_notes", query=slots["note"])
        book = yield from first("notes.search_notebooks", query=slots["notebook"])
        yield call("notes.update_note", note_id=note["id"], notebook_id=book["id"])

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        titles = [row["title"] for row in findable(world, "notes.note", "title")]
        books = [row["name"] for row in mine(world, "notes.notebook")]
        return swapped(slots, note=titles, notebook=books)


class FileAtom(Atom):
    """A goal about a file that is named."""

    def files(self, world: World) -> list[str]:
        return [row["name"] for row in findable(world, "files.file", "name")]

    def file(self, slots: Slots) -> Steps:
        """Yield a search for the file; return its id."""
        found = yield from first("files.search_files", query=slots["file"])
        return found["id"]


class AppendLine(FileAtom):
    name = "append to a file"
    apps = frozenset({"files"})
    words = (
        "Add the line '{line}' at the end of the file '{file}'.",
        "The file '{file}' needs one more line at its end: '{line}'.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        files, line = self.files(world), " ".join(rng.sample(WORDS, 3))
        return {"file": rng.choice(files), "line": line} if files else None

    def steps(self, slots: Slots) -> Steps:
        id = yield from self.file(slots)
        yield call("files.append_to_file", file_id=id, line=slots["line"])

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        return swapped(slots, file=self.files(world), line=[" ".join(rng.sample(WORDS, 2))])


class RenameFile(FileAtom):
    name = "rename a file"
    apps = frozenset({"files"})
    words = (
        "Rename the file '{file}' to '{new}'.",
        "The file '{file}' should be called '{new}'.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        files, new = self.files(world), f"{'-'.join(rng.sample(WORDS, 2))}.txt"
        return {"file": rng.choice(files), "new": new} if files else None

    def steps(self, slots: Slots) -> Steps:
        id = yield from self.file(slots)
        yield call("files.update_file", file_id=id, name=slots["new"])

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        return swapped(slots, file=self.files(world), new=[f"{rng.choice(WORDS)}.txt"])


class ShareFile(FileAtom, ToContact):
    name = "share a file"
    apps = frozenset({"files", "contacts"})
    words = (
        "Share the file '{file}' with {name}.",
        "{name} should be able to read my file '{file}'. Share it.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        files, contacts = self.files(world), named_contacts(world)
        if not files or not contacts:
            return None
        return {"file": rng.choice(files), "name": rng.choice(contacts)["name"]}

    def steps(self, slots: Slots) -> Steps:
        email = yield from address(slots["name"])
        id = yield from self.file(slots)
        yield call("files.share_file", file_id=id, email=email)

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        return [*self.others(slots, world), *swapped(slots, file=self.files(world))]


KINDS: tuple[type[Atom], ...] = (FinishList, MoveNote, AppendLine, RenameFile, ShareFile)
