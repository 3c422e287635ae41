#!/usr/bin/env bash
# Makes the locks of the images again, on top of locks/cpu.txt (which decides every version that
# the images have in common):
#
#     scripts/locks.sh [cuda] [rocm] [xpu]
#
# It needs `uv` and a package index, and is for whoever maintains the locks. A lock without torch
# is for a base image that brings its own: nothing in it may replace what that image provides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

command -v uv >/dev/null || {
    echo 'locks: uv is missing: install it (https://docs.astral.sh/uv) and start again' >&2
    exit 2
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
never="; sys_platform == 'never'" # what an image does without, or brings itself

describe() { # python version, extras, wanted packages and packages left out, of the lock called $1
    case $1 in
        cuda) # torch, ONNX Runtime and JAX are all of CUDA 13; each names the libraries it needs
            python=3.11 extras=run,cuda,start
            wanted=('torch==2.13.0' 'onnxruntime-gpu>=1.31' 'jax[cuda13]') without=(onnxruntime)
            ;;
        rocm) # 1.29.0 is what the maker's plugin for MIGraphX was built for
            python=3.12 extras=run,start
            wanted=('onnxruntime==1.29.0') without=(torch)
            ;;
        xpu)
            python=3.11 extras=run,start
            wanted=('onnxruntime-openvino>=1.24') without=(torch onnxruntime)
            ;;
        *)
            echo "locks: there is no recipe for \"$1\": give cuda, rocm or xpu" >&2
            exit 2
            ;;
    esac
}

make_lock() {
    local name=$1
    describe "$name"
    printf '%s\n' 'setuptools>=77' "${wanted[@]}" >"$work/wanted.in"
    printf "%s $never\n" "${without[@]}" >"$work/without.txt"
    sed -n 's/^\([a-z0-9._-]*==[^ ]*\).*/\1/p' locks/cpu.txt |
        grep -vE '^(torch|onnxruntime)==' >"$work/common.txt"
    {
        printf '# made for: cpython %s Linux x86_64\n' "$python"
        env -u PIP_FIND_LINKS uv pip compile pyproject.toml "$work/wanted.in" \
            $(printf -- "--extra %s " ${extras//,/ }) --constraint "$work/common.txt" \
            --override "$work/without.txt" --generate-hashes --no-header --no-annotate \
            --python-version "$python" --python-platform x86_64-manylinux_2_28 --quiet
    } >"$work/$name.txt"
    mv "$work/$name.txt" "locks/$name.txt"
}

for name in "${@:-cuda rocm xpu}"; do
    for one in $name; do make_lock "$one"; done
done
