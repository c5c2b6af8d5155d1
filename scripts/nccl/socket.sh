#!/usr/bin/env bash
# Compiles NCCL's own socket transport as a net plugin, from a checkout of github.com/NVIDIA/nccl (2.30), and prints its path: a
# plugin of others for the check, and a rival for figures. CUDA's headers come from PyPI; no CUDA library is needed or called.
#
#     scripts/nccl/socket.sh SOURCE FOLDER
set -euo pipefail
source=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
mkdir -p "$2/include" "$2/cuda"
folder=$(realpath "$2")

if [ ! -e "$folder/cuda/nvidia" ]; then
    python3 -m venv "$folder/venv" >&2
    "$folder/venv/bin/pip" --quiet download --no-deps --dest "$folder/cuda" \
        nvidia-cuda-runtime-cu12==12.9.79 nvidia-cuda-cccl-cu12 nvidia-cuda-nvcc-cu12==12.9.86 >&2
    for wheel in "$folder"/cuda/*.whl; do python3 -m zipfile -e "$wheel" "$folder/cuda"; done
fi

version() { sed -n "s/^NCCL_$1 *:= *//p" "$source/makefiles/version.mk"; }
sed -e "s/\${nccl:Major}/$(version MAJOR)/g; s/\${nccl:Minor}/$(version MINOR)/g; s/\${nccl:Patch}/$(version PATCH)/g" \
    -e "s/\${nccl:Suffix}//g; s/\${nccl:Version}/$(($(version MAJOR) * 10000 + $(version MINOR) * 100 + $(version PATCH)))/g" \
    "$source/src/nccl.h.in" >"$folder/include/nccl.h"

flags=(-std=c++17 -O2 -fPIC -w -fvisibility=hidden -DNCCL_OS_LINUX -DNVTX_DISABLE "-I$folder/include" "-I$source/src/include"
    "-I$source/src/include/plugin" "-I$source/src/transport" "-I$source/src")
for part in cuda_runtime cuda_cccl cuda_nvcc; do flags+=("-I$folder/cuda/nvidia/$part/include"); done
objects=()
for file in "$source"/src/{transport/net_socket,misc/socket,misc/param,os/linux}.cc "$here/socket.cc"; do
    object=$folder/$(basename "$file" .cc)-$(basename "$(dirname "$file")").o
    g++ "${flags[@]}" -c "$file" -o "$object" >&2
    objects+=("$object")
done
gcc -O2 -fPIC -w -c "$here/no_cuda.c" -o "$folder/no_cuda.o" >&2
g++ -shared -o "$folder/libnccl-net-socket.so" "${objects[@]}" "$folder/no_cuda.o" -Wl,-z,defs -lpthread -ldl >&2
echo "$folder/libnccl-net-socket.so"
