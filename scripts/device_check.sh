#!/bin/sh
# Tries on a CUDA device all that needs one, in about ten minutes, and writes one file:
#
#   scripts/device_check.sh [FOLDER]     the answer is in FOLDER/device_check.md
#
# Measurements come first, each alone; then recipes, tests and repeated runs side by side. A part
# that fails or runs out of time does not stop the others; the exit code is the number of such parts.
#
# PYTHON  of an environment with palaestra and its development packages; otherwise .venv's
# PARTS   the parts to run, of those named below; otherwise all
# ANYWAY  set, it also runs where there is no CUDA device (on processors this takes hours)
set -u
cd "$(dirname "$0")/.."
out=${1:-device_check}
python=${PYTHON:-.venv/bin/python}
command -v "$python" >/dev/null || {
    echo "palaestra: There is no '$python'; run scripts/setup.sh dev, or set PYTHON." >&2
    exit 2
}
[ -n "${ANYWAY:-}" ] || "$python" -c 'import torch; raise SystemExit(not torch.cuda.is_available())' || {
    echo "palaestra: torch finds no CUDA device; install torch with CUDA, or set ANYWAY=1." >&2
    exit 2
}
mkdir -p "$out"
rm -f "$out"/*.log "$out"/*.code
report=$out/device_check.md
PATH=$(dirname "$python"):$PATH
export PATH PYTHONUNBUFFERED=1

# part NAME SECONDS COMMAND…: its output goes to NAME.log, its exit code to NAME.code.
part() {
    name=$1 limit=$2
    shift 2
    case " ${PARTS:-$name} " in *" $name "*) ;; *) return 0 ;; esac
    echo "$name" >&2
    echo "$*" >"$out/$name.command"
    start=$(date +%s)
    timeout "$limit" "$@" >"$out/$name.log" 2>&1
    echo "$?" >"$out/$name.code"
    echo "$(($(date +%s) - start))" >"$out/$name.seconds"
}

train() { # NAME SECONDS RECIPE KEYS…: a run in the folder NAME
    name=$1 limit=$2 recipe=$3
    shift 3
    rm -rf "${out:?}/runs/$name"
    part "$name" "$limit" "$python" -m palaestra train "$recipe" --run "$out/runs/$name" --set "$@"
}

twice() { # the same deterministic run two times
    train "again_$1" 240 quick deterministic=true rl.steps=5 seed=1 evaluation.tasks=32
}

section() { # NAME LINES: what a part said last
    [ -f "$out/$1.code" ] || return 0
    printf '\n## %s\n\nexit %s after %s s: `%s`\n\n```\n' "$1" \
        "$(cat "$out/$1.code")" "$(cat "$out/$1.seconds")" "$(cat "$out/$1.command")"
    tail -n "$2" "$out/$1.log"
    printf '```\n'
}

memory=$("$python" -c 'import torch
print(torch.cuda.get_device_properties(0).total_memory // 10**9 if torch.cuda.is_available() else 0)')
part doctor 60 "$python" -m palaestra doctor
for benchmark in decode learner rollout learner_trl step_trl; do
    part "$benchmark" 120 "$python" "benchmarks/$benchmark.py"
done
part long 90 "$python" benchmarks/sizes.py --model 135m --context 32768 --batch 2 --rounds 2
part half 90 "$python" benchmarks/sizes.py --model 0.5b --context 2048 --batch 16 --weights full
part one 90 "$python" benchmarks/sizes.py --model 1b --context 2048 --batch 64
[ "$memory" -lt 40 ] || part eight 120 "$python" benchmarks/sizes.py --model 8b --batch 16 --rounds 2

for seed in 1 2 3; do
    train "default_$seed" 300 default "seed=$seed" &
done
train fp32 300 default seed=1 model.precision=fp32 &
train lora 300 default seed=1 training.weights=lora training.lora_rank=16 training.top_layers= \
    rl.steps=8 &
(twice 1; twice 2) &
part tests 300 "$python" -m pytest -q -n 6 -m "not slow" tests/models tests/learning tests/training &
wait

{
    printf '# What a device did\n\n%s, commit %s\n\n```\n' "$(date -u +%Y-%m-%d)" \
        "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
    nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv 2>&1
    printf '```\n'
    first=$out/runs/again_1/final/model.safetensors second=$out/runs/again_2/final/model.safetensors
    if [ -f "$first" ] && [ -f "$second" ]; then
        cmp -s "$first" "$second" && same=equal || same='NOT equal'
        printf '\nTwo deterministic runs of one seed end in weights that are %s.\n' "$same"
    fi
    for name in doctor decode learner rollout learner_trl step_trl long half one eight; do
        section "$name" 12
    done
    for name in default_1 default_2 default_3 fp32 lora again_1 again_2 tests; do
        section "$name" 30
    done
} >"$report"
failed=0
for code in "$out"/*.code; do
    [ "$(cat "$code")" = 0 ] || failed=$((failed + 1))
done
echo "$report" >&2
exit "$failed"
