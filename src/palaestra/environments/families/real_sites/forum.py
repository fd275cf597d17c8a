"""The forum: django-machina. The person moderates it."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any, ClassVar

from palaestra.environments.families.apps.people import draw_people
from palaestra.environments.families.real_sites import request_clock
from palaestra.environments.families.real_sites.application import BEGIN
from palaestra.environments.families.real_sites.django_server import DjangoApplication
from palaestra.environments.families.real_sites.django_users import made_users

PEOPLE, TOPICS = 8, 14
BOARDS = {
    "Town": ("Traffic", "Events"),
    "Home": ("Repairs", "Gardening"),
    "Exchange": ("For sale", "Lost and found"),
}
SUBJECTS = {
    "Traffic": (
        "Roadworks on the bridge",
        "New bus line",
        "Cycle lane proposal",
        "Parking permits",
    ),
    "Events": ("Summer fair volunteers", "Choir rehearsal", "Book club in May", "Market day moved"),
    "Repairs": ("Leaking tap", "Squeaking door", "Broken gutter", "Which drill to buy"),
    "Gardening": ("Slugs in the lettuce", "Pruning roses", "Compost smells", "Apple tree diseases"),
    "For sale": ("Child's bicycle", "Oak bookcase", "Two garden chairs", "Sewing machine"),
    "Lost and found": ("Grey cat missing", "Keys found", "Lost umbrella", "Blue scarf found"),
}
REPLIES = (
    "I have seen the same last week.", "Thank you for telling us.", "Could you say where exactly?",
    "I can help on Saturday.", "Please ask the town hall.", "That worked for me, too.",
    "I would rather wait.", "Here is my number, call me.",
)  # fmt: skip
SPAM = ("Cheap watches, click here", "You have won a prize", "Earn money from home now")


class Forum(DjangoApplication):
    """django-machina: forums, topics, posts, polls, and a queue for moderators."""

    name = "forum"
    middleware = ("machina.apps.forum_permission.middleware.ForumPermissionMiddleware",)
    unjudged: ClassVar = {
        **DjangoApplication.unjudged,
        "forum_forum": (
            "direct_posts_count", "direct_topics_count", "last_post_id", "last_post_on", "updated",
        ),
        "forum_conversation_topic": (
            "first_post_id", "last_post_id", "last_post_on", "posts_count", "updated",
            "views_count",
        ),
        "forum_conversation_post": ("updated", "updates_count"),
        "forum_member_forumprofile": ("posts_count",),
        "forum_tracking_forumreadtrack": (),
        "forum_tracking_topicreadtrack": (),
    }  # fmt: skip

    def urls(self) -> list[Any]:
        from django.urls import include, path

        return [path("", include("machina.urls"))]

    def populate(self, rng: random.Random) -> int:
        from machina.core.db.models import get_model

        users = made_users(draw_people(rng, PEOPLE))
        profile = get_model("forum_member", "ForumProfile")
        profile.objects.bulk_create(profile(user=user) for user in users)
        forum, boards = get_model("forum", "Forum"), []
        for category, names in BOARDS.items():
            parent = forum.objects.create(name=category, type=forum.FORUM_CAT)
            boards += [
                forum.objects.create(name=name, type=forum.FORUM_POST, parent=parent)
                for name in names
            ]
        subjects = [(board, subject) for board in boards for subject in SUBJECTS[board.name]]
        for number, (board, subject) in enumerate(rng.sample(subjects, TOPICS)):
            _topic(rng, board, subject, rng.sample(users[1:], 4), number)
        return int(users[0].pk)


def _topic(rng: random.Random, board: Any, subject: str, posters: list[Any], number: int) -> None:
    """Write a topic of some days ago, with replies; now and then the last one is not approved."""
    from machina.core.db.models import get_model

    post, topic = get_model("forum_conversation", "Post"), get_model("forum_conversation", "Topic")
    began = BEGIN - timedelta(days=40 - 2 * number, minutes=rng.randrange(600))
    replies = rng.sample(REPLIES, rng.randint(1, 4))
    held = number % 3 == 0
    with request_clock.at(began, rng):
        made = topic.objects.create(
            forum=board, poster=posters[0], subject=subject, type=topic.TOPIC_POST,
            status=topic.TOPIC_UNLOCKED,
        )  # fmt: skip
        post.objects.create(
            topic=made, poster=posters[0], subject=subject, content=f"{subject}: any ideas?"
        )
    for hours, reply in enumerate(replies, 1):
        with request_clock.at(began + timedelta(hours=hours), rng):
            post.objects.create(
                topic=made, poster=rng.choice(posters), subject=f"Re: {subject}", content=reply
            )
    if held:
        with request_clock.at(began + timedelta(hours=9), rng):
            post.objects.create(
                topic=made, poster=posters[3], subject=f"Re: {subject}",
                content=rng.choice((*SPAM, *REPLIES)), approved=False,
            )  # fmt: skip
