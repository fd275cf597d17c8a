"""Tasks in the code host that change tickets, for a developer."""

from __future__ import annotations

import random
from typing import Any

from palaestra.environments.families.apps.state import Change, Row
from palaestra.environments.families.real_sites.code_project import (
    OPEN,
    PRIORITIES,
    SUMMARIES,
)
from palaestra.environments.families.real_sites.site_world import SiteWorld
from palaestra.environments.families.real_sites.task_template import (
    Deed,
    SiteTask,
    WrongEnd,
    inserted,
    template,
    updated,
)

TICKET, HISTORY, WIKI = "code.ticket", "code.ticket_change", "code.wiki"
ADDRESS = "http://code.example"
UNKNOWN = ("Printing turns pages upside down", "Mail is sent twice", "Maps show the wrong town")
SUBMIT = "click 'Submit changes button'"
RESOLUTION, OWNER = "first combobox", "second combobox"  # those without a name in a ticket's form


def open_tickets(world: SiteWorld) -> list[Row]:
    return world.rows(TICKET, "status <> 'closed'")


def full_name(world: SiteWorld, user: str) -> str:
    """Return the name that Trac shows for a user."""
    where = "sid = ? AND name = 'name'"
    [found] = world.rows("code.session_attribute", where, (user,))
    return str(found["value"])


def users(world: SiteWorld) -> list[str]:
    return [str(one["sid"]) for one in world.rows("code.session")]


def called(ticket: Row) -> str:
    return f"ticket #{ticket['id']} ('{ticket['summary']}')"


def changing(ticket: Row, *gestures: str) -> tuple[str, ...]:
    """Return the gestures that change a ticket by its form."""
    return (
        f"go '{ADDRESS}/ticket/{ticket['id']}'",
        "click 'Modify Ticket link'",
        *gestures,
        SUBMIT,
    )


def changed(ticket: Row, comment: str = "", **values: Any) -> tuple[Change, ...]:
    """Return what a change of a ticket leaves: the ticket, and what was said about it."""
    found = (updated(TICKET, ticket, **values),) if values else ()
    if not comment:
        return found
    said = inserted(HISTORY, ticket=ticket["id"], field="comment", newvalue=comment)
    return *found, said


# ── tickets ──────────────────────────────────────────────────────────────────


