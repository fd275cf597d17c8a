"""Escape attempts from inside: each is contained, and reported as an outcome.

Each attempt is a Python program, so that every kind of sandbox that has walls faces the same ones.
After each, the caller is unharmed, the sandbox still works, and nothing of the program is left.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from palaestra.core.errors import InputError
from palaestra.sandbox.base import Ended, Limits, Ran, Sandbox, Settings
from palaestra.sandbox.factory import KINDS, open_sandbox
from tests.sandbox.kinds import WALLED, parameters, skip_unless_here

SMALL = Limits(
    seconds=10.0,
    cpu_seconds=5.0,
    memory=96 * 2**20,
    processes=16,
    file_bytes=2 * 2**20,
    disk_bytes=8 * 2**20,
    output_bytes=2**16,
)
SECRET = f"secret-{uuid.uuid4().hex}"
PASSWORD = f"password-{uuid.uuid4().hex}"


@dataclass
class World:
    """The caller's side: resources that programs must not reach."""

    sandbox: Sandbox
    place: Path  # a folder of this machine with a secret in it
    victim: subprocess.Popen[bytes]

    def attempt(self, code: str, **limits: float) -> Ran:
        """Run an attempt; then check that the caller and the sandbox are unharmed."""
        chosen = replace(SMALL, **limits)  # type: ignore[arg-type]
        ran = self.sandbox.run(["python3", "-c", _PRELUDE + code], limits=chosen)
        assert self.victim.poll() is None
        assert SECRET not in ran.stdout + ran.stderr
        assert PASSWORD not in ran.stdout + ran.stderr
        return ran

    def still_works(self) -> None:
        """Check that a well-behaved program still runs."""
        ran = self.sandbox.run(["python3", "-c", "print(6 * 7)"], limits=SMALL)
        assert (ran.ended, ran.code, ran.stdout) == (Ended.EXIT, 0, "42\n"), ran


_PRELUDE = """
import errno, os, sys, time
def refused(what, *arguments, **named):
    try:
        what(*arguments, **named)
    except (OSError, AttributeError, ImportError) as error:
        return print('refused', flush=True)
    print('DONE', what, arguments, flush=True)
"""


@pytest.fixture(scope="module", params=parameters(WALLED))
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    skip_unless_here(request.param)
    os.environ["PALAESTRA_TEST_PASSWORD"] = PASSWORD
    opened = open_sandbox(request.param, Settings(SMALL))
    yield opened
    opened.close()
    del os.environ["PALAESTRA_TEST_PASSWORD"]


@pytest.fixture(scope="module")
def victim() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", PASSWORD])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def world(sandbox: Sandbox, victim: subprocess.Popen[bytes], open_folder: Path) -> Iterator[World]:
    # All may read and write it: isolation must protect it, not permissions.
    (open_folder / "secret").write_text(SECRET)
    (open_folder / "secret").chmod(0o666)
    empty = sandbox.save()
    yield World(sandbox, open_folder, victim)
    sandbox.restore(empty)


def only_refusals(ran: Ran) -> None:
    assert ran.ended is Ended.EXIT, ran
    assert set(ran.stdout.split()) == {"refused"}, ran


