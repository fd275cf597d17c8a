"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from palaestra.runtime.visible_text import visible

if TYPE_CHECKING:
    from rich.table import Table


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table, its first column aligned left; invisible characters are marked."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, header_style="bold", collapse_padding=True)
    for index, head in enumerate(heads):
        made.add_column(head, justify="right" if index else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(visible(cell)) for cell in row))
    return made
