#!/usr/bin/env bash
# Astral's figure 6: a collective over shared memory alone, then over memory and network, in turns between two hosts of
# a lab. hybrid-channels.sh COLLECTIVE FIGURE; rows go to WEFT_BENCH_JSON. Needs root and jq.
set -euo pipefail
collective=$1 figure=$2
weft=${WEFT:-${CARGO_TARGET_DIR:-target}/release/weft}
lab=figures$$
rows=$(mktemp -d)
trap '"$weft" lab down --name "$lab" >/dev/null 2>&1 || true; rm -rf "$rows"' EXIT

"$weft" lab up --name "$lab" --spines 2 --mtu 9000 --rate 200Mbps >&2
measure() {
    "$weft" coll perf "$collective" --ranks 2 --lab "$lab" --channels "$1" --shm-rate 800Mbps \
        --from 1MiB --to 1GiB --factor 4 --iterations 2 --time 1s --no-check --json
}
for turn in 1 2 3; do
    for channels in shm hybrid; do
        measure "$channels" | tee "$rows/$channels.$turn.json" >&2
    done
    # A row a size: MB/s of each, and how much more both carry, %.
    jq -c --arg figure "$figure" --slurpfile both "$rows/hybrid.$turn.json" '
        .rows | to_entries[] | (.value.busbw * 1000) as $alone | ($both[0].rows[.key].busbw * 1000) as $both |
        { $figure, size: "\(.value.size / 1048576 | floor) MiB", $alone, $both, more: (100 * ($both / $alone - 1)) }
    ' "$rows/shm.$turn.json" >>"${WEFT_BENCH_JSON:-/dev/stdout}"
done
