"""SHA-256 of large files, remembered in the cache while a file does not change.

Hashing the 3 GB of a model with 1.5 billion parameters takes seconds, at every start. So a hash is
remembered with the file's size and times of change, and computed again when one of them differs.
It is not remembered in the first seconds after a change: two changes within one tick of the file
system's clock would look like one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from pathlib import Path

from palaestra.core.paths import cache_folder

SETTLED = 2.0  # seconds after which a change has a time of its own


def sha256(file: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal, remembered or computed; raise OSError."""
    found = file.stat()
    state = [found.st_size, found.st_mtime_ns, found.st_ctime_ns]
    path = str(file.resolve())
    record = cache_folder() / "hashes" / f"{hashlib.sha256(path.encode()).hexdigest()}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(record.read_text(encoding="utf-8"))
        if known["state"] == state:
            return str(known["sha256"])
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if time.time() - max(found.st_mtime, found.st_ctime) > SETTLED:
        with contextlib.suppress(OSError):  # without a cache it is computed again
            record.parent.mkdir(parents=True, exist_ok=True)
            part = record.with_suffix(f".{os.getpid()}.part")
            part.write_text(json.dumps({"path": path, "state": state, "sha256": digest}))
            part.replace(record)
    return digest
