#!/bin/sh
# Fuzzes for SECONDS (60 unless told), the time split over the targets. Fails on a crash, whose input is then
# in out/. Needs nothing but the stable toolchain, unlocked for the instrumentation flags.
set -eu
cd "$(dirname "$0")"
seconds=${1:-60}
host=$(rustc -vV | sed -n 's/^host: //p')
target_dir=${CARGO_TARGET_DIR:-$PWD/target}/fuzz

RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Ccodegen-units=1 -Zsanitizer=address --cfg fuzzing" \
    CARGO_TARGET_DIR=$target_dir cargo build --quiet --release --locked --target "$host"

set -- request reply proxy_header
each=$((seconds / $#))
[ "$each" -gt 0 ] || each=1
for target; do
    # What is found goes to out/; the corpus of the repository is only read.
    mkdir -p "out/$target"
    echo "fuzzing $target for $each s"
    "$target_dir/$host/release/$target" "out/$target" "corpus/$target" \
        -dict=http.dict -max_len=1024 -timeout=10 -rss_limit_mb=1024 \
        -artifact_prefix="out/$target-" -max_total_time="$each" \
        -print_final_stats=1 >"out/$target.log" 2>&1 || {
        grep -A 4 'panicked at\|ERROR: ' "out/$target.log" || true
        tail -n 8 "out/$target.log"
        exit 1
    }
    grep -E '^stat::number_of_executed_units' "out/$target.log"
done