def alive_with(mark: str) -> list[str]:
    """Return this machine's processes, zombies included, with the mark in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark.encode() in (entry / "cmdline").read_bytes():
                    found.append(entry.name)
            except OSError:
                continue
    return found


def test_files_of_this_machine_cannot_be_read(world: World) -> None:
    secret = world.place / "secret"
    around = "../" * 12 + str(secret).lstrip("/")
    places = [str(secret), f"/proc/1/root{secret}", f"/proc/self/root{secret}", around]
    places += [f"/proc/{os.getpid()}/root{secret}", "/etc/shadow", "/etc/gshadow", "/dev/sda"]
    places += ["/dev/mem", "/dev/vda"]
    only_refusals(world.attempt(f"for path in {places!r}: refused(lambda: open(path).read())"))


def test_nothing_can_be_written_outside(world: World) -> None:
    places = [f"{world.place}/planted", f"{world.place}/secret", "/usr/planted", "/etc/planted"]
    places += ["/dev/planted", "/run/planted", "/usr/bin/env", "/etc/passwd"]
    places += ["/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/power/state"]
    before = Path("/usr/bin/env").stat().st_mtime_ns
    only_refusals(world.attempt(f"for path in {places!r}: refused(open, path, 'r+b' if "
                                "os.path.exists(path) else 'wb')"))  # fmt: skip
    world.attempt("open('/planted', 'wb')")  # in the work folder, where that is all there is
    assert (world.place / "secret").read_text() == SECRET
    assert os.listdir(world.place) == ["secret"]
    assert Path("/usr/bin/env").stat().st_mtime_ns == before
    assert not Path("/usr/planted").exists() and not Path("/planted").exists()


def test_there_is_no_network(world: World) -> None:
    with socket.create_server(("0.0.0.0", 0)) as server, socket.socket(socket.AF_UNIX) as hidden:
        server.settimeout(0.0)
        name = f"\0palaestra-{uuid.uuid4().hex}"
        hidden.bind(name)
        hidden.listen()
        hidden.settimeout(0.0)
        port = server.getsockname()[1]
        ran = world.attempt(f"""
import socket
def connect(family, address):
    with socket.socket(family) as at:
        at.settimeout(0.2)
        at.connect(address)
for address in ('127.0.0.1', '10.0.0.1', '192.0.2.1', '169.254.169.254'):
    refused(connect, socket.AF_INET, (address, {port}))
refused(connect, socket.AF_UNIX, {name!r})
refused(socket.getaddrinfo, 'example.org', 80)
refused(lambda: socket.socket(40, socket.SOCK_STREAM))
refused(lambda: socket.socket(17, socket.SOCK_RAW))
""")
        for listening in (server, hidden):
            with pytest.raises(BlockingIOError):
                listening.accept()
    only_refusals(ran)


def test_a_fork_bomb_stays_small(world: World) -> None:
    before = len(os.listdir("/proc"))
    code = """
while True:
    try:
        os.fork()
    except (OSError, AttributeError):
        time.sleep(0.02)
"""
    ran = world.attempt(code, seconds=0.6)
    assert ran.ended in (Ended.SECONDS, Ended.CPU, Ended.PROCESSES)
    assert len(os.listdir("/proc")) < before + 40
    world.still_works()


def test_memory_that_one_process_asks_for_is_limited(world: World) -> None:
    ran = world.attempt("kept = []\nwhile True: kept.append(bytearray(b'x' * 2**20))")
    assert ran.ended is Ended.MEMORY or (ran.ended is Ended.EXIT and "MemoryError" in ran.stderr)


def test_memory_is_limited_for_all_processes_together(world: World) -> None:
    code = """
def child():
    kept = bytearray(b'x') * (24 * 2**20)
    time.sleep(9)
for _ in range(8):
    if os.fork() == 0:
        child()
time.sleep(9)
"""
    ran = world.attempt(code)
    assert ran.ended is Ended.MEMORY or (ran.ended is Ended.EXIT and "fork" in ran.stderr)


def test_memory_that_no_process_holds_is_limited(world: World) -> None:
    code = """
import ctypes
made = getattr(os, 'memfd_create', None)
for _ in range(64):
    refused(lambda: os.write(os.memfd_create('x'), b'x' * 2**20))
    if made is None: break
libc = ctypes.CDLL(None, use_errno=True)
print('DONE' if libc.shmget(0, 64 * 2**20, 0o1600) >= 0 else 'refused')
"""
    if world.sandbox.name == "gvisor":
        pytest.skip("its kernel counts both among the guest's memory")
    ran = world.attempt(code)
    assert "DONE" not in ran.stdout


@pytest.mark.parametrize("place", [".", "/tmp", "/dev/shm"])
def test_the_disk_cannot_be_filled(world: World, place: str) -> None:
    code = f"""
