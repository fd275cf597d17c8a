"""Guarantees of every sandbox to well-behaved programs."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from palaestra.core.errors import InputError, MissingSystemPart, UnknownName
from palaestra.sandbox import factory
from palaestra.sandbox.base import WORK, Ended, Limits, Mount, Sandbox, Settings
from palaestra.sandbox.factory import KINDS, kinds, open_sandbox
from palaestra.sandbox.mounts import python_mounts
from palaestra.sandbox.unsafe import PlainSandbox
from tests.sandbox.kinds import WALLED, parameters, skip_unless_here

ECHO = "import sys\nfor line in sys.stdin: print(line.strip().upper(), flush=True)"


@pytest.fixture(scope="module", params=parameters(list(KINDS)))
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    skip_unless_here(request.param)
    opened = open_sandbox(request.param, Settings(environment={"COLOUR": "blue"}))
    yield opened
    opened.close()


@pytest.fixture
def bubblewrap(request: pytest.FixtureRequest) -> Iterator[list[Sandbox]]:
    """Yield a list of sandboxes that are closed after the test."""
    skip_unless_here("bubblewrap")
    opened: list[Sandbox] = []
    yield opened
    for one in opened:
        one.close()


def test_a_program_gets_its_input_and_gives_code_and_output(sandbox: Sandbox) -> None:
    code = "import sys; print(sys.stdin.read()[::-1]); sys.stderr.write('oh'); sys.exit(3)"
    ran = sandbox.run(["python3", "-c", code], input="abc")
    assert (ran.code, ran.stdout, ran.stderr, ran.ended) == (3, "cba\n", "oh", Ended.EXIT)


def test_large_input_and_output_pass_each_other(sandbox: Sandbox) -> None:
    text = "x" * 500_000
    ran = sandbox.run(["python3", "-c", "import sys; print(sys.stdin.read())"], input=text)
    assert ran.stdout == text + "\n"


def test_a_command_that_does_not_exist_is_an_outcome(sandbox: Sandbox) -> None:
    ran = sandbox.run(["no-such-program"])
    assert ran.ended is Ended.EXIT and ran.code not in (0, None) and ran.stderr


def test_files_go_in_and_come_out(sandbox: Sandbox) -> None:
    sandbox.write("in/numbers", b"1 2 3")
    code = (
        "import os; print(sum(map(int, open('in/numbers').read().split())), file=open('out','w'))"
    )
    assert sandbox.run(["python3", "-c", code]).code == 0
    assert sandbox.read("out") == b"6\n" and sandbox.files()["out"] == 2
    if sandbox.name != "unsafe":
        assert sandbox.read(f"{WORK}/out") == b"6\n"


def test_the_environment_is_what_was_given(sandbox: Sandbox) -> None:
    ran = sandbox.run(["python3", "-c", "import os; print(os.environ['COLOUR'])"])
    assert ran.stdout == "blue\n"


def test_a_saved_folder_comes_back_byte_for_byte(sandbox: Sandbox) -> None:
    sandbox.write("kept/a", b"before")
    saved = sandbox.save()
    code = "import os; os.remove('kept/a'); os.rmdir('kept'); open('new', 'w').close()"
    assert sandbox.run(["python3", "-c", code]).code == 0
    sandbox.restore(saved)
    assert sandbox.save() == saved and sandbox.read("kept/a") == b"before"
    assert "new" not in sandbox.files()
    code = "open('kept/a', 'a').write(' after'); print(open('kept/a').read())"
    assert sandbox.run(["python3", "-c", code]).stdout == "before after\n"


def test_a_program_goes_on_between_calls(sandbox: Sandbox) -> None:
    program = sandbox.start(["python3", "-c", ECHO])
    for word in ("one", "two"):
        program.send(word)
        assert program.receive(10.0) == word.upper()
    with pytest.raises(TimeoutError):
        program.receive(0.02)
    program.send("three")
    assert program.receive(10.0) == "THREE"
    program.close()
    with pytest.raises(BrokenPipeError):
        program.send("four")


def test_a_program_that_ends_by_itself_explains_how(sandbox: Sandbox) -> None:
    program = sandbox.start(["python3", "-c", "import sys; print('last', end=''); sys.exit(5)"])
    assert program.receive(10.0) == "last"
    with pytest.raises(EOFError):
        program.receive(10.0)
    assert program.close().code == 5


def test_programs_run_beside_each_other_in_one_folder(sandbox: Sandbox) -> None:
    program = sandbox.start(["python3", "-c", "input(); print(open('shared').read(), flush=True)"])
    assert sandbox.run(["python3", "-c", "open('shared', 'w').write('seen')"]).code == 0
    program.send("")
    assert program.receive(10.0) == "seen"


def test_closing_a_sandbox_ends_its_programs_and_removes_its_folder() -> None:
    sandbox = PlainSandbox()
    program = sandbox.start(["sleep", "60"])
    folder = sandbox.folder.path
    sandbox.close()
    assert program.close().code is None and not folder.exists()
    with pytest.raises(InputError, match="closed"):
        sandbox.run(["true"])


def test_a_program_started_by_a_thread_that_ends_goes_on(bubblewrap: list[Sandbox]) -> None:
    bubblewrap.append(open_sandbox("bubblewrap"))
    programs = []
    thread = threading.Thread(
        target=lambda: programs.append(bubblewrap[0].start(["python3", "-c", ECHO]))
    )
    thread.start()
    thread.join()
    time.sleep(0.1)
    programs[0].send("still here")
    assert programs[0].receive(10.0) == "STILL HERE"


def test_a_mount_is_seen_and_not_written(bubblewrap: list[Sandbox], open_folder: Path) -> None:
    (open_folder / "data").write_text("seen")
    (open_folder / "data").chmod(0o666)
    bubblewrap.append(open_sandbox("bubblewrap", Settings(mounts=(Mount(open_folder, "/data"),))))
    ran = bubblewrap[0].run(["sh", "-c", "cat /data/data; echo x > /data/data"])
    assert ran.stdout == "seen" and ran.code != 0
    assert (open_folder / "data").read_text() == "seen"


def test_a_mount_for_writing_is_written(bubblewrap: list[Sandbox], open_folder: Path) -> None:
    mount = Mount(open_folder, "/data", writable=True)
    bubblewrap.append(open_sandbox("bubblewrap", Settings(mounts=(mount,))))
    assert bubblewrap[0].run(["sh", "-c", "echo x > /data/new"]).code == 0
    assert (open_folder / "new").read_text() == "x\n"


def test_the_python_of_the_caller_can_be_seen_inside(bubblewrap: list[Sandbox]) -> None:
    bubblewrap.append(open_sandbox("bubblewrap", Settings(mounts=python_mounts())))
    ran = bubblewrap[0].run([sys.executable, "-c", "import sys; print(sys.version)"])
    assert ran.stdout.strip() == sys.version


def test_a_granted_host_and_no_other_is_reached(bubblewrap: list[Sandbox]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host = f"localhost:{server.getsockname()[1]}"
        bubblewrap.append(open_sandbox("bubblewrap", Settings(hosts=(host,))))
        code = """
