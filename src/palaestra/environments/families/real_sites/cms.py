"""The town's paper: Wagtail, a content management system. The person is its editor."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any, ClassVar

from palaestra.environments.families.apps.people import draw_people
from palaestra.environments.families.real_sites import request_clock
from palaestra.environments.families.real_sites.application import BEGIN
from palaestra.environments.families.real_sites.django_server import DjangoApplication
from palaestra.environments.families.real_sites.django_users import made_users

PEOPLE = 6
SECTIONS = ("News", "Culture", "Sport", "Notices")
HEADLINES = {
    "News": (
        "Bridge closed until spring",
        "New mayor elected",
        "Water prices rise",
        "School gets a library",
    ),
    "Culture": (
        "Choir wins a prize",
        "Museum opens late",
        "Film night in the park",
        "Painter returns home",
    ),
    "Sport": (
        "Rowers lose the final",
        "Chess club moves",
        "Marathon needs helpers",
        "New goal posts",
    ),
    "Notices": (
        "Bins collected on Tuesday",
        "Market moves indoors",
        "Office hours change",
        "Lost dog",
    ),
}
INTROS = (
    "What changes for all of us.", "A report from the town hall.", "Neighbours tell their story.",
    "Our reporter was there.", "The last word is not spoken.",
)  # fmt: skip


class Cms(DjangoApplication):
    """Wagtail: pages in a tree, drafts and revisions, redirects, users and an editor."""

    name = "cms"
    middleware = ("wagtail.contrib.redirects.middleware.RedirectMiddleware",)
    unjudged: ClassVar = {
        **DjangoApplication.unjudged,
        "wagtailadmin_editingsession": (),
        "wagtailcore_modellogentry": (),
        "wagtailcore_page": (
            "draft_title", "first_published_at", "last_published_at", "latest_revision_created_at",
            "latest_revision_id", "live_revision_id", "numchild",
        ),
        "wagtailcore_pagelogentry": (),
        "wagtailcore_pagesubscription": (),
        "wagtailcore_referenceindex": (),
        "wagtailcore_revision": (),
        "wagtailusers_userprofile": (),
    }  # fmt: skip

    @property
    def address(self) -> str:
        return f"http://{self.host}/admin/"

    def urls(self) -> list[Any]:
        from django.urls import include, path
        from wagtail import urls
        from wagtail.admin import urls as editor_urls

        return [path("admin/", include(editor_urls)), path("", include(urls))]

    def populate(self, rng: random.Random) -> int:
        from wagtail.models import Collection, Locale, Page, Site

        from palaestra.environments.families.real_sites.cms_pages.models import FrontPage, Section

        users = made_users(draw_people(rng, PEOPLE))
        Locale.objects.create(language_code="en")
        Collection.add_root(name="Root")
        root = Page.add_root(title="Root", slug="root")
        front = root.add_child(instance=FrontPage(title="Town Paper", slug="town-paper"))
        Site.objects.create(hostname=self.host, root_page=front, is_default_site=True)
        with request_clock.at(BEGIN - timedelta(days=300), rng):
            sections = [
                front.add_child(instance=Section(title=title, slug=title.lower()))
                for title in SECTIONS
            ]
        for section in sections:
            for number, title in enumerate(rng.sample(HEADLINES[section.title], 3)):
                live = number < 2 or rng.random() < 0.4
                _article(rng, section, title, rng.choice(users[1:]), live)
        return int(users[0].pk)


def _article(rng: random.Random, section: Any, title: str, author: Any, live: bool) -> None:
    from django.utils.text import slugify

    from palaestra.environments.families.real_sites.cms_pages.models import Article

    name, intro = author.get_full_name(), rng.choice(INTROS)
    with request_clock.at(BEGIN - timedelta(days=rng.randint(2, 90)), rng):
        page = section.add_child(
            instance=Article(
                title=title, slug=slugify(title), author=name, intro=intro,
                owner=author, live=False,
                body=f'<p data-block-key="first">{title}. {intro} {name} reports.</p>',
            )
        )  # fmt: skip
        revision = page.save_revision(user=author)
        if live:
            revision.publish()