kept = []
for number in range(64):
    file = open('{place}/%d' % number, 'wb')
    file.write(b'x' * 2**20); file.flush()
    os.unlink(file.name) if number % 2 else None
    kept.append(file)
"""
    started = time.monotonic()
    ran = world.attempt(code)
    assert ran.ended is Ended.DISK or (ran.code == 1 and "Error" in ran.stderr)
    slack = 32 if world.sandbox.name == "wasm" else 1  # there it depends on timely polling
    assert sum(world.sandbox.files().values()) <= SMALL.disk_bytes + slack * 2**20
    assert time.monotonic() - started < SMALL.seconds


def test_one_file_has_a_largest_size(world: World) -> None:
    ran = world.attempt("with open('big', 'wb') as f:\n    while True: f.write(b'x' * 65536)")
    assert ran.ended is Ended.DISK or (ran.ended is Ended.EXIT and "Error" in ran.stderr)
    assert world.sandbox.files().get("big", 0) <= SMALL.file_bytes


def test_files_without_bytes_are_limited_too(world: World) -> None:
    if world.sandbox.name == "wasm":
        pytest.skip("its folder lies on the disk of this machine, which counts bytes only")
    ran = world.attempt("for number in range(20000): open(str(number), 'w').close()")
    assert ran.ended is Ended.DISK or (ran.code == 1 and "No space" in ran.stderr)
    assert len(world.sandbox.files()) <= SMALL.disk_bytes // 4096


def test_processes_of_this_machine_cannot_be_signalled(world: World) -> None:
    code = f"""
import signal
for pid in ({world.victim.pid}, {os.getpid()}, {os.getppid()}):
    refused(lambda: os.kill(pid, 9))
"""
    only_refusals(world.attempt(code))
    world.attempt("import os\nos.kill(-1, 9) if hasattr(os, 'kill') else None")


def test_processes_cannot_be_traced_or_looked_into(world: World) -> None:
    code = f"""
try:
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    for pid in ({world.victim.pid}, 1):
        print('DONE' if libc.ptrace(16, pid, 0, 0) == 0 else 'refused')
    print('DONE' if libc.syscall(310, {world.victim.pid}, 0, 0, 0, 0, 0) >= 0 else 'refused')
except (ImportError, AttributeError, OSError):
    print('refused')
refused(lambda: open('/proc/{world.victim.pid}/mem', 'rb'))
refused(lambda: open('/proc/1/mem', 'rb').read(1))
"""
    only_refusals(world.attempt(code))


def test_the_process_list_shows_nothing_of_this_machine(world: World) -> None:
    code = """
try: names = os.listdir('/proc')
except OSError: names = []
for pid in filter(str.isdigit, names):
    for name in ('cmdline', 'environ'):
        try: print(open(f'/proc/{pid}/{name}').read())
        except OSError: pass
print('processes', len(list(filter(str.isdigit, names))))
"""
    ran = world.attempt(code)  # searches for the victim's mark and the caller's password
    assert ran.code == 0 and int(ran.stdout.split()[-1]) < 8


def test_the_callers_environment_is_not_inherited(world: World) -> None:
    ran = world.attempt("print(sorted(os.environ))")
    names = {"HOME", "LANG", "PATH", "PWD", "PYTHONDONTWRITEBYTECODE", "TMPDIR", "LC_CTYPE"}
    assert set(eval(ran.stdout)) <= names


def test_no_descriptor_of_the_caller_is_inherited(world: World) -> None:
    if world.sandbox.name == "wasm":
        pytest.skip("descriptors of its own are no descriptors of this machine")
    ran = world.attempt("""
found = []
for number in range(3, 256):
    try: os.fstat(number); found.append(number)
    except OSError: pass
print(found)
""")
    assert ran.stdout == "[]\n", ran


def test_links_lead_nowhere(world: World) -> None:
    secret = world.place / "secret"
    code = f"""
