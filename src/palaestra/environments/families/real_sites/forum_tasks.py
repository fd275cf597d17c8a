"""Tasks in the forum: for who reads and writes in it, and for its moderator."""

from __future__ import annotations

import random

from palaestra.environments.families.apps.state import Change, Row
from palaestra.environments.families.real_sites.forum import SUBJECTS
from palaestra.environments.families.real_sites.site_world import SiteWorld
from palaestra.environments.families.real_sites.task_template import (
    Deed,
    SiteTask,
    WrongEnd,
    click_on,
    deleted,
    inserted,
    template,
    updated,
)

TOPIC, POST, BOARD = (
    "forum.forum_conversation_topic",
    "forum.forum_conversation_post",
    "forum.forum_forum",
)
ADDRESS = "http://forum.example"
TEXTS = ("I agree with you all.", "Please count me in.", "There was a letter about it.")


def topics(world: SiteWorld, rng: random.Random, number: int) -> list[Row]:
    return rng.sample(world.rows(TOPIC), number)


def board_of(world: SiteWorld, topic: Row) -> Row:
    return world.row(BOARD, topic["forum_id"])


def page_of(world: SiteWorld, topic: Row) -> tuple[str, ...]:
    """Return the gestures that open a topic."""
    board = board_of(world, topic)["name"]
    return click_on(f"first {board} link"), click_on(f"first {topic['subject']} link")


def address_of(topic: Row, deed: str) -> str:
    """Return the address of a moderator's page about a topic."""
    return f"go '{ADDRESS}/moderation/topic/{topic['slug']}-{topic['id']}/{deed}/'"


