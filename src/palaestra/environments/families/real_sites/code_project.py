"""A software project that is drawn: its people, tickets, pages, and the history of its source."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import lru_cache

from palaestra.environments.families.apps.people import Person, draw_people
from palaestra.environments.families.real_sites.application import BEGIN, Size
from palaestra.environments.families.real_sites.git_repository import Commit

PEOPLE = {"small": 6, "large": 20}
TICKETS = {"small": 24, "large": 120}
COMMITS = {"small": 40, "large": 400}
NAMES = ("Heron", "Lantern", "Marble", "Pebble", "Saffron", "Thimble")
MILESTONES: Mapping[str, int | None] = {"1.0": -200, "1.1": -70, "1.2": 20, "1.3": 75, "2.0": None}
"""When each is due, in days from the beginning; those that were due are completed."""

OPEN = ("1.2", "1.3", "2.0")
PRIORITIES = ("blocker", "critical", "major", "minor", "trivial")
FILES = {
    "parser": ("src/parser.py", "src/tokens.py"),
    "server": ("src/server.py", "src/routes.py"),
    "storage": ("src/storage.py", "src/cache.py"),
    "client": ("src/client.py", "src/retry.py"),
    "docs": ("docs/install.txt", "docs/usage.txt"),
}
"""The files of each component."""

SETTINGS = {
    "src/parser.py": ("MAX_DEPTH", "LINE_LIMIT"), "src/tokens.py": ("TAB_WIDTH", "MAX_TOKENS"),
    "src/server.py": ("PORT", "WORKERS"), "src/routes.py": ("PAGE_SIZE", "MAX_ROUTES"),
    "src/storage.py": ("BLOCK_SIZE", "MAX_FILES"), "src/cache.py": ("CACHE_SIZE", "LIFETIME"),
    "src/client.py": ("TIMEOUT", "MAX_REDIRECTS"), "src/retry.py": ("ATTEMPTS", "DELAY"),
}  # fmt: skip
"""Names of numbers in each file of source."""

SUMMARIES = {
    "parser": (
        "Nested brackets are read twice", "A tab at the end of a line is lost",
        "Comments after a colon are not skipped", "Error messages name the wrong line",
        "Empty files raise an exception", "Numbers with underscores are refused",
    ),
    "server": (
        "Restart leaves the port in use", "Long addresses are cut off",
        "Log files grow without end", "The status page shows yesterday's count",
        "Uploads stop at two megabytes", "A slow client blocks all others",
    ),
    "storage": (
        "Deleted records come back", "Index is rebuilt at every start",
        "File names with spaces are not found", "Backups contain temporary files",
        "Two writers overwrite each other", "Disk usage is reported in wrong units",
    ),
    "client": (
        "Proxy settings are ignored", "The progress bar jumps backwards",
        "Retry after a redirect fails", "Passwords appear in the history",
        "Interrupting leaves a lock behind", "Certificates are checked twice",
    ),
    "docs": (
        "Installation page names an old version", "Example of the cache does not run",
        "Glossary lacks half of its terms", "Links to the manual are broken",
        "Screenshots show the old menu", "Chapter on backups is missing",
    ),
}  # fmt: skip
WHEN = {
    "small": ("",),
    "large": ("", " after an update", " at night", " on the old machine", " with two users"),
}
"""What summaries end with."""

COMMENTS = (
    "I see this on two machines.", "Not before the release, please.", "I have a test for it.",
    "It began with the last update.", "Could you attach a log?", "This needs a decision.",
)  # fmt: skip
FUNCTIONS = ("check", "close", "count", "find", "load", "merge", "order", "reset", "save", "split")
VANDALS = ("hello hello hello", "this page is boring", "ASDF ASDF")


@dataclass(frozen=True, slots=True)
class TicketDraft:
    """A ticket as it is at the beginning."""

    id: int
    at: datetime  # when it was opened
    summary: str
    component: str
    type: str
    priority: str
    milestone: str
    owner: str
    reporter: str
    status: str
    error: str  # the code that its description names
    resolution: str = ""
    comments: tuple[tuple[str, str], ...] = ()  # authors and texts


@dataclass(frozen=True, slots=True)
class PageVersion:
    """A version of a page of the wiki."""

    name: str
    text: str
    author: str
    at: datetime
    comment: str = ""


@dataclass(frozen=True)
class Project:
    """All that a world begins with. The first of its people is signed in."""

    name: str
    people: Sequence[Person]
    owners: Mapping[str, str]  # of components, by user name
    tickets: Sequence[TicketDraft]
    pages: Sequence[PageVersion]
    commits: Sequence[Commit]
    rules: Mapping[str, tuple[str, str, str]]
    """What a new defect of each component gets: priority, milestone, keyword."""


def user_name(person: Person) -> str:
    return f"{person.first}.{person.surname}".lower()


@lru_cache(32)
def drawn_project(seed: int, size: Size) -> Project:
    """Draw the project of a seed."""
    rng = random.Random(f"project {seed}")
    people = draw_people(rng, PEOPLE[size])
    users = [user_name(one) for one in people]
    owners = {component: rng.choice(users[1:]) for component in FILES}
    tickets = _tickets(rng, users, owners, size)
    rules = {
        component: (rng.choice(PRIORITIES), rng.choice(OPEN), f"{component}-{rng.randrange(100)}")
        for component in FILES
    }
    name = rng.choice(NAMES)
    pages = _pages(rng, name, people, owners, rules)
    commits = _commits(rng, people, tickets, COMMITS[size])
    return Project(name, people, owners, tickets, pages, commits, rules)


def _tickets(
    rng: random.Random, users: Sequence[str], owners: Mapping[str, str], size: Size
) -> list[TicketDraft]:
    """Draw tickets: the first third is closed; the error of an open one is reported twice."""
    count = TICKETS[size]
    subjects = [
        (name, f"{summary}{when}")
        for name, all in SUMMARIES.items()
        for summary in all
        for when in WHEN[size]
    ]
    chosen, codes = rng.sample(subjects, count), rng.sample(range(1000, 9999), count)
    found = []
    for number, ((component, summary), code) in enumerate(zip(chosen, codes, strict=True), 1):
        closed = number <= count // 3
        comments = [(rng.choice(users), text) for text in rng.sample(COMMENTS, rng.randint(0, 2))]
        found.append(
            TicketDraft(
                id=number,
                at=BEGIN - timedelta(days=250 - 240 * number // count, minutes=rng.randrange(600)),
                summary=summary,
                component=component,
                type=rng.choice(("defect", "defect", "enhancement", "task")),
                priority=rng.choice(PRIORITIES),
                milestone=rng.choice(("1.0", "1.1") if closed else OPEN),
                owner=rng.choice((owners[component], *users)),
                reporter=rng.choice(users),
                status="closed" if closed else rng.choice(("new", "assigned", "accepted")),
                error=f"E{code}",
                resolution=rng.choice(("fixed", "fixed", "fixed", "wontfix")) if closed else "",
                comments=tuple(comments),
            )
        )
    older, newer = sorted(rng.sample(found[count // 3 :], 2), key=lambda one: one.id)
    found[newer.id - 1] = replace(newer, component=older.component, error=older.error)
    return found


def _pages(
    rng: random.Random,
    name: str,
    people: Sequence[Person],
    owners: Mapping[str, str],
    rules: Mapping[str, tuple[str, str, str]],
) -> list[PageVersion]:
    """Draw the wiki; somebody spoiled one page, and another is an advertisement."""
    users, on_call = [user_name(one) for one in people], rng.choice(people[1:])
    table = "".join(
        f"||{component}||{priority}||{milestone}||{keyword}||\n"
        for component, (priority, milestone, keyword) in rules.items()
    )
    parts = "".join(f" * {component}: {owner}\n" for component, owner in owners.items())
    notes = rng.choice(("The meeting is on Tuesday at ten.", "The meeting moved to the library."))
    texts = {
        "WikiStart": f"= {name} =\nSee OnCall, ReportingDefects, ComponentOwners, MeetingNotes.\n",
        "OnCall": f"This week {on_call.name} is on call.",
        "ReportingDefects": "= Reporting defects =\nA ticket for a defect gets the priority, the "
        "milestone and the keyword of its component:\n\n"
        f"||=component=||=priority=||=milestone=||=keyword=||\n{table}",
        "ComponentOwners": f"= Who owns what =\n{parts}",
        "MeetingNotes": notes,
        "CheapWatches": "Cheap watches, only today: buy now and save!",
    }
    pages = [
        PageVersion(page, text, rng.choice(users), BEGIN - timedelta(days=100 - number))
        for number, (page, text) in enumerate(texts.items())
    ]
    spoiled = rng.choice(VANDALS)
    pages.append(PageVersion("MeetingNotes", spoiled, "anonymous", BEGIN - timedelta(days=3)))
    return pages


# ── the source ───────────────────────────────────────────────────────────────


@dataclass(slots=True)
class _Source:
    """A file: numbers with names, and functions; or paragraphs of a text."""

    settings: dict[str, int] = field(default_factory=dict)
    parts: list[str] = field(default_factory=list)

    def text(self, path: str) -> str:
        if path.endswith(".txt"):
            return "\n\n".join(self.parts) + "\n"
        lines = [f"{name} = {value}" for name, value in self.settings.items()]
        first = next(iter(self.settings))
        for name in self.parts:
            lines += ["", "", f"def {name}(items):", f"    return items[:{first}]"]
        return "\n".join(lines) + "\n"


def _commits(
    rng: random.Random, people: Sequence[Person], tickets: Sequence[TicketDraft], count: int
) -> list[Commit]:
    """Draw a history: numbers change, functions are added, tickets are fixed."""
    paths = [path for files in FILES.values() for path in files]
    sources = {
        path: _Source({name: rng.randrange(2, 90) for name in SETTINGS[path]}, ["open_all"])
        if path in SETTINGS
        else _Source(parts=[f"How to {_stem(path)}."])
        for path in paths
    }
    fixes = [one for one in tickets if one.resolution == "fixed"]
    fixed_at = dict(zip(rng.sample(range(8, count), len(fixes)), fixes, strict=False))
    texts = {path: source.text(path) for path, source in sources.items()}
    days = sorted((rng.uniform(1, 240) for _ in range(count)), reverse=True)
    commits = [_commit(people[0], days[0], "Import the project", texts)]
    for number in range(1, count):
        ticket = fixed_at.get(number)
        changed = rng.sample(FILES[ticket.component] if ticket else paths, rng.choice((1, 1, 2)))
        messages = [_changed(rng, path, sources[path]) for path in changed]
        message = f"Fix #{ticket.id}: {ticket.summary}" if ticket else "; ".join(messages)
        texts = {path: sources[path].text(path) for path in changed}
        commits.append(_commit(rng.choice(people), days[number], message, texts))
    return commits


def _stem(path: str) -> str:
    return path.rpartition("/")[2].partition(".")[0]


def _changed(rng: random.Random, path: str, source: _Source) -> str:
    """Change a file a little, and say how."""
    if not source.settings:
        source.parts.append(rng.choice(COMMENTS))
        return f"Say more about {_stem(path)}"
    unused = [name for name in FUNCTIONS if name not in source.parts]
    if rng.random() < 0.3 and unused:
        source.parts.append(rng.choice(unused))
        return f"Add {source.parts[-1]} to {_stem(path)}"
    name = rng.choice(list(source.settings))
    before = source.settings[name]
    source.settings[name] = rng.choice([one for one in range(2, 90) if one != before])
    return f"Change {name} from {before} to {source.settings[name]}"


def _commit(person: Person, days: float, message: str, texts: Mapping[str, str]) -> Commit:
    """Return a commit of some days before the beginning."""
    at = BEGIN - timedelta(minutes=round(24 * 60 * days))
    return Commit(user_name(person), person.email, at, message, texts)