for name, target in (('link', {str(secret)!r}), ('up', '../' * 9 + {str(secret)!r}[1:]),
                     ('folder', {str(world.place)!r})):
    try: os.symlink(target, name)
    except OSError: pass
try: os.link({str(secret)!r}, 'hard')
except OSError: pass
refused(os.link, '/usr/bin/env', 'hard')
refused(lambda: open('link').read())
print('linked' if os.path.islink('folder') else 'unlinkable')
"""
    ran = world.attempt(code)
    assert "DONE" not in ran.stdout
    sandbox = world.sandbox
    for name in ("link", "up", "folder/secret", "hard"):
        with pytest.raises(InputError):
            sandbox.read(name)
    assert sandbox.files() == {}
    assert SECRET.encode() not in sandbox.save() and b"secret" not in sandbox.save()
    sandbox.write("link", b"new")  # replaces the link, and does not follow it
    if "linked" in ran.stdout.split():
        with pytest.raises(InputError):
            sandbox.write("folder/planted", b"new")
    assert secret.read_text() == SECRET and os.listdir(world.place) == ["secret"]


def test_what_is_no_plain_file_is_neither_read_nor_saved(world: World) -> None:
    code = """
try: os.mkfifo('fifo')
except (OSError, AttributeError): pass
refused(lambda: os.mknod('device', 0o20666, os.makedev(1, 5)))
os.makedirs('/'.join(['d'] * 200))
"""
    ran = world.attempt(code)
    assert ran.stdout == "refused\n"
    with pytest.raises(InputError):
        world.sandbox.read("fifo")
    assert world.sandbox.files() == {}
    assert b"fifo" not in world.sandbox.save()


def test_the_kernel_is_not_asked_for_more_rights(world: World) -> None:
    code = """
try:
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    calls = {'unshare user': (272, 0x10000000), 'mount': (165, b'none', b'/tmp', b'tmpfs', 0, 0),
             'keyctl': (250, 0, -3, 1), 'bpf': (321, 0, 0, 0), 'perf': (298, 0, 0, -1, -1, 0),
             'userfaultfd': (323, 0), 'io_uring': (425, 1, 0), 'setns': (308, 0, 0),
             'chroot': (161, b'/tmp'), 'kexec': (246, 0, 0, 0, 0), 'module': (175, 0, 0, 0),
             'clone user': (56, 0x10000000 | 17, 0, 0, 0, 0), 'setuid': (105, 0)}
    for name, call in calls.items():
        result = libc.syscall(*call)
        print('refused' if result < 0 else f'DONE {name}')
except (ImportError, AttributeError, OSError):
    print('refused')
"""
    if os.uname().machine != "x86_64":
        pytest.skip("the numbers of the calls are those of x86_64")
    if world.sandbox.name == "gvisor":
        pytest.skip("its kernel, not this machine's, grants what it grants")
    only_refusals(world.attempt(code))


def test_calls_that_linux_got_later_do_not_exist(world: World) -> None:
    """statmount, listmount, lsm_get_self_attr, mseal, open_tree_attr and all after them."""
    code = """
try:
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    for number in (*range(457, 600), 2**30 + 39):
        if libc.syscall(number, 0, 0, 0, 0, 0, 0) >= 0 or ctypes.get_errno() != errno.ENOSYS:
            print('DONE', number, ctypes.get_errno())
except (ImportError, AttributeError):
    pass
print('refused')
"""
    if world.sandbox.name == "gvisor":
        pytest.skip("its kernel, not this machine's, grants what it grants")
    only_refusals(world.attempt(code))


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_flood_of_output_ends_the_program(world: World, name: str) -> None:
    ran = world.attempt(f"while True: sys.{name}.write('x' * 4096)")
    assert ran.ended is Ended.OUTPUT
    assert len(ran.stdout) + len(ran.stderr) <= 2 * SMALL.output_bytes


def test_an_endless_loop_ends_at_the_limit_of_its_processor_time(world: World) -> None:
    slow_start = 2.0 if world.sandbox.name != "bubblewrap" else 0.3
    ran = world.attempt("while True: pass", cpu_seconds=slow_start, seconds=20.0)
    assert ran.ended is Ended.CPU and ran.code is None


def test_a_program_that_ignores_signals_ends_at_the_wall_limit(world: World) -> None:
    code = """
