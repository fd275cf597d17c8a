"""Tables of the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from palaestra.core.visible import visible

if TYPE_CHECKING:
    from rich.table import Table


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table whose first column reads from the left; words are shown with all that is in them."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE_HEAD, header_style="bold", collapse_padding=True)
    for place, head in enumerate(heads):
        made.add_column(head, justify="right" if place else "left")
    for row in rows:
        made.add_row(*(Text(visible(cell)) for cell in row))
    return made
