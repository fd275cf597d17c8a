"""A terminal console that shows escape codes of episodes instead of executing them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from palaestra.runtime.visible_text import visible


class Console(rich.console.Console):
    """Rich's console with a mark for each invisible character, escape codes included.

    Only its own colours reach the terminal as codes.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)  # Rich would drop some of them

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible(text), style, control)