try:
    import signal
    for number in range(1, 32):
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
except ImportError: pass
while True: time.sleep(0.05)
"""
    ran = world.attempt(code, seconds=0.4)
    assert ran.ended is Ended.SECONDS and ran.seconds < 8


def test_daemons_and_zombies_die_with_their_program(world: World) -> None:
    mark = f"mark-{uuid.uuid4().hex}"
    code = f"""
if not hasattr(os, 'fork'): sys.exit(0)
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in range(3): os.close(number)
            os.execvp('python3', ['python3', '-c', 'import time; time.sleep(600)', '{mark}'])
        os._exit(0)
for _ in range(4):
    if os.fork() == 0: os._exit(0)  # nobody waits for these
time.sleep(0.1)
"""
    before = set(_children())  # a test that came earlier may have left some
    ran = world.attempt(code)
    assert ran.code == 0, ran
    assert alive_with(mark) == []
    assert not [child for child in set(_children()) - before if _state(child) == "Z"]


def test_a_program_that_goes_on_is_contained_like_any_other(world: World) -> None:
    program = world.sandbox.start(["python3", "-c", "while True: print('x' * 1000)"], limits=SMALL)
    until = time.monotonic() + 8
    while time.monotonic() < until:
        time.sleep(0.05)
        try:
            program.send("anything")
        except BrokenPipeError:
            break
    assert program.close().ended is Ended.OUTPUT
    world.still_works()


def _children() -> list[str]:
    folder = Path(f"/proc/{os.getpid()}/task")
    return [pid for task in folder.iterdir() for pid in (task / "children").read_text().split()]


def _state(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


@pytest.fixture(scope="module")
def plain() -> Iterator[Sandbox]:
    skip_unless_here("unsafe")
    opened = KINDS["unsafe"](Settings(SMALL))
    yield opened
    opened.close()


class TestTheUnsafeOne:
    """It promises limits and a clean end, for programs that do not try to escape."""

    @pytest.mark.parametrize(
        ("code", "limits", "ended"),
        [
            ("while True: pass", {"cpu_seconds": 0.2}, Ended.CPU),
            ("import time; time.sleep(9)", {"seconds": 0.2}, Ended.SECONDS),
            ("while True: print('x' * 4096)", {}, Ended.OUTPUT),
            ("import time; x = bytearray(b'x') * (128 * 2**20); time.sleep(9)", {}, Ended.MEMORY),
        ],
    )
    def test_limits_end_a_program(
        self, plain: Sandbox, code: str, limits: dict[str, float], ended: Ended
    ) -> None:
        chosen = replace(SMALL, **limits)  # type: ignore[arg-type]
        assert plain.run(["python3", "-c", code], limits=chosen).ended is ended

    def test_its_files_have_a_largest_size(self, plain: Sandbox) -> None:
        plain.run(["python3", "-c", "open('big', 'wb').write(b'x' * 2**23)"])
        assert plain.files().get("big", 0) <= SMALL.file_bytes

    def test_daemons_die_with_their_program(self, plain: Sandbox) -> None:
        mark = f"mark-{uuid.uuid4().hex}"
        plain.run(["sh", "-c", f"(setsid python3 -c 'import time; time.sleep(60)' {mark} &) ; :"])
        assert alive_with(mark) == []

    def test_the_callers_environment_is_not_inherited(
        self, plain: Sandbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PALAESTRA_TEST_PASSWORD", PASSWORD)
        assert PASSWORD not in plain.run(["env"]).stdout
