"""An answer that was worked out once is given again in equal circumstances, and in no others."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from palaestra.browser.sites import Request, Response
from palaestra.environments.families.real_sites.application import DatabaseApplication, OpenSite
from palaestra.environments.families.real_sites.known_answers import KnownAnswers
from palaestra.environments.families.real_sites.site_database import SiteTemplate, opened

POST = Request("POST", "http://counter.example/", body=b"one")
GET = Request("GET", "http://counter.example/")


class Counter(DatabaseApplication):
    """Counts what is posted, and how often it is asked."""

    name = "counter"

    def __init__(self, most: int = 100_000) -> None:
        super().__init__()
        self.known, self.asked = KnownAnswers(most), 0

    def template(self, seed: int) -> SiteTemplate:
        connection = opened(b"")
        connection.execute("CREATE TABLE post (id INTEGER PRIMARY KEY, text TEXT)")
        return SiteTemplate.of(self.name, connection)

    def respond(self, site: OpenSite, request: Request) -> Response:
        return self.known.respond(site, request, self._worked_out)

    def _worked_out(self, site: OpenSite, request: Request) -> Response:
        self.asked += 1
        if request.method == "POST":
            site.database.connection.execute("INSERT INTO post (text) VALUES (?)", (request.body,))
        posts = [row["text"] for row in site.rows("counter.post")]
        return Response(f"{site.seed} {site.now} {posts}".encode())


def test_an_equal_request_in_an_equal_state_has_the_same_answer_and_effect() -> None:
    application = Counter()
    first, second = application.open(1), application.open(1)
    answers = [first(one) for one in (GET, POST, GET, POST)]
    assert application.asked == 4
    assert [second(one) for one in (GET, POST, GET, POST)] == answers
    assert application.asked == 4
    assert second.rows("counter.post") == first.rows("counter.post") != []
    assert second.save() == first.save()
    assert second.key() == first.key()


def test_another_state_time_seed_or_request_is_worked_out() -> None:
    application = Counter()
    site = application.open(1)
    site(GET)
    later = application.open(1)
    later.now += timedelta(seconds=1)
    others = [replace(GET, headers={"Cookie": "a=1"}), replace(GET, address=f"{GET.address}?a")]
    for count, asked in enumerate((*others, POST, GET), 2):
        site(asked)
        assert application.asked == count
    later(GET)
    application.open(2)(GET)
    assert application.asked == 7
    assert b"one" in site(GET).body


def test_no_more_is_kept_than_is_allowed() -> None:
    application = Counter(most=300)
    site = application.open(1)
    for number in range(20):
        site(replace(GET, address=f"{GET.address}?{number}"))
    assert application.known._size <= 300
    site(replace(GET, address=f"{GET.address}?19"))
    assert application.asked == 20
    site(replace(GET, address=f"{GET.address}?0"))
    assert application.asked == 21
