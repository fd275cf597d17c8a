"""Generated shell tasks: each family is a function from an rng and a level to a challenge.

Level 1 has a few files in one folder; level 2 has nested folders, names with blanks, and
distractor files. The prompt never tells how to solve the task. Every challenge's reference is the
command that a practised user would type.
"""

from __future__ import annotations

import gzip
import io
import random
import shlex
import tarfile
from collections import Counter
from collections.abc import Callable

from palaestra.environments.shared.challenge import Challenge, Goal
from palaestra.environments.shared.folder_archive import Folder, lines

NAMES = "ada ben cleo dario emma farid greta hana ivan juno kofi lena milo nora omar petra".split()
NOUNS = "anchor basil cedar delta ember fjord grain harbor iris jasper kelp lotus maple".split()
CITIES = "Athens Bergen Cairo Dakar Essen Fukui Genoa".split()
KEYS = "port host timeout retries color level mode cache limit theme".split()


def find(rng: random.Random, level: int) -> Challenge:
    """Make a task: list the files that contain a word."""
    word, *others = rng.sample(NOUNS, 5)
    paths = _paths(rng, "docs", ".txt", 6 * level, level)
    hits = set(rng.sample(paths, rng.randint(2, len(paths) - 2)))
    files = {}
    for path in paths:
        words = [rng.choice(others) for _ in range(8)]
        if path in hits:
            words[rng.randrange(8)] = word
        elif level > 1:
            words[rng.randrange(8)] = word + "s"  # not the word itself
        files[path] = _text(words, 4)
    wanted = sorted(hits)
    return _file_task(
        f"Which files under docs hold the word '{word}' (the whole word, as written here)? "
        "Write their paths, one a line, sorted, to found.txt, such as: docs/name.txt",
        files,
        "found.txt",
        wanted,
        f"grep -rlw {word} docs | LC_ALL=C sort > found.txt",
    )


def rename(rng: random.Random, level: int) -> Challenge:
    """Make a task: change the extension of some files."""
    old, new = rng.sample([".txt", ".md", ".log", ".dat", ".text"], 2)
    paths = _paths(rng, "notes", old, 4 * level, level)
    files = {path: _text(rng.sample(NOUNS, 4), 2) for path in paths}
    others = _paths(rng, "notes", ".csv", 2, level)
    files |= dict.fromkeys(others, b"a,b\n1,2\n")
    change = f'for f; do mv -- "$f" "${{f%{old}}}{new}"; done'
    reference = f"find notes -name '*{old}' -exec bash -c {shlex.quote(change)} _ {{}} +"
    goals = tuple(
        Goal(_moved(path, path.removesuffix(old) + new, files[path]), reference, (path,))
        for path in paths
    )
    where = "in notes and all folders under it" if level > 1 else "in notes"
    words = f"Rename all files {where} that end in {old}: they shall end in {new} instead."
    return Challenge(words, files, goals, frozenset(others))


def count(rng: random.Random, level: int) -> Challenge:
    """Make a task: count the lines of one kind in each file."""
    word = rng.choice(["ERROR", "WARN", "FATAL"])
    names = sorted(rng.sample(NAMES, 2 + 2 * level))
    files, wanted = {}, []
    for name in names:
        rows = [f"{rng.choice(['INFO', 'DEBUG', word])} {rng.choice(NOUNS)}" for _ in range(12)]
        if level > 1:
            rows += [f"INFO {word} {rng.choice(NOUNS)}", f"{word}S none"]
        rng.shuffle(rows)
        files[f"logs/{name}.log"] = _rows(rows)
        wanted.append(f"{name} {sum(row.startswith(word + ' ') for row in rows)}")
    each = f'"$(basename "$f" .log) $(grep -c \'^{word} \' "$f")"'
    return _file_task(
        f"Each line of logs/*.log begins with its kind. How many of kind {word} has each file? "
        "Write one line per file to counts.txt, sorted by name, such as: ada 7",
        files,
        "counts.txt",
        wanted,
        f"for f in logs/*.log; do echo {each}; done > counts.txt",
    )


