"""Mouse and keyboard: the browser's real input events, sent together and acknowledged."""

from __future__ import annotations

from palaestra.browser.tab import Tab
from palaestra.core.gestures.key_names import SPACE, split_keys

MODIFIERS = {"Alt": 1, "Control": 2, "Meta": 4, "Shift": 8}
_CODES = {
    "Enter": 13, "Tab": 9, "Escape": 27, "Backspace": 8, "Delete": 46, "Insert": 45, "Home": 36,
    "End": 35, "PageUp": 33, "PageDown": 34, "ArrowUp": 38, "ArrowDown": 40, "ArrowLeft": 37,
    "ArrowRight": 39, "CapsLock": 20, "PrintScreen": 44, "ContextMenu": 93, "Shift": 16,
    "Control": 17, "Alt": 18, "Meta": 91, " ": 32,
}  # fmt: skip
"""Windows' virtual key codes, which pages read as `event.keyCode`."""

_SIGNS = {
    ";": 186, ":": 186, "=": 187, "+": 187, ",": 188, "<": 188, "-": 189, "_": 189, ".": 190,
    ">": 190, "/": 191, "?": 191, "`": 192, "~": 192, "[": 219, "{": 219, "\\": 220, "|": 220,
    "]": 221, "}": 221, "'": 222, '"': 222, "!": 49, "@": 50, "#": 51, "$": 52, "%": 53, "^": 54,
    "&": 55, "*": 56, "(": 57, ")": 48,
}  # fmt: skip
STEPS = 5  # movements of the pointer in a drag

Point = tuple[float, float]


def move(tab: Tab, point: Point, held: bool = False) -> int:
    """Send a movement of the pointer; return the number of the call."""
    return tab.send(
        "Input.dispatchMouseEvent",
        type="mouseMoved",
        x=point[0],
        y=point[1],
        button="left" if held else "none",
        buttons=1 if held else 0,
    )


def move_to(tab: Tab, point: Point) -> None:
    """Move the pointer to a point."""
    tab.wait_for_frame([move(tab, point)])


def leave(tab: Tab) -> None:
    """Move the pointer out of the page, without waiting for it.

    Movements are held back until a picture is drawn or, as here, a key comes.
    """
    tab.tell("Input.dispatchMouseEvent", type="mouseMoved", x=-1, y=-1)
    tab.tell("Input.dispatchKeyEvent", type="keyUp", key="Unidentified")


def press(tab: Tab, point: Point, button: str = "left", count: int = 1) -> int:
    """Send a button going down."""
    return _button(tab, "mousePressed", point, button, count)


def release(tab: Tab, point: Point, button: str = "left", count: int = 1) -> int:
    """Send a button coming up."""
    return _button(tab, "mouseReleased", point, button, count)


def click(tab: Tab, point: Point, button: str = "left", times: int = 1) -> None:
    """Move to a point and click there."""
    sent = [move(tab, point)]
    for count in range(1, times + 1):
        sent += [press(tab, point, button, count), release(tab, point, button, count)]
    tab.wait(sent)


def wheel(tab: Tab, point: Point, right: float, down: float) -> None:
    """Turn the wheel at a point, by pixels."""
    tab.wait_for_frame([
        move(tab, point),
        tab.send(
            "Input.dispatchMouseEvent",
            type="mouseWheel", x=point[0], y=point[1], deltaX=right, deltaY=down,
        ),
    ])  # fmt: skip


def drag(tab: Tab, start: Point, end: Point) -> None:
    """Press at one point, move to another and release there, or drop what the page gives along."""
    tab.drag = None
    tab.wait([move(tab, start), press(tab, start)])
    for step in range(1, STEPS + 1):
        share = step / STEPS
        x = start[0] + (end[0] - start[0]) * share
        y = start[1] + (end[1] - start[1]) * share
        tab.wait_for_frame([move(tab, (x, y), held=True)], tab.is_dragging)
        if tab.is_dragging():
            _drop(tab, end)
            break
    tab.wait([release(tab, end)])


def type_text(tab: Tab, text: str) -> None:
    """Type a text, key by key; characters that no key has are inserted as they are."""
    sent: list[int] = []
    for character in text:
        if character in "\r\n":
            sent += strike(tab, "Enter")
        elif character == "\t" or (character.isascii() and character.isprintable()):
            sent += strike(tab, "Tab" if character == "\t" else character)
        else:
            sent.append(tab.send("Input.insertText", text=character))
        if tab.dialog is not None:
            break
    tab.wait(sent)


def press_keys(tab: Tab, keys: str) -> None:
    """Press keys together, the last one while the others are down: "Control+a"."""
    *held, last = split_keys(keys)
    if last == SPACE:
        last = " "
    bits, sent = 0, []
    for key in held:
        bits |= MODIFIERS.get(key, 0)
        sent.append(_key(tab, "keyDown", key, bits))
    sent += strike(tab, last, bits)
    for key in reversed(held):
        bits &= ~MODIFIERS.get(key, 0)
        sent.append(_key(tab, "keyUp", key, bits))
    tab.wait(sent)


def strike(tab: Tab, key: str, bits: int = 0) -> list[int]:
    """Send one key going down and coming up; return the numbers of the calls."""
    return [_key(tab, "keyDown", key, bits), _key(tab, "keyUp", key, bits)]


def _drop(tab: Tab, point: Point) -> None:
    sent = [
        tab.send("Input.dispatchDragEvent", type=kind, x=point[0], y=point[1], data=tab.drag)
        for kind in ("dragEnter", "dragOver", "drop")
    ]
    tab.wait(sent)


def _button(tab: Tab, kind: str, point: Point, button: str, count: int) -> int:
    return tab.send(
        "Input.dispatchMouseEvent",
        type=kind, x=point[0], y=point[1], button=button, clickCount=count,
    )  # fmt: skip


def _key(tab: Tab, kind: str, key: str, bits: int) -> int:
    text = "\r" if key == "Enter" else key if len(key) == 1 else ""
    if bits & ~MODIFIERS["Shift"]:
        text = ""  # with Control, Alt or Meta a key writes nothing
    upper = key.upper()
    code = _CODES.get(key) or _SIGNS.get(key) or (ord(upper) if len(key) == 1 else _function(key))
    fields: dict[str, object] = {"type": kind, "key": key, "modifiers": bits}
    fields |= {"windowsVirtualKeyCode": code, "code": _position(key)}
    if kind == "keyDown":
        fields["type"] = "keyDown" if text else "rawKeyDown"
        fields["text"] = text
        if bits == MODIFIERS["Control"] and key.lower() == "a":
            fields["commands"] = ["selectAll"]
    return tab.send("Input.dispatchKeyEvent", **fields)


def _function(key: str) -> int:
    return 111 + int(key[1:]) if key[:1] == "F" and key[1:].isdigit() else 0


def _position(key: str) -> str:
    """Return the key's place on the keyboard as `KeyboardEvent.code`; of signs, empty."""
    if key == " ":
        return "Space"
    if len(key) > 1:
        return f"{key}Left" if key in MODIFIERS else key
    if key.isascii() and key.isalpha():
        return f"Key{key.upper()}"
    return f"Digit{key}" if key.isascii() and key.isdigit() else ""
