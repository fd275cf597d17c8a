"""Tasks in the code host that only look: source, history, roadmap and queries of tickets."""

from __future__ import annotations

import random
import re
from collections import Counter

from palaestra.environments.families.apps.state import Row
from palaestra.environments.families.real_sites.code_project import FILES, OPEN, drawn_project
from palaestra.environments.families.real_sites.code_tasks import (
    ADDRESS,
    full_name,
    last_changeset,
    open_tickets,
)
from palaestra.environments.families.real_sites.git_repository import Commit
from palaestra.environments.families.real_sites.site_world import SiteWorld
from palaestra.environments.families.real_sites.task_template import (
    Deed,
    SiteTask,
    WrongEnd,
    template,
)

PATHS = tuple(path for files in FILES.values() for path in files)
SOURCES = tuple(path for path in PATHS if path.endswith(".py"))
UNKNOWN = ("src/mailer.py", "src/printer.py", "src/colours.py")


def history(world: SiteWorld, path: str) -> list[Commit]:
    """Return the commits that changed a file, the oldest first."""
    site = world.sites["code"]
    commits = drawn_project(site.seed, site.application.variant.size).commits
    return [commit for commit in commits if path in commit.files]


def fix_of(world: SiteWorld, rng: random.Random) -> tuple[int, Row] | None:
    """Return a fixed ticket's number and the row of the changeset that names it."""
    found = [
        (int(fixed[1]), row)
        for row in world.rows("code.revision")
        if (fixed := re.match(r"Fix #(\d+):", row["message"]))
    ]
    return rng.choice(found) if found else None


# ── the source ───────────────────────────────────────────────────────────────


