"""Tasks in the code host that change milestones and pages of the wiki, for a developer."""

from __future__ import annotations

import random

from palaestra.environments.families.apps.state import Row
from palaestra.environments.families.real_sites.code_host import ATTRIBUTE
from palaestra.environments.families.real_sites.code_project import OPEN
from palaestra.environments.families.real_sites.code_tasks import (
    ADDRESS,
    SUBMIT,
    TICKET,
    WIKI,
    changed,
    full_name,
    open_tickets,
    users,
)
from palaestra.environments.families.real_sites.site_world import SiteWorld
from palaestra.environments.families.real_sites.task_template import (
    Deed,
    SiteTask,
    WrongEnd,
    deleted,
    inserted,
    template,
)

MILESTONE = "code.milestone"
LANGUAGES = {"Deutsch": "de", "français": "fr", "日本語": "ja", "Türkçe": "tr"}
RETARGETED = "Ticket retargeted after milestone deleted"  # what Trac says about each ticket


@template("code", "medium", "plan")
def move_tickets(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Move all open tickets of a component and a milestone to another milestone."""
    together: dict[tuple[str, str], list[Row]] = {}
    for row in open_tickets(world):
        together.setdefault((row["component"], row["milestone"]), []).append(row)
    several = [pair for pair in together.items() if len(pair[1]) > 1]
    if not several:
        return None
    (component, milestone), tickets = rng.choice(several)
    target = rng.choice([one for one in OPEN if one != milestone])

    def way(where: str, *chosen: str) -> tuple[str, ...]:
        return (
            f"go '{ADDRESS}/query?status=!closed&component={component}{where}'",
            *chosen,
            "click 'Batch Modify link'",
            "select 'Change:' 'Milestone'",
            f"select 'Milestone list' '{target}'",
            "click 'Change tickets button'",
        )

    own = f"&milestone={milestone}"
    marked = [f"click '#{one['id']} checkbox'" for one in tickets]
    found = [change for one in tickets for change in changed(one, milestone=target)]
    return SiteTask(
        f"Move all open tickets of the component {component} that are planned for milestone "
        f"{milestone} to milestone {target}; change no others.",
        deeds=(Deed(way(own, *marked), tuple(found)),),
        wrong=(WrongEnd(way(own, *marked[1:])),),
    )


@template("code", "medium", "plan")
def drop_milestone(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Delete a milestone; its tickets go to another."""
    name, target, other = rng.sample(OPEN, 3)
    [milestone] = world.rows(MILESTONE, "name = ?", (name,))
    tickets = world.rows(TICKET, "milestone = ?", (name,))

    def way(target: str) -> tuple[str, ...]:
        return (
            f"go '{ADDRESS}/milestone/{name}'",
            "click 'Delete milestone button'",
            f"select 'Retarget associated tickets to milestone' '{target}'",
            "click 'Delete milestone button'",
        )

    moved = [change for one in tickets for change in changed(one, RETARGETED, milestone=target)]
    return SiteTask(
        f"Delete the milestone {name}; its tickets go to milestone {target}.",
        deeds=(Deed(way(target), (deleted(MILESTONE, milestone), *moved)),),
        wrong=(WrongEnd(way(other)), WrongEnd(way(target)[:-1])),
    )


@template("code", "easy", "configure")
def new_milestone(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Add a milestone."""
    name = rng.choice(("1.4", "2.1", "3.0"))
    text = rng.choice(("Faster than before.", "Only corrections.", "A new server."))

    def way(name: str) -> tuple[str, ...]:
        return (
            "click 'Roadmap link'",
            "click 'Add new milestone button'",
            f"type 'Name field' '{name}'",
            f"type 'Description field' {text!r}",
            "click 'Add milestone button'",
        )

    made = inserted(MILESTONE, name=name, description=text, due=0, completed=0)
    return SiteTask(
        f"Add the milestone {name} with the description '{text}' and without a date.",
        deeds=(Deed(way(name), (made,)),),
        wrong=(WrongEnd(way(f"{name}.1")),),
    )


@template("code", "easy", "configure")
def change_language(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Let the pages be in another language than they are."""
    now = world.rows(ATTRIBUTE, "name = 'language'")
    codes = [row["value"] for row in now]
    language, other = rng.sample(
        [name for name, code in sorted(LANGUAGES.items()) if code not in codes], 2
    )

    def way(name: str) -> tuple[str, ...]:
        return (
            "click 'Preferences link'",
            "click 'Localization link'",
            f"select 'Language' {name!r}",
            "click 'Save changes button'",
        )

    gone = [deleted(ATTRIBUTE, {**row, "id": 0}) for row in now]
    made = inserted(ATTRIBUTE, name="language", value=LANGUAGES[language])
    return SiteTask(
        f"Change your settings so that all pages are shown in this language: {language}.",
        deeds=(Deed(way(language), (*gone, made)),),
        wrong=(WrongEnd(way(other)), WrongEnd(way(language)[:-1])),
    )


# ── the wiki ─────────────────────────────────────────────────────────────────


def written_page(name: str, text: str) -> tuple[str, ...]:
    """Return the gestures that give a page another text."""
    return (
        f"go '{ADDRESS}/wiki/{name}'",
        "click 'Edit this page button'",
        f"type 'second textbox' {text!r} clear",
        SUBMIT,
    )


@template("code", "easy", "change")
def change_on_call(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Write into the wiki who is on call."""
    [page] = world.rows(WIKI, "name = 'OnCall'")
    names = [full_name(world, user) for user in users(world)]
    name, other = rng.sample([one for one in names if one not in page["text"]], 2)
    texts = {one: f"This week {one} is on call." for one in (name, other)}
    made = inserted(WIKI, name="OnCall", version=2, text=texts[name], readonly=0)
    return SiteTask(
        f"{name} is on call this week. Correct the name on the wiki's page OnCall, nothing else.",
        deeds=(Deed(written_page("OnCall", texts[name]), (made,)),),
        wrong=(
            WrongEnd(written_page("OnCall", texts[other])),
            WrongEnd(written_page("MeetingNotes", texts[name])),
        ),
    )


@template("code", "easy", "moderate")
def delete_advertisement(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Delete a page that is an advertisement."""
    [page] = world.rows(WIKI, "name = 'CheapWatches'")

    def way(name: str) -> tuple[str, ...]:
        return (
            f"go '{ADDRESS}/wiki/{name}'",
            "click 'Delete page button'",
            "click 'Delete page button'",
        )

    return SiteTask(
        "One page of the wiki is an advertisement. Delete it.",
        deeds=(Deed(("click 'Index link'", *way("CheapWatches")), (deleted(WIKI, page),)),),
        wrong=(WrongEnd(way("ComponentOwners")), WrongEnd(way("CheapWatches")[:-1])),
    )


@template("code", "medium", "moderate")
def revert_page(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Give a page that was spoiled the text that it had before."""
    good, spoiled = world.rows(WIKI, "name = 'MeetingNotes'")
    made = inserted(WIKI, name="MeetingNotes", version=3, text=good["text"], readonly=0)
    return SiteTask(
        "Somebody spoiled the wiki's page MeetingNotes. Give it the text of its first version as a "
        "new version; the history must stay.",
        deeds=(
            Deed(
                (
                    f"go '{ADDRESS}/wiki/MeetingNotes?version=1'",
                    "click 'Revert to this version button'",
                    SUBMIT,
                ),
                (made,),
            ),
        ),
        wrong=(
            WrongEnd(written_page("MeetingNotes", spoiled["text"] + "!")),
            WrongEnd(
                (
                    f"go '{ADDRESS}/wiki/MeetingNotes'",
                    "click 'Delete this version button'",
                    "click 'Delete this version button'",
                )
            ),
        ),
    )
