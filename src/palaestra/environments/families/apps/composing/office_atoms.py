"""Goals over what a company's people share: tickets, articles, and a program's files."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from palaestra.environments.families.apps.composing.draws import WORDS
from palaestra.environments.families.apps.composing.goal import (
    MAIN,
    Atom,
    Slots,
    Steps,
    call,
    findable,
    first,
    swapped,
)
from palaestra.environments.families.apps.composing.people_atoms import FACT
from palaestra.environments.families.apps.composing.stock_atoms import address
from palaestra.environments.families.apps.world import World


class OpenTicket(Atom):
    name = "open a ticket"
    apps = frozenset({"tracker"})
    words = (
        "Open a ticket '{title}' with {priority} priority in the project '{project}'.",
        "Report '{title}' as a ticket of the project '{project}'; its priority is {priority}.",
    )
    PRIORITIES = ("low", "normal", "high")

    def _projects(self, world: World) -> list[str]:
        return [row["name"] for row in world.state.rows("tracker.project")]

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        title = " ".join(rng.sample(WORDS, 3)).capitalize()
        slots = {"title": title, "priority": rng.choice(self.PRIORITIES)}
        return {**slots, "project": rng.choice(self._projects(world))}

    def steps(self, slots: Slots) -> Steps:
        project = yield from first("tracker.search_projects", query=slots["project"])
        given = {"title": slots["title"], "priority": slots["priority"]}
        yield call("tracker.create_ticket", project_id=project["id"], **given)

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        others = {"priority": self.PRIORITIES, "project": self._projects(world)}
        return swapped(slots, title=[f"{slots['title']} again"], **others)


class TicketAtom(Atom):
    """A goal about a ticket that is not closed."""

    def tickets(self, world: World) -> list[str]:
        rows = world.state.rows("tracker.ticket", "status <> ?", ["closed"])
        return [row["title"] for row in findable(world, "tracker.ticket", "title", rows)]

    def ticket(self, slots: Slots) -> Steps:
        """Yield a search for the ticket; return its id."""
        found = yield from first("tracker.search_tickets", query=slots["title"])
        return found["id"]


class AssignTicket(TicketAtom):
    name = "assign a ticket"
    apps = frozenset({"tracker", "contacts"})
    words = (
        "Assign the ticket '{title}' to {name}.",
        "{name} will take care of '{title}'. Hand over that ticket.",
    )

    def _colleagues(self, world: World) -> list[str]:
        rows = findable(world, "contacts.contact", "name")
        company = world.state.rows("supervisor.person")[0]["email"].partition("@")[2]
        return [row["name"] for row in rows if row["email"].endswith(f"@{company}")]

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        tickets, names = self.tickets(world), self._colleagues(world)
        if not tickets or not names:
            return None
        title, name = rng.choice(tickets), rng.choice(names)
        (ticket,) = world.state.find("tracker.ticket", title=title)
        (colleague,) = world.state.find("contacts.contact", owner=MAIN, name=name)
        taken = ticket["assignee"] == colleague["email"]
        return None if taken else {"title": title, "name": name}

    def steps(self, slots: Slots) -> Steps:
        email = yield from address(slots["name"])
        id = yield from self.ticket(slots)
        yield call("tracker.assign_ticket", ticket_id=id, email=email)

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        return swapped(slots, title=self.tickets(world), name=self._colleagues(world))


class CloseTicket(TicketAtom):
    name = "close a ticket"
    apps = frozenset({"tracker"})
    words = (
        "Close the ticket '{title}' and comment that it was solved by '{word}'.",
        "'{title}' is done. Close that ticket with a comment that names '{word}'.",
    )

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        tickets, word = self.tickets(world), " ".join(rng.sample(WORDS, 2))
        return {"title": rng.choice(tickets), "word": word} if tickets else None

    def mentions(self, slots: Slots) -> tuple[str, ...]:
        return (slots["word"],)

    def steps(self, slots: Slots) -> Steps:
        id = yield from self.ticket(slots)
        yield call("tracker.close_ticket", ticket_id=id, text=f"Solved by '{slots['word']}'.")

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        word = " ".join(rng.sample(WORDS, 3))
        return swapped(slots, title=self.tickets(world), word=[word])


class MergeChange(Atom):
    name = "merge a reviewed change"
    apps = frozenset({"repository"})
    words = (
        "One of the open changes to the file '{path}' was approved. Merge it.",
        "Merge the open change to '{path}' that a review approves of.",
    )

    def _paths(self, world: World) -> list[str]:
        """Return the files with exactly one open change that was approved."""
        state, found = world.state, []
        for file in findable(world, "repository.file", "path", state.rows("repository.file")):
            changes = [e["change_id"] for e in state.find("repository.edit", file_id=file["id"])]
            ready = [
                id
                for id in changes
                if state.find("repository.change", id=id, status="open")
                and self._approved(state.find("repository.review", change_id=id))
            ]
            found += [file["path"]] if len(ready) == 1 else []
        return found

    def _approved(self, reviews: Sequence[Any]) -> bool:
        return bool(reviews) and reviews[-1]["verdict"] == "approve"

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        paths = self._paths(world)
        return {"path": rng.choice(paths)} if paths else None

    def steps(self, slots: Slots) -> Steps:
        file = yield from first("repository.search_files", query=slots["path"])
        edits = yield call("repository.list_edits", file_id=file["id"], per_page=20)
        for edit in edits["edits"]:
            change = yield call("repository.show_change", change_id=edit["change_id"])
            if change["status"] != "open":
                continue
            reviews = yield call("repository.list_reviews", change_id=change["id"])
            if self._approved(reviews["reviews"]):
                yield call("repository.merge_change", change_id=change["id"])

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        return swapped(slots, path=self._paths(world))


class EditArticle(Atom):
    name = "edit a wiki article"
    apps = frozenset({"wiki"})
    words = (
        "On the wiki article '{title}', the {what} of the {thing} is out of date. It is {new} now; "
        "correct it.",
        "The {what} of the {thing} changed to {new}. Put that on the wiki article '{title}'.",
    )

    def _articles(self, world: World) -> list[tuple[str, list[Any]]]:
        """Return the articles that a search tells apart, with the facts on them."""
        rows = findable(world, "wiki.article", "title", world.state.rows("wiki.article"))
        articles = [(row["title"], FACT.findall(row["text"])) for row in rows]
        return [(title, facts) for title, facts in articles if facts]

    def draw(self, world: World, rng: random.Random) -> Slots | None:
        articles = self._articles(world)
        if not articles:
            return None
        title, facts = rng.choice(articles)
        what, thing, old = rng.choice(facts)
        new = rng.choice([str(n) for n in range(100, 999) if str(n) != old])
        return {"title": title, "what": what, "thing": thing, "new": new}

    def steps(self, slots: Slots) -> Steps:
        article = yield from first("wiki.search_articles", query=slots["title"])
        shown = yield call("wiki.show_article", article_id=article["id"])
        values = {(what, thing): value for what, thing, value in FACT.findall(shown["text"])}
        old = values[slots["what"], slots["thing"]]
        begin = f"The {slots['what']} of the {slots['thing']} is "
        given = {"old": f"{begin}{old}.", "new": f"{begin}{slots['new']}."}
        yield call("wiki.edit_article", article_id=article["id"], **given)

    def near_misses(self, slots: Slots, world: World, rng: random.Random) -> Sequence[Slots]:
        others = [
            {**slots, "title": title, "what": fact[0], "thing": fact[1]}
            for title, facts in self._articles(world)
            for fact in facts
            if fact[:2] != (slots["what"], slots["thing"])
        ]
        rng.shuffle(others)
        return [*others[:3], *swapped(slots, new=[f"{slots['new']}0"])]


KINDS: tuple[type[Atom], ...] = (OpenTicket, AssignTicket, CloseTicket, MergeChange, EditArticle)
