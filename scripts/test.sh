#!/usr/bin/env bash
# Everything CI checks, one step after the other; stops at the first that fails and names it.
set -euo pipefail
cd "$(dirname "$0")/.."

log=${CARGO_TARGET_DIR:-target}/test.log
mkdir -p "$(dirname "$log")"
: >"$log"

summary=""
started=$SECONDS

# step NAME COMMAND...: runs it under a heading, with how long it took.
step() {
    local name=$1 begun=$SECONDS
    shift
    printf '\n== %s: %s\n' "$name" "$*"
    if ! "$@" 2>&1 | tee -a "$log"; then
        printf '\nFAILED at %s after %s s. Again: %s\n' "$name" "$((SECONDS - started))" "$*" >&2
        exit 1
    fi
    summary+="${summary:+, }$name $((SECONDS - begun)) s"
}

step format cargo fmt --all --check
step clippy cargo clippy --workspace --all-targets --all-features --quiet -- -D warnings
step layers cargo xtask layers
step pages cargo xtask docs --check
step tests cargo test --workspace --quiet
# What the tests ran: for this package alone cargo would build it again, with other features.
# Other worlds each time; the heading says which, and FIRST runs them again.
first=${FIRST:-$(($(date +%s) * 2000))}
step swarm "${CARGO_TARGET_DIR:-target}/debug/weft" sim swarm --seeds "${SEEDS:-2000}" --first "$first"
step rustdoc env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet
if cargo deny --version >/dev/null 2>&1; then
    step dependencies cargo deny --all-features --log-level error check bans licenses sources
else
    printf '\n== dependencies: skipped, cargo-deny is not installed (cargo install cargo-deny)\n'
fi

tests=$(sed -n 's/^test result: ok\. \([0-9]*\) passed.*/\1/p' "$log" | awk '{ n += $1 } END { print n + 0 }')
skipped=$({ grep -o 'SKIPPED [^:]*:' "$log" || true; } | sort -u | wc -l)
printf '\nOK: %s tests passed, %s of them skipped for what this machine lacks; %s s (%s)\n' \
    "$tests" "$skipped" "$((SECONDS - started))" "$summary"
