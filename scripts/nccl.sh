#!/usr/bin/env bash
# Checks Weft's NCCL plugin at length, beside NCCL's own socket transport: messages up to 1 GiB, a lossy network, paths that die and
# return, a network that is gone, and the speed of both in one run. NCCL_SOURCE names a checkout of github.com/NVIDIA/nccl, from which the
# socket transport is compiled; without it Weft's plugin runs alone. CUDA_INCLUDE names a folder with cuda_runtime.h (PyPI:
# nvidia-cuda-runtime-cu12). As root.
set -euo pipefail
