"""The browser's process: Chromium in bubblewrap, with a pipe to it and no network.

It sees the system's programs, read-only, and a folder for uploads; its own files are in memory and
vanish with it. Its own sandbox is off: it needs namespaces of users, which many machines forbid,
and all that it shows is this process's.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import weakref
from collections import deque
from pathlib import Path

from palaestra.browser.installation import browser_program
from palaestra.sandbox import orphans
from palaestra.sandbox.linux import USERS, privileged, system_folders
from palaestra.sandbox.program_run import Launch, spawn

UPLOADS = "/uploads"  # where the folder of uploads is inside
WORDS = 20  # lines of its error output that are kept
_WITHOUT = (
    "AudioServiceOutOfProcess,BackForwardCache,IsolateOrigins,MediaRouter,OptimizationHints,"
    "PaintHolding,RenderDocument,Translate,site-per-process"
)
_OPTIONS = (
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--headless",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--user-data-dir=/tmp/profile",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--disable-background-networking",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-breakpad",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-partial-raster",  # else what was drawn before shows at the edges of what changed
    "--disable-popup-blocking",
    "--disable-renderer-backgrounding",
    "--disable-site-isolation-trials",  # frames of other sites belong to the page's process
    "--renderer-process-limit=1",  # per context: a page of another host starts no new process
    "--disable-smooth-scrolling",
    "--disable-sync",
    f"--disable-features={_WITHOUT}",
    "--disable-webrtc",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
    "--hide-scrollbars",
    "--mute-audio",
    "--password-store=basic",
)
_ON_DEMAND = (
    "--enable-begin-frame-control",
    "--run-all-compositor-stages-before-draw",
    # A page's tasks do not wait for a frame after a click.
    f"--disable-features={_WITHOUT},DeferRendererTasksAfterInput",
)
MEMORY = 2 * 2**20  # KiB that each of its processes may have: a page that takes more ends
_PIPE_SIZE = 2**20  # bytes of each direction that may wait to be read
# DevTools speaks on descriptors 3 and 4.
_PIPE = f'ulimit -d {MEMORY} && exec "$@" 3<&0 4>&1 0</dev/null 1>/dev/null'


class BrowserProcess:
    """A running browser; `reads` and `writes` are this side of its pipe."""

    def __init__(self, frames_on_demand: bool) -> None:
        """Start it.

        Args:
            frames_on_demand: whether it draws frames only when asked to.

        Raises:
            MissingSystemPart: there is no browser, or no bubblewrap.
        """
        program = browser_program()
        self.uploads = Path(tempfile.mkdtemp(prefix="palaestra-uploads-"))
        self.uploads.chmod(0o755)
        orphans.adopt()
        command = ["bwrap", *_isolation(self.uploads), "--", *_user(), "/bin/sh", "-c", _PIPE, "sh"]
        options = [*_OPTIONS, *(_ON_DEMAND if frames_on_demand else ()), "about:blank"]
        process = spawn(Launch([*command, str(program), *options], {"PATH": os.defpath}))
        self.pid, self._owner = process.pid, os.getpid()
        self._last_words: deque[str] = deque(maxlen=WORDS)
        assert process.stdin is not None and process.stdout is not None
        self.reads, self.writes = process.stdout.fileno(), process.stdin.fileno()
        for end in (self.reads, self.writes):
            with contextlib.suppress(OSError):  # else a page is written in many small parts
                fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)
        self._listener = threading.Thread(
            target=_listen, args=(process, self._last_words), name="browser-stderr", daemon=True
        )
        self._listener.start()
        self._process = process
        self.close = weakref.finalize(self, _end, process, self.uploads, self._owner)

    @property
    def alive(self) -> bool:
        """Whether it runs and belongs to this process, not to the one this was forked from."""
        return self.close.alive and os.getpid() == self._owner and self._process.poll() is None

    def last_words(self) -> str:
        """Return the last line of its error output; empty if it wrote none."""
        if self._process.poll() is not None:
            self._listener.join(1.0)
        return self._last_words[-1] if self._last_words else ""


def _isolation(uploads: Path) -> list[str]:
    """Return the options of bwrap."""
    found = ["--die-with-parent", "--new-session", "--clearenv", "--hostname", "browser"]
    found += ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    found += ["--unshare-cgroup-try"]
    if not privileged():
        found += ["--unshare-user", "--uid", "1000", "--gid", "1000"]
    for name, value in (("HOME", "/tmp"), ("PATH", "/usr/bin:/bin"), ("LANG", "C.UTF-8")):
        found += ["--setenv", name, value]
    found += ["--setenv", "TZ", "UTC", "--ro-bind", "/usr", "/usr"]
    for path in system_folders():
        if path.is_symlink():
            found += ["--symlink", os.readlink(path), str(path)]
        else:
            found += ["--ro-bind", str(path), str(path)]
    found += ["--ro-bind-try", "/opt", "/opt"]  # where Chrome is installed
    for name in ("fonts", "ld.so.cache", "alternatives"):
        found += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    found += ["--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/tmp"]
    found += ["--perms", "1777", "--tmpfs", "/dev/shm"]
    found += ["--ro-bind", str(uploads), UPLOADS, "--chdir", "/tmp", "--cap-drop", "ALL"]
    if privileged():  # for `setpriv`, which loses them again
        found += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    return found


def _user() -> list[str]:
    """Return the prefix that changes to a user that exists nowhere else; empty without root."""
    if not privileged():
        return []
    user = str(random.SystemRandom().choice(USERS))
    return ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", "--"]


def _listen(process: subprocess.Popen[bytes], words: deque[str]) -> None:
    assert process.stderr is not None
    with contextlib.suppress(OSError, ValueError):
        for line in process.stderr:
            words.append(line.decode(errors="replace").strip())


def _end(process: subprocess.Popen[bytes], uploads: Path, owner: int) -> None:
    if os.getpid() != owner:
        return  # a fork: the browser is its parent's
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # bwrap and, with it, its namespace of processes
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    orphans.reap()
    orphans.release()
    shutil.rmtree(uploads, ignore_errors=True)
