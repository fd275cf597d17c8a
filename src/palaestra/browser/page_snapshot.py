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
from palaestra.browser.devtools import Refusal
from palaestra.browser.sites import Request, Response, Site
from palaestra.browser.tab import KEY
from palaestra.browser.web_session import WebSession
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

_STORE = """((local, session) => {
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
    with session.browser.lock, session.watched():
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
        stored = page.pop("stored")
        context = session.context
        cookies = session.browser.connection.call("Storage.getCookies", browserContextId=context)
        elements, nodes = session.elements(), _Nodes(session)
        saved = {
            "chance": session.chance,
            "now": session.now,
            "born": tab.born,
            "clipboard": session.clipboard,
            "pointer": session.pointer,
            "refused": session.refused,
            "cookies": [_cookie(one) for one in cookies["cookies"]],
            "stored": stored,
            "history": tab.history(),
            "page": page,
            "ids": nodes.ids(session.ids),
            "named": session.named,
            "digest": _digest(nodes, elements),
        }
        return zlib.compress(json.dumps(saved, separators=(",", ":")).encode(), 9)


def restore(session: WebSession, sites: Mapping[str, Site], saved: bytes) -> bool:
    """Return to a snapshot in a session that has anything open; return whether all came back.

    If not, the session is somewhere else.

    Args:
        session: of the same size.
        sites: in their state at the time of the snapshot. They are asked for the page once.
        saved: what `save` returned, not empty.
    """
    state = json.loads(zlib.decompress(saved))
    with session.browser.lock, session.watched():
        try:
            _visit(session, sites, state)
            session.tab.evaluate(f"{_PUT_BACK}({json.dumps(state['page'])})")
        except (Refusal, EnvironmentFault):
            if session.failed:
                raise
            return False
        session.refused, session.clipboard = state["refused"], state["clipboard"]
        if state["pointer"] is not None:
            x, y = session.pointer = (state["pointer"][0], state["pointer"][1])
            session.tab.wait([input_events.move(session.tab, (x, y))])
        session.now, session.named = state["now"], state["named"]
        session.chance = tuple(state["chance"])
        nodes = _Nodes(session)
        session.ids = nodes.numbered(state["ids"])
        session.changed()
        return bool(_digest(nodes, session.elements()) == state["digest"])


def _visit(session: WebSession, sites: Mapping[str, Site], state: Mapping[str, Any]) -> None:
    """Visit the addresses of the history, where nothing is, and load the last one shown."""
    addresses, index = state["history"]
    session.begin(dict.fromkeys(sites, _nothing), addresses[0], state["chance"][0])
    tab = session.tab
    for address in addresses[1:]:
        tab.navigate(address)
    if index < len(addresses) - 1:
        tab.return_to(tab.entry(index))
    if state["cookies"]:
        session.browser.connection.call(
            "Storage.setCookies", cookies=state["cookies"], browserContextId=session.context
        )
    tab.evaluate(f"{_STORE}(...{json.dumps(state['stored'])})")
    session.sites = sites
    session.now, number = state["born"]
    session.chance = (state["chance"][0], number - 1)
    tab.reload()
    tab.settle(state["now"] - session.now)


class _Nodes:
    """The nodes of a page and its frames, in document order."""

    def __init__(self, session: WebSession) -> None:
        found = session.tab.call("DOMSnapshot.captureSnapshot", computedStyles=[])
        documents = [document["nodes"] for document in found["documents"]]
        self.numbers = [number for one in documents for number in one["backendNodeId"]]
        self.names = [found["strings"][name] for one in documents for name in one["nodeName"]]

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


def _cookie(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is needed to set a cookie again."""
    names = ("name", "value", "domain", "path", "secure", "httpOnly", "sameSite")
    kept = {name: found[name] for name in names if name in found}
    return kept if found["session"] else kept | {"expires": found["expires"]}
