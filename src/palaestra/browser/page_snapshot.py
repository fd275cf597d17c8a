"""Snapshots of a session: what its page holds, and the return to it without the way there.

A snapshot holds the clock, the chance, cookies, what the page's site stored, the history of
addresses, form fields, scroll positions, focus, pointer and clipboard, and a digest of the page's
nodes and elements. What scripts keep in memory is not in it. There are two ways back:

- `restore` loads the page and fills it in. The page has come back only if its nodes and its
  elements, with their ids, are as they were.
- `revisit` loads the page as it was when it came to rest, for the gestures that were done on it to
  be done again; `is_back` compares then. So menus come back that a script opened.

Not in it, and not noticed: what pages that lie further back held in their fields, and what sites
other than the page's own stored.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from urllib.parse import urldefrag, urlsplit, urlunsplit

from palaestra.browser import input_events
from palaestra.browser.cookie_lifetimes import CookieLifetimes
from palaestra.browser.devtools import Refusal
from palaestra.browser.sites import Request, Response, Site
from palaestra.browser.tab import KEY, Tab, history_of, value_of
from palaestra.browser.web_session import EMPTY, WebSession, nothing, text_digest
from palaestra.core.errors import EnvironmentFault

_HELD = f"""(() => {{
  const nodes = [...document.querySelectorAll("*")];
  const fields = [], scrolled = [];
  nodes.forEach((node, at) => {{
    if (node.scrollTop || node.scrollLeft) scrolled.push([at, node.scrollLeft, node.scrollTop]);
    if (node instanceof HTMLSelectElement)
      fields.push([at, [...node.options].map((one) => one.selected)]);
    else if (node instanceof HTMLInputElement && /^(checkbox|radio)$/.test(node.type))
      fields.push([at, node.checked]);
    else if (node instanceof HTMLInputElement && node.type === "file") {{
      if (node.files.length) fields.push([at, null]);
    }} else if (node instanceof HTMLInputElement || node instanceof HTMLTextAreaElement)
      if (node.value !== node.defaultValue) fields.push([at, node.value]);
  }});
  const unseen = (node) =>
    !node.checkVisibility() || node.closest("[aria-hidden=true], [inert], :modal");
  const focus = document.activeElement;
  let range = null;
  try {{ range = [focus.selectionStart, focus.selectionEnd]; }} catch {{ /* it has none */ }}
  return {{
    fields, scrolled, range, focus: nodes.indexOf(focus),
    unseen: [...document.querySelectorAll("textarea, input:not([type=hidden])")].some(unseen),
    draws: window[Symbol.for({KEY!r})].draws(),
    stored: [{{ ...localStorage }}, {{ ...sessionStorage }}],
  }};
}})()"""

DETOUR = "/palaestra-detour"  # a path that redirects to a page that follows one of its address

_STORE = """((local, session) => {
  if (window.top !== window) return;
  for (const [name, value] of Object.entries(local)) localStorage.setItem(name, value);
  for (const [name, value] of Object.entries(session)) sessionStorage.setItem(name, value);
})"""

_PUT_BACK = f"""(({{ fields, scrolled, range, focus, draws }}) => {{
  const nodes = [...document.querySelectorAll("*")];
  for (const [at, value] of fields) {{
    const node = nodes[at];
    if (node instanceof HTMLSelectElement)
      value.forEach((chosen, option) => {{ node.options[option].selected = chosen; }});
    else if (typeof value === "boolean") node.checked = value;
    else node.value = value;
  }}
  if (focus >= 0 && nodes[focus] !== document.body) nodes[focus].focus({{ preventScroll: true }});
  if (range && range[0] !== null) nodes[focus].setSelectionRange(...range);
  for (const [at, left, top] of scrolled) nodes[at].scrollTo(left, top);
  window[Symbol.for({KEY!r})].draw(draws);
}})"""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A page when it came to rest after it was loaded; what it showed follows from the site."""

    now: float
    named: int  # how many elements had an id when the page was asked for
    pointer: tuple[float, float] | None
    clipboard: str
    history: tuple[list[str], int]


def arrival(session: WebSession) -> Arrival:
    """Describe the page that is shown, which was just loaded."""
    held = session.pointer, session.clipboard, session.tab.history()
    return Arrival(session.now, session.tab.named, *held)


