"""Small real packages to be repaired, and expressions that test them.

Their source is copied from this installation (palaestra depends on each anyway): permissive
licences, pure Python. The expressions are products of inputs, as in property tests; a repaired
package must return the original's result for each.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from palaestra.core.errors import MissingPackage


@dataclass(frozen=True, slots=True)
class Package:
    """A package, or a self-contained part of one."""

    name: str  # of the folder in the task
    module: str  # the module with its source
    licence: str
    setup: str  # imports for the expressions
    expressions: Callable[[], list[str]]
    modules: tuple[str, ...] = ()  # files to copy; empty: all of them
    also: tuple[str, ...] = ()  # modules to copy whole, without mutations
    fresh: bool = False  # replace `__init__.py` by an empty file

    def files(self) -> dict[str, str]:
        """Return the source files by path."""
        found: dict[str, str] = {}
        for module, folder in ((self.module, self.name), *((name, name) for name in self.also)):
            place = _place(module)
            for path in sorted(place.rglob("*.py")):
                inner = path.relative_to(place).as_posix()
                if module != self.module or not self.modules or inner in self.modules:
                    found[f"{folder}/{inner}"] = path.read_text(encoding="utf-8")
        if self.fresh:
            found[f"{self.name}/__init__.py"] = ""
        return found


def _cycler() -> list[str]:
    makers = ("a", "b", "c", "a + b", "a * c", "a * b * c", "2 * a", "a * 3", "(a + b) * c")
    ways = ("list({0})", "len({0})", "{0}.keys", "{0}.by_key()", "list({0}[1:])", "list({0}[::2])")
    found = [way.format(f"({made})") for made in makers for way in ways]
    found += [f"list({made}.concat({other}))" for made, other in (("a", "a"), ("a", "d"))]
    found += ["a + a", "a * a", "a + c", "a == cycler(x=[1, 2, 3])", "a == b", "list(concat(a, d))"]
    found += [
        "cycler(a)",
        "cycler('x', 3)",
        "cycler(1, 2, 3)",
        "cycler(a, b)",
        "cycler(x=[1], y=2)",
    ]
    found += ["changed('x', 'w')", "changed('y', 'w')", "added(b)", "times(c)", "list(cycler(e=a))"]
    return found


def _mdurl() -> list[str]:
    texts = (
        "",
        "abc",
        "a b",
        "100%",
        "%25%20",
        "%E4%BD%A0",
        "ä/ö?ü",
        "%zz%41",
        "a%2Fb",
        "%F0%9F%A4%A1",
    )
    found = [f"decode({text!r})" for text in texts]
    found += [f"decode({text!r}, '')" for text in texts] + [f"encode({text!r})" for text in texts]
    found += [f"encode({text!r}, keep_escaped=False)" for text in texts]
    schemes = ("http://", "//", "mailto:", "javascript:", "HTTPS://", "file:///")
    hosts = ("host.com", "u:p@Host.org:80", "[::1]:8", "a_b.c d", "x" * 64 + ".de")
    ends = ("", "/p/q?a=b#c", "?q=1", "#f", "/a;b'c")
    for scheme, host, end in itertools.product(schemes, hosts, ends):
        found.append(f"parse({scheme + host + end!r})")
    found += [
        f"format(parse({s + h + e!r}))" for s, h, e in itertools.product(schemes[:3], hosts, ends)
    ]
    return found


def _mpmath() -> list[str]:
    numbers = (0, 1, 2, 3, 7, 12, 97, 100, 221, 1024, 65537, 123456789, 10**20 + 39)
    found = [f"{f}({n})" for n in numbers for f in ("python_bitcount", "isprime", "isqrt_python")]
    found += [f"python_trailing({n})" for n in numbers] + [
        f"list(sqrtrem_python({n}))" for n in numbers
    ]
    found += [f"{f}({n})" for n in range(0, 30, 3) for f in ("ifib", "ifac", "ifac2", "eulernum")]
    found += [f"moebius({n})" for n in range(1, 31)] + [f"list_primes({n})" for n in (2, 3, 10, 50)]
    found += [
        f"{f}({n}, {k})"
        for n in range(1, 7)
        for k in range(1, 7)
        for f in ("stirling1", "stirling2")
    ]
    found += [f"gcd({a}, {b})" for a in (0, 6, 91, 2**70) for b in (4, 21, 1, 2**35)]
    found += [
        f"numeral_python({n}, {b}, {s})"
        for n in (0, 5, -77, 10**30)
        for b in (2, 10, 16)
        for s in (0, 8)
    ]
    found += [f"{f}({n}, {k})" for n in (5, -9) for k in (-2, 0, 3) for f in ("lshift", "rshift")]
    found += ["giant_steps(50, 1000)", "giant_steps(10, 500, 4)", "sqrt_fixed(2 << 60, 60)"]
    return found


def _packaging() -> list[str]:
    words = (
        "1.0",
        "1.0.0",
        "1.1a1",
        "1.1b2",
        "1.1rc3",
        "1.1.dev4",
        "1.1.post5",
        "2!0.5",
        "1.0+l.7",
        "1.10",
    )
    parts = (
        "epoch",
        "release",
        "pre",
        "post",
        "dev",
        "local",
        "public",
        "base_version",
        "major",
        "micro",
    )
    found = [f"Version({word!r}).{part}" for word in words for part in parts]
    found += [
        f"str(Version({w!r}))"
        for w in ("v1.0", "1.0-alpha.2", "1-3", "1.0RC", "01.02", "x", "1..2")
    ]
    found += [
        f"Version({a!r}) {op} Version({b!r})"
        for a, b in itertools.combinations(words, 2)
        for op in ("<", ">=")
    ]
    found += [
        f"hash(Version({a!r})) == hash(Version({b!r}))"
        for a, b in itertools.combinations(words[:4], 2)
    ]
    found += [f"canonicalize_name({n!r})" for n in ("A.B_c", "x--y", "Ab", "-a")]
    found += [f"is_normalized_name({n!r})" for n in ("a-b", "a--b", "A", "b1")]
    found += [
        f"canonicalize_version({v!r}, strip_trailing_zero={s})"
        for v in ("1.0.0", "1.2.0.post1", "q", "1.4")
        for s in (True, False)
    ]
    found += [
        f"[str(part) for part in parse_wheel_filename({w!r})[:3]]"
        for w in (
            "a_b-1.0-py3-none-any.whl",
            "a-1.0-1x-py2.py3-none-any.whl",
            "a.whl",
            "a-1-b-c.zip",
            "A-1.0-py3-none-any.whl",
        )
    ]
    found += [
        f"[str(part) for part in parse_sdist_filename({w!r})]"
        for w in ("a-1.0.tar.gz", "a_b-2.zip", "a.tar.gz", "a-b.rar")
    ]
    return found


def _markdown() -> list[str]:
    texts = (
        "# Title\n\nWords *in* **weight** and `code`.",
        "Title\n=====\n\nsecond\n---\n",
        "- one\n- two\n  - three\n\n    four\n",
        "1. a\n2. b\n\n7) c\n",
        "> quoted\nlazily\n>> twice\n",
        "```py\nx = 1\n```\n\n    indented\n\n~~~\nopen",
        "[a](http://b.c 'd') ![e](f.png) <http://g.h> <me@x.org>",
        "[ref] and [text][ref]\n\n[ref]: /url 'title'\n",
        "a  \nb\\\nc &amp; &#35; &nosuch; \\*d\\*",
        "*a **b* c** _d_e_f_ __g__ ***h***",
        "| a | b |\n|:--|--:|\n| 1 | `2|3` |\n| 4 |\n",
        "<div>\n*raw*\n</div>\n\n<!-- note -->\n<b>in</b>",
        "***\n\n- - -\n\n___\n",
        "~~gone~~ ~one~ ``a ` b`` `c",
        "- a\n\n- b\n\n\n- c\n> d",
        '![x](<a b> "c\\"d") [y](z(1)) [w]( )',
        "####### seven\n###### six ######\n#none",
        "\ttab\n\n -\tlist\n",
    )
    return [f"{made}.render({text!r})" for text in texts for made in ("plain", "table")] + [
        f"[(token.type, token.level, token.map) for token in table.parse({text!r})]"
        for text in texts
    ]


PACKAGES = {
    package.name: package
    for package in (
        Package(
            "cycler",
            "cycler",
            "BSD-3-Clause",
            "from cycler import Cycler, concat, cycler\n"
            "a, b, c, d = cycler(x=[1, 2, 3]), cycler(y=[4, 5, 6]), cycler(z='uv'), cycler(x=[9])\n"
            "def changed(old, new):\n    one = a + b\n    one.change_key(old, new)\n"
            "    return list(one)\n"
            "def added(other):\n    one = cycler(x=[1, 2, 3])\n    one += other\n"
            "    return list(one)\n"
            "def times(other):\n    one = cycler(x=[1, 2, 3])\n    one *= other\n"
            "    return list(one)\n",
            _cycler,
        ),
        Package(
            "markdown_it",
            "markdown_it",
            "MIT",
            "from markdown_it import MarkdownIt\n"
            "plain, table = MarkdownIt(), MarkdownIt().enable(['table', 'strikethrough'])\n",
            _markdown,
            also=("mdurl",),
        ),
        Package("mdurl", "mdurl", "MIT", "from mdurl import *\n", _mdurl),
        Package(
            "integers",
            "mpmath.libmp",
            "BSD-3-Clause",
            "from integers.libintmath import *\nfrom integers.libintmath import python_trailing, "
            "python_bitcount, isqrt_python, sqrtrem_python, numeral_python, giant_steps, gcd\n",
            _mpmath,
            ("backend.py", "libintmath.py"),
            fresh=True,
        ),
        Package(
            "packaging",
            "packaging",
            "Apache-2.0 OR BSD-2-Clause",
            "from packaging.utils import *\nfrom packaging.version import Version\n",
            _packaging,
            ("__init__.py", "version.py", "utils.py", "tags.py", "_manylinux.py", "_musllinux.py",
             "_elffile.py", "_structures.py"),
        ),
    )
}  # fmt: skip


def _place(module: str) -> Path:
    top = module.partition(".")[0]
    found = importlib.util.find_spec(top)
    if found is None or found.origin is None:
        raise MissingPackage(
            f"The repository environment needs the Python package '{top}', which is not installed; "
            f"install it with: pip install {top.replace('_', '-')}."
        )
    return Path(found.origin).parent.joinpath(*module.split(".")[1:])