def extract(rng: random.Random, level: int) -> Challenge:
    """Make a task: extract a column of some rows."""
    city = rng.choice(CITIES)
    rows = []
    for name in rng.sample(NAMES, 8 + 4 * (level - 1)):
        where = city if rng.random() < 0.4 else rng.choice(CITIES)
        age = rng.randint(18, 80)
        rows.append((name, str(age), where, f"{name}@{rng.choice(NOUNS)}.org"))
    rows[0] = (rows[0][0], "44", city, rows[0][3])
    old = level > 1
    wanted = [row[3] for row in rows if row[2] == city and (not old or int(row[1]) >= 30)]
    condition = f'$3=="{city}"' + (" && $2>=30" if old else "")
    table = _rows(["name,age,city,email", *(",".join(row) for row in rows)])
    return _file_task(
        f"people.csv lists people. Write the email of everyone in {city}"
        f"{' who is 30 or older' if old else ''} to emails.txt, one a line, in the table's order.",
        {"people.csv": table},
        "emails.txt",
        wanted,
        f"awk -F, '{condition} {{print $4}}' people.csv > emails.txt",
    )


def permissions(rng: random.Random, level: int) -> Challenge:
    """Make a task: set the permissions of some files."""
    scripts = _paths(rng, "bin", ".sh", 2 * level, level)
    secrets = _paths(rng, "keys", ".key", 2 * level, level)
    others = _paths(rng, "bin", ".txt", 2, level)
    files = {path: b"#!/bin/sh\necho " + rng.choice(NOUNS).encode() + b"\n" for path in scripts}
    files |= {path: rng.choice(NOUNS).encode() * 3 for path in [*secrets, *others]}
    goals = [
        Goal(_mode(path, 0o755, files[path]), "find bin -name '*.sh' -exec chmod 755 {} +", (path,))
        for path in scripts
    ]
    goals += [
        Goal(_mode(path, 0o600, files[path]), "find keys -type f -exec chmod 600 {} +", (path,))
        for path in secrets
    ]
    words = (
        "Give all .sh files under bin the permissions 755, and all files under keys 600. "
        "Leave all other files as they are."
    )
    setup = "find . -type f -exec chmod 644 {} +"
    return Challenge(words, files, tuple(goals), frozenset(others), setup)


def logs(rng: random.Random, level: int) -> Challenge:
    """Make a task: find the most frequent address in a log."""
    hosts = [f"10.0.{rng.randrange(4)}.{n}" for n in rng.sample(range(2, 250), 4 + 2 * level)]
    rows: list[tuple[str, int]] = []
    for number, host in enumerate(hosts):
        rows += [(host, rng.choice([200, 200, 404])) for _ in range(3 + 2 * number)]
    rng.shuffle(rows)
    requests = [f'{host} "GET /{rng.choice(NOUNS)}" {code}' for host, code in rows]
    asked = Counter(host for host, code in rows if level == 1 or code == 404)
    most = max(asked.values())
    top = sorted(host for host, times in asked.items() if times == most)[0]
    pick = "" if level == 1 else " | grep ' 404$'"
    return _file_task(
        "access.log has a line for each request: address, request, code. Write the address with "
        f"the most {'requests' if level == 1 else 'requests of code 404'} to top.txt "
        "(of several, the first by sorting).",
        {"access.log": _rows(requests)},
        "top.txt",
        [top],
        f"cat access.log{pick} | cut -d' ' -f1 | LC_ALL=C sort | uniq -c | "
        "LC_ALL=C sort -k1,1nr -k2,2 | head -1 | awk '{print $2}' > top.txt",
    )


def unpack(rng: random.Random, level: int) -> Challenge:
    """Make a task: unpack an archive, or a part of it."""
    paths = _paths(rng, "data", ".txt", 3 * level, level)
    inside = {path: _text(rng.sample(NOUNS, 6), 3) for path in paths}
    picked = paths if level == 1 else [path for path in paths if path.count("/") > 1] or paths
    what = "everything" if level == 1 else "only what lies in folders within data"
    reference = "mkdir -p restored && tar -xzf backup.tar.gz -C restored"
    if level > 1:
        reference += " && find restored/data -maxdepth 1 -type f -delete"
    goals = [Goal(_is(f"restored/{p}", inside[p]), reference, ("backup.tar.gz",)) for p in picked]
    if len(picked) < len(paths):
        left = [f"restored/{path}" for path in paths if path not in picked]
        goals.append(
            Goal(
                lambda folder: (
                    not any(path in folder for path in left)
                    and any(path.startswith("restored/") for path in folder)
                ),
                reference,
                ("backup.tar.gz",),
            )
        )
    words = f"Unpack backup.tar.gz into the folder restored: {what}. Keep the archive."
    files = {"backup.tar.gz": _tar(inside)}
    return Challenge(words, files, tuple(goals), frozenset(files))


