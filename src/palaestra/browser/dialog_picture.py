"""An open dialog, as elements and as a picture: its page cannot be pictured until the answer."""

from __future__ import annotations

from html import escape

from palaestra.browser.tab import Dialog
from palaestra.core.element import Box, Element

HEIGHT = 150.0  # pixels, or less in a small window
ROW, EDGE = 30.0, 8.0
DIALOG = ("dialog", "dialog-text", "dialog-ok", "dialog-cancel")
"""Ids of the elements that stand for an open dialog."""


def dialog_elements(dialog: Dialog, size: tuple[int, int]) -> tuple[Element, ...]:
    """Return what there is to read and to click while a dialog is open."""
    around, text, ok, cancel = DIALOG
    whole, field, left, right = dialog_boxes(size)
    message, value = dialog.message, dialog.value
    found = [Element(around, "alertdialog", message, states=("modal",), box=whole)]
    if dialog.kind == "prompt":
        found.append(Element(text, "textbox", message, value, box=field, parent=around))
    found.append(Element(ok, "button", "OK", box=left, parent=around))
    if dialog.kind != "alert":
        found.append(Element(cancel, "button", "Cancel", box=right, parent=around))
    return tuple(found)


def dialog_boxes(size: tuple[int, int]) -> tuple[Box, Box, Box, Box]:
    """Return the boxes of the dialog, its field, OK and Cancel in a window of that size."""
    width, height = 0.9 * size[0], min(HEIGHT, 0.9 * size[1])
    left, top = 0.05 * size[0], 0.05 * size[1]
    row = min(ROW, height / 5)
    inner, half = width - 2 * EDGE, (width - 3 * EDGE) / 2
    buttons = top + height - row - EDGE
    return (
        Box(left, top, width, height),
        Box(left + EDGE, buttons - row - EDGE, inner, row),
        Box(left + EDGE, buttons, half, row),
        Box(left + 2 * EDGE + half, buttons, half, row),
    )


def dialog_page(dialog: Dialog, size: tuple[int, int]) -> str:
    """Return the HTML of a page that shows a dialog."""
    around, text, ok, cancel = dialog_boxes(size)
    parts = [_part(around, dialog.message), _part(ok, "OK")]
    if dialog.kind == "prompt":
        parts.append(_part(text, dialog.value))
    if dialog.kind != "alert":
        parts.append(_part(cancel, "Cancel"))
    return f"<!doctype html><meta charset=utf-8><body style='background: #ccc'>{''.join(parts)}"


def _part(box: Box, text: str) -> str:
    place = f"left:{box.x}px;top:{box.y}px;width:{box.width}px;height:{box.height}px"
    look = "box-sizing:border-box;border:1px solid;background:#fff;padding:4px;overflow:hidden"
    return (
        f"<div style='position:absolute;font:14px sans-serif;{place};{look}'>{escape(text)}</div>"
    )
