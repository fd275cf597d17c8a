"""The page at which tasks begin: a link to each site."""

from __future__ import annotations

from palaestra.browser.sites import Request, Response
from palaestra.environments.families.real_sites.application import OpenSite
from palaestra.environments.families.real_sites.atlas.own_site import OwnSite
from palaestra.environments.families.real_sites.atlas.page_blocks import Frame, Words


class Home(OwnSite):
    """A site of one page, with the links that stand on every page."""

    name = "home"

    def answer(self, site: OpenSite, request: Request, frame: Frame) -> Response:
        if request.path != "/":
            return frame.missing(request.path)
        return frame.page("Home", Words("Choose a site above."))
