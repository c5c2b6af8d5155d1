#!/usr/bin/env bash
# Weft's NCCL plugin at length, beside NCCL's own socket transport: every check in every version, messages of up to 1 GiB, paths that
# die and return, and the speed of both in turns, on one host and between two network namespaces. As root.
#
# NCCL_SOURCE names the source of NCCL (github.com/NVIDIA/nccl), of which scripts/nccl/socket.sh compiles the socket transport as a
# plugin; without it Weft's plugin runs alone. MAX_SIZE [1GiB] needs three times as much memory. MEASURE [2] is the seconds of a figure.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
check=$target/release/weft-nccl-check
weft=$target/release/nccl/libnccl-net-weft.so

cargo build --release --package weft-nccl-check
cargo xtask nccl
plugins=("$weft")
if [ -n "${NCCL_SOURCE:-}" ]; then
    plugins+=("$(scripts/nccl/socket.sh "$NCCL_SOURCE" "$target/nccl")")
fi

heading() { printf '\n== %s\n' "$*"; }

for plugin in "${plugins[@]}"; do
    heading "every check: $(basename "$plugin")"
    "$check" "$plugin" --ranks processes
    heading "messages of up to ${MAX_SIZE:-1GiB}: $(basename "$plugin")"
    "$check" "$plugin" --ranks processes --interface 12 --only sizes --max-size "${MAX_SIZE:-1GiB}" --timeout 120
done

heading "lossy and dead paths, and paths that return"
cargo test --package weft-nccl-check --test weft -- --include-ignored

hosts=(weft-nccl-$$-0 weft-nccl-$$-1)
trap 'for host in "${hosts[@]}"; do ip netns delete "$host" 2>/dev/null || true; done' EXIT
for host in "${hosts[@]}"; do ip netns add "$host"; done
ip link add eth0 netns "${hosts[0]}" type veth peer name eth0 netns "${hosts[1]}"
for number in 0 1; do
    ip -n "${hosts[$number]}" address add "10.77.0.$((number + 1))/24" dev eth0
    ip -n "${hosts[$number]}" link set eth0 up
    ip -n "${hosts[$number]}" link set lo up
done
between=(--on "ip netns exec ${hosts[0]}" --on "ip netns exec ${hosts[1]}")
words=(--interface 12 --ranks processes --only speed --seconds "${MEASURE:-2}")
for turn in 1 2 3; do
    for plugin in "${plugins[@]}"; do
        heading "speed, turn $turn: $(basename "$plugin"), one host, then two"
        "$check" "$plugin" "${words[@]}"
        "$check" "$plugin" "${words[@]}" "${between[@]}"
    done
done