@template("forum", "easy", "change")
def reply(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Write a reply."""
    topic, other = topics(world, rng, 2)
    text = rng.choice(TEXTS)

    def way(one: Row) -> tuple[str, ...]:
        return (
            *page_of(world, one),
            "click 'first Post reply link'",
            f"type 'Message field' {text!r}",
            "click 'Submit button'",
        )

    made = inserted(POST, topic_id=topic["id"], poster_id=1, content=text)
    return SiteTask(
        f"Reply to the topic '{topic['subject']}' with these words: {text}",
        deeds=(Deed(way(topic), (made,)),),
        wrong=(WrongEnd(way(other)), WrongEnd(way(topic)[:-1])),
    )


@template("forum", "medium", "change")
def new_topic(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Begin a topic in a forum."""
    board, other = rng.sample(world.rows(BOARD, "type = 0"), 2)
    subject, text = rng.choice(("Street lights", "A lost glove", "Help wanted")), rng.choice(TEXTS)

    def way(name: str) -> tuple[str, ...]:
        return (
            click_on(f"first {name} link"),
            "click 'first New topic link'",
            f"type 'Subject field' {subject!r}",
            f"type 'Message field' {text!r}",
            "click 'Submit button'",
        )

    rows = (
        inserted(TOPIC, forum_id=board["id"], poster_id=1, subject=subject, type=0),
        inserted(POST, id=-2, topic_id=-1, poster_id=1, subject=subject, content=text),
    )
    return SiteTask(
        f"Begin a topic in the forum '{board['name']}' with the subject '{subject}' and the "
        f"message: {text}",
        deeds=(Deed(way(board["name"]), rows),),
        wrong=(WrongEnd(way(other["name"])),),
    )


@template("forum", "easy", "configure")
def subscribe(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Subscribe to a topic."""
    topic, other = topics(world, rng, 2)

    def way(one: Row) -> tuple[str, ...]:
        return (*page_of(world, one), "click 'first Subscribe link'", "click 'Yes button'")

    made = inserted(f"{TOPIC}_subscribers", topic_id=topic["id"], user_id=1)
    return SiteTask(
        f"Subscribe to the topic '{topic['subject']}'.",
        deeds=(Deed(way(topic), (made,)),),
        wrong=(WrongEnd(way(other)),),
    )


@template("forum", "easy", "find")
def last_poster(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Say who wrote the newest message of a topic."""
    [topic] = topics(world, rng, 1)
    user = world.row("forum.auth_user", world.row(POST, topic["last_post_id"])["poster_id"])
    return SiteTask(
        f"Who wrote the newest post that is shown in the topic '{topic['subject']}'? Their user "
        "name.",
        deeds=(Deed(page_of(world, topic)),),
        answer=user["username"],
        wrong=(WrongEnd(answer=world.row("forum.auth_user", 1)["username"]),),
    )


@template("forum", "easy", "find")
def posts_of_topic(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Count the posts of a topic."""
    [topic] = topics(world, rng, 1)
    return SiteTask(
        f"How many posts does the topic '{topic['subject']}' show, the first one included?",
        deeds=(Deed(page_of(world, topic)),),
        answer=topic["posts_count"],
        wrong=(WrongEnd(answer=str(topic["posts_count"] - 1)),),
    )


@template("forum", "medium", "compare")
def longest_topic(world: SiteWorld, rng: random.Random) -> SiteTask | None:
    """Say which topic of a forum has the most replies."""
    board = rng.choice(world.rows(BOARD, "type = 0"))
    found = world.rows(TOPIC, "forum_id = ?", (board["id"],))
    ordered = sorted(found, key=lambda one: -one["posts_count"])
    if len(ordered) < 2 or ordered[0]["posts_count"] == ordered[1]["posts_count"]:
        return None
    return SiteTask(
        f"Which topic of the forum '{board['name']}' has the most replies? Its subject.",
        deeds=(Deed((click_on(f"first {board['name']} link"),)),),
        answer=ordered[0]["subject"],
        wrong=(WrongEnd(answer=ordered[1]["subject"]),),
    )


@template("forum", "medium", "moderate")
def lock_topic(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Lock a topic."""
    topic, other = topics(world, rng, 2)

    def way(one: Row) -> tuple[str, ...]:
        return (address_of(one, "lock"), "click 'Yes button'")

    return SiteTask(
        f"You moderate this forum. Lock the topic '{topic['subject']}'.",
        deeds=(Deed(way(topic), (updated(TOPIC, topic, status=1),)),),
        wrong=(WrongEnd(way(other)), WrongEnd(way(topic)[:-1])),
    )


@template("forum", "medium", "configure")
def pin_topic(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Make a topic sticky."""
    topic, other = topics(world, rng, 2)

    def way(one: Row) -> tuple[str, ...]:
        return (address_of(one, "change/sticky"), "click 'Yes button'")

    return SiteTask(
        f"You moderate this forum. Change the topic '{topic['subject']}' to a sticky topic.",
        deeds=(Deed(way(topic), (updated(TOPIC, topic, type=1),)),),
        wrong=(WrongEnd(way(other)),),
    )


def without(world: SiteWorld, topic: Row) -> tuple[Change, ...]:
    """Return what goes with a topic."""
    posts = world.rows(POST, "topic_id = ?", (topic["id"],))
    return (deleted(TOPIC, topic), *(deleted(POST, one) for one in posts))


@template("forum", "medium", "moderate")
def delete_topic(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Delete a topic."""
    topic, other = topics(world, rng, 2)

    def way(one: Row) -> tuple[str, ...]:
        return (address_of(one, "delete"), "click 'Yes button'")

    return SiteTask(
        f"You moderate this forum. Delete the topic '{topic['subject']}' with all its posts.",
        deeds=(Deed(way(topic), without(world, topic)),),
        wrong=(WrongEnd(way(other)),),
    )


@template("forum", "medium", "moderate")
def approve_post(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Approve a post that waits for it."""
    post, other = rng.sample(world.rows(POST, "approved = 0"), 2)

    def way(one: Row) -> tuple[str, ...]:
        return (
            "click 'Moderation queue link'",
            click_on(f"{one['subject']} link"),
            "click 'Approve link'",
            "click 'Yes button'",
        )

    return SiteTask(
        f"You moderate this forum. Approve the waiting post '{post['subject']}'.",
        deeds=(Deed(way(post), (updated(POST, post, approved=1),)),),
        wrong=(WrongEnd(way(other)),),
    )


@template("forum", "medium", "moderate")
def disapprove_post(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Turn down a post that waits for approval, which deletes it."""
    post, other = rng.sample(world.rows(POST, "approved = 0"), 2)

    def way(one: Row) -> tuple[str, ...]:
        return (
            "click 'Moderation queue link'",
            click_on(f"{one['subject']} link"),
            "click 'Disapprove link'",
            "click 'Yes button'",
        )

    return SiteTask(
        f"You moderate this forum. Disapprove the waiting post '{post['subject']}'.",
        deeds=(Deed(way(post), (deleted(POST, post),)),),
        wrong=(WrongEnd(way(other)),),
    )


@template("forum", "easy", "impossible")
def unknown_topic(world: SiteWorld, rng: random.Random) -> SiteTask:
    """Lock a topic that nobody has begun."""
    there = {one["subject"] for one in world.rows(TOPIC)}
    subject = rng.choice(sorted({one for all in SUBJECTS.values() for one in all} - there))
    [other] = topics(world, rng, 1)
    lock = (address_of(other, "lock"), "click 'Yes button'")
    return SiteTask(
        f"You moderate this forum. Lock the topic '{subject}'.",
        deeds=(Deed((f"type 'Search field' {subject!r} enter",)),),
        wrong=(WrongEnd(), WrongEnd(lock, None)),
        possible=False,
    )
