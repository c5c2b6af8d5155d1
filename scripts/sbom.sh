#!/usr/bin/env bash
# Writes a bill of materials (CycloneDX 1.5, JSON) for each program and library that ships into out/sbom/.
set -euo pipefail
cd "$(dirname "$0")/.."

# The `weft` command, libibverbs.so.1, librdmacm.so.1, libweft_malloc.so.1, libweft_nic_ports.so.1, libxrdma.so.1, NCCL's plugin and
# its check, and the Python module.
products=(weft-cli weft-cni weft-dra weft-kube weft-verbs weft-rdmacm weft-malloc weft-nic-ports weft-xrdma-c weft-nccl weft-nccl-check weft-py)

rm -rf out/sbom
mkdir -p out/sbom
# It writes beside each Cargo.toml of the workspace.
cargo cyclonedx --quiet --format json --describe crate --spec-version 1.5 --no-build-deps
for product in "${products[@]}"; do
    mv "crates/$product/$product.cdx.json" out/sbom/
done
find crates -maxdepth 2 -name '*.cdx.json' -delete
printf 'sbom: %s\n' out/sbom/*