@template("code", "easy", "find")
def last_author(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Say who changed a file last."""
    path = rng.choice(PATHS)
    authors = [full_name(world, one.author) for one in history(world, path)]
    others = {full_name(world, row["sid"]) for row in world.rows("code.session")} - {authors[-1]}
    folder, _, name = path.partition("/")
    return SiteTask(
        f"Who made the last change to the file {path}? Full name.",
        deeds=(
            Deed(("click 'Browse Source link'", f"click '{folder} link'", f"click '{name} link'")),
        ),
        answer=authors[-1],
        wrong=(WrongEnd(answer=rng.choice(sorted(others))),),
    )


@template("code", "easy", "find")
def fixing_changeset(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Say which changeset fixed a ticket."""
    found = fix_of(world, rng)
    if found is None:
        return None
    ticket, row = found
    other = last_changeset(world, rng.choice(PATHS))
    if str(row["rev"]).startswith(other):
        return None
    return SiteTask(
        f"Which changeset fixed ticket #{ticket}? The first seven characters of its id.",
        deeds=(Deed((f"go '{ADDRESS}/search?q=Fix+%23{ticket}:&changeset=on'",)),),
        answer=str(row["rev"])[:7],
        wrong=(WrongEnd(answer=other),),
    )


@template("code", "medium", "find")
def changed_files(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """List the files that a changeset changed."""
    found = fix_of(world, rng)
    if found is None:
        return None
    ticket, row = found
    right = frozenset(
        str(one["path"]) for one in world.rows("code.node_change", "rev = ?", (row["rev"],))
    )
    return SiteTask(
        f"Which files did the changeset change that fixed ticket #{ticket}? Their paths.",
        deeds=(
            Deed(
                (
                    f"go '{ADDRESS}/search?q=Fix+%23{ticket}:&changeset=on'",
                    f"go '{ADDRESS}/changeset/{row['rev']}'",
                )
            ),
        ),
        answer=right,
        wrong=(WrongEnd(answer=", ".join([*right, rng.choice(sorted({*PATHS} - right))])),),
    )


@template("code", "medium", "find")
def earlier_value(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Say what a number in the source was before it was changed last."""
    found: list[tuple[str, str, list[str]]] = []
    for path in SOURCES:
        texts = [commit.files[path] for commit in history(world, path)]
        for name in re.findall(r"^([A-Z_]+) =", texts[0], re.MULTILINE):
            values = [re.findall(rf"^{name} = (\d+)", text, re.MULTILINE)[0] for text in texts]
            ordered = [one for at, one in enumerate(values) if at == 0 or values[at - 1] != one]
            if len(ordered) > 1:
                found.append((path, name, ordered))
    if not found:
        return None
    path, name, values = rng.choice(found)
    return SiteTask(
        f"What was the value of {name} in the file {path} before it was changed to {values[-1]}?",
        deeds=(Deed((f"go '{ADDRESS}/log/{path}'", f"go '{ADDRESS}/browser/{path}'")),),
        answer=int(values[-2]),
        wrong=(WrongEnd(answer=values[-1]),),
    )


@template("code", "medium", "find")
def author_of_line(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Say who wrote a line, which may not be who changed its file last."""
    path = rng.choice(SOURCES)
    commits = history(world, path)
    line = rng.choice([one for one in commits[-1].files[path].splitlines() if " = " in one])
    # From the newest on, as long as the line is there.
    author = commits[-1].author
    for commit in reversed(commits):
        if line not in commit.files[path].splitlines():
            break
        author = commit.author
    others = {row["sid"] for row in world.rows("code.session")} - {author}
    return SiteTask(
        f"Who wrote the line '{line}' in the file {path}? Full name.",
        deeds=(Deed((f"go '{ADDRESS}/browser/{path}'", "click 'Blame link'")),),
        answer=full_name(world, author),
        wrong=(WrongEnd(answer=full_name(world, rng.choice(sorted(others)))),),
    )


@template("code", "medium", "compare")
def busier_author(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Say who of two made more changesets."""
    counts = Counter(str(row["author"]) for row in world.rows("code.revision"))
    one, other = rng.sample(sorted(counts), 2)
    if counts[one] == counts[other]:
        return None
    more, less = (one, other) if counts[one] > counts[other] else (other, one)
    names = " or ".join(full_name(world, user) for user in (one, other))
    return SiteTask(
        f"Who made more changesets in the repository, {names}? Full name.",
        deeds=(Deed((f"go '{ADDRESS}/log/'",)),),
        answer=full_name(world, more),
        wrong=(WrongEnd(answer=full_name(world, less)),),
    )


@template("code", "easy", "impossible")
def unknown_file(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Say who changed a file that is not there."""
    path = rng.choice(UNKNOWN)
    someone = full_name(world, rng.choice(world.rows("code.session"))["sid"])
    return SiteTask(
        f"Who made the last change to the file {path}? Full name.",
        deeds=(Deed(("click 'Browse Source link'", "click 'src link'")),),
        wrong=(WrongEnd(answer=someone),),
        possible=False,
    )


# ── tickets ──────────────────────────────────────────────────────────────────


@template("code", "medium", "find")
def urgent_tickets(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """List the open tickets of a component that are urgent."""
    component = rng.choice(sorted(FILES))
    tickets = [one for one in open_tickets(world) if one["component"] == component]
    right = [one for one in tickets if one["priority"] in ("blocker", "critical")]
    if not right or len(right) == len(tickets):
        return None
    return SiteTask(
        f"Which open tickets of the component {component} have the priority blocker or critical? "
        "Their numbers, such as #3.",
        deeds=(Deed((f"go '{ADDRESS}/query?status=!closed&component={component}'",)),),
        answer=frozenset(f"#{one['id']}" for one in right),
        wrong=(WrongEnd(answer=", ".join(f"#{one['id']}" for one in tickets)),),
    )


@template("code", "easy", "compare")
def fullest_milestone(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Say which milestone has the most open tickets."""
    counts = Counter(one["milestone"] for one in open_tickets(world)).most_common()
    if len(counts) < len(OPEN) or counts[0][1] == counts[1][1]:
        return None
    return SiteTask(
        "Which milestone has the most tickets that are not closed? Its name.",
        deeds=(Deed(("click 'Roadmap link'",)),),
        answer=str(counts[0][0]),
        wrong=(WrongEnd(answer=str(counts[1][0])),),
    )


@template("code", "medium", "compare")
def busiest_owner(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Say who owns the most open tickets."""
    counts = Counter(one["owner"] for one in open_tickets(world)).most_common()
    if counts[0][1] == counts[1][1]:
        return None
    return SiteTask(
        "Who owns the most tickets that are not closed? Full name.",
        deeds=(Deed((f"go '{ADDRESS}/query?status=!closed&group=owner'",)),),
        answer=full_name(world, counts[0][0]),
        wrong=(WrongEnd(answer=full_name(world, counts[1][0])),),
    )


@template("code", "easy", "find")
def oldest_ticket(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Say who opened the oldest open ticket of a component."""
    component = rng.choice(sorted(FILES))
    found = [one for one in open_tickets(world) if one["component"] == component]
    if len(found) < 2 or found[0]["reporter"] == found[-1]["reporter"]:
        return None
    return SiteTask(
        f"Who reported the oldest ticket of the component {component} that is not closed? Full "
        "name.",
        deeds=(
            Deed(
                (
                    f"go '{ADDRESS}/query?status=!closed&component={component}&order=time'",
                    f"go '{ADDRESS}/ticket/{found[0]['id']}'",
                )
            ),
        ),
        answer=full_name(world, found[0]["reporter"]),
        wrong=(WrongEnd(answer=full_name(world, found[-1]["reporter"])),),
    )
