#!/usr/bin/env bash
# The model tests, and the proof that they bite: they must pass as the sources are, and at least one must fail with each
# mutant that wake.rs, slot.rs and ring.rs name (`mutant = "..."`).
#
# usage: crates/handoff/mutants.sh [mutant...]
set -euo pipefail
cd "$(dirname "$0")"

# One set of flags for all: only this crate is built anew for a mutant. No thin LTO, which would do loom again each time.
export RUSTFLAGS="--cfg loom" RUST_BACKTRACE=0 CARGO_PROFILE_BENCH_LTO=off CARGO_PROFILE_BENCH_DEBUG=0
target=${CARGO_TARGET_DIR:-../../target}/loom
run_seconds_max=120

# build [rustc's arguments]: prints the path of the test binary.
build() {
    # The bench profile is the release profile with tests in it.
    cargo rustc --quiet --package baton-handoff --lib --profile bench --target-dir "$target" \
        --message-format json-render-diagnostics -- "$@" |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p'
}

echo "unmutated"
binary=$(build)
timeout "$run_seconds_max" "$binary" --quiet

mapfile -t mutants < <(grep -oh 'mutant = "[a-z_]*"' src/{wake,slot,ring}.rs | cut -d'"' -f2 | sort -u)
if [ $# -gt 0 ]; then mutants=("$@"); fi

survivors=0
for mutant in "${mutants[@]}"; do
    binary=$(build --cfg "mutant=\"$mutant\"" --cap-lints allow)
    # Loom may abort the whole run at the first failure, so the verdict is read from what was said.
    log=$(timeout "$run_seconds_max" "$binary" --test-threads 1 --nocapture 2>&1) && status=0 || status=$?
    killers=$(grep -o "^thread 'model::[a-z_:]*'.* panicked" <<<"$log" | cut -d"'" -f2 | sort -u || true)
    if [ "$status" -ne 0 ] && [ -n "$killers" ]; then
        printf '%-26s killed by %2d tests of %s\n' "$mutant" "$(wc -l <<<"$killers")" \
            "$(sed 's/^model:://; s/::.*//' <<<"$killers" | sort -u | paste -sd ' ')"
    else
        printf '%-26s SURVIVED (exit status %s)\n' "$mutant" "$status"
        survivors=$((survivors + 1))
    fi
done
[ "$survivors" -eq 0 ] || { echo "$survivors of ${#mutants[@]} mutants survived" >&2; exit 1; }
echo "all ${#mutants[@]} mutants were killed"
