"""Crawling: the graph of a world's pages, by opening every address to which a link leads.

Pages are opened in the real browser, breadth first. Forms that ask for something (GET) are sent
with words that the site itself shows: searches are edges, too. Forms that change something are
never sent. A kind of pages without facts or rows is given up after a few: these are forms.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from urllib.parse import urlsplit

from palaestra.browser.web_gestures import do
from palaestra.browser.web_session import WebSession
from palaestra.core.errors import InputError
from palaestra.core.gesture import Gesture, Words
from palaestra.core.gestures.gesture_line import write_line
from palaestra.environments.families.page_graph.linked_pages import Edge, Page, PageGraph, kind_of
from palaestra.environments.families.page_graph.page_reading import Reading

PAGES = 150  # pages of a world that are read
EMPTY = 2  # pages of a kind without facts, rows or searches, after which the kind is given up
SEARCHES = 3  # with the form of one page
METHODS = "[...document.forms].map(form => form.method)"


def crawled(session: WebSession, start: str, rng: random.Random, most: int = PAGES) -> PageGraph:
    """Return the graph of the pages that can be reached from the session's first page.

    Args:
        session: begun in a world of sites.
        start: the address of that page.
        rng: draws the words that are searched for.
        most: pages that are opened.
    """
    graph = PageGraph(start)
    queue, empty = deque([start]), Counter[str]()
    forms: dict[str, Reading] = {}
    while queue and len(graph.pages) < most:
        address = queue.popleft()
        if address in graph.pages or empty[kind_of(address)] >= EMPTY:
            continue
        try:
            do(session, Gesture("go", text=address))
        except InputError:
            continue  # it is no page of this world
        reading = _read(session)
        page = _add(graph, address, reading)
        queue += [edge.target for edge in graph.edges[address] if _here(session, edge)]
        asks = _asks(session, reading)
        if asks:
            forms[address] = reading
        if not (page.facts or page.rows or asks):
            empty[kind_of(address)] += 1
    for address, reading in forms.items():
        _search(session, graph, address, reading, rng)
    known = {edge.target for edges in graph.edges.values() for edge in edges}
    graph.unread = {one for one in known - graph.pages.keys() if empty[kind_of(one)] < EMPTY}
    return graph


def _read(session: WebSession) -> Reading:
    return Reading(session.tab.address(), session.elements(), session.links())


def _add(graph: PageGraph, address: str, reading: Reading) -> Page:
    """Add a page under the address that was asked for."""
    page = reading.page()
    graph.pages[address], graph.edges[address] = page, reading.links()
    return page


def _here(session: WebSession, edge: Edge) -> bool:
    return urlsplit(edge.target).netloc in session.sites


def _asks(session: WebSession, reading: Reading) -> bool:
    """Return whether the page's first form asks for something, with a field and a button."""
    forms = reading.forms()
    methods = session.run(METHODS)
    return len(forms) == len(methods) and methods[:1] == ["get"] and None not in forms[0]


def _search(
    session: WebSession, graph: PageGraph, address: str, reading: Reading, rng: random.Random
) -> None:
    """Use a page's first form with words of its site; what it leads to is a page of the graph."""
    field, button = reading.forms()[0]
    assert field is not None and button is not None
    host = urlsplit(address).netloc
    said = {
        fact.value
        for page in graph.pages.values()
        if urlsplit(page.address).netloc == host
        for facts in (page.facts, *page.rows)
        for fact in facts
        if fact.label == field.name or not _is_label(graph, host, field.name)
    }
    for text in rng.sample(sorted(said), min(SEARCHES, len(said))):
        typed = Gesture("type", Words(reading.words[field.id]), text=text)
        gestures = typed, Gesture("click", Words(reading.words[button.id]))
        do(session, Gesture("go", text=address))
        try:
            for gesture in gestures:
                do(session, gesture)
        except InputError:
            return
        found = session.tab.address()
        graph.edges[address].append(Edge("search", found, tuple(map(write_line, gestures))))
        if found not in graph.pages:
            graph.found.add(found)
            _add(graph, found, _read(session))


def _is_label(graph: PageGraph, host: str, name: str) -> bool:
    """Return whether some page of a site has facts under a label."""
    return any(
        fact.label == name
        for page in graph.pages.values()
        if urlsplit(page.address).netloc == host
        for facts in (page.facts, *page.rows)
        for fact in facts
    )
