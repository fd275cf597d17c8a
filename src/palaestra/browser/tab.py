"""A tab: one page at a time, with its time, its requests and its dialog."""

from __future__ import annotations

import base64
import contextlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from palaestra.browser.devtools import Connection, Parameters, Refusal
from palaestra.browser.form_body import request_of
from palaestra.browser.sites import Response
from palaestra.core.errors import EnvironmentFault

if TYPE_CHECKING:
    from palaestra.browser.web_session import WebSession

KEY = "palaestra-clock"
"""Names the clock in a page, and its time and chance in the header of the page's answer."""

FRAMES = 10  # that are drawn until a page has taken its input
ROUNDS = 200  # of loading pages and answered requests, within one grant of time
_CLOCK = f"window[Symbol.for({KEY!r})]"
_REPORT = (
    "[r.left, r.pending, clock.now, clock.cookies.splice(0),"
    " document.getElementsByTagName('*').length, %s]"
)
_ADVANCE = (
    f"(clock => clock ? clock.advance(Math.max(0, %r - clock.now)).then(r => {_REPORT})"
    " : location.protocol.startsWith('http') ? null : [0, 0, 0, [], 0, null])"
    f"({_CLOCK})"
)
_AGAIN = (
    "(clock => clock.begin(%d, %s).then(value => clock.advance(%r)"
    f".then(r => [value, {_REPORT}])))({_CLOCK})"
)
_FRAME = f"{_CLOCK}?.frame()"


@dataclass(frozen=True, slots=True)
class Dialog:
    """An open dialog of a page: it waits for an answer, and all else waits for it."""

    kind: str  # "alert", "confirm" or "prompt"
    message: str
    value: str  # what a prompt holds


