"""Hooks of mkdocs: they build a site from the documentation as GitHub shows it.

Links that leave docs/ (to examples, recipes, the specification …) get pages under repository/,
which show those files; a link to a missing file fails the build. Markdown that GitHub and mkdocs
parse differently is converted for mkdocs.
"""

from __future__ import annotations

import posixpath
import re
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"(^[ ]*```.*?^[ ]*```[ ]*$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=[^)]*\))")
ITEM = re.compile(r"^ {0,3}(?:[-*]|\d+\.) ")
LANGUAGES = {".py": "python", ".toml": "toml", ".sh": "sh", ".json": "json", ".txt": "text"}
PATHS: dict[str, str] = {}
"""Path in the repository by page under repository/."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file outside docs/ that is linked from a page, directly or indirectly."""
    waiting = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    made: set[str] = set()
    while waiting:
        path = waiting.pop()
        text = (ROOT / path).read_text() if path.startswith("docs/") else shown(path)

        def note(target: str) -> str:
            if not target.startswith("docs/") and target not in made:
                made.add(target)
                waiting.append(target)
            return target

        each_link(path, text, note)
        if not path.startswith("docs/"):
            PATHS[page_of(path)] = path
            files.append(File.generated(config, page_of(path), content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page with links to pages of the site, in mkdocs' Markdown."""
    uri = page.file.src_uri
    path = PATHS.get(uri, f"docs/{uri}")
    folder = posixpath.dirname(uri)

    def to_page(target: str) -> str:
        inside = target.startswith("docs/")
        return posixpath.relpath(
            target.removeprefix("docs/") if inside else page_of(target), folder
        )

    return in_mkdocs_markdown(each_link(path, markdown, to_page))


@cache
def tracked() -> list[str]:
    """Return the files of the repository and their folders."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    names = [name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()]
    folders = {str(parent) for name in names for parent in Path(name).parents} - {"."}
    return [*names, *sorted(folders)]


def page_of(path: str) -> str:
    """Return the path of the page of a file or folder outside docs/."""
    name = path.removesuffix(".md") if path.endswith(".md") else path.replace(".", "_")
    return f"repository/{name.replace('README', 'readme')}.md"


def shown(path: str) -> str:
    """Return the Markdown of the page of a file or folder."""
    file = ROOT / path
    if file.is_dir():
        readme = file / "README.md"
        inside = [p for p in tracked() if posixpath.dirname(p) == path and "__init__" not in p]
        listed = [f"- [{Path(p).name}]({Path(p).name})" for p in sorted(inside)]
        about = readme.read_text() if readme.is_file() else f"# {path}\n"
        return "\n".join([about, *listed, ""])
    if file.suffix == ".md":
        return file.read_text()
    language = LANGUAGES.get(file.suffix, "text")
    return f"# {path}\n\n~~~~{language}\n{file.read_text().rstrip()}\n~~~~\n"


def each_link(path: str, text: str, change: Callable[[str], str]) -> str:
    """Return the text of a file with `change` applied to the path of each relative link."""
    base = path if (ROOT / path).is_dir() else posixpath.dirname(path)

    def changed(match: re.Match[str]) -> str:
        link, _, anchor = match[1].partition("#")
        if not link or re.match(r"[a-z]+:", link):
            return match[1]
        target = posixpath.normpath(posixpath.join(base, unquote(link)))
        if target.startswith("..") or not (ROOT / target).exists():
            raise PluginError(f"{path} links to {match[1]}, which does not exist.")
        if target == "docs":
            target = "docs/index.md"
        return change(target) + (f"#{anchor}" if anchor else "")

    if path.endswith(".md") or (ROOT / path).is_dir():
        parts = FENCE.split(text)
        parts[::2] = [LINK.sub(changed, part) for part in parts[::2]]
        return "".join(parts)
    return text


def in_mkdocs_markdown(text: str) -> str:
    """Return text with an empty line before each list, and fences that name only a language."""
    parts = FENCE.split(text)
    for index, part in enumerate(parts):
        if index % 2:
            parts[index] = re.sub(r"^( *```\w+) .*$", r"\1", part, count=1, flags=re.MULTILINE)
            continue
        lines: list[str] = []
        for line in part.split("\n"):
            before = lines[-1] if lines else ""
            starts = ITEM.match(line) and before.strip() and not before.startswith(" ")
            if starts and not ITEM.match(before):
                lines.append("")
            lines.append(line)
        parts[index] = "\n".join(lines)
    return "".join(parts)
