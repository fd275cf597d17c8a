"""Snapshots of a session: what its page holds, and the return to it without its gestures.

A snapshot holds the clock, the chance, cookies, what the page's site stored, the history of
addresses, form fields, scroll positions, focus, pointer and clipboard, and a digest of the page's
nodes and elements. What scripts keep in memory is not in it. Therefore `restore` compares: the page
has come back only if its nodes and its elements, with their ids, are as they were.

Not in it, and not noticed: what pages that lie further back held in their fields, and what sites
other than the page's own stored.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from palaestra.browser import input_events
from palaestra.browser.cookie_lifetimes import CookieLifetimes
from palaestra.browser.devtools import Refusal
from palaestra.browser.sites import Request, Response, Site
from palaestra.browser.tab import KEY, Tab
from palaestra.browser.web_session import WebSession, text_digest
from palaestra.core.element import Element
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
  const focus = document.activeElement;
  let range = null;
  try {{ range = [focus.selectionStart, focus.selectionEnd]; }} catch {{ /* it has none */ }}
  return {{
    fields, scrolled, range, focus: nodes.indexOf(focus),
    draws: window[Symbol.for({KEY!r})].draws(),
    stored: [{{ ...localStorage }}, {{ ...sessionStorage }}],
  }};
}})()"""

_WITHIN = ("children", "shadowRoots", "pseudoElements")  # fields of a node with nodes

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


def save(session: WebSession) -> bytes:
    """Return a snapshot; empty where there is no other way back than the gestures.

    That is so at a dialog, with several tabs, with a chosen file, after a download, and after a
    page has written its own history.
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
        if page is None or any(value is None for _, value in page["fields"]):
            return b""
        stored = [_sourced(session, one) for one in page.pop("stored")]
        elements, nodes = session.elements(), _Nodes(session)
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
            "history": tab.history(),
            "page": page,
            "ids": nodes.ids(session.ids),
            "named": session.named,
            "digest": _digest(nodes, elements),
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
    state = json.loads(zlib.decompress(saved))
    with session.watched():
        try:
            _visit(session, sites, state)
            session.files = dict(files or {})
            session.tab.evaluate(f"{_PUT_BACK}({json.dumps(state['page'])})")
        except (Refusal, EnvironmentFault):
            if session.failed:
                raise
            return False
        session.refused, session.clipboard = state["refused"], state["clipboard"]
        if state["pointer"] is not None:
            x, y = session.pointer = (state["pointer"][0], state["pointer"][1])
            input_events.move_to(session.tab, (x, y))
        session.set_time(state["now"])
        session.named = state["named"]
        session.chance = tuple(state["chance"])
        nodes = _Nodes(session)
        session.ids = nodes.numbered(state["ids"])
        session.changed()
        return bool(_digest(nodes, session.elements()) == state["digest"])


def _visit(session: WebSession, sites: Mapping[str, Site], state: Mapping[str, Any]) -> None:
    """Visit the addresses of the history, where nothing is, and load the one that was shown."""
    addresses, index = state["history"]
    seed, tab = state["chance"][0], session.tabs[0]
    nothing = dict.fromkeys(sites, _nothing)
    session.forget(nothing, seed)
    last = len(addresses) - 1
    for at, address in enumerate(addresses):
        if at == index == last:
            break
        session.open(address) if at == 0 else tab.load(address)
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
        tab.load(addresses[index])
    if script:
        tab.tell("Page.removeScriptToEvaluateOnNewDocument", identifier=script)
    tab.settle(state["now"] - session.now)
    _set_cookies(session, state["cookies"])  # the page's answer may have set others
    session.lifetimes = CookieLifetimes(state["lifetimes"])


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


class _Nodes:
    """The nodes of a page, with its frames and shadow trees, in one order."""

    def __init__(self, session: WebSession) -> None:
        tab = session.tab
        asked = [
            tab.send("DOM.enable", includeWhitespace="all"),
            tab.send("DOM.getDocument", depth=-1, pierce=True),
        ]
        tab.tell("DOM.disable")
        _, found = tab.connection.wait(asked)
        self.numbers: list[int] = []
        self.names: list[str] = []
        stack = [found["root"]]
        while stack:
            node = stack.pop()
            self.numbers.append(node["backendNodeId"])
            self.names.append(node["nodeName"])
            for field in _WITHIN:
                stack += node.get(field, ())
            if "contentDocument" in node:
                stack.append(node["contentDocument"])

    def ids(self, known: Mapping[int, str]) -> list[tuple[int, str]]:
        """Return the ids of elements, by the place of their node."""
        return [(at, known[node]) for at, node in enumerate(self.numbers) if node in known]

    def numbered(self, ids: Sequence[Sequence[Any]]) -> dict[int, str]:
        """Return the ids of elements by their node."""
        return {self.numbers[at]: id for at, id in ids if at < len(self.numbers)}


def _digest(nodes: _Nodes, elements: Sequence[Element]) -> str:
    document = json.dumps([nodes.names, [asdict(one) for one in elements]])
    return hashlib.blake2b(document.encode(), digest_size=12).hexdigest()


def _nothing(request: Request) -> Response:
    return Response(b"<!doctype html>")


def cookie_parts(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is needed to set a cookie again."""
    names = ("name", "value", "domain", "path", "secure", "httpOnly", "sameSite")
    return {name: found[name] for name in names if name in found}
