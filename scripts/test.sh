#!/usr/bin/env bash
# Everything CI checks, one step after the other. A step that fails does not keep the others from running; the end names
# all that failed.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
log=$target/test.log
# Where tests that cannot run here write that down (weft-testkit). WEFT_REQUIRE_ALL=1 has them fail instead.
export WEFT_SKIPPED=$target/skipped.log
mkdir -p "$target"
: >"$log"
: >"$WEFT_SKIPPED"

summary=""
failed=()
started=$SECONDS

# step NAME COMMAND...: runs it under a heading, with how long it took.
step() {
    local name=$1 begun=$SECONDS
    shift
    printf '\n== %s: %s\n' "$name" "$*"
    if ! "$@" 2>&1 | tee -a "$log"; then
        failed+=("$name: $*")
    fi
    summary+="${summary:+, }$name $((SECONDS - begun)) s"
}

step format cargo fmt --all --check
step clippy cargo clippy --workspace --all-targets --all-features --quiet -- -D warnings
step layers cargo xtask layers
step circles cargo xtask circles
step words cargo xtask words
step pages cargo xtask docs --check
step book cargo xtask book --check
step tests cargo xtask test
# What the tests ran: for this package alone cargo would build it again, with other features.
# Other worlds each time; the heading says which, and FIRST runs them again.
first=${FIRST:-$(($(date +%s) * 2000))}
step swarm "${CARGO_TARGET_DIR:-target}/debug/weft" sim swarm --seeds "${SEEDS:-2000}" --first "$first"
step sealed "${CARGO_TARGET_DIR:-target}/debug/weft" sim swarm --sealed --seeds "$((${SEEDS:-2000} / 10))" --first "$first"
step rustdoc env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet
if cargo deny --version >/dev/null 2>&1; then
    step dependencies cargo deny --all-features --log-level error check bans licenses sources
elif [ "${WEFT_REQUIRE_ALL:-0}" = 1 ]; then
    failed+=("dependencies: cargo-deny is not installed (scripts/setup.sh deny)")
else
    printf 'SKIPPED dependencies: no cargo-deny (scripts/setup.sh deny)\n' | tee -a "$WEFT_SKIPPED"
fi

tests=$(sed -n 's/^test result: [a-zA-Z]*\. \([0-9]*\) passed.*/\1/p' "$log" | awk '{ n += $1 } END { print n + 0 }')
skipped=$(sort -u "$WEFT_SKIPPED" | wc -l)
if [ "$skipped" -gt 0 ]; then
    printf '\nSkipped here:\n'
    sort -u "$WEFT_SKIPPED" | sed 's/^SKIPPED /  /'
fi
if [ "${#failed[@]}" -gt 0 ]; then
    printf '\nFAILED after %s s (%s)\n' "$((SECONDS - started))" "$summary" >&2
    printf '  %s\n' "${failed[@]}" >&2
    # libtest lists the names of a binary's failures, four spaces before each, after what they printed.
    sed -n '/^failures:$/,/^test result:/ s/^    \([a-z0-9_:]*\)$/    test \1/p' "$log" | sort -u >&2
    exit 1
fi
printf '\nOK: %s tests passed; %s skipped, in whole or in part, for what this machine lacks; %s s (%s)\n' \
    "$tests" "$skipped" "$((SECONDS - started))" "$summary"