def archive(rng: random.Random, level: int) -> Challenge:
    """Make a task: pack some files into an archive and delete them."""
    ending = rng.choice([".log", ".bak", ".tmp"])
    gone = _paths(rng, "work", ending, 3 * level, level)
    others = _paths(rng, "work", ".txt", 2, level)
    files = {path: _text(rng.sample(NOUNS, 5), 3) for path in [*gone, *others]}
    pack = (
        f"find work -name '*{ending}' -print0 | LC_ALL=C sort -z | "
        "tar --null -T - --mtime=@0 -cf - | gzip -n > old.tar.gz"
    )
    wanted = {path: files[path] for path in gone}
    goals = (
        Goal(lambda folder: _unpacked(folder, "old.tar.gz") == wanted, pack, tuple(gone)),
        *(
            Goal(_gone(path, ("old.tar.gz",)), f"find work -name '*{ending}' -delete")
            for path in gone
        ),
    )
    words = (
        f"Pack all files under work that end in {ending} into old.tar.gz (with their paths, as "
        f"work/…), then delete those files. Leave all others."
    )
    return Challenge(words, files, goals, frozenset(others))


def config(rng: random.Random, level: int) -> Challenge:
    """Make a task: change some settings in a file."""
    keys = rng.sample(KEYS, 4 + 2 * level)
    values = {key: str(rng.randint(1, 99)) for key in keys}
    changed = {key: str(int(values[key]) + rng.randint(100, 900)) for key in keys[: 1 + level]}
    rows = []
    for key in sorted(keys):
        if level > 1:
            rows.append(f"# {key} = 0")
        rows.append(f"{key} = {values[key]}")
    edits = " ".join(f"-e 's/^{key} = .*/{key} = {value}/'" for key, value in changed.items())
    rest = sorted(row for row in rows if row.partition(" ")[0] not in changed)
    goals = tuple(
        Goal(_set(key, value, rest), f"sed -i {edits} app.conf", ("app.conf",))
        for key, value in changed.items()
    )
    changes = ", ".join(f"{key} to {value}" for key, value in changed.items())
    words = f"In app.conf set {changes}. Leave all else as it is."
    return Challenge(words, {"app.conf": _rows(rows)}, goals)


def pipeline(rng: random.Random, level: int) -> Challenge:
    """Make a task: list the most frequent words."""
    size = 1 + 2 * level
    words: list[str] = []
    for number, noun in enumerate(rng.sample(NOUNS, 5 + level)):
        words += [noun] * (2 + 3 * number)
    rng.shuffle(words)
    cased = [word.capitalize() if level > 1 and rng.random() < 0.4 else word for word in words]
    ranked = Counter(words).most_common(size)
    fold = "tr A-Z a-z < text.txt" if level > 1 else "cat text.txt"
    return _file_task(
        f"Write the {size} most frequent words of text.txt with their numbers to words.txt, the "
        f"most frequent first{', all in small letters' if level > 1 else ''}, such as: 12 maple",
        {"text.txt": _text(cased, 7)},
        "words.txt",
        [f"{times} {word}" for word, times in ranked],
        f"{fold} | tr -s ' ' '\\n' | LC_ALL=C sort | uniq -c | LC_ALL=C sort -k1,1nr | "
        f"head -{size} | awk '{{print $1, $2}}' > words.txt",
    )


def duplicates(rng: random.Random, level: int) -> Challenge:
    """Make a task: delete duplicate files."""
    paths = _paths(rng, "photos", ".raw", 6 * level, level)
    kinds = [_text(rng.sample(NOUNS, 6), 3) for _ in range(3 * level)]
    files = {path: kinds[number % len(kinds)] for number, path in enumerate(paths)}
    first: dict[bytes, str] = {}
    for path in sorted(paths):
        first.setdefault(files[path], path)
    kept = frozenset(first.values())
    reference = (
        "find photos -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum | "
        "awk 'seen[$1]++ {print substr($0, 35)}' | tr '\\n' '\\0' | xargs -0 rm -f --"
    )
    goals = tuple(Goal(_gone(path, tuple(kept)), reference) for path in sorted(set(paths) - kept))
    words = (
        "Some files under photos have the same contents. Keep the one whose path sorts first (as "
        "LC_ALL=C sort does) of each such group, and delete the others."
    )
    return Challenge(words, files, goals, kept)


