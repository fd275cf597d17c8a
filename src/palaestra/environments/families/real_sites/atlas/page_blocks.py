"""Pages of our own sites: a frame with a look, and blocks of content; plain HTML, no scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from urllib.parse import parse_qsl, urlsplit

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template

from palaestra.browser.sites import Request, Response
from palaestra.environments.families.real_sites.application import DOMAIN
from palaestra.environments.families.web.pages.app_site import Cell
from palaestra.environments.families.web.pages.forms import Field
from palaestra.environments.families.web.pages.look import Look

SITES = {
    "home": "All sites",
    "encyclopedia": "Encyclopedia",
    "map": "Map",
    "mail": "Mail",
    "contacts": "Contacts",
    "gallery": "Gallery",
}
"""The sites of one world, each with what links to it are called."""

LINKS = tuple((label, f"http://{name}{DOMAIN}/") for name, label in SITES.items())
SEE_OTHER = 303


@dataclass(frozen=True, slots=True)
class Words:
    """A paragraph."""

    text: str
    kind: str = "words"


@dataclass(frozen=True, slots=True)
class Facts:
    """Labels, each with a value."""

    rows: Mapping[str, Cell]
    kind: str = "facts"


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a table; each has the same labels. Without any: that there is nothing."""

    rows: Sequence[Mapping[str, Cell]]
    kind: str = "rows"


@dataclass(frozen=True, slots=True)
class Links:
    """Links, by what they are called."""

    links: Mapping[str, str]
    kind: str = "links"


@dataclass(frozen=True, slots=True)
class Form:
    """A form with a button."""

    method: str  # "get" or "post"
    action: str
    button: str
    fields: Sequence[Field] = ()
    hidden: tuple[tuple[str, str], ...] = ()
    kind: str = "form"


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture by its address; the text beside it says nothing of what it shows."""

    source: str
    name: str
    size: tuple[int, int]  # width and height in pixels
    kind: str = "picture"


Block = Words | Facts | Rows | Links | Form | Picture


@dataclass(frozen=True, slots=True)
class Frame:
    """What stands around the content of all pages of a site."""

    look: Look
    menu: tuple[tuple[str, str], ...]  # labels and addresses
    others: tuple[tuple[str, str], ...] = LINKS

    def page(self, title: str, *blocks: Block, status: int = 200) -> Response:
        """Return a page."""
        html = _template().render(
            site=self, look=self.look, words=self.look.words, title=title, blocks=blocks,
            error="", done=False, told=(),
        )  # fmt: skip
        return Response(html.encode(), status=status)

    def missing(self, path: str) -> Response:
        """Return the page of an address at which there is nothing."""
        return self.page("Not found", Words(f"There is no page {path}."), status=404)


def see(address: str) -> Response:
    """Return the answer that leads to another page."""
    return Response(b"", status=SEE_OTHER, headers={"Location": address})


def drawing(svg: str) -> Response:
    """Return a picture (SVG 1.1)."""
    return Response(svg.encode(), "image/svg+xml")


def asked(request: Request) -> dict[str, str]:
    """Return the fields of the query, and of the form that was sent."""
    query = parse_qsl(urlsplit(request.address).query, keep_blank_values=True)
    return dict([*query, *parse_qsl(request.body.decode(), keep_blank_values=True)])


def choice(name: str, label: str, options: Mapping[str, str], value: str = "") -> Field:
    """Return a field to choose one of some texts; `options` are shown texts by what is sent."""
    return Field(name, label, "choice", value, tuple(options.items()))


@cache
def _template() -> Template:
    loader = ChoiceLoader(
        [PackageLoader(__package__), PackageLoader("palaestra.environments.families.web.pages")]
    )
    made = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    return made.get_template("blocks.html")
