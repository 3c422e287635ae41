#!/usr/bin/env bash
# Makes .venv ready for one lock of locks/, from a bare Debian 12 on:
#
#     scripts/setup.sh cpu-smoke  what `make accept` needs for the suite smoke
#     scripts/setup.sh cpu        what every suite needs, and `bench compare`
#     scripts/setup.sh cpu-test   the same and what the tests need
#
# Safe to run again: a stamp in .venv remembers what was installed, and the second time takes
# a fraction of a second. What is missing is installed where this user may, else it is named
# in one sentence and the exit code is 2. PYTHON names another interpreter than python3.11.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly name=$1 lock=locks/$1.txt venv=.venv
case $name in # the locks that hold this one
    cpu-smoke) readonly holding="cpu-smoke cpu cpu-test" ;;
    cpu) readonly holding="cpu cpu-test" ;;
    *) readonly holding=$name ;;
esac
readonly libraries=(libpango-1.0-0 libpangoft2-1.0-0 libharfbuzz-subset0 fontconfig fonts-dejavu-core)

stop() {
    printf 'setup: %s\n' "$1" >&2
    exit 2
}

install_packages() { # why, packages...
    local why=$1 log
    shift
    if [ "$(id -u)" -ne 0 ]; then
        stop "$why; run \"sudo apt-get install $*\" and start again (this user is not root)"
    fi
    command -v apt-get >/dev/null || stop "$why; install what Debian calls $* and start again"
    printf 'setup: installing %s\n' "$*" >&2
    log=$(mktemp)
    trap "rm -f $log" EXIT
    if ! { apt-get update && DEBIAN_FRONTEND=noninteractive \
        apt-get install -y --no-install-recommends "$@"; } >"$log" 2>&1 </dev/null; then
        stop "$why, and apt-get could not install $* ($(grep -a '^E:' "$log" | tail -n 1)): check the network and its package sources, and start again"
    fi
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3.11 python3}; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

has_libraries() { # those that WeasyPrint opens, and a font
    "$1" - <<'END' 2>/dev/null && command -v fc-list >/dev/null && [ -n "$(fc-list | head -n 1)" ]
import ctypes

names = "gobject-2.0.so.0 pango-1.0.so.0 pangoft2-1.0.so.0 harfbuzz.so.0 harfbuzz-subset.so.0 fontconfig.so.1"
for name in names.split():
    ctypes.CDLL(f"lib{name}")
END
}

stamp() { # what .venv must have been made of for the lock called $1
    { printf '%s\n' "$PWD"; "$venv/bin/python" -VV; cat "locks/$1.txt" pyproject.toml \
        scripts/setup.sh scripts/install.sh; } | sha256sum
}

is_ready() {
    local made
    [ -x "$venv/bin/python" ] && "$venv/bin/python" -c '' 2>/dev/null || return 1
    for made in $holding; do
        if [ -f "$venv/stamp-$made" ] && [ "$(stamp "$made")" = "$(cat "$venv/stamp-$made")" ]; then
            return 0
        fi
    done
    return 1
}

[ -f "$lock" ] || stop "there is no $lock: give one of $(cd locks && echo *.txt | sed 's/\.txt//g')"
if ! python=$(find_python); then
    [ -z "${PYTHON:-}" ] || stop "PYTHON names $PYTHON, which is no Python of version 3.11 or later"
    install_packages "Python 3.11 is missing" python3.11 python3.11-venv
    python=$(find_python) || stop "Python 3.11 is missing: install it, or name it with PYTHON=/path/to/python3.11"
fi
has_libraries "$python" || install_packages "WeasyPrint's system libraries or fonts are missing" "${libraries[@]}"
if is_ready; then exit 0; fi

if [ -e "$venv" ] && ! "$venv/bin/python" -c '' 2>/dev/null; then
    [ -f "$venv/pyvenv.cfg" ] || stop "$venv is no virtual environment of Python: move it away and start again"
    rm -rf "$venv"
fi
rm -f "$venv"/stamp-*
if [ ! -x "$venv/bin/python" ] || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        install_packages "Python's module venv is missing" "$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
    fi
    "$python" -m venv "$venv" || stop "$python could not make $venv: free some space or name another interpreter with PYTHON"
fi
printf 'setup: installing %s into %s (some minutes, once)\n' "$lock" "$venv" >&2
scripts/install.sh "$PWD/$venv/bin/python" "$lock" packages editable
stamp "$name" >"$venv/stamp-$name"
