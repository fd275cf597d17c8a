#!/bin/sh
# Compares the learning library with verl and TRL: `make check-peers`.
#
# Each peer has a virtual environment of its own in .peers, made where it does not fit yet.
# palaestra is not installed there but read from src: of what it needs, what is compared
# imports only torch and numpy. Arguments go to pytest.
#
# PYTHON    the interpreter to use; otherwise a suitable one is looked for
# PIP_ARGS  further options for `pip install`
# PEERS     the peers to compare with; both, if it is not set
set -eu
cd "$(dirname "$0")/.."
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1

fail() {
    echo "palaestra: $1" >&2
    exit 1
}

# Of the peer and what it holds back; torch, numpy and pytest are those of constraints.txt.
versions() {
    case $1 in
        verl) echo "verl==0.9.1 transformers==5.10.4 tensordict==0.10.0" ;;
        trl) echo "trl==1.16.0 transformers==5.23.0" ;;
        *) fail "PEERS names '$1', which is not known; leave PEERS out, or name verl or trl." ;;
    esac
}

fingerprint() {
    cat constraints.txt scripts/check_peers.sh | cksum
}

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        set -- "$PYTHON"
    else
        set -- python3.13 python3.12 python3.11 python3 python
    fi
    for candidate in "$@"; do
        if "$candidate" -c 'import ensurepip, sys, venv
raise SystemExit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
            found=$candidate
            return
        fi
    done
    fail "No Python from 3.11 to 3.13 that can make virtual environments was found; name one\
 with PYTHON=/path/to/python3."
}

install() {
    # PIP_ARGS is a list of options: it must be split at its spaces.
    # shellcheck disable=SC2086
    "$python" -m pip install --no-input --quiet ${PIP_ARGS:-} -c .peers/constraints.txt "$@"
}

prepare() {
    pinned=$(versions "$1")
    python=.peers/$1/bin/python
    stamp=.peers/$1/.ready
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(fingerprint)" ] &&
        "$python" -m pytest --version >/dev/null 2>&1; then
        return
    fi
    find_python
    echo "Installing $pinned into .peers/$1; this takes some minutes, once."
    rm -rf ".peers/$1"
    mkdir -p .peers
    "$found" -m venv ".peers/$1"
    grep -E '^(hypothesis|numpy|pytest|torch)==' constraints.txt >.peers/constraints.txt
    install torch # before the peer, so that PIP_ARGS alone decides on its build
    # shellcheck disable=SC2086 # a list
    install $pinned numpy pytest hypothesis
    fingerprint >"$stamp"
}

failed=
for peer in ${PEERS:-verl trl}; do
    prepare "$peer"
    echo "Comparing with $(versions "$peer")"
    # pytest fails where it has nothing to run: a peer that cannot be imported is no success
    PYTHONPATH=src HF_HUB_OFFLINE=1 "$python" -m pytest -q -W ignore::FutureWarning \
        -m "$peer" "tests/peers/test_$peer"*.py "$@" || failed="$failed $peer"
done
[ -z "$failed" ] || fail "the comparison failed with:$failed"
