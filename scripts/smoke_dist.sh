#!/bin/sh
# Builds the wheel and the sdist, and uses both as a stranger would, far from the checkout: in a new
# environment for each Python named, first the wheel, then, where the wheel was removed, the sdist.
# A failure is told and the rest is tried; the table at the end says what was tried, and how it went.
#
#   scripts/smoke_dist.sh python3.11 python3.12      these; without any: 3.11 to 3.14
#
# PIP_ARGS  further options for `pip install`
set -eu
cd "$(dirname "$0")/.."
here=$(pwd -P)
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1
[ $# -gt 0 ] || set -- python3.11 python3.12 python3.13 python3.14

rm -rf dist build
.venv/bin/python -m build --outdir dist .
.venv/bin/python scripts/dist_contents.py dist/*.whl dist/*.tar.gz

# shellcheck disable=SC2086 # PIP_ARGS is a list of options
install() {
    "$folder/venv/bin/python" -m pip install --quiet --no-input ${PIP_ARGS:-} \
        -c "$here/constraints.txt" "$@"
}

smoke() { # what a stranger tries first; $1: an empty folder to try it in
    mkdir "$1"
    cd "$1"
    export PALAESTRA_RUNS="$1/runs"
    "$folder/venv/bin/palaestra" --version
    "$folder/venv/bin/palaestra" list environments >list.txt
    grep -q probe list.txt
    "$folder/venv/bin/palaestra" list recipes >recipes.txt
    grep -q quick recipes.txt
    "$folder/venv/bin/palaestra" eval --env probe/umbrella-4 --model random -n 4 --json >eval.json
    "$folder/venv/bin/python" - <<'END'
from pathlib import Path

import palaestra as pa

assert "site-packages" in pa.__file__, pa.__file__
assert all(getattr(pa, name) for name in pa.__all__)
results = pa.evaluate("probe/umbrella-4", model="random", n=4, progress=False)
assert results.complete, results
sizes = {"name": "tiny", "context": 512, "tiny": {"layers": 1, "width": 32, "heads": 2}}
run = pa.train(
    "quick",
    env="probe/umbrella-4",
    model=sizes,
    environment={"workers": 0},
    imitation={"demonstrations": 4, "epochs": 1},
    rl={"steps": 1, "tasks": 2, "group": 2},
    evaluation={"tasks": 4},
    progress=False,
)
assert (Path(run.final) / "model.safetensors").is_file()
END
    "$folder/venv/bin/palaestra" new environment my_world >/dev/null
}

try() { # $1: a distribution, $2: an empty folder; in a shell of its own, which ends at a failure
    (
        set -e
        install torch
        install "$here/$1[viewer,serving]"
        smoke "$2"
    )
}

row() {
    table="$table$(printf '%-12s %-34s %s' "$1" "$2" "$3")
"
}

table=""
failed=0
tried=0
for python in "$@"; do
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        row "$python" "-" "not tried: no such Python here, or it cannot make environments"
        continue
    fi
    version=$("$python" -c 'import platform; print(platform.python_version())')
    folder=$(mktemp -d)
    "$python" -m venv "$folder/venv"
    for file in dist/*.whl dist/*.tar.gz; do
        echo "== Python $version: $file"
        began=$(date +%s)
        # Not as a condition, where a shell would go on after a failure.
        set +e
        try "$file" "$folder/${file##*.}"
        status=$?
        set -e
        took=$(($(date +%s) - began))
        tried=$((tried + 1))
        if [ $status -eq 0 ]; then
            row "$version" "${file#dist/}" "passed in $took s"
        else
            row "$version" "${file#dist/}" "FAILED after $took s"
            failed=$((failed + 1))
        fi
        "$folder/venv/bin/python" -m pip uninstall --quiet --yes palaestra || true
    done
    rm -rf "$folder"
done
printf '\n%-12s %-34s %s\n%s' Python distribution result "$table"
[ $tried -gt 0 ] && [ $failed -eq 0 ]