def save(session: WebSession, arrived: Arrival | None = None) -> bytes:
    """Return a snapshot; empty where there is no other way back than all gestures.

    That is so at a dialog, with several tabs, after a download, after a page has written its own
    history, and after a link within a page that lies further back.

    Args:
        session: at rest.
        arrived: how its page was when it had been loaded, if `revisit` shall be possible.
    """
    with session.watched():
        tab = session.tab
        many = len(session.tabs) > 1
        if many or tab.dialog is not None or tab.wrote_history or session.downloads:
            return b""
        try:
            page = tab.evaluate(_HELD)
        except Refusal:  # the page may not store anything, or has no clock
            return b""
        session.elements()  # unless they are read already
        if page is None or not session.node_names:
            return b""
        history = tab.history()
        addresses, _ = arrived.history if arrived is not None else history
        if any(_are_alike(pair) and {*pair} & tab.places for pair in pairwise(addresses)):
            return b""
        stored = [_sourced(session, one) for one in page.pop("stored")]
        unseen = page.pop("unseen") and _has_unseen(session)
        chosen = any(value is None for _, value in page["fields"])
        moved = tab.moved_within or (arrived is not None and arrived.history != history)
        held = not (unseen or chosen or moved)
        if not held and arrived is None:
            return b""
        saved = {
            "chance": session.chance,
            "now": session.now,
            "born": tab.born,
            "clipboard": session.clipboard,
            "pointer": session.pointer,
            "refused": session.refused,
            "cookies": [cookie_parts(one) for one in session.cookies()],
            "lifetimes": session.lifetimes.saved(),
            "stored": stored,
            "history": history,
            "page": page if held else None,
            "ids": [
                (at, session.ids[node])
                for at, node in enumerate(session.node_names)
                if node in session.ids
            ],
            "named": session.named,
            "digest": _digest(session),
        }
        return zlib.compress(json.dumps(saved, separators=(",", ":")).encode(), 9)


def restore(
    session: WebSession,
    sites: Mapping[str, Site],
    saved: bytes,
    files: Mapping[str, bytes] | None = None,
) -> bool:
    """Return to a snapshot in a session that has anything open; return whether all came back.

    If not, the session is somewhere else.

    Args:
        session: of the same size.
        sites: in their state at the time of the snapshot. They are asked for the page once.
        saved: what `save` returned, not empty.
        files: that may be uploaded, by name; none if it is None.
    """
    state = _read(saved)
    if state["page"] is None:
        return False
    with session.watched():
        try:
            _visit(session, sites, state)
            session.files = dict(files or {})
            if not _put_back(session, state):
                return False
        except (Refusal, EnvironmentFault):
            if session.failed:
                raise
            return False
        session.refused, session.clipboard = state["refused"], state["clipboard"]
        session.set_time(state["now"])
        session.chance = tuple(state["chance"])
        session.named = state["named"]
        session.read_as_numbered(state["ids"])
        return bool(_digest(session) == state["digest"])


def revisit(
    session: WebSession,
    sites: Mapping[str, Site],
    saved: bytes,
    arrived: Arrival,
    files: Mapping[str, bytes] | None = None,
) -> bool:
    """Load the page of a snapshot as it was when it had come to rest; return whether it could be.

    Args:
        session: of the same size.
        sites: in their state when the page was asked for.
        saved: what `save` returned, not empty.
        arrived: what `save` was given.
        files: that may be uploaded, by name; none if it is None.
    """
    state = {**_read(saved), "now": arrived.now, "history": arrived.history}
    with session.watched():
        try:
            _visit(session, sites, state)
        except (Refusal, EnvironmentFault):
            if session.failed:
                raise
            return False
        session.files, session.clipboard = dict(files or {}), arrived.clipboard
        if arrived.pointer is not None:
            session.pointer = arrived.pointer
            input_events.move_to(session.tab, arrived.pointer)
            session.tab.settle(0)
        session.named = arrived.named
        session.changed()
        session.elements()  # which gives ids, as it did then
        return session.tab.dialog is None


def is_back(session: WebSession, saved: bytes) -> bool:
    """Return whether a session that `revisit` began is where it was when it was saved."""
    state = _read(saved)
    with session.watched():
        if len(session.tabs) > 1 or session.tab.dialog is not None:
            return False
        session.refused = state["refused"]
        _set_cookies(session, state["cookies"])
        session.lifetimes = CookieLifetimes(state["lifetimes"])
        found = [session.chance, session.now, session.pointer, session.tab.history()]
        wanted = [state[name] for name in ("chance", "now", "pointer", "history")]
        return json.dumps(found) == json.dumps(wanted) and _digest(session) == state["digest"]


