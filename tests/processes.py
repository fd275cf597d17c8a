"""The processes that a test started, by what their command line says."""

import psutil


def children_with(text: str, parent: int | None = None) -> list[psutil.Process]:
    """Return the living children (of this process or of `parent`) whose command line holds a text.

    A child that has ended and was not reaped yet has no command line that can be read, so it is
    left out.
    """
    found = []
    for child in psutil.Process(parent).children():
        try:
            if text in " ".join(child.cmdline()):
                found.append(child)
        except psutil.Error:
            continue
    return found
