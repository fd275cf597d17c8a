"""Lists of what the person saved at a site: pages, notes that can be changed, and removal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from palaestra.browser.sites import Request, Response
from palaestra.environments.families.apps.state import Row
from palaestra.environments.families.real_sites.application import OpenSite
from palaestra.environments.families.real_sites.atlas.own_site import OwnSite
from palaestra.environments.families.real_sites.atlas.page_blocks import (
    Facts,
    Form,
    Frame,
    Rows,
    asked,
    see,
)
from palaestra.environments.families.web.pages.app_site import Cell
from palaestra.environments.families.web.pages.forms import Field


@dataclass(frozen=True, slots=True)
class SavedList:
    """What lies below `/saved`: a table whose rows have a note."""

    table: str
    title: str
    entry: str  # the title of an entry's page
    line: Callable[[Row], Mapping[str, Cell]]  # of the list
    facts: Callable[[Row], Mapping[str, Cell]]  # of an entry's page

    def answer(
        self, owner: OwnSite, site: OpenSite, frame: Frame, request: Request, rest: list[str]
    ) -> Response:
        """Answer a request; `rest` is its path after `/saved`."""
        if not rest:
            rows = site.rows(f"{owner.name}.{self.table}")
            return frame.page(self.title, Rows([self.line(row) for row in rows]))
        row = owner.row(site, self.table, rest[0])
        if row is None:
            return frame.missing(request.path)
        address = f"/saved/{row['id']}"
        match request.method, rest[1:]:
            case "GET", []:
                note = Field("note", "Note", "line", row["note"])
                return frame.page(
                    self.entry,
                    Facts(self.facts(row)),
                    Form("post", f"{address}/note", "Save note", [note]),
                    Form("post", f"{address}/remove", "Remove from list"),
                )
            case "POST", ["note"]:
                owner.update(site, self.table, row["id"], "note", asked(request).get("note", ""))
                return see(address)
            case "POST", ["remove"]:
                owner.delete(site, self.table, row["id"])
                return see("/saved")
        return frame.missing(request.path)