def join(rng: random.Random, level: int) -> Challenge:
    """Make a task: join two tables."""
    names = sorted(rng.sample(NAMES, 6 + 3 * level))
    towns = {name: rng.choice(CITIES) for name in rng.sample(names, len(names) - 2)}
    paid = {name: rng.randint(10, 99) for name in names}
    left = [f"{name},{amount}" for name, amount in paid.items()]
    right = [f"{name},{town}" for name, town in towns.items()]
    if level > 1:
        rng.shuffle(left)
    rng.shuffle(right)
    wanted = [f"{name},{paid[name]},{towns[name]}" for name in names if name in towns]
    return _file_task(
        "paid.csv has name,amount and towns.csv has name,town, both without a head line. Write "
        "name,amount,town of everyone who is in both to joined.csv, sorted by name.",
        {"paid.csv": _rows(left), "towns.csv": _rows(right)},
        "joined.csv",
        wanted,
        "LC_ALL=C join -t, <(LC_ALL=C sort paid.csv) <(LC_ALL=C sort towns.csv) > joined.csv",
    )


FAMILIES: dict[str, Callable[[random.Random, int], Challenge]] = {
    family.__name__: family
    for family in (
        archive,
        config,
        count,
        duplicates,
        extract,
        find,
        join,
        logs,
        permissions,
        pipeline,
        rename,
        unpack,
    )
}


# ── helpers ──────────────────────────────────────────────────────────────────


def _file_task(
    words: str, files: dict[str, bytes], path: str, wanted: list[str], reference: str
) -> Challenge:
    """Make a task that writes lines to a file and leaves all given files unchanged."""
    goals = (
        Goal(lambda folder: path in folder, reference, tuple(files)),
        Goal(lambda folder: sorted(lines(folder, path)) == sorted(wanted), reference, tuple(files)),
        Goal(lambda folder: lines(folder, path) == wanted, reference, tuple(files)),
    )
    return Challenge(words, files, goals, frozenset(files))


def _paths(rng: random.Random, top: str, ending: str, size: int, level: int) -> list[str]:
    """Sample distinct paths under a folder; from level 2, with subfolders and blanks."""
    found: list[str] = []
    for number in range(size):
        name = f"{rng.choice(NOUNS)}{number}"
        if level > 1 and number % 2:
            name = f"{rng.choice(NAMES)}/{name}"
        if level > 1 and number % 3 == 1:
            name += f" {rng.choice(NAMES)}"
        found.append(f"{top}/{name}{ending}")
    return found


def _rows(rows: list[str]) -> bytes:
    return ("\n".join(rows) + "\n").encode()


def _text(words: list[str], width: int) -> bytes:
    return _rows([" ".join(words[i : i + width]) for i in range(0, len(words), width)])


def _is(path: str, data: bytes) -> Callable[[Folder], bool]:
    return lambda folder: path in folder and folder[path].data == data


def _mode(path: str, mode: int, data: bytes) -> Callable[[Folder], bool]:
    return lambda folder: _is(path, data)(folder) and folder[path].mode == mode


def _gone(path: str, others: tuple[str, ...]) -> Callable[[Folder], bool]:
    """Check that the path is gone while another one of `others` still exists."""
    return lambda folder: path not in folder and any(other in folder for other in others)


def _set(key: str, value: str, rest: list[str]) -> Callable[[Folder], bool]:
    def holds(folder: Folder) -> bool:
        rows = lines(folder, "app.conf")
        mine = [row for row in rows if row.startswith(f"{key} ")]
        return mine == [f"{key} = {value}"] and set(rest) <= set(rows)

    return holds


def _moved(old: str, new: str, data: bytes) -> Callable[[Folder], bool]:
    return lambda folder: old not in folder and _is(new, data)(folder)


def _tar(files: dict[str, bytes]) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, data in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return gzip.compress(raw.getvalue(), mtime=0)


def _unpacked(folder: Folder, path: str) -> dict[str, bytes] | None:
    """Return the plain files of an archive, or None if it is not an archive."""
    entry = folder.get(path)
    try:
        with tarfile.open(fileobj=io.BytesIO(entry.data if entry else b""), mode="r:*") as tar:
            found = {}
            for member in tar:
                part = tar.extractfile(member) if member.isfile() else None
                if part is not None:
                    found[member.name.removeprefix("./")] = part.read()
            return found
    except (tarfile.TarError, OSError, EOFError, ValueError):
        return None