import os, socket
name, path = os.environ['PALAESTRA_HOSTS'].split()[0].split('=')
with socket.socket(socket.AF_UNIX) as at:
    at.connect(path)
    at.sendall(b'hello')
    at.shutdown(socket.SHUT_WR)
    print(name, at.recv(99).decode())
try: socket.create_connection(('127.0.0.1', int(name.split(':')[1])), 1)
except OSError: print('no other way')
"""

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(connection.recv(99).upper())

        threading.Thread(target=answer, daemon=True).start()
        ran = bubblewrap[0].run(["python3", "-c", code])
    assert ran.stdout == f"{host} HELLO\nno other way\n", ran


@pytest.mark.parametrize("kind", parameters(["unsafe", "wasm", "gvisor"]))
def test_hosts_are_refused_where_they_cannot_be_granted(kind: str) -> None:
    skip_unless_here(kind)
    with pytest.raises(InputError, match="host"):
        open_sandbox(kind, Settings(hosts=("example.org:443",)))


@pytest.mark.parametrize(
    "settings",
    [
        Settings(hosts=("example.org",)),
        Settings(hosts=("example.org:99999",)),
        Settings(environment={"A=B": "c"}),
        Settings(mounts=(Mount(Path("/no/such/place"), "/data"),)),
        Settings(mounts=(Mount(Path("/usr"), "data"),)),
        Settings(mounts=(Mount(Path("/usr"), "/proc/1"),)),
        Settings(mounts=(Mount(Path("/usr"), "/data/../etc"),)),
    ],
)
def test_settings_that_cannot_be_are_refused_with_a_reason(settings: Settings) -> None:
    skip_unless_here("bubblewrap")
    with pytest.raises(InputError) as caught:
        open_sandbox("bubblewrap", settings)
    assert "\n" not in str(caught.value) and len(str(caught.value)) > 40


@pytest.mark.parametrize("command", [[], "ls", ["ls", "a\0b"]])
def test_a_command_that_is_none_is_refused(command: list[str]) -> None:
    sandbox = PlainSandbox()
    try:
        with pytest.raises(InputError):
            sandbox.run(command)
    finally:
        sandbox.close()


def test_an_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="bubblewrap"):
        open_sandbox("bubblewarp")


def test_the_automatic_choice_is_never_the_unsafe_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in WALLED:
        monkeypatch.setattr(KINDS[name], "missing", classmethod(lambda cls: "It is not here."))
    with pytest.raises(MissingSystemPart, match="It is not here"):
        open_sandbox("auto")
    assert kinds() == {**dict.fromkeys(WALLED, "It is not here."), "unsafe": None}


def test_the_automatic_choice_is_the_first_that_runs() -> None:
    here = [name for name in WALLED if kinds()[name] is None]
    if not here:
        pytest.skip("no sandbox with walls can run here")
    opened = factory.open_sandbox()
    opened.close()
    assert opened.name == here[0]


def test_limits_of_one_program_need_not_be_those_of_the_sandbox(sandbox: Sandbox) -> None:
    code = "import time; time.sleep(30)"
    ran = sandbox.run(["python3", "-c", code], limits=Limits(seconds=0.3))
    assert ran.ended is Ended.SECONDS and ran.code is None
