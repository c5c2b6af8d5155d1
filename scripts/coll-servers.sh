#!/usr/bin/env bash
# A collective on two servers: RDMA between all ranks, and shared memory inside each server, in turns, by every algorithm.
# Prints the medians of the time in us, and of the bus bandwidth in MB/s.
# coll-servers.sh [TURNS [RATE [COLLECTIVE [LOCAL]]]]: the number of turns, the rate of hosts' links (`200Mbps`; none without,
# or if empty), all_reduce or alltoall, and the ranks of each server (2). Needs root, jq and `cargo xtask verbs`.
set -euo pipefail
turns=${1:-5} rate=${2:-} collective=${3:-all_reduce} local=${4:-2}
weft=${WEFT:-${CARGO_TARGET_DIR:-target}/release/weft}
lab=servers$$
rows=$(mktemp)
trap '"$weft" lab down --name "$lab" >/dev/null 2>&1 || true; rm -f "$rows"' EXIT

case $collective in
all_reduce) from=64KiB algorithms=(ring tree "hierarchical:$local") ;;
# A ring is none for an all-to-all: each rank sends to each other one.
alltoall) from=512B algorithms=(ring "hierarchical:$local") ;;
*) echo "no measurement of $collective: all_reduce or alltoall" >&2 && exit 1 ;;
esac

"$weft" lab up --name "$lab" --spines 2 --mtu 9000 ${rate:+--rate "$rate"} >&2
measure() {
    "$weft" coll perf "$collective" --ranks $((2 * local)) --lab "$lab" --ranks-per-host "$local" --channels "$1" \
        --algorithm "$2" --from "$from" --to 16MiB --factor 4 --time 1s --no-check --json |
        jq -c --arg variant "$1 $2" '.rows[] | { size, variant: $variant, time: .time_us, rate: (.busbw * 1000) }' |
        tee -a "$rows" >&2
}
for ((turn = 0; turn < turns; turn++)); do
    for algorithm in "${algorithms[@]}"; do
        for channels in net auto; do
            measure "$channels" "$algorithm"
        done
    done
done
for column in time rate; do
    echo "# $column"
    jq -rs --arg column "$column" '
        def median: sort | .[length / 2 | floor] * 10 | round / 10;
        ([.[].variant] | unique) as $variants
        | (["bytes"] + $variants),
          (group_by(.size)[] | . as $rows
            | [.[0].size] + [$variants[] as $one | [$rows[] | select(.variant == $one) | .[$column]] | median])
        | @tsv' "$rows"
done
