"""An app of your own, and a kind of goal over it: people lend each other books.

Run it: python examples/own_apps.py
"""

from collections.abc import Sequence
from random import Random

import palaestra as pa
from palaestra.environments.families.apps.app import App
from palaestra.environments.families.apps.compiler.api import ApiError, Caller
from palaestra.environments.families.apps.compiler.blueprint import parse
from palaestra.environments.families.apps.compiler.verbs import verb
from palaestra.environments.families.apps.composing.goal import (
    Atom,
    Slots,
    Steps,
    call,
    findable,
    first,
    swapped,
)
from palaestra.environments.families.apps.environment import Apps
from palaestra.environments.families.apps.setting import Setting
from palaestra.environments.families.apps.world import World

BLUEPRINT = """
app = "library"
about = "Books that people own, and to whom they lent them."

[entities.book]
about = "A book."
owner = "owner"
search = ["title", "author"]
fields.owner = {type = "person", by = "service"}
fields.title = {type = "text", least = 1, most = 80}
fields.author = {type = "text", most = 80}
fields.condition = {type = "choice", choices = ["new", "good", "worn"], default = "good"}

[entities.loan]
about = "A book that somebody else has."
owner = "owner" # who lent it
readers = ["borrower"]
unique = [["book_id"]]
endpoints = ["list", "show", "delete"]
fields.owner = {type = "person", by = "service"}
fields.book_id = {type = "integer", refers = "book", by = "service"}
fields.borrower = {type = "email", by = "service"}
fields.due = "date"
"""


@verb
def lend_book(call: Caller, book_id: int, borrower: str, due: str) -> dict[str, int]:
    """Lend a book of yours to somebody.

    Args:
        borrower: an email address
        due: a date, such as 2026-03-31

    Raises:
        404: you have no such book
        409: somebody has it already
    """
    call.own("library.book", book_id)
    if call.state.find("library.loan", book_id=book_id):
        raise ApiError(409, "Somebody has this book already.")
    row = {"owner": call.person, "book_id": book_id, "borrower": borrower, "due": due}
    return {"loan_id": call.state.insert("library.loan", row)}


class Lend(Atom):
    """A book that a person shall have until a day."""

    name = "lend a book"
    apps = frozenset({"library"})
    words = ("Lend the book '{title}' to {email} until {due}.",)

    def _titles(self, world: World) -> list[str]:
        lent = {row["book_id"] for row in world.state.rows("library.loan")}
        books = findable(world, "library.book", "title")
        return [book["title"] for book in books if book["id"] not in lent]

    def draw(self, world: World, rng: Random) -> Slots | None:
        people = world.state.rows("supervisor.person", "id > 1")
        slots = {"email": rng.choice(people)["email"], "due": f"2026-04-{rng.randint(10, 30)}"}
        titles = self._titles(world)
        return {**slots, "title": rng.choice(titles)} if titles else None

    def steps(self, slots: Slots) -> Steps:
        book = yield from first("library.search_books", query=slots["title"])
        given = {"borrower": slots["email"], "due": slots["due"]}
        yield call("library.lend_book", book_id=book["id"], **given)

    def near_misses(self, slots: Slots, world: World, rng: Random) -> Sequence[Slots]:
        return swapped(slots, title=self._titles(world), due=["2026-05-01"])


class Library(Apps):
    """Tasks about the library: lending, and all that any entity allows."""

    setting = Setting.of([App(parse(BLUEPRINT), (lend_book,))], atoms=[Lend])


if __name__ == "__main__":
    results = pa.evaluate(Library, model="expert", n=16)
    print(results)
    results.episodes[0].show()
    # Saved as my_module.py it is "my_module:Library" on the command line, too:
    # `palaestra check-env my_module:Library/hard:discover` checks four goals, found by discovery.
