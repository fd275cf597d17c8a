"""Gestures in the browser: each as real input, after a check that it can be done.

What cannot be done raises InputError before any input is sent, so that nothing has changed: an
element that has gone or is covered by another, a point outside, a tab that does not exist.
"""

from __future__ import annotations

from typing import Any

from palaestra.browser import input_events
from palaestra.browser.devtools import Refusal
from palaestra.browser.dialog_picture import DIALOG
from palaestra.browser.tab import Tab
from palaestra.browser.web_session import LOAD, WebSession
from palaestra.core.element import Element
from palaestra.core.element_text import described
from palaestra.core.errors import InputError
from palaestra.core.gesture import Gesture, Kind, Point, Target
from palaestra.core.gestures.gesture_line import write_line
from palaestra.core.gestures.locating import element_of, point_of

KINDS: tuple[Kind, ...] = (
    "click", "double", "right", "hover", "type", "press", "scroll", "drag", "select", "upload",
    "go", "back", "forward", "tab", "wait",
)  # fmt: skip
"""The gestures of a browser; the others are for whoever runs the world: say, answer, give up."""

TIME = 1000.0  # milliseconds of the page's time that each gesture takes
_CLICKS = {"click": ("left", 1), "double": ("left", 2), "right": ("right", 1)}
_FRAMES: dict[Kind, int] = {"scroll": 2, "drag": 1, "press": 1, "hover": 1}
"""Frames that are drawn after a gesture, so that what depends on them has happened."""

_AT = """function () {
  const node = this.nodeType === 1 ? this : this.parentElement;
  if (node === null) return null;
  let rects = node.getClientRects(), labels = [node.closest("label"), ...(node.labels || [])];
  if (this.nodeType === 3) {
    const range = document.createRange();
    range.selectNodeContents(this);
    rects = range.getClientRects();
  }
  const shown = ([left, top, right, bottom]) => [Math.max(left, 0), Math.max(top, 0),
    Math.min(right, innerWidth), Math.min(bottom, innerHeight)];
  rects = [...rects].map((one) => [one.left, one.top, one.right, one.bottom]);
  if (rects.length === 0) return null;
  const whole = [0, 1, 2, 3].map((at) =>
    Math[at < 2 ? "min" : "max"](...rects.map((one) => one[at])));
  const area = shown(whole);
  const points = [[0.5, 0.5], [0.5, 0.2], [0.2, 0.5], [0.8, 0.5], [0.5, 0.8], [0.1, 0.1],
    [0.9, 0.9]];
  const root = node.getRootNode();
  // What is broken over lines need not be in the middle of its box: then it is on its first line.
  const places = rects.length > 1
    ? [[area, [points[0]]], ...rects.map((one) => [shown(one), points]), [area, points]]
    : [[area, points]];
  let over = "";
  for (const [[left, top, right, bottom], within] of places)
    for (const [across, down] of right > left && bottom > top ? within : []) {
      const [x, y] = [left + (right - left) * across, top + (bottom - top) * down];
      const hit = root.elementFromPoint(x, y);
      if (hit === null) continue;
      const own = node.contains(hit) || labels.some((one) => one && one.contains(hit));
      if (own) return { x, y, over: "", framed: window.top !== window, corner: whole.slice(0, 2) };
      over = over || hit.nodeName.toLowerCase() + (hit.id ? " #" + hit.id : "")
        + (hit.textContent.trim() ? " '" + hit.textContent.trim().slice(0, 40) + "'" : "");
    }
  return { over: over || "nothing" };
}"""
"""Finds a point of an element, or of a text, at which the element itself is hit."""

_SELECT = """function (wanted, only) {
  const list = this.nodeName === "OPTION" ? this.closest("select") : this;
  if (list === null || list.nodeName !== "SELECT") return { list: false };
  const options = [...list.options];
  const plain = (text) => text.replace(/\\s+/g, " ").trim();
  const option = this.nodeName === "OPTION" ? this
    : options.find((one) => plain(one.label) === plain(wanted))
      || options.find((one) => one.value === wanted);
  if (!option || option.disabled || list.disabled)
    return { list: true, options: options.map((one) => plain(one.label)) };
  list.focus();
  if (list.multiple) option.selected = only ? true : !option.selected; else option.selected = true;
  for (const name of ["input", "change"]) list.dispatchEvent(new Event(name, { bubbles: true }));
  return { list: true, done: true };
}"""

