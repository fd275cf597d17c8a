"""The site in the docs runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

from palaestra.browser.sites import Request

DOCS = Path(__file__).parents[4] / "docs" / "web-sites.md"


def test_the_site_of_the_docs_keeps_notes_and_counts_no_visits() -> None:
    code = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)[0]
    assert len(code.splitlines()) <= 42
    names: dict[str, object] = {}
    exec(compile(code, "docs/web-sites.md", "exec"), names)
    application = names["Notes"]
    assert isinstance(application, type)
    site = application().open(seed=3)
    assert b"<li>Buy " in site(Request("GET", "http://notes.example/")).body
    assert site.changes() == []
    site(Request("POST", "http://notes.example/", body=b"text=Call+Ann"))
    [change] = site.changes()
    assert change.values == {"id": 2, "text": "Call Ann"}
    other = application().open(seed=3)
    other.load(site.save())
    assert b"Call Ann" in other(Request("GET", "http://notes.example/")).body
