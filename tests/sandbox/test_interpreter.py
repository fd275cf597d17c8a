"""A persistent Python interpreter and shell in a sandbox, and failing cells."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from palaestra.core.errors import InputError, MissingSystemPart
from palaestra.sandbox.base import WORK, Ended, Limits, Sandbox
from palaestra.sandbox.factory import open_sandbox
from palaestra.sandbox.interpreter import Asked, Done, Interpreter, settings
from palaestra.sandbox.shell import Shell

SECONDS = 0.5


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    sandbox = open_sandbox("unsafe", settings("unsafe", Limits()))
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="module")
def python(box: Sandbox) -> Iterator[Interpreter]:
    found = Interpreter(box, seconds=SECONDS, watch=["fit"])
    yield found
    found.close()


@pytest.fixture(scope="module")
def shell(box: Sandbox) -> Iterator[Shell]:
    found = Shell(box, seconds=3.0)
    yield found
    found.close()


def test_variables_last_from_cell_to_cell(python: Interpreter) -> None:
    assert python.run("x = 20").value is None
    assert python.run("x + 1") == Done("", "21")


def test_what_is_written_comes_back_in_order_also_by_other_programs(python: Interpreter) -> None:
    cell = "import os\nprint('one')\nos.system('echo two')\nprint('three')"
    assert python.run(cell).output == "one\ntwo\nthree\n"


def test_words_are_reported_as_they_are_and_all_else_as_python_writes_it(
    python: Interpreter,
) -> None:
    assert python.run("'a tree'").value == "a tree"
    assert python.run("['a tree']").value == "['a tree']"
    assert python.run("object()").value == "<object object at 0x…>"  # equal runs, equal text


def test_a_traceback_shows_the_cell_and_nothing_of_what_runs_it(python: Interpreter) -> None:
    error = python.run("def f():\n    return 1 / 0\nf()").error or ""
    assert "return 1 / 0" in error and error.endswith("ZeroDivisionError: division by zero")
    assert error.count("File ") == error.count('File "<cell ') == 2


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("1 +", "SyntaxError"),
        ("input()", "EOFError"),
        ("import sys; sys.exit(3)", "SystemExit"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("class Bad:\n    def __repr__(self): return 1 / 0\nBad()", "ZeroDivisionError"),
        ("\0", "null bytes"),
    ],
)
def test_no_error_of_a_cell_ends_the_interpreter(
    python: Interpreter, cell: str, words: str
) -> None:
    done = python.run(cell)
    assert words in (done.error or "") and not done.lost


def test_a_cell_that_takes_too_long_is_stopped_and_variables_are_kept(python: Interpreter) -> None:
    python.run("kept = 7")
    done = python.run("while True:\n    try:\n        while True: pass\n    except Exception: pass")
    assert done.error == "Stopped after 0.5 s; variables are kept." and not done.lost
    assert python.run("kept").value == "7"


def test_an_interpreter_that_ends_is_reported_and_a_new_one_begins(box: Sandbox) -> None:
    python = Interpreter(box, seconds=SECONDS)
    python.run("x = 1; open('file.txt', 'w').write('stays')")
    done = python.run("import os; os._exit(3)")
    assert done.lost and "variables are lost" in str(done)
    assert "NameError" in (python.run("x").error or "")
    assert python.run("open('file.txt').read()").value == "stays"
    python.close()


def test_a_lent_function_is_answered_from_outside(python: Interpreter) -> None:
    event = python.begin("seen = look('north', far=True)\nseen.upper()", ["look"])
    assert event == Asked("look", ("north",), {"far": True})
    assert python.answer("a tree") == Done("", "A TREE")


def test_a_lent_function_can_refuse_and_the_cell_can_catch_it(python: Interpreter) -> None:
    python.begin("try:\n    look(1)\nexcept RuntimeError as why:\n    print(why)", ["look"])
    assert python.refuse("no such place") == Done("no such place\n")


def test_what_json_cannot_carry_is_an_error_of_the_cell(python: Interpreter) -> None:
    event = python.begin("look(object())", ["look"])
    assert isinstance(event, Done) and "TypeError: look takes texts" in (event.error or "")


def test_a_function_that_was_not_lent_is_refused(python: Interpreter) -> None:
    with pytest.raises(InputError, match="'not-a-name' cannot be called"):
        python.begin("1", ["not-a-name"])


def test_watched_calls_are_reported_once_they_have_returned(python: Interpreter) -> None:
    cell = (
        "class M:\n    def fit(self, x): return self if x else 1 / 0\nM().fit(1).fit(2)\nM().fit(0)"
    )
    assert python.run(cell).called == ("fit", "fit")


def test_a_flood_is_cut_in_the_middle(python: Interpreter) -> None:
    output = python.run("print('a' * 100_000 + 'end')").output
    assert len(output) < 21_000 and output.endswith("end\n")


def test_equal_seeds_give_equal_chance(box: Sandbox) -> None:
    found = []
    for _ in range(2):
        python = Interpreter(box, seed=5)
        found.append(python.run("import random\nrandom.random(), list({'a', 'b', 'c'})").value)
        python.close()
    assert found[0] == found[1]


def test_folder_variables_and_functions_of_a_shell_last(shell: Shell) -> None:
    shell.run('mkdir -p deep && cd deep; A=3; f() { echo "f of $A"; }')
    assert shell.run("pwd; f").output == f"{WORK}/deep\nf of 3"
    assert shell.state.folder == f"{WORK}/deep" and "A=" in shell.state.defined
    shell.run("cd; unset A; unset -f f")


def test_what_a_command_writes_and_how_it_ends_is_reported(shell: Shell) -> None:
    replied = shell.run("echo out; echo err >&2; printf 'no end'; false")
    assert (replied.output, replied.code) == ("out\nerr\nno end", 1)


@pytest.mark.parametrize(
    "command", ['it\'s \\ "quoted" $HOME', "cat <<'X'\na'b\\n$c\nX", "echo 'a\n\nb'", "cat", "((("]
)
def test_any_command_comes_to_an_end_and_the_shell_goes_on(shell: Shell, command: str) -> None:
    assert shell.run(command).ended is Ended.EXIT
    assert shell.run("echo on").output == "on"


def test_words_of_several_lines_arrive_as_they_are(shell: Shell) -> None:
    assert shell.run("cat <<'X'\na'b\\n$c\n\n  ü\nX").output == "a'b\\n$c\n\n  ü"


def test_a_shell_that_is_lost_begins_again_where_it_was(box: Sandbox) -> None:
    shell = Shell(box, seconds=SECONDS)
    shell.run("mkdir -p here && cd here; A=3")
    replied = shell.run("sleep 60")
    assert replied.ended is Ended.SECONDS and replied.code is None
    assert shell.run("pwd; echo $A").output == f"{WORK}/here\n3"
    assert "ended" in shell.run("exit 4").output
    assert shell.run("pwd; echo $A").output == f"{WORK}/here\n3"
    shell.close()


def test_a_place_is_taken_up_by_another_shell(box: Sandbox) -> None:
    one, other = Shell(box), Shell(box)
    one.run("mkdir -p there && cd there; B='x y'; g() { echo \"$B\"; }; alias ll='ls -l'")
    other.go(one.state)
    assert other.run("pwd; g").output == f"{WORK}/there\nx y"
    assert other.state == one.state
    one.close(), other.close()


def test_a_sandbox_without_a_shell_is_reported_in_one_sentence(
    box: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palaestra.sandbox.shell.COMMAND", ("false",))
    with pytest.raises(MissingSystemPart, match="'unsafe' cannot run bash"):
        Shell(box).run("ls")


def test_both_run_within_walls() -> None:
    try:
        box = open_sandbox("auto", settings("auto", Limits()))
    except MissingSystemPart as error:
        pytest.skip(str(error))
    python, shell = Interpreter(box), Shell(box)
    assert python.run("import sys; sys.version").value == sys.version
    assert shell.run("pwd; python3 -c 'print(6 * 7)'").output == f"{WORK}\n42"
    python.close(), shell.close(), box.close()
