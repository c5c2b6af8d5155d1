#!/usr/bin/env bash
# Makes one mistake after another in a copy of the tree and lets the swarm look for it:
# `scripts/mutants.sh [MUTANT...]`. Prints the rows of the tables in docs/design/swarm.md and docs/design/proofs.md.
#
# A mutant is a patch in crates/weft-sim/mutants/, for the transport and its swarm, in crates/weft-seal/mutants/, for
# the encryption and the worlds that encrypt, in crates/weft-rnic/mutants/, for the RNIC and its own, or in
# crates/weft-ring/mutants/ and crates/weft-verbs/mutants/, for the same-host path, its models and unit tests: a line that
# says what the mistake is, then the mistake. One that the swarm cannot find has a paragraph that begins "Not caught:" and says why; one
# that few seeds find has a line "From seed: N", where to begin.
set -euo pipefail
cd "$(dirname "$0")/.."

limit=${LIMIT:-600}
work=$(realpath -m "${CARGO_TARGET_DIR:-target}")/mutants
tree=$work/tree
log=$work/log
wrong=0

# Quick builds rather than fast programs, and a folder of its own.
export CARGO_TARGET_DIR=$work/build
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
export CARGO_PROFILE_RELEASE_DEBUG=false CARGO_INCREMENTAL=1
# Keeps git from taking the copy for a part of this repository.
export GIT_CEILING_DIRECTORIES=$work

complain() {
    printf 'mutants: error: %s\n' "$*" >&2
    wrong=$((wrong + 1))
}

# What is tracked and what will be, as it is now. Its files are new, so that cargo does not take
# what it built of a mutant for them.
copy_tree() {
    rm -rf "$tree"
    mkdir -p "$tree"
    git ls-files -z --cached --others --exclude-standard |
        while IFS= read -r -d '' file; do [ ! -e "$file" ] || printf '%s\0' "$file"; done |
        tar -c --null -T - | tar -xm -C "$tree"
}

patch_tree() { (cd "$tree" && git apply "$@"); }

# Leaves the report of the swarm $1 in $log; true if it found nothing in $3 seeds from seed $2 on. What follows is for
# the swarm. Stops after the hundred seeds with the first failure.
run_swarm() {
    local first
    for ((first = $2; first < $2 + $3; first += 100)); do
        timeout "$limit" "$CARGO_TARGET_DIR/release/examples/$1" "$first" 100 "${@:4}" >"$log" 2>&1 ||
            return 1
    done
}

# Leaves the report of the package's unit tests $1 (those named $2) in $log; true if they all passed.
run_tests() {
    # shellcheck disable=SC2086  # no filter is no argument
    (cd "$tree" && timeout "$limit" cargo test --quiet --package "$1" --lib $2) >"$log" 2>&1
}

# The first test that failed.
failed_test() {
    awk '/^failures:/ { listing = 1 } listing && /^    [a-z0-9_:]+$/ { print $1; exit }' "$log"
}

try_tested_mutant() {
    local package=$1 filter=$2 name=$3 mistake=$4 excuse=$5 noticed
    if run_tests "$package" "$filter"; then
        printf '| `%s` | %s | not caught | – |\n' "$name" "$mistake"
        [ -n "$excuse" ] || complain "$name survived the tests of $package"
    elif grep -q '^error: could not compile' "$log"; then
        complain "$name does not build: $(grep -m 1 -A 4 '^error' "$log")"
    else
        noticed=$(failed_test)
        printf '| `%s` | %s | %s | – |\n' "$name" "$mistake" "${noticed:-time limit}"
    fi
}

# The first seed and what noticed it, as two cells of the table: a check's name, or a sentence to its colon.
verdict() {
    awk -v sentence="$1" '/^ *seed: / && seed == "" { seed = $2 + 0 }
        /violations: / {
            getline
            if (!what) { what = sentence ? $0 : $1; sub(/:.*/, "", what); gsub(/[",]/, "", what) }
        }
        END { print (what ? what : "time limit") " | " (seed == "" ? "-" : seed) }' "$log"
}

try_mutant() {
    local patch=$1 name mistake excuse begin package=weft-sim swarm=swarm sentence="" seeds=${SEEDS:-2000} filter="" kind=()
    case "$patch" in */weft-rnic/*)
        # A case has a thousand work requests.
        package=weft-rnic swarm=rdma_swarm sentence=1 seeds=${SEEDS:-300}
        ;;
    */weft-ring/*) package=weft-ring swarm="" ;;
    */weft-verbs/*) package=weft-verbs swarm="" filter=same_host ;;
    */weft-seal/*)
        kind=(sealed)
        ;;
    esac
    name=$(basename "$patch" .patch)
    mistake=$(head -n 1 "$patch")
    excuse=$(sed -n 's/^Not caught: //p' "$patch")
    begin=$(sed -n 's/^From seed: //p' "$patch")
    if ! patch_tree --check "$patch" 2>"$log"; then
        complain "$name no longer applies; make the same mistake in today's code: $(<"$log")"
        return
    fi
    patch_tree "$patch"
    if [ -z "$swarm" ]; then
        try_tested_mutant "$package" "$filter" "$name" "$mistake" "$excuse"
    elif ! (cd "$tree" && cargo build --quiet --release --package "$package" --all-features --example "$swarm") \
        >"$log" 2>&1; then
        complain "$name does not build: $(grep -m 1 -A 4 '^error' "$log")"
    elif run_swarm "$swarm" "${begin:-1}" "$seeds" "${kind[@]}"; then
        printf '| `%s` | %s | not caught | %s |\n' "$name" "$mistake" "$seeds"
        [ -n "$excuse" ] || complain "$name survived $seeds seeds"
    else
        printf '| `%s` | %s | %s |\n' "$name" "$mistake" "$(verdict "$sentence")"
    fi
    patch_tree --reverse "$patch"
}

copy_tree
chosen=()
for name in "${@:-*}"; do
    # shellcheck disable=SC2206  # a pattern
    found=("$tree"/crates/*/mutants/$name.patch)
    [ -e "${found[0]}" ] || complain "no mutant $name"
    chosen+=("${found[@]}")
done
printf '| mutant | mistake | caught by | seed |\n| --- | --- | --- | --- |\n'
for patch in "${chosen[@]}"; do
    try_mutant "$patch"
done
[ "$wrong" = 0 ] || { printf 'mutants: %s went wrong\n' "$wrong" >&2; exit 1; }
