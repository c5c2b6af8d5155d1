#!/usr/bin/env bash
# All-reduce on two servers with two ranks each: RDMA between all ranks, and shared memory inside each server, in turns, by a
# ring and by a hierarchy. Prints the medians of the bus bandwidth in MB/s. coll-servers.sh [TURNS [RATE]]: the number of
# turns, and the rate of hosts' links (`200Mbps`; none without). Needs root, jq and `cargo xtask verbs`.
set -euo pipefail
turns=${1:-5} rate=${2:-}
weft=${WEFT:-${CARGO_TARGET_DIR:-target}/release/weft}
lab=servers$$
rows=$(mktemp)
trap '"$weft" lab down --name "$lab" >/dev/null 2>&1 || true; rm -f "$rows"' EXIT

"$weft" lab up --name "$lab" --spines 2 --mtu 9000 ${rate:+--rate "$rate"} >&2
measure() {
    "$weft" coll perf all_reduce --ranks 4 --lab "$lab" --ranks-per-host 2 --channels "$1" --algorithm "$2" \
        --from 64KiB --to 16MiB --factor 4 --time 1s --no-check --json |
        jq -c --arg variant "$1 $2" '.rows[] | { size, variant: $variant, rate: (.busbw * 1000) }' | tee -a "$rows" >&2
}
for ((turn = 0; turn < turns; turn++)); do
    for algorithm in ring hierarchical:2; do
        for channels in net auto; do
            measure "$channels" "$algorithm"
        done
    done
done
jq -rs '
    def median: sort | .[length / 2 | floor] * 10 | round / 10;
    ["net ring", "auto ring", "net hierarchical:2", "auto hierarchical:2"] as $variants
    | (["bytes"] + $variants),
      (group_by(.size)[] | . as $rows
        | [.[0].size] + [$variants[] as $one | [$rows[] | select(.variant == $one) | .rate] | median])
    | @tsv' "$rows"
