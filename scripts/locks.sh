#!/usr/bin/env bash
# Makes the locks again that stand on locks/cpu.txt: those of the images, which have its versions
# of whatever they have in common with it, and that of the suite smoke, which is a part of it:
#
#     scripts/locks.sh [smoke] [cuda] [rocm] [xpu] [xpu-torch] [rocm-jax]
#
# The last two stand on indexes of vendors and are made only where they are named: torch's own
# build for XPU (XPU_INDEX) and JAX on ROCm (ROCM_INDEX). A lock is written only if every wheel in
# it has a sha256; where an index states none, the wheels without one are listed in
# locks/NAME.unhashed.txt instead, which is no lock, and the exit code is 1.
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
readonly smoke=report,torch,onnx # the parts that `bench accept` needs for the suite smoke
never="; sys_platform == 'never'" # what an image does without, or brings itself

readonly xpu_index=${XPU_INDEX:-https://download.pytorch.org/whl/xpu}
readonly rocm_index=${ROCM_INDEX:-https://stable.repo.amd.com/rocm/whl-next/}

# Of the lock called $1: python version, extras, wanted packages, packages left out, and the index
# that is asked beside the general one. A vendor's index may have old copies of other packages, so
# the version decides and not the order of indexes; the sha256 then holds it.
describe() {
    index=()
    case $1 in
        cuda) # torch, ONNX Runtime and JAX are all of CUDA 13; each names the libraries it needs
            python=3.11 extras=run,report,compare,cuda
            wanted=('torch==2.13.0' 'onnxruntime-gpu>=1.31' 'jax[cuda13]') without=(onnxruntime)
            ;;
        rocm) # 1.29.0 is what the vendor's plugin for MIGraphX was built for
            python=3.12 extras=run,report,compare
            wanted=('onnxruntime==1.29.0') without=(torch)
            ;;
        xpu)
            python=3.11 extras=run,report,compare
            wanted=('onnxruntime-openvino>=1.24') without=(torch onnxruntime)
            ;;
        xpu-torch) # in front of a base image's torch, which is then not seen (environment.sh)
            python=3.11 extras=run,report,compare
            wanted=('torch==2.13.0+xpu' 'onnxruntime-openvino>=1.24') without=(onnxruntime)
            index=(--index "$xpu_index" --index-strategy unsafe-best-match)
            ;;
        rocm-jax) # of rocm, and JAX's plugin; jaxlib 0.10.2 does not list its name among its own
            python=3.12 extras=run,report,compare
            wanted=('onnxruntime==1.29.0' 'jax-rocm10-plugin==0.10.2+rocm10.0.0'
                'jax-rocm10-pjrt==0.10.2+rocm10.0.0') without=(torch)
            index=(--index "$rocm_index" --index-strategy unsafe-best-match)
            ;;
        *)
            echo "locks: there is no recipe for \"$1\": give smoke, cuda, rocm, xpu, xpu-torch or rocm-jax" >&2
            exit 2
            ;;
    esac
}

resolve() { # python version, extras, and further words for uv
    local python=$1 extras=$2
    shift 2
    env -u PIP_FIND_LINKS uv pip compile pyproject.toml $(printf -- "--extra %s " ${extras//,/ }) \
        --no-header --no-annotate --python-version "$python" \
        --python-platform x86_64-manylinux_2_28 --quiet "$@"
}

make_smoke_lock() { # the entries of locks/cpu.txt that its parts lead to
    printf '%s\n' 'setuptools>=77' >"$work/wanted.in"
    resolve 3.11 "$smoke" "$work/wanted.in" --constraint "$work/common.txt" |
        sed -n 's/==.*//p' >"$work/names.txt"
    {
        printf '# extras: %s\n' "$smoke"
        awk 'NR == FNR { wanted[$0]; next }
            /^[^ ]/ { split($0, part, "=="); inside = part[1] in wanted } inside' \
            "$work/names.txt" locks/cpu.txt
    } >"$work/cpu-smoke.txt"
    mv "$work/cpu-smoke.txt" locks/cpu-smoke.txt
}

make_lock() {
    local name=$1
    describe "$name"
    printf '%s\n' 'setuptools>=77' "${wanted[@]}" >"$work/wanted.in"
    printf "%s $never\n" "${without[@]}" >"$work/without.txt"
    {
        printf '# made for: cpython %s Linux x86_64\n' "$python"
        printf '# extras: %s\n' "$extras"
        resolve "$python" "$extras" "$work/wanted.in" --constraint "$work/common.txt" \
            --override "$work/without.txt" --generate-hashes "${index[@]}"
    } >"$work/$name.txt"
    claim "$name"
}

unhashed() { # the wheels of a resolution that have no sha256
    awk '/^[^ #]/ { if (wheel != "" && !has) print wheel; wheel = $1; has = 0 }
        /--hash=sha256:/ { has = 1 }
        END { if (wheel != "" && !has) print wheel }' "$1"
}

claim() { # take the resolution called $1 as a lock, if it is one
    local missing
    missing=$(unhashed "$work/$1.txt")
    if [ -z "$missing" ]; then
        rm -f "locks/$1.unhashed.txt"
        mv "$work/$1.txt" "locks/$1.txt"
        return
    fi
    printf '%s\n' "# no lock: no index states a sha256 of these wheels" "$missing" \
        >"locks/$1.unhashed.txt"
    echo "locks: locks/$1.txt was not written: no index states a sha256 of" \
        "$(tr '\n' ' ' <<<"$missing")(listed in locks/$1.unhashed.txt)" >&2
    code=1
}

sed -n 's/^\([a-z0-9._-]*==[^ ]*\).*/\1/p' locks/cpu.txt |
    grep -vE '^(torch|onnxruntime)==' >"$work/common.txt"
[ $# -gt 0 ] || set -- smoke cuda rocm xpu
code=0
for name in "$@"; do
    if [ "$name" = smoke ]; then make_smoke_lock; else make_lock "$name"; fi
done
exit $code
