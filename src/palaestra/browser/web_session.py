"""A session: the browser as one world has it, with its sites, tabs, clock, files and clipboard."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from email.message import Message
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from palaestra.browser import input_events
from palaestra.browser.accessibility import PageTree
from palaestra.browser.cookie_lifetimes import CookieLifetimes
from palaestra.browser.devtools import Connection, Parameters, Refusal
from palaestra.browser.dialog_picture import dialog_elements, dialog_page
from palaestra.browser.held_document import HOLD, HeldDocument
from palaestra.browser.sites import Request, Response, Site
from palaestra.browser.tab import Tab
from palaestra.core.element import Box, Element
from palaestra.core.errors import EnvironmentFault, InputError

if TYPE_CHECKING:
    from palaestra.browser.shared_browser import Browser

BEGIN = 1_767_225_600_000.0  # when each world begins: 2026-01-01, in milliseconds since 1970
EMPTY = "about:blank"
LOAD = 100.0  # milliseconds that a page gets once it is loaded
LONG = 1000  # bytes of an answer that is remembered
MOST = 20_000  # elements of a page that are read: some ten seconds


class WebSession:
    """One world's browser, used from one thread at a time. Worlds do not wait for each other."""

    def __init__(
        self,
        browser: Browser,
        connection: Connection,
        context: str,
        size: tuple[int, int],
        real_time: bool = False,
    ) -> None:
        self.browser, self.connection = browser, connection
        self.context, self.size, self.real_time = context, size, real_time
        self._time = BEGIN
        self.shift = BEGIN - _wall_clock() if real_time else None
        connection.listeners[""] = self._on
        self.tabs: list[Tab] = []
        self.current = 0  # the number of the tab in front
        self.sites: Mapping[str, Site] = {}
        self.files: dict[str, bytes] = {}  # that may be uploaded
        self.downloads: list[str] = []  # names of those that pages gave, in order
        self.refused: list[str] = []  # requests that no site of the world answers
        self.clipboard = ""
        self.pointer: tuple[float, float] | None = None  # None: nowhere yet
        self.watch = "null"
        self.watched_value: Any = None  # its value when the page came to rest; None at a dialog
        self.lifetimes = CookieLifetimes()
        self.chance = (0, 0)  # the seed, and how many documents were loaded
        self.ids: dict[int, str] = {}  # of elements, by the browser's number of their node
        self.node_names: dict[int, str] = {}  # names of nodes as they were read last, by number
        self.named = 0  # how many elements have had an id
        self._nodes: dict[str, int] = {}
        self._links: dict[str, str] = {}  # addresses, by the ids of elements
        self._origins: set[str] = set()  # that answered in this world: their pages may store
        self._answered: dict[str, str] = {}  # addresses of long texts, by their digest
        self._elements: tuple[Element, ...] | None = None
        self._failed = False
        self._held: HeldDocument | None = None

    # ── the world ────────────────────────────────────────────────────────────

    @property
    def now(self) -> float:
        """The world's time in milliseconds since 1970."""
        return self._time if self.shift is None else _wall_clock() + self.shift

    def set_time(self, now: float) -> None:
        """Set the world's time, if it is virtual; real time goes on by itself."""
        self._time = now

    def begin(
        self,
        sites: Mapping[str, Site],
        address: str,
        seed: int,
        files: Mapping[str, bytes] | None = None,
        watch: str = "null",
        cookies: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Forget all that was and open an address in one tab.

        Args:
            sites: who answers, by host (with the port, if it is not the usual one).
            address: the first page.
            seed: of the pages' random numbers.
            files: that may be uploaded, by name.
            watch: an expression that throws no errors; `watched_value` is its value whenever the
                page has come to rest.
            cookies: that the browser sends from the start, by host and name; no script reads them.

        Raises:
            EnvironmentFault: the browser crashed or does not answer.
        """
        with self.watched():
            self.forget(sites, seed)
            self._set_cookies(cookies or {})
            self.files, self.watch = dict(files or {}), watch
            self.open(address)
            self.tab.settle(LOAD)
            self.changed()

    def forget(self, sites: Mapping[str, Site], seed: int, address: str = EMPTY) -> None:
        """Forget all that was, and leave its page for an empty one, in the one tab that is left.

        What the page does as it is left reaches no site, and is forgotten, too.

        Args:
            sites: see `begin`.
            seed: see `begin`.
            address: of the empty page.
        """
        while len(self.tabs) > 1 or (self.tabs and self.tabs[0].dialog is not None):
            self.close_tab(self.tabs[-1])
        if not self.tabs:
            self.open_tab()
        self.current = 0
        self.sites = dict.fromkeys((urlsplit(address).netloc,), nothing)
        if address != EMPTY or self._origins:
            self.open(address)
        self._clear()
        self.sites, self.files, self.refused, self.downloads = sites, {}, [], []
        self.watch, self._held = "null", None
        self.set_time(BEGIN)
        if self.real_time:
            self.shift = BEGIN - _wall_clock()
        self.chance, self.lifetimes = (seed, 0), CookieLifetimes()
        moved = self.pointer is not None
        self.clipboard, self.pointer = "", None
        self.ids, self.named, self._nodes, self._answered = {}, 0, {}, {}
        self.tab.wrote_history = self.tab.moved_within = False
        self.tab.places.clear()
        if moved:  # else the next page would find it hovered
            input_events.leave(self.tab)

    def open(self, address: str) -> None:
        """Open the first page of the world, before which there is none to go back to."""
        self.tab.load(address)
        self.tab.tell("Page.resetNavigationHistory")

    def _clear(self) -> None:
        """Drop cookies and what pages stored."""
        self.connection.tell("Storage.clearCookies", browserContextId=self.context)
        kinds = "local_storage,indexeddb,websql,cache_storage,service_workers"
        for origin in sorted(self._origins):
            self.tab.tell("Storage.clearDataForOrigin", origin=origin, storageTypes=kinds)
        self._origins.clear()

    def hold(self, program: str) -> None:
        """Hold the state in which `begin` left the page, for `again`.

        Only for pages whose own programs can begin again in their document; none does in real time.

        Args:
            program: a function of a text, written in JavaScript, that begins a task in the page.
        """
        with self.watched():
            held = not self.real_time and self.tab.evaluate(HOLD % program)
            self._held = HeldDocument(self.tab, self.tab.loads, self.now) if held else None

    def can_begin_again(self) -> bool:
        """Return whether the held page is there, in the only tab, without a dialog."""
        return self._held is not None and self._held.can_begin(self.tabs)

    def again(self, seed: int, given: str) -> Any:
        """Go back to the end of `begin` with another seed, without loading the page.

        Time, chance, pointer, focus, selection and scroll position are as they were then; what the
        page itself has changed stays, and is for the program that `hold` was given to undo. It runs
        now, and the page is given time as by `run`.

        Args:
            seed: of the page's random numbers.
            given: to the program.

        Returns:
            the program's value.

        Raises:
            EnvironmentFault: the program threw an error, or the browser crashed or hangs.
        """
        assert self._held is not None
        with self.watched():
            tab = self.tabs[0]
            self._held.begun += 1
            self.chance, self.refused = (seed, 1), []
            if self.pointer is not None:
                input_events.leave(tab)
            self.set_time(self._held.now)
            self.clipboard, self.pointer = "", None
            self.ids, self.named, self._nodes = {}, 0, {}
            self.changed()
            return self._program_value(lambda: tab.again(self._document_seed(), given, LOAD))

    def _set_cookies(self, cookies: Mapping[str, Mapping[str, str]]) -> None:
        found = [
            {"name": name, "value": value, "url": f"http://{host}/", "httpOnly": True}
            for host, held in cookies.items()
            for name, value in held.items()
        ]
        if found:
            self.connection.call("Storage.setCookies", cookies=found, browserContextId=self.context)

    def cookies(self) -> list[dict[str, Any]]:
        """Return all cookies of the world, as the browser describes them, in a fixed order."""
        found = self.connection.call("Storage.getCookies", browserContextId=self.context)["cookies"]
        return sorted(found, key=lambda one: (one["domain"], one["path"], one["name"]))

    def close(self) -> None:
        """Give the session back to the browser; harmless if it crashed."""
        usable = not self._failed and all(tab.dialog is None for tab in self.tabs)
        self.sites, self.files, self._held = {}, {}, None
        self.browser.give_back(self, usable)
        shutil.rmtree(self.browser.process.uploads / self.context, ignore_errors=True)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """End the session's pages after a fault of the browser: it is not used again."""
        try:
            yield
        except EnvironmentFault:
            if not self._failed:
                self._failed = True
                self.browser.dispose(self)
            raise

    @property
    def failed(self) -> bool:
        """Whether the browser crashed or hung in this session, so that a new one is needed."""
        return self._failed or not self.browser.process.alive

    def respond(self, request: Request) -> Response | None:
        """Return a site's answer; None: no site of this world has that host, and it is noted."""
        parts = urlsplit(request.address)
        site = self.sites.get(request.host) if parts.scheme in ("http", "https") else None
        if site is None:
            self.refused.append(f"{request.method} {request.address}")
            return None
        self._origins.add(f"{parts.scheme}://{request.host}")
        response = site(request)
        passing = request.method == "GET" and not request.page and not response.lasting
        if passing and len(response.body) >= LONG:
            self._answered[text_digest(response.body)] = request.address
        return response

    def source_of(self, text: str) -> str:
        """Return an address that was answered with this text; empty: none, or it is short."""
        return self._answered.get(text_digest(text.encode()), "") if len(text) >= LONG else ""

    def kept(self, response: Response) -> Response:
        """Keep an attachment among the world's files; its page stays. Other documents pass."""
        if "Content-Disposition" not in response.headers:
            return response
        header = Message()
        header["Content-Disposition"] = response.headers["Content-Disposition"]
        name = PurePosixPath(header.get_filename("")).name
        if header.get_content_disposition() != "attachment" or not name:
            return response
        self.files[name] = response.body
        self.downloads.append(name)
        return Response(b"", status=204)

    def next_document(self) -> tuple[float, int]:
        """Return the time and the seed of the next document that is loaded."""
        self.chance = (self.chance[0], self.chance[1] + 1)
        return self.now, self._document_seed()

    def _document_seed(self) -> int:
        """Return the seed of the document that was loaded last, 32 bits with a sign."""
        digest = hashlib.blake2b("{} {}".format(*self.chance).encode(), digest_size=4)
        return int.from_bytes(digest.digest(), "big", signed=True)

    # ── tabs ─────────────────────────────────────────────────────────────────

    @property
    def tab(self) -> Tab:
        """The tab in front."""
        return self.tabs[self.current]

    def _on(self, method: str, found: Parameters) -> None:
        match method:
            case "Target.attachedToTarget":
                id = found["sessionId"]
                self.tabs.append(Tab(self, self.connection, id, found["targetInfo"]["targetId"]))
                self.current = len(self.tabs) - 1  # a new tab comes to the front
                self.connection.tell("Runtime.runIfWaitingForDebugger", id)
            case "Target.detachedFromTarget":
                self.connection.listeners.pop(found["sessionId"], None)
                self._remove(found["sessionId"])
            case "Browser.downloadWillBegin":  # which the browser refuses
                self.refused.append(f"download {found['url']}")

    def _remove(self, id: str) -> None:
        """Remove a tab that has closed."""
        for index, tab in enumerate(self.tabs):
            if tab.id == id:
                tab.gone = True
                del self.tabs[index]
                self.current = max(
                    0, min(self.current - (index <= self.current), len(self.tabs) - 1)
                )
                return

    def open_tab(self) -> None:
        """Open an empty tab and bring it to the front."""
        count = len(self.tabs)
        connection = self.connection
        about = {"url": "about:blank", "browserContextId": self.context}
        if self.browser.frames_on_demand:
            try:
                connection.call("Target.createTarget", **about, enableBeginFrameControl=True)
            except Refusal:  # only the headless shell can
                self.browser.frames_on_demand = False
        if not self.browser.frames_on_demand:
            connection.call("Target.createTarget", **about)
        connection.wait_for(lambda: len(self.tabs) > count)
        self.tab.settle(0)

    def close_tab(self, tab: Tab) -> None:
        """Close a tab."""
        self.connection.call("Target.closeTarget", targetId=tab.target)
        self.connection.wait_for(lambda: tab not in self.tabs)

    # ── what it shows ────────────────────────────────────────────────────────

    def changed(self) -> None:
        """Forget the elements that were read: the page may have changed."""
        self._elements = None

    def elements(self) -> tuple[Element, ...]:
        """Return the elements of the tab in front, or of its open dialog."""
        if self._elements is None:
            with self.watched():
                self._elements = self._read()
        return self._elements

    def _read(self) -> tuple[Element, ...]:
        dialog = self.tab.dialog
        if dialog is not None:
            return dialog_elements(dialog, self.size)
        if self.tab.count > MOST:
            many = f"{self.tab.count:,} elements, more than the {MOST:,} that are read"
            said = f"This page has {many}; click on points of its picture."
            self.node_names = {}
            return (Element("page", "RootWebArea", said),)
        return self._taken(PageTree(self.tab))

    def _taken(self, tree: PageTree) -> tuple[Element, ...]:
        self.node_names = tree.nodes
        found, self._nodes, self._links = tree.elements(self._id_of)
        return tuple(found)

    def lost_nodes(self) -> set[int]:
        """Return the nodes of the page that have ids and were not there at the last reading."""
        names, first = self.node_names, self.tab.named
        return {node for node, id in self.ids.items() if int(id) > first and node not in names}

    def read_as_numbered(self, ids: Sequence[tuple[int, str]]) -> None:
        """Read the elements anew, with the ids that they had before.

        Args:
            ids: by the place of their node among `node_names`.
        """
        with self.watched():
            tree = PageTree(self.tab)
            numbers = [*tree.nodes]
            self.ids = {numbers[at]: id for at, id in ids if at < len(numbers)}
            self._elements = self._taken(tree)

    def _id_of(self, node: int) -> str:
        if node not in self.ids:
            self.named += 1
            self.ids[node] = str(self.named)
        return self.ids[node]

    def run(self, program: str) -> Any:
        """Run a program of the world's in the page, give it time, and return its value.

        Raises:
            EnvironmentFault: it threw an error.
        """
        with self.watched():
            value = self._program_value(lambda: self.tab.evaluate(program))
            self.tab.settle(LOAD)
            self.changed()
            return value

    def _program_value(self, run: Callable[[], Any]) -> Any:
        try:
            return run()
        except Refusal as error:
            raise EnvironmentFault("crash", f"the page raised {error}") from None

    def node(self, element: Element) -> int:
        """Return the browser's number for an element's node."""
        return self._nodes[element.id]

    def links(self) -> Mapping[str, str]:
        """Return where the links of the tab in front lead, by the ids of their elements."""
        self.elements()
        return {} if self.tab.dialog is not None else self._links

    def picture(self) -> bytes:
        """Return what the tab in front shows, or its open dialog, as a PNG."""
        with self.watched():
            dialog = self.tab.dialog
            if dialog is None:
                return self.tab.picture()
            other = self.browser.session(self.size)  # this page waits for the answer
            try:
                page = dialog_page(dialog, self.size)
                other.tab.call("Page.setDocumentContent", frameId=other.tab.target, html=page)
                return other.tab.picture()
            finally:
                other.close()

    def window(self) -> Box:
        """Return the box of the whole picture."""
        return Box(0.0, 0.0, *map(float, self.size))

    # ── where it may go ──────────────────────────────────────────────────────

    def checked_address(self, address: str) -> str:
        """Return an address with its scheme; raises InputError if it is not of this world."""
        full = address if "://" in address else f"http://{address}"
        parts = urlsplit(full)
        if parts.scheme not in ("http", "https") or parts.netloc.lower() not in self.sites:
            hosts = ", ".join(f"http://{host}/" for host in sorted(self.sites))
            raise InputError(f"There is no page '{address}'; the sites are {hosts}.")
        return full

    def upload_path(self, name: str) -> str:
        """Put one of the world's files where the browser can read it; return its path there.

        Raises:
            InputError: the world has no such file.
        """
        if name not in self.files:
            known = ", ".join(map(repr, sorted(self.files))) or "none"
            raise InputError(f"There is no file '{name}' to upload; there are: {known}.")
        plain = PurePosixPath(name).name
        folder = self.browser.process.uploads / self.context
        folder.mkdir(mode=0o755, exist_ok=True)
        (folder / plain).write_bytes(self.files[name])
        return f"{self.browser.uploads}/{self.context}/{plain}"


def nothing(request: Request) -> Response:
    """Stands for a site where only the address of a page matters."""
    return Response(b"<!doctype html>")


def _wall_clock() -> float:
    return 1000 * time.time()


def text_digest(text: bytes) -> str:
    """Return a digest that equal texts share."""
    return hashlib.blake2b(text, digest_size=12).hexdigest()
