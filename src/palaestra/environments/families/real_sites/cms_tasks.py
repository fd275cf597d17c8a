"""Tasks in the content management system, for the editor of the paper."""

from __future__ import annotations

import random

from palaestra.environments.families.apps.state import Row
from palaestra.environments.families.real_sites.cms import HEADLINES, INTROS
from palaestra.environments.families.real_sites.site_world import SiteWorld
from palaestra.environments.families.real_sites.task_template import (
    Deed,
    SiteTask,
    WrongEnd,
    inserted,
    template,
    updated,
)

PAGE, ARTICLE = "cms.wagtailcore_page", "cms.cms_pages_article"
ADDRESS = "http://cms.example/admin"
TITLES = ("Nothing new under the sun", "A quiet week", "What the river brings")
PUBLISH = ("click 'More actions button'", "click 'Publish button'")


def articles(world: SiteWorld, live: bool) -> list[Row]:
    """Return the pages of articles that are live, or of drafts."""
    where = "live = ? AND id IN (SELECT page_ptr_id FROM cms_pages_article)"
    return world.rows(PAGE, where, (int(live),))


def edit(page: Row) -> str:
    return f"go '{ADDRESS}/pages/{page['id']}/edit/'"


@template("cms", "easy", "find")
def author_of(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Say who wrote an article."""
    page = rng.choice(articles(world, live=True))
    author = world.row(ARTICLE, page["id"])["author"]
    return SiteTask(
        f"Who is the author of the article '{page['title']}'? Full name.",
        deeds=(Deed((edit(page),)),),
        answer=author,
        wrong=(WrongEnd(answer="Nobody"),),
    )


@template("cms", "medium", "compare")
def drafts(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """List the articles of a section that are not live."""
    section = rng.choice(world.rows(PAGE, "id IN (SELECT page_ptr_id FROM cms_pages_section)"))
    inside = world.rows(PAGE, "path LIKE ? AND depth = 4", (f"{section['path']}%",))
    right = frozenset(one["title"] for one in inside if not one["live"])
    if not right or len(right) == len(inside):
        return None
    return SiteTask(
        f"Which articles of the section '{section['title']}' are drafts, not live? Their titles.",
        deeds=(Deed((f"go '{ADDRESS}/pages/{section['id']}/'",)),),
        answer=right,
        wrong=(WrongEnd(answer=", ".join(one["title"] for one in inside)),),
    )


@template("cms", "medium", "change")
def change_intro(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Change the intro of an article, and publish it."""
    page = rng.choice(articles(world, live=True))
    row = world.row(ARTICLE, page["id"])
    intro = rng.choice([one for one in INTROS if one != row["intro"]])

    def way(one: Row) -> tuple[str, ...]:
        return (edit(one), f"type 'Intro field' {intro!r} clear", *PUBLISH)

    return SiteTask(
        f"Change the intro of the article '{page['title']}' to '{intro}', and publish it.",
        deeds=(Deed(way(page), (updated(ARTICLE, row, intro=intro),)),),
        wrong=(
            WrongEnd((*way(page)[:-2], "click 'Save draft button'")),
            WrongEnd((edit(page), f"type 'Author field' {intro!r} clear", *PUBLISH)),
        ),
    )


@template("cms", "medium", "change")
def rename_article(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Change the title of an article, and publish it."""
    page, other = rng.sample(articles(world, live=True), 2)
    title = rng.choice(TITLES)

    def way(one: Row) -> tuple[str, ...]:
        return (edit(one), f"type 'Title field' {title!r} clear", *PUBLISH)

    return SiteTask(
        f"Change the title of the article '{page['title']}' to '{title}', and publish it.",
        deeds=(Deed(way(page), (updated(PAGE, page, title=title),)),),
        wrong=(WrongEnd(way(other)),),
    )


@template("cms", "easy", "change")
def publish_draft(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Publish a draft."""
    found = articles(world, live=False)
    if not found:
        return None
    page = rng.choice(found)
    way = (edit(page), *PUBLISH)
    return SiteTask(
        f"Publish the draft '{page['title']}'.",
        deeds=(Deed(way, (updated(PAGE, page, live=1, has_unpublished_changes=0),)),),
        wrong=(WrongEnd((edit(page), "click 'Save draft button'")),),
    )


@template("cms", "easy", "moderate")
def unpublish(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Take an article off the site."""
    page, other = rng.sample(articles(world, live=True), 2)

    def way(one: Row) -> tuple[str, ...]:
        return (f"go '{ADDRESS}/pages/{one['id']}/unpublish/'", "click 'Yes, unpublish it button'")

    return SiteTask(
        f"Unpublish the article '{page['title']}'.",
        deeds=(Deed(way(page), (updated(PAGE, page, live=0, has_unpublished_changes=1),)),),
        wrong=(WrongEnd(way(other)), WrongEnd(way(page)[:1])),
    )


@template("cms", "medium", "configure")
def add_redirect(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Lead an old address to another."""
    old, new = rng.choice(("/old-news", "/archive", "/weather")), "http://cms.example/"

    def way(path: str) -> tuple[str, ...]:
        return (
            "click 'Settings button'",
            "click 'Redirects link'",
            "click 'Add redirect'",
            f"type 'Redirect from field' {path!r}",
            f"type 'Redirect to any URL field' {new!r}",
            "click 'Create button'",
        )

    made = inserted(
        "cms.wagtailredirects_redirect", old_path=old, redirect_link=new, is_permanent=1
    )
    return SiteTask(
        f"Add a permanent redirect from {old} to the URL {new}.",
        deeds=(Deed(way(old), (made,)),),
        wrong=(WrongEnd(way(f"{old}-2")),),
    )


@template("cms", "easy", "impossible")
def unknown_article(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Publish a draft that is not there."""
    there = {one["title"] for one in world.rows(PAGE)}
    title = rng.choice(sorted({one for all in HEADLINES.values() for one in all} - there))
    return SiteTask(
        f"Publish the draft '{title}'.",
        deeds=(Deed((f"type 'Search term field' {title!r} enter",)),),
        wrong=(WrongEnd(),),
        possible=False,
    )