@template("code", "easy", "change")
def reassign_ticket(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Give a ticket to another developer."""
    ticket, other = rng.sample(open_tickets(world), 2)
    user, wrong = rng.sample([one for one in users(world) if one != ticket["owner"]], 2)

    def way(one: Row, owner: str) -> tuple[str, ...]:
        chosen = f"select '{OWNER}' {full_name(world, owner)!r}"
        return changing(one, "click 'reassign radio'", chosen)

    return SiteTask(
        f"Reassign {called(ticket)} to {full_name(world, user)}.",
        deeds=(Deed(way(ticket, user), changed(ticket, owner=user, status="assigned")),),
        wrong=(
            WrongEnd(way(ticket, wrong)),
            WrongEnd(way(other, user)),
            WrongEnd(way(ticket, user)[:-1]),
        ),
    )


@template("code", "easy", "change")
def reopen_ticket(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Reopen a closed ticket, and say why."""
    ticket, other = rng.sample(world.rows(TICKET, "status = 'closed'"), 2)
    text = rng.choice(("It is back in the last release.", "The fix does not work on Windows."))

    def way(one: Row, *said: str) -> tuple[str, ...]:
        return changing(one, "click 'reopen radio'", *said)

    say = f"type 'WikiFormatting field' {text!r}"
    found = changed(ticket, text, status="reopened", resolution=None)
    return SiteTask(
        f"Reopen {called(ticket)} with the comment: {text}",
        deeds=(Deed(way(ticket, say), found),),
        wrong=(WrongEnd(way(other, say)), WrongEnd(way(ticket))),
    )


@template("code", "easy", "change")
def plan_ticket(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Change the priority and the milestone of a ticket."""
    ticket = rng.choice(open_tickets(world))
    priority = rng.choice([one for one in PRIORITIES if one != ticket["priority"]])
    milestone = rng.choice([one for one in OPEN if one != ticket["milestone"]])
    first, second = f"select 'Priority' '{priority}'", f"select 'Milestone' '{milestone}'"
    found = changed(ticket, priority=priority, milestone=milestone)
    return SiteTask(
        f"Give {called(ticket)} the priority {priority} and move it to milestone {milestone}.",
        deeds=(Deed(changing(ticket, first, second), found),),
        wrong=(
            WrongEnd(changing(ticket, first)),
            WrongEnd(changing(ticket, first, second, "select 'Type' 'task'"))
            if ticket["type"] != "task"
            else WrongEnd(changing(ticket, second)),
        ),
    )


@template("code", "medium", "change")
def close_with_changeset(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Close a ticket, and link the changeset that fixed it."""
    ticket = rng.choice(open_tickets(world))
    paths = sorted({str(one["path"]) for one in world.rows("code.node_change")})
    path, other = rng.sample(paths, 2)

    def way(where: str) -> tuple[str, ...]:
        text = f"Fixed in [{last_changeset(world, where)}]."
        return (
            f"go '{ADDRESS}/log/{where}'",
            *changing(
                ticket,
                "click 'resolve radio'",
                f"type 'WikiFormatting field' {text!r}",
            ),
        )

    text = f"Fixed in [{last_changeset(world, path)}]."
    if last_changeset(world, other) == last_changeset(world, path):
        other = next(
            one for one in paths if last_changeset(world, one) != last_changeset(world, path)
        )
    return SiteTask(
        f"The last changeset of the file {path} fixed {called(ticket)}. Close the ticket as fixed "
        "with the comment 'Fixed in [ID].', where ID is the first seven characters of the "
        "changeset's id.",
        deeds=(Deed(way(path), changed(ticket, text, status="closed", resolution="fixed")),),
        wrong=(WrongEnd(way(other)),),
    )


def last_changeset(world: SiteWorld, path: str) -> str:
    """Return how Trac shows the id of the newest changeset of a file."""
    where = "rev IN (SELECT rev FROM node_change WHERE path = ?)"
    newest = max(world.rows("code.revision", where, (path,)), key=lambda one: one["time"])
    return str(newest["rev"])[:7]


@template("code", "medium", "moderate")
def close_duplicate(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Close the newer of two tickets about one error."""
    by_error: dict[str, list[Row]] = {}
    for row in open_tickets(world):
        by_error.setdefault(row["description"].split()[2], []).append(row)
    [(error, (older, newer))] = [pair for pair in by_error.items() if len(pair[1]) == 2]

    def way(closed: Row, kept: Row, resolution: str) -> tuple[str, ...]:
        return (
            f"go '{ADDRESS}/search?q={error}'",
            *changing(
                closed,
                "click 'resolve radio'",
                f"select '{RESOLUTION}' '{resolution}'",
                f"type 'WikiFormatting field' 'Duplicate of #{kept['id']}.'",
            ),
        )

    text = f"Duplicate of #{older['id']}."
    found = changed(newer, text, status="closed", resolution="duplicate")
    return SiteTask(
        "Two open tickets report the same error; their descriptions name the code "
        f"{error}. Close the newer one as a duplicate, with the comment 'Duplicate of #N.', where "
        "N is the number of the older one.",
        deeds=(Deed(way(newer, older, "duplicate"), found),),
        wrong=(
            WrongEnd(way(older, newer, "duplicate")),
            WrongEnd(way(newer, older, "invalid")),
        ),
    )


@template("code", "medium", "change")
def report_defect(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Open a ticket as a page of the wiki says."""
    [page] = world.rows(WIKI, "name = 'ReportingDefects'")
    rules = [line.strip("|").split("||") for line in page["text"].splitlines()[4:]]
    (component, priority, milestone, keyword), other = rng.sample(rules, 2)
    written = {one["summary"] for one in world.rows(TICKET)}
    summary = rng.choice([one for one in SUMMARIES[component] if one not in written] or ["Broken"])

    def way(keyword: str) -> tuple[str, ...]:
        return (
            f"go '{ADDRESS}/wiki/ReportingDefects'",
            "click 'New Ticket link'",
            f"type 'Summary field' {summary!r}",
            f"select 'Component' '{component}'",
            f"select 'Priority' '{priority}'",
            f"select 'Milestone' '{milestone}'",
            f"type 'Keywords field' '{keyword}'",
            "click 'Create ticket button'",
        )

    made = inserted(
        TICKET,
        summary=summary,
        type="defect",
        component=component,
        priority=priority,
        milestone=milestone,
        keywords=keyword,
        status="new",
    )
    return SiteTask(
        f"Open a ticket for a defect of the component {component}, with the summary '{summary}'. "
        "The wiki's page ReportingDefects says what else it needs.",
        deeds=(Deed(way(keyword), (made,)),),
        wrong=(WrongEnd(way(other[3])), WrongEnd(way(keyword)[:-1])),
    )


@template("code", "medium", "change")
def attach_log(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Attach a file to a ticket."""
    ticket, other = rng.sample(open_tickets(world), 2)
    files = {
        name: "".join(f"{number} {rng.choice(('ok', 'failed'))}\n" for number in range(9)).encode()
        for name in ("client.log", "server.log")
    }
    name, wrong = rng.sample(sorted(files), 2)

    def way(one: Row, file: str) -> tuple[str, ...]:
        return (
            f"go '{ADDRESS}/attachment/ticket/{one['id']}/?action=new'",
            f"upload 'third button' '{file}'",
            "click 'Add attachment button'",
        )

    made = (
        inserted("code.attachment", type="ticket", filename=name),
        inserted("code.uploaded_file", name=f"ticket/{ticket['id']}/{name}", content=files[name]),
    )
    return SiteTask(
        f"Attach the file '{name}' to {called(ticket)}. You can upload the files "
        f"{' and '.join(map(repr, sorted(files)))}.",
        deeds=(Deed(way(ticket, name), made),),
        wrong=(WrongEnd(way(ticket, wrong)), WrongEnd(way(other, name))),
        files=files,
    )


@template("code", "easy", "impossible")
def unknown_ticket(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Close a ticket that nobody opened."""
    summary = rng.choice(UNKNOWN)
    ticket = rng.choice(open_tickets(world))
    return SiteTask(
        f"Close the ticket '{summary}' as fixed.",
        deeds=(Deed((f"go '{ADDRESS}/search'", f"type 'first textbox' {summary!r} enter")),),
        wrong=(WrongEnd(), WrongEnd(changing(ticket, "click 'resolve radio'"), None)),
        possible=False,
    )
