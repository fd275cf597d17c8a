"""What people keep for themselves: notes, lists of things to do, files and documents."""

from __future__ import annotations

from palaestra.environments.families.apps import office_formats
from palaestra.environments.families.apps.histories.scene import Scene
from palaestra.environments.families.apps.office_formats import Cell
from palaestra.environments.families.apps.people import Person
from palaestra.environments.families.apps.state import Row

NOTEBOOKS = ("Home", "Ideas", "Garden", "Books", "Recipes", "Journeys", "Money")
LISTS = {
    "Groceries": ("bread", "milk", "apples", "rice", "coffee", "cheese", "tomatoes", "salt"),
    "Packing": ("passport", "charger", "toothbrush", "boots", "torch", "raincoat", "map"),
    "Repairs": ("dripping tap", "loose shelf", "kitchen lamp", "garage door", "front bell"),
    "Letters": ("insurance", "tax office", "landlord", "school", "bank", "aunt Frida"),
    "Spring cleaning": ("windows", "cellar", "carpets", "oven", "curtains", "attic"),
}
PRIORITIES = ("low", "normal", "normal", "high")
FOLDERS = ("Letters", "Taxes", "Minutes", "Plans", "Receipts")


def notes(scene: Scene) -> None:
    """Write notebooks with notes, and lists on which some things are done."""
    rng, state = scene.rng, scene.state
    row: Row
    for person in scene.active:
        own = {"owner": person.id}
        books = [
            state.insert("notes.notebook", own | {"name": name})
            for name in rng.sample(NOTEBOOKS, 3)
        ]
        for thing, other in zip(scene.things(8), scene.things(8), strict=True):
            row = own | {"notebook_id": rng.choice(books), "title": thing.capitalize()}
            row |= {"text": f"Ask whether the {other} is still there.", "pinned": False}
            state.insert("notes.note", row)
        for name in rng.sample(list(LISTS), 3):
            checklist = state.insert("notes.checklist", own | {"name": name})
            for text in rng.sample(LISTS[name], rng.randint(4, 5)):
                row = own | {"checklist_id": checklist, "text": text, "done": rng.random() < 0.4}
                state.insert("notes.item", row | {"priority": rng.choice(PRIORITIES)})


def files(scene: Scene) -> None:
    """Write folders with files; some are shared, also by others with each active person."""
    rng, state = scene.rng, scene.state
    row: Row
    for person in scene.active:
        for owner, number in ((person, 7), (rng.choice(scene.known(person)), 2)):
            folders = [
                state.insert("files.folder", {"owner": owner.id, "name": name})
                for name in rng.sample(FOLDERS, 3)
                if not state.find("files.folder", owner=owner.id, name=name)
            ]
            for thing in scene.things(number if folders else 0):
                row = {"owner": owner.id, "folder_id": rng.choice(folders)}
                row |= {"name": f"{thing.replace(' ', '-')}.txt", "made": scene.past(1, 90)[0]}
                lines = [f"About the {other}." for other in scene.things(rng.randint(2, 4))]
                file = state.insert("files.file", row | {"text": "\n".join(lines)})
                reader = person if owner is not person else rng.choice(scene.known(person))
                if owner is not person or rng.random() < 0.3:
                    row = {"owner": owner.id, "file_id": file, "email": reader.email}
                    state.insert("files.share", row)


def documents(scene: Scene) -> None:
    """Write sheets, letters and invoices into the folders of each active person."""
    rng, state = scene.rng, scene.state
    for person in scene.active:
        folders = state.find("files.folder", owner=person.id)
        made: list[tuple[str, str, str]] = []
        for thing in scene.things(3):
            rows: list[list[Cell]] = [
                [item.capitalize(), rng.randint(6, 80) / 2, rng.randint(1, 9)]
                for item in scene.things(rng.randint(4, 7))
            ]
            head: list[Cell] = ["Item", "Price", "Pieces"]
            made.append(("sheet", f"{thing}.xlsx", office_formats.sheet([head, *rows])))
        for thing in scene.things(3):
            other = rng.choice(scene.known(person))
            facts = scene.facts(scene.things(2))
            said = [f"Dear {other.first},", *facts, f"Kind regards, {person.first}"]
            made.append(("letter", f"{thing}.docx", office_formats.letter(said)))
        for thing in scene.things(3):
            lines = _invoice(scene, rng.choice(scene.known(person)))
            made.append(("pdf", f"{thing}.pdf", office_formats.pages(tuple(lines))))
        for kind, name, content in made:
            row: Row = {"owner": person.id, "folder_id": rng.choice(folders)["id"], "kind": kind}
            row |= {"name": name.replace(" ", "-"), "content": content}
            state.insert("documents.document", row | {"made": scene.past(1, 60)[0]})


def _invoice(scene: Scene, biller: Person) -> list[str]:
    """Return the lines of an invoice, with the total of what it lists."""
    prices = {thing.capitalize(): scene.rng.randint(6, 60) / 2 for thing in scene.things(3)}
    return [
        f"Invoice {scene.rng.randint(10_000, 99_999)}",
        f"From {biller.name}",
        *(f"{thing}: {price:.2f}" for thing, price in prices.items()),
        f"Total: {sum(prices.values()):.2f}",
        f"Pay to: {biller.email}",
    ]