_COPIED = """(() => { const at = document.activeElement;
  return at && typeof at.selectionStart === "number"
    ? at.value.slice(at.selectionStart, at.selectionEnd) : String(getSelection()); })()"""


def do(session: WebSession, gesture: Gesture) -> None:
    """Do a gesture in the tab in front, and give the page its time.

    Raises:
        InputError: it cannot be done, and nothing changed.
        EnvironmentFault: the browser crashed or does not answer.
    """
    with session.watched():
        if gesture.kind not in KINDS:
            raise InputError(
                f"A browser cannot do `{write_line(gesture)}`; it can: {', '.join(KINDS)}."
            )
        if session.real_time:
            session.changed()
        if session.pointer is not None:  # it may be over something else by now
            session.tab.catch_up()
        loads = session.tab.loads
        if session.tab.dialog is not None:
            _answer(session, gesture)
        else:
            _Hand(session).do(gesture)
        wait = gesture.kind == "wait" and gesture.amount[0]
        _settle(session, wait * 1000 if wait else TIME, _FRAMES.get(gesture.kind, 0))
        if session.tab.loads != loads and session.pointer is not None:
            # The browser notices only after a while what lies under the pointer now.
            input_events.move_to(session.tab, session.pointer)
            session.tab.settle(0)
        session.changed()


def _settle(session: WebSession, milliseconds: float, frames: int) -> None:
    """Give time to the tab in front; if it closes itself, to the next one."""
    while session.tabs:
        front = session.tab
        front.settle(milliseconds, frames)
        if not front.gone:
            return
    session.open_tab()


def _answer(session: WebSession, gesture: Gesture) -> None:
    """Do a gesture at an open dialog."""
    dialog = session.tab.dialog
    assert dialog is not None
    _, text, ok, cancel = DIALOG
    target = None
    if gesture.target is not None:
        target = element_of(gesture.target, session.elements()).id
    match gesture.kind, target:
        case "click", id if id == ok:
            session.tab.answer(True, dialog.value)
        case "click", id if id == cancel:
            session.tab.answer(False)
        case "press", None if gesture.text == "Enter":
            session.tab.answer(True, dialog.value)
        case "press", None if gesture.text == "Escape":
            session.tab.answer(False)
        case "type", id if dialog.kind == "prompt" and id in (text, None):
            value = gesture.text if gesture.clear else dialog.value + gesture.text
            session.tab.fill(value)
            if gesture.enter:
                session.tab.answer(True, value)
        case _:
            raise InputError("A dialog is open; answer it first: click 'OK' or press 'Enter'.")


