#!/usr/bin/env bash
# Installs one lock, then this project, into the environment of the Python that is named:
#
#     scripts/install.sh PYTHON LOCK PART...
#
# A PART is `packages` (of the lock), and `project` or `editable` (this project itself). Used by
# setup.sh and by the Dockerfiles, so that a machine and an image hold the same bytes.
# torch comes first and alone, because its CPU build lies on no general index: from
# TORCH_INDEX or WHEELS=DIR when given, else from wherever pip's own configuration finds it,
# else from its vendor's public CPU index. Whatever the source, the lock's sha256 decides.
# A lock without torch is for an environment that sees one already (a vendor's base image): what is
# there stays, the lock must be whole without it, and another torch afterwards is an error.
# A Python or a machine that the lock was not made for gets the ranges of pyproject.toml, but not
# in an image, which has what its lock says or nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly python=$1 lock=$2
shift 2
readonly cpu_index=https://download.pytorch.org/whl/cpu
log=$(mktemp)
trap 'rm -f "$log" "$log.torch"' EXIT

stop() {
    printf 'setup: %s\n' "$1" >&2
    exit 2
}

explain() {
    local last
    last=$(grep -a '^ERROR' "$log" | tail -n 1 || true)
    if grep -aq 'DO NOT MATCH' "$log"; then
        stop "a package differs from its sha256 in $lock and was refused: clear the mirror or cache that served it, and start again"
    elif grep -aq 'CERTIFICATE_VERIFY_FAILED' "$log"; then
        stop "the package index shows a certificate that this machine does not trust: name your site's CA bundle with PIP_CERT and start again"
    elif grep -aqE 'NewConnectionError|ConnectTimeout|NameResolutionError|name resolution|unreachable|ProxyError|ReadTimeout|refused' "$log"; then
        stop "no package index with $1 can be reached: connect this machine, name a mirror with PIP_INDEX_URL (TORCH_INDEX for torch), or put the wheels of $lock in a folder and start again with WHEELS=DIR PIP_NO_INDEX=1"
    fi
    stop "$1 could not be installed (${last:-pip gave no reason}): name its source with TORCH_INDEX, PIP_INDEX_URL or WHEELS=DIR and start again"
}

sources=(--retries 2)
if [ -n "${WHEELS:-}" ]; then
    [ -d "$WHEELS" ] || stop "WHEELS names $WHEELS, which is no folder"
    sources+=(--find-links "$WHEELS")
fi

pip_install() {
    "$python" -m pip install --disable-pip-version-check --no-compile --only-binary :all: \
        "${sources[@]}" "$@" >>"$log" 2>&1
}

compile_all() { # on all processors, which pip does on one; templates that are no Python may fail
    "$python" -m compileall -qq -j 0 \
        "$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" >>"$log" 2>&1 || true
}

torch_from() { # the torch of "$@": from the first of the sources that has it
    if [ -n "${TORCH_INDEX:-}" ]; then
        pip_install --index-url "$TORCH_INDEX" "$@"
    else
        pip_install "$@" || pip_install --index-url "$cpu_index" "$@"
    fi
}

seen_torch() { # version and place of the torch that the environment sees, without loading it
    "$python" -I - <<'END'
import importlib.metadata, importlib.util

found = importlib.util.find_spec("torch")
print(*((importlib.metadata.version("torch"), found.origin) if found else ()))
END
}

install_beside_torch() {
    local before after
    before=$(seen_torch)
    [ -n "$before" ] || stop "$lock has no torch and neither has $python: use the base image that the lock was made for"
    pip_install --no-deps --require-hashes -r "$lock" || explain "$lock"
    after=$(seen_torch)
    [ "$before" = "$after" ] || stop "$lock put torch $after in the place of $before: make the lock again, without torch"
}

install_lock() {
    awk '/^torch==/ { inside = 1 } inside { print } inside && !/\\$/ { exit }' "$lock" >"$log.torch"
    if [ ! -s "$log.torch" ]; then
        install_beside_torch
        return
    fi
    torch_from --no-deps --require-hashes -r "$log.torch" || explain torch
    : >"$log" # what the first source lacked is no fault if the second had it
    pip_install --require-hashes -r "$lock" || explain "$lock"
}

requirements() { # of pyproject.toml, those that start with $1; the lock says which extras it has
    "$python" - "$(sed -n 's/^# extras: //p' "$lock")" "$1" <<'END'
import re, sys, tomllib

with open("pyproject.toml", "rb") as stream:
    project = tomllib.load(stream)["project"]

def of_extras(names):
    for name in names.split(","):
        for item in project["optional-dependencies"][name]:
            own = re.fullmatch(rf"{project['name']}\[(.+)\]", item)
            yield from of_extras(own[1]) if own else (item,)

wanted = dict.fromkeys([*project["dependencies"], *of_extras(sys.argv[1]), "setuptools>=77"])
print(*(item.replace(" ", "") for item in wanted if item.startswith(sys.argv[2])), sep="\n")
END
}

install_ranges() {
    local torch all
    torch=$(requirements 'torch>')
    mapfile -t all < <(requirements '')
    # never from a general index: the build there brings gigabytes for accelerators
    TORCH_INDEX=${TORCH_INDEX:-$cpu_index} torch_from --no-deps "$torch" || explain torch
    : >"$log"
    pip_install "${all[@]}" || explain "pyproject.toml"
}

install_packages() {
    local made_for here
    made_for=$(sed -n 's/^# made for: //p' "$lock")
    made_for=${made_for:-cpython 3.11 Linux x86_64}
    here=$("$python" -c 'import platform, sys; print(sys.implementation.name, "%d.%d" % sys.version_info[:2], platform.system(), platform.machine())')
    if [ "$here" = "$made_for" ]; then
        install_lock
    elif [ ! -f pyproject.toml ] || ! grep -q '^torch==' "$lock"; then # an image has the lock alone
        stop "$lock is for $made_for and this is $here: use the base image that the lock was made for"
    else
        printf 'setup: %s is for %s and this is %s, so the versions come from the ranges of pyproject.toml and no hash is checked\n' \
            "$lock" "$made_for" "$here" >&2
        install_ranges
    fi
    compile_all
}

install_project() { # [--editable]
    "$python" -m pip install --disable-pip-version-check --no-deps --no-index \
        --no-build-isolation "$@" . >>"$log" 2>&1 || explain "this project"
}

for part in "$@"; do
    case $part in
        packages) install_packages ;;
        project) install_project ;;
        editable) install_project --editable ;;
        *) stop "there is no part \"$part\": use packages, project or editable" ;;
    esac
done