class Tab:
    """One tab of a session; made when the browser reports it."""

    def __init__(self, session: WebSession, connection: Connection, id: str, target: str) -> None:
        self.session, self.connection, self.id, self.target = session, connection, id, target
        self.dialog: Dialog | None = None
        self.drag: Parameters | None = None  # data of a drag that the browser has begun
        self.crashed = False
        self.gone = False  # whether it has closed
        self._due = False  # whether time has passed since a frame was drawn
        self.count = 0  # of the elements of its page when it came to rest
        self._loading: set[str] = set()  # frames
        self._leaving: set[str] = set()  # frames that will load another page, and do not yet
        self.born = (session.now, 0)  # its page's time when it was asked for, and its number
        self.named = 0  # how many elements had an id when its page was asked for
        self.wrote_history = False  # whether a page's script did, since the world began
        self.moved_within = False  # whether a link has led to another place within the page
        self.places: set[str] = set()  # addresses to which links within pages have led
        self.loads = 0  # how often a frame began to load
        self._held: list[int] = []  # calls that wait for the dialog
        self._objects: list[str] = []  # of the page, which are held and no longer needed
        connection.listeners[id] = self._on
        width, height = session.size
        self.tell("Inspector.enable")  # which reports a crash of the page
        self.tell("Page.enable")
        self.tell("Fetch.enable", patterns=[{"urlPattern": "*"}])
        self.tell(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        self.tell("Emulation.setFocusEmulationEnabled", enabled=True)
        self.tell("Emulation.setTimezoneOverride", timezoneId="UTC")
        self.tell("Input.setInterceptDrags", enabled=True)
        now, seed = session.next_document()
        given = {"now": now, "seed": seed, "shift": session.shift, "key": KEY}
        clock = f"({_source()})({json.dumps(given)})"
        self.tell("Page.addScriptToEvaluateOnNewDocument", source=clock)

    # ── calls ────────────────────────────────────────────────────────────────

    def call(self, method: str, **parameters: object) -> Parameters:
        """Make a call of this tab; raises like `Connection.call`."""
        return self.connection.call(method, self.id, **parameters)

    def send(self, method: str, **parameters: object) -> int:
        """Send a call of this tab, to wait for later."""
        return self.connection.send(method, self.id, **parameters)

    def tell(self, method: str, **parameters: object) -> None:
        """Send a call of this tab whose answer nobody needs."""
        self.connection.tell(method, self.id, **parameters)

    def wait(self, numbers: list[int], until: Callable[[], bool] | None = None) -> list[Parameters]:
        """Wait for calls; nothing returns if a dialog opens, which holds them up, or it closes.

        Args:
            numbers: of the calls.
            until: a reason to wait no longer.
        """
        found = self.connection.wait(
            numbers, lambda: self._interrupted() or (until is not None and until())
        )
        if numbers and not found and self._interrupted():
            self._check()
            self._held += numbers
        return found

    def wait_for_frame(
        self, numbers: list[int], until: Callable[[], bool] | None = None
    ) -> list[Parameters]:
        """Wait, as `wait` does, for input that a page takes only as a frame is drawn.

        Args:
            numbers: of the calls.
            until: a reason to wait no longer.
        """
        for _ in range(FRAMES if self.session.browser.frames_on_demand else 0):
            self._draw(1)
            if self.connection.has(numbers):
                break
            if until is not None and until():
                return []
        return self.wait(numbers, until)

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression in the page; None if a dialog opened meanwhile.

        Raises:
            Refusal: the page threw an error, or it was left.
        """
        found = self.wait([self.send_expression(expression)])
        return value_of(found[0]) if found else None

    def send_expression(self, expression: str) -> int:
        """Send an expression to the page, whose value `value_of` finds in the answer."""
        return self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )

    def is_dragging(self) -> bool:
        """Return whether the browser has begun a drag, with data that the page gives along."""
        return self.drag is not None

    # ── pages and time ───────────────────────────────────────────────────────

    def navigate(self, address: str) -> None:
        """Go to an address and wait until the page has come to rest, or a dialog opens."""
        self.load(address)
        self.settle(0)

    def load(self, address: str) -> None:
        """Go to an address and wait until the page is loaded, or a dialog opens."""
        before = self.loads
        number = self.send("Page.navigate", url=address)
        found = self.wait([number])
        if found and not found[0].get("errorText") and found[0].get("loaderId"):
            self.connection.wait_for(lambda: self.loads > before or self._interrupted())
        self.connection.wait_for(lambda: self._rests() or self._interrupted())

    def settle(self, milliseconds: float, frames: int = 0) -> None:
        """Give the page that much time, after what it loads; stop if a dialog opens or it closes.

        Args:
            milliseconds: of its own clock; if that is real, this waits.
            frames: to draw before, so that what depends on them happens: scrolling.
        """
        session = self.session
        until = session.now + milliseconds  # of the world's clock, whichever pages there are
        session.watched_value = None
        if milliseconds:
            self._hear()
        for _ in range(ROUNDS):
            self.connection.wait_for(lambda: self._rests() or self._interrupted())
            self._check()
            if self.dialog is not None or self.gone:
                return
            try:
                self._draw(frames)
                found = (
                    None
                    if self._interrupted()
                    else self.evaluate(_ADVANCE % (until, session.watch))
                )
            except Refusal:  # the page was left meanwhile
                continue
            if found is None and self._interrupted():
                return
            if found is None:
                raise EnvironmentFault("crash", "the page has no clock of the task's")
            frames = 0
            if self._is_settled(found, until):
                return
        raise EnvironmentFault("hang", f"the page did not come to rest in {ROUNDS} rounds")

    def again(self, seed: int, given: str, milliseconds: float) -> Any:
        """Begin again in the document that is held, and give it time; return its program's value.

        In one call, since waiting for the browser costs most. See `WebSession.again`.
        """
        session = self.session
        until = session.now + milliseconds
        found = self.evaluate(_AGAIN % (seed, json.dumps(given), milliseconds, session.watch))
        if found is None:  # a dialog is open
            return None
        value, report = found
        if not self._is_settled(report, until):
            self.settle(until - session.now)
        return value

    def _is_settled(self, report: Sequence[Any], until: float) -> bool:
        """Take what a page reports after some time; return whether all of its time has passed."""
        session = self.session
        left, pending, now, cookies, self.count, session.watched_value = report
        for text, address, end in cookies:
            session.lifetimes.note(text, address, end, now)
        self._due = True
        session.set_time(max(session.now, now))
        if pending:
            time.sleep(0.001)  # its answers are on their way within the browser
        elif self._rests() and left <= 0:
            session.set_time(max(session.now, until))
            self._end_cookies()
            return True
        return False

    def catch_up(self) -> None:
        """Draw the frame that is due, unless a picture has: pictures change no episode."""
        if self._due and self.session.browser.frames_on_demand:
            self._draw(1)

    def _draw(self, frames: int) -> None:
        """Draw frames, one after the other; the rest not, if a dialog opens."""
        self._due = self._due and not frames
        for _ in range(frames):
            if self._interrupted():
                return
            if self.session.browser.frames_on_demand:
                with self.session.browser.drawing:  # two at once end the process that draws
                    self.wait([self.send("HeadlessExperimental.beginFrame")])
            else:
                self.evaluate(_FRAME)

    def spend(self, object: str) -> None:
        """Let go of an object of the page, before the page is given time."""
        self._objects.append(object)

    def _end_cookies(self) -> None:
        """Remove the cookies whose time is over."""
        for name, domain, path in self.session.lifetimes.ended(self.session.now):
            self.call("Network.deleteCookies", name=name, domain=domain, path=path)

    def _hear(self) -> None:
        """Hear from the page whether it will be left: then time is for the page that comes.

        What it has to say comes before its answer to any call.
        """
        objects, self._objects = self._objects, []
        with contextlib.suppress(Refusal):
            if objects:
                self.wait([self.send("Runtime.releaseObject", objectId=one) for one in objects])
            else:
                self.evaluate("0")

    def answer(self, accept: bool, text: str = "") -> None:
        """Answer the dialog, and wait for what it held up."""
        assert self.dialog is not None
        self.dialog = None
        self.call("Page.handleJavaScriptDialog", accept=accept, promptText=text)
        held, self._held = self._held, []
        for number in held:
            try:
                self.wait([number])
            except Refusal:
                continue  # its page was left

    def fill(self, value: str) -> None:
        """Write into the field of a prompt."""
        assert self.dialog is not None
        self.dialog = replace(self.dialog, value=value)

    def return_to(self, entry: int) -> None:
        """Go to an entry of the history of pages, and wait until it is shown."""
        self.call("Page.navigateToHistoryEntry", entryId=entry)
        self.connection.wait_for(
            lambda: bool(self._loading) or self._interrupted() or self._arrived(entry)
        )
        self.settle(0)

    def _arrived(self, entry: int) -> bool:
        history = self.call("Page.getNavigationHistory")
        return bool(history["entries"][history["currentIndex"]]["id"] == entry)

    def history(self) -> tuple[list[str], int]:
        """Return the addresses of the history of pages, and the place of the present one."""
        return history_of(self.call("Page.getNavigationHistory"))

    def entry(self, index: int) -> int:
        """Return the number of the entry at a place in the history."""
        found: int = self.call("Page.getNavigationHistory")["entries"][index]["id"]
        return found

    def picture(self) -> bytes:
        """Return what the tab shows as a PNG."""
        self._due = False
        form = {"format": "png", "optimizeForSpeed": True}
        if not self.session.browser.frames_on_demand:
            return base64.b64decode(self.call("Page.captureScreenshot", **form)["data"])
        with self.session.browser.drawing:
            found = self.call("HeadlessExperimental.beginFrame", screenshot=form)
        if "screenshotData" not in found:
            self.evaluate("0")  # raises if the page has crashed
            raise EnvironmentFault("crash", "the browser has no picture of the page")
        return base64.b64decode(found["screenshotData"])

    def address(self) -> str:
        """Return the address of the page."""
        addresses, index = self.history()
        return addresses[index]

    # ── events ───────────────────────────────────────────────────────────────

    def _on(self, method: str, found: Parameters) -> None:
        match method:
            case "Fetch.requestPaused":
                self._request(found)
            case "Page.frameRequestedNavigation" if found["disposition"] == "currentTab":
                self._leaving.add(found["frameId"])  # a form is sent a moment after it says so
            case "Page.frameStartedLoading":
                self._leaving.discard(found["frameId"])
                self._loading.add(found["frameId"])
                self.loads += 1
            case "Page.frameStoppedLoading" | "Page.frameDetached":
                self._leaving.discard(found["frameId"])
                self._loading.discard(found["frameId"])
            case "Page.navigatedWithinDocument":
                self._leaving.discard(found["frameId"])
                self.wrote_history |= found.get("navigationType") != "fragment"
                self.moved_within = True
                self.places.add(found["url"])
            case "Page.javascriptDialogOpening" if found["type"] == "beforeunload":
                self.tell("Page.handleJavaScriptDialog", accept=True)
            case "Page.javascriptDialogOpening":
                value = found.get("defaultPrompt", "")
                self.dialog = Dialog(found["type"], found["message"], value)
            case "Input.dragIntercepted":
                self.drag = found["data"]
            case "Inspector.targetCrashed":
                self.crashed = True
                self._check()  # whatever is waited for

    def _request(self, paused: Parameters) -> None:
        document = paused["resourceType"] == "Document"
        page = document and paused["frameId"] == self.target
        request = request_of(paused["request"], self.session.files)
        response = self.session.respond(replace(request, page=page) if page else request)
        id = paused["requestId"]
        if response is None:
            self.tell("Fetch.failRequest", requestId=id, errorReason="BlockedByClient")
        else:
            if document:
                response = self.session.kept(response)
                now, seed = self.session.next_document()
                if page:
                    self.born = (now, self.session.chance[1])
                    self.named, self.moved_within = self.session.named, False
                # A script that says so comes too late: the browser holds it back while it loads.
                shift = "" if self.session.shift is None else f" {self.session.shift}"
                timing = {"Server-Timing": f'{KEY};desc="{now} {seed}{shift}"'}
                response = replace(response, headers={**response.headers, **timing})
            now, lifetimes = self.session.now, self.session.lifetimes
            cookies = [lifetimes.without_end(one, request.address, now) for one in response.cookies]
            self._fulfil(id, replace(response, cookies=tuple(cookies)))

    def _fulfil(self, id: str, response: Response) -> None:
        self.tell(
            "Fetch.fulfillRequest",
            requestId=id,
            responseCode=response.status,
            responseHeaders=_headers(response),
            body=base64.b64encode(response.body).decode(),
        )

    def _rests(self) -> bool:
        return not self._loading and not self._leaving

    def _interrupted(self) -> bool:
        return self.dialog is not None or self.crashed or self.gone

    def _check(self) -> None:
        if self.crashed:
            raise EnvironmentFault("crash", "the page's process ended")


def value_of(found: Parameters) -> Any:
    """Return the value of an expression that was sent; raises Refusal if it threw an error."""
    if "exceptionDetails" in found:
        detail = found["exceptionDetails"]
        raise Refusal(detail.get("exception", {}).get("description", detail["text"]))
    return found["result"].get("value")


def history_of(found: Parameters) -> tuple[list[str], int]:
    """Return the addresses of a history as the browser describes it, and the present place."""
    return [entry["url"] for entry in found["entries"]], found["currentIndex"]


@cache
def _source() -> str:
    return files("palaestra.browser").joinpath("page_clock.js").read_text()


def _headers(response: Response) -> list[dict[str, str]]:
    found = {"Content-Type": response.type, **response.headers}
    found["Cache-Control"] = "max-age=31536000, immutable" if response.lasting else "no-store"
    pairs = [*found.items(), *(("Set-Cookie", cookie) for cookie in response.cookies)]
    return [{"name": name, "value": value} for name, value in pairs]