def _read(saved: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(zlib.decompress(saved))
    return found


def _visit(session: WebSession, sites: Mapping[str, Site], state: Mapping[str, Any]) -> None:
    """Visit the addresses of the history, where nothing is, and load the one that was shown."""
    addresses, index = state["history"]
    seed, tab = state["chance"][0], session.tabs[0]
    last = len(addresses) - 1
    first = addresses[0] if last else EMPTY
    session.forget(dict.fromkeys(sites, nothing), seed, first)
    for at in range(1, last + (index < last)):
        _load_after(session, addresses[at - 1], addresses[at])
    _set_cookies(session, state["cookies"])
    session.sites = sites
    script = _stored_before(tab, [_fetched(session, one) for one in state["stored"]])
    now, number = state["born"]
    session.set_time(now)
    session.chance = (seed, number - 1)
    if index < last:
        tab.return_to(tab.entry(index))
    elif index == 0:
        session.open(addresses[0])
    else:
        _load_after(session, addresses[index - 1], addresses[index])
    if script:
        tab.tell("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
    tab.settle(state["now"] - session.now)
    _set_cookies(session, state["cookies"])  # the page's answer may have set others
    session.lifetimes = CookieLifetimes(state["lifetimes"])


def _load_after(session: WebSession, before: str, address: str) -> None:
    """Load a page after another one, with an entry of its own in the history.

    The browser makes none where the addresses are alike, unless the second redirects to the first.
    """
    if not _are_alike((before, address)):
        session.tab.load(address)
        return
    sites, parts = session.sites, urlsplit(address)
    if parts.netloc not in sites:
        raise Refusal(f"there is no page {address}")
    seed, number = session.chance
    session.chance = (seed, number - 1)  # the redirection is a document, too

    def redirecting(request: Request) -> Response:
        if request.path == DETOUR:
            return Response(b"", status=303, headers={"Location": address})
        return sites[parts.netloc](request)

    session.sites = {**sites, parts.netloc: redirecting}
    session.tab.load(urlunsplit(parts._replace(path=DETOUR, query="", fragment="")))
    session.sites = sites


def _are_alike(addresses: tuple[str, str]) -> bool:
    """Return whether two addresses differ by nothing but a fragment."""
    one, two = addresses
    return urldefrag(one)[0] == urldefrag(two)[0]


def _put_back(session: WebSession, state: Mapping[str, Any]) -> bool:
    """Fill in the page and move the pointer; return whether the history is as it was."""
    tab, pointer = session.tab, state["pointer"]
    program = f"{_PUT_BACK}({json.dumps(state['page'])})"
    sent = [tab.send_expression(program), tab.send("Page.getNavigationHistory")]
    if pointer is not None:
        session.pointer = (pointer[0], pointer[1])
        sent.append(input_events.move(tab, session.pointer))
    found = tab.wait_for_frame(sent)
    if not found:  # a dialog has opened
        return False
    value_of(found[0])
    addresses, index = state["history"]
    return history_of(found[1]) == (addresses, index)


def _sourced(session: WebSession, stored: Mapping[str, str]) -> dict[str, Any]:
    """Return what is stored, with an address and a digest for a text that a site has answered."""
    found: dict[str, Any] = {}
    for name, value in stored.items():
        address = session.source_of(value)
        found[name] = [address, text_digest(value.encode())] if address else value
    return found


def _fetched(session: WebSession, stored: Mapping[str, Any]) -> dict[str, str]:
    """Return what `_sourced` was given; raises Refusal if a site has another answer now."""
    found = {}
    for name, value in stored.items():
        if isinstance(value, str):
            found[name] = value
            continue
        address, digest = value
        response = session.respond(Request("GET", address))
        if response is None or text_digest(response.body) != digest:
            raise Refusal(f"{address} has another answer now")
        found[name] = response.body.decode()
    return found


def _stored_before(tab: Tab, stored: Sequence[Mapping[str, str]]) -> str:
    """Let the next page find what was stored, by a script whose number is returned."""
    if not any(stored):
        return ""
    source = f"{_STORE}(...{json.dumps(stored)})"
    found = tab.call("Page.addScriptToEvaluateOnNewDocument", source=source)
    return str(found["identifier"])


def _set_cookies(session: WebSession, cookies: Sequence[Mapping[str, Any]]) -> None:
    browser, context = session.connection, session.context
    browser.tell("Storage.clearCookies", browserContextId=context)
    if cookies:
        browser.call("Storage.setCookies", cookies=cookies, browserContextId=context)


def _has_unseen(session: WebSession) -> bool:
    """Return whether an element with an id lies within a field that is not shown now.

    Its id could not be given back, because what is read of the page has no place for it.
    """
    lost = session.lost_nodes()
    if not lost:
        return False
    stack = [session.tab.call("DOM.getDocument", depth=-1, pierce=True)["root"]]
    session.tab.tell("DOM.disable")
    while stack:
        node = stack.pop()
        if node["backendNodeId"] in lost:
            return True
        for field in ("children", "shadowRoots", "pseudoElements"):
            stack += node.get(field, ())
        if "contentDocument" in node:
            stack.append(node["contentDocument"])
    return False


def _digest(session: WebSession) -> str:
    shown = repr((session.elements(), [*session.node_names.values()]))
    return hashlib.blake2b(shown.encode(), digest_size=12).hexdigest()


def cookie_parts(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is needed to set a cookie again."""
    names = ("name", "value", "domain", "path", "secure", "httpOnly", "sameSite")
    return {name: found[name] for name in names if name in found}
