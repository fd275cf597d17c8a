"""Sites: who answers the requests of a world's pages, by host."""

from __future__ import annotations

import mimetypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Protocol, runtime_checkable
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a page."""

    method: str
    address: str  # with the host and the query
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    page: bool = False  # whether the answer takes the place of the tab's page

    @property
    def host(self) -> str:
        """The host, with the port if the address names one, in lower case."""
        return urlsplit(self.address).netloc.rpartition("@")[2].lower()

    @property
    def path(self) -> str:
        """The path, unquoted; at least "/"."""
        return unquote(urlsplit(self.address).path) or "/"


@dataclass(frozen=True, slots=True)
class Response:
    """What a site answers."""

    body: bytes
    type: str = "text/html; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    lasting: bool = False  # the browser may keep it: the same for every task
    cookies: tuple[str, ...] = ()  # a `Set-Cookie` header each; the browser keeps and sends them


Site = Callable[[Request], Response]


@dataclass(frozen=True, slots=True)
class HostedPage:
    """A task on the page of one site, as a person can do it in a browser of their own."""

    site: Site
    goal: str  # what to do; its answer ends the task
    files: Mapping[str, bytes]  # that the person may need to upload, by name


@runtime_checkable
class Hosting(Protocol):
    """An environment whose present task is on the page of one site, and ends with an answer."""

    def hosted(self) -> HostedPage:
        """Return the page of the present task; what is done there counts for the task."""
        ...


class FolderSite:
    """A site of static files; scripts, styles and pictures are kept by the browser."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._known: dict[str, Response] = {}

    def __call__(self, request: Request) -> Response:
        if request.path not in self._known:
            self._known[request.path] = self._read(request.path)
        return self._known[request.path]

    def _read(self, path: str) -> Response:
        relative = PurePosixPath(path).relative_to("/")
        file = (self._folder / relative).resolve()
        if "\0" in path or not file.is_relative_to(self._folder) or not file.is_file():
            return Response(b"There is no such page.", "text/plain", 404)
        type = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        page = type == "text/html"
        shown = f"{type}; charset=utf-8" if type.startswith("text/") else type
        return Response(file.read_bytes(), shown, lasting=not page)