class _Hand:
    """The mouse and the keyboard of one gesture."""

    def __init__(self, session: WebSession) -> None:
        self.session: WebSession = session
        self.tab: Tab = session.tab

    def do(self, gesture: Gesture) -> None:
        target = gesture.target
        match gesture.kind:
            case "click" | "double" | "right":
                self._click(gesture.kind, target)
            case "hover":
                input_events.move_to(self.tab, self._point(target))
            case "type":
                self._type(gesture)
            case "press":
                self._press(gesture)
            case "scroll":
                self._scroll(gesture)
            case "drag":
                end = gesture.to
                start = self._point(target, drawn=end)
                input_events.drag(self.tab, start, self._point(end, scroll=False))
            case "select":
                self._select(gesture)
            case "upload":
                self._upload(gesture)
            case "go":
                self._go(gesture.text)
            case "back" | "forward":
                self._history(gesture.kind)
            case "tab":
                self._change_tab(gesture.text)

    # ── the mouse ────────────────────────────────────────────────────────────

    def _click(self, kind: str, target: Target | None) -> None:
        button, times = _CLICKS[kind]
        element = self._element(target)
        if element is not None and element.role == "option" and self._chosen(element):
            return
        if element is not None and element.role == "combobox" and self._is_list(element):
            self.tab.call("DOM.focus", backendNodeId=self._node(element))
            return  # its list would open in a window of its own, which no page shows
        input_events.click(self.tab, self._point(target), button, times)

    def _point(
        self, target: Target | None, drawn: Target | None = None, scroll: bool = True
    ) -> tuple[float, float]:
        """Return the point at which to act; an element must be hit there.

        Args:
            target: None: where the pointer is.
            drawn: the other end of a drag, which must stay in the picture.
            scroll: whether to scroll an element into the picture.
        """
        if target is None:
            if self.session.pointer is None:
                raise InputError("The pointer is nowhere yet; give an element or a point.")
            return self.session.pointer
        element = self._element(target)
        if element is None:
            point = point_of(target, self.session.elements(), self.session.size)
        else:
            point = self._hit(element, scroll and drawn is None)
        self.session.pointer = point
        return point

    def _hit(self, element: Element, scroll: bool) -> tuple[float, float]:
        """Return a point of the picture at which an element is hit."""
        node, tab = self._node(element), self.tab
        try:
            found = self._found(node, scroll or element.box is None)
            if found is None:
                raise InputError(f"{described(element)} takes no room on the page; choose another.")
            if found["over"]:
                what = (
                    "nothing of it can be seen"
                    if found["over"] == "nothing"
                    else (f"<{found['over']}> covers it and would be hit")
                )
                raise InputError(f"{described(element)} cannot be clicked: {what}.")
            x, y = found["x"], found["y"]
            if found["framed"]:  # so far in the frame's own pixels
                border = tab.call("DOM.getBoxModel", backendNodeId=node)["model"]["border"]
                left, top = found["corner"]
                x, y = x - left + min(border[0::2]), y - top + min(border[1::2])
        except Refusal:
            raise InputError(
                f"{described(element)} is not shown; look at what is there now."
            ) from None
        return x, y

    def _found(self, node: int, scroll: bool) -> Any:
        """Return what `_AT` finds at a node; calls are sent together, since waiting costs most."""
        tab = self.tab
        asked = [tab.send("DOM.resolveNode", backendNodeId=node)]
        if scroll:
            asked.append(tab.send("DOM.scrollIntoViewIfNeeded", backendNodeId=node))
        return self._called(tab.connection.wait(asked)[0]["object"]["objectId"], _AT)

    def _scroll(self, gesture: Gesture) -> None:
        right, down = gesture.amount
        width, height = self.session.size
        point = (width / 2, height / 2)
        box = None
        if gesture.target is not None:
            element = self._element(gesture.target)
            if element is None:
                point = point_of(gesture.target, self.session.elements(), self.session.size)
            else:
                if element.box is None:
                    self.tab.call("DOM.scrollIntoViewIfNeeded", backendNodeId=self._node(element))
                    self.session.changed()
                    element = element_of(gesture.target, self.session.elements())
                box = element.box or self.session.window()
                point = box.centre
        if gesture.unit == "pages":
            shown = box or self.session.window()
            right, down = right * shown.width, down * shown.height
        input_events.wheel(self.tab, point, right, down)

    # ── the keyboard ─────────────────────────────────────────────────────────

    def _type(self, gesture: Gesture) -> None:
        if gesture.target is not None:
            element = self._element(gesture.target)
            if element is not None and {"disabled", "readonly"} & {*element.states}:
                raise InputError(f"{described(element)} cannot be typed into.")
            input_events.click(self.tab, self._point(gesture.target))
        if gesture.clear:
            input_events.press_keys(self.tab, "Control+a")
            input_events.press_keys(self.tab, "Delete")
        if gesture.text:
            input_events.type_text(self.tab, gesture.text)
        if gesture.enter:
            input_events.press_keys(self.tab, "Enter")

    def _press(self, gesture: Gesture) -> None:
        if gesture.target is not None:
            input_events.click(self.tab, self._point(gesture.target))
        match gesture.text.lower():
            # The clipboard is the world's: the browser's own is shared by all worlds.
            case "control+c":
                self.session.clipboard = self.tab.evaluate(_COPIED) or ""
            case "control+x":
                self.session.clipboard = self.tab.evaluate(_COPIED) or ""
                input_events.press_keys(self.tab, "Delete")
            case "control+v":
                self.tab.wait([self.tab.send("Input.insertText", text=self.session.clipboard)])
            case _:
                input_events.press_keys(self.tab, gesture.text)

    # ── lists, files, pages and tabs ─────────────────────────────────────────

    def _select(self, gesture: Gesture) -> None:
        assert gesture.target is not None
        element = element_of(gesture.target, self.session.elements())
        found = self._of(self._node(element), _SELECT, gesture.text, True)
        if not found["list"]:
            raise InputError(f"{described(element)} is no list of options; click on it instead.")
        if not found.get("done"):
            known = ", ".join(map(repr, found["options"][:20]))
            raise InputError(
                f"{described(element)} has no option '{gesture.text}' to choose: {known}."
            )

    def _chosen(self, option: Element) -> bool:
        """Choose an option of a native list; return whether it is one."""
        found: dict[str, Any] = self._of(self._node(option), _SELECT, "", False)
        return bool(found["list"])

    def _is_list(self, element: Element) -> bool:
        name = (
            "function () { return this.nodeName === 'SELECT' && !this.multiple && this.size < 2 }"
        )
        return bool(self._of(self._node(element), name))

    def _upload(self, gesture: Gesture) -> None:
        assert gesture.target is not None
        element = element_of(gesture.target, self.session.elements())
        kind = "function () { return this.nodeName === 'INPUT' && this.type === 'file' }"
        if not self._of(self._node(element), kind):
            raise InputError(f"{described(element)} takes no file.")
        path = self.session.upload_path(gesture.text)
        self.tab.call("DOM.setFileInputFiles", files=[path], backendNodeId=self._node(element))

    def _go(self, address: str) -> None:
        self.tab.navigate(self.session.checked_address(address))
        self.tab.settle(LOAD)

    def _history(self, kind: str) -> None:
        addresses, index = self.tab.history()
        index += 1 if kind == "forward" else -1
        if not 0 <= index < len(addresses):
            where = "after" if kind == "forward" else "before"
            raise InputError(f"There is no page {where} this one.")
        self.tab.return_to(self.tab.entry(index))

    def _change_tab(self, text: str) -> None:
        session = self.session
        if text == "new":
            session.open_tab()
        elif text == "close":
            session.close_tab(self.tab)
        elif int(text) < len(session.tabs):
            session.current = int(text)
            session.tab.tell("Page.bringToFront")
        else:
            raise InputError(f"There is no tab {text}; they go from 0 to {len(session.tabs) - 1}.")
        session.pointer = None

    # ── elements ─────────────────────────────────────────────────────────────

    def _element(self, target: Target | None) -> Element | None:
        """Return the element of a target; None: it is a point, or where the pointer is."""
        if target is None or isinstance(target, Point):
            return None
        return element_of(target, self.session.elements())

    def _node(self, element: Element) -> int:
        return self.session.node(element)

    def _of(self, node: int, function: str, *arguments: object) -> Any:
        """Call a function of the page on an element."""
        try:
            held = self.tab.call("DOM.resolveNode", backendNodeId=node)["object"]["objectId"]
        except Refusal:
            raise InputError("The element has gone; look at what is there now.") from None
        return self._called(held, function, *arguments)

    def _called(self, held: str, function: str, *arguments: object) -> Any:
        """Call a function of the page on an object that is held, the last time."""
        sent = self.tab.send(
            "Runtime.callFunctionOn",
            objectId=held,
            functionDeclaration=function,
            arguments=[{"value": value} for value in arguments],
            returnByValue=True,
        )
        self.tab.spend(held)
        found = self.tab.wait([sent])
        return found[0]["result"].get("value") if found else {"list": True, "done": True}
