#!/bin/sh
# Runs tests/environments with every family's package: `make check-environments`.
#
#     scripts/check_environments.sh [NAME …] [PYTEST-OPTION …]
#
# The packages go into an environment of their own, .peers/environments, on top of .venv, made
# where it does not fit yet: what they hold back or bring along touches nothing else. A NAME is a
# family, such as babyai: only the tests of the families named are run. Two families cannot live
# beside others (OpenEnv's servers want an old mcp, verifiers an exact one): their tests run in an
# environment of their own, .peers/NAME, by name or if nothing is given. All tests are run, the slow
# ones too, which try every name of a family; options go to pytest, such as `-m "not slow"`.
#
# PIP_ARGS  further options for `pip install`
set -eu
cd "$(dirname "$0")/.."
names=
while [ $# -gt 0 ] && [ "${1#-}" = "$1" ]; do
    if [ ! -f "tests/environments/families/test_$1.py" ]; then
        echo "palaestra: there is no family '$1'; name some of:" \
            "$(ls tests/environments/families | sed -n 's/^test_\(.*\)\.py$/\1/p' | tr '\n' ' ')" >&2
        exit 2
    fi
    names="$names $1"
    shift
done
apart="openenv verifiers"
[ $# -eq 0 ] || apart=
scripts/setup.sh dev
place=.peers/environments
python=$place/bin/python
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1

fingerprint() {
    cat pyproject.toml constraints.txt requirements/*.txt scripts/check_environments.sh | cksum
}

packages() {
    .venv/bin/python -c 'import pathlib, tomllib
project = tomllib.loads(pathlib.Path("pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
named = " ".join(extras["all-environments"]).replace("]", "").replace(" ", ",").split(",")
for extra in (name.split("[")[-1] for name in named):
    print(*extras.get(extra, []), sep="\n")'
}

site() {
    "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
}

together() {
    if [ ! -f $place/.ready ] || [ "$(cat $place/.ready)" != "$(fingerprint)" ]; then
        echo "Making $place with every environment's package; this takes some minutes, once."
        rm -rf $place
        .venv/bin/python -m venv $place
        printf '%s\n%s\n' "$(site .venv/bin/python)" "$(pwd -P)/src" >"$(site $python)/palaestra.pth"
        packages >$place/packages.txt
        # PIP_ARGS is a list of options: it must be split at its spaces.
        # shellcheck disable=SC2086
        $python -m pip install --no-input --quiet ${PIP_ARGS:-} -c constraints.txt -r $place/packages.txt
        for list in requirements/*.txt; do
            # shellcheck disable=SC2086
            $python -m pip install --no-input --quiet ${PIP_ARGS:-} --no-deps -r "$list"
        done
        fingerprint >$place/.ready
    fi
    $python -m pytest "$@"
}

apart() {
    own=.peers/$1
    if [ ! -f "$own/.ready" ] || [ "$(cat "$own/.ready")" != "$2" ]; then
        echo "Making $own with $2; this takes some minutes, once."
        rm -rf "$own"
        .venv/bin/python -m venv "$own"
        # shellcheck disable=SC2086
        "$own/bin/python" -m pip install --no-input --quiet ${PIP_ARGS:-} "$2"
        printf '%s\n%s\n' "$(site .venv/bin/python)" "$(pwd -P)/src" \
            >"$(site "$own/bin/python")/zz-palaestra.pth" # behind what it has itself
        echo "$2" >"$own/.ready"
    fi
    name=$1
    shift 2
    "$own/bin/python" -m pytest "tests/environments/families/test_$name.py" "$@"
}

[ -n "$names" ] || together tests/environments "$@"
for name in ${names:-$apart}; do
    case $name in
        openenv) apart openenv openenv==0.10.0 "$@" ;;
        verifiers) apart verifiers verifiers==0.4.0 "$@" ;;
        *) together "tests/environments/families/test_$name.py" "$@" ;;
    esac
done
