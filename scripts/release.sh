#!/usr/bin/env bash
# Makes the release that appliance/version.py names: checks, then an annotated tag. Nothing is
# pushed or uploaded, and no registry is asked.
#
#     scripts/release.sh            check, and tag vVERSION
#     scripts/release.sh --check    check alone
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

stop() {
    printf 'release: %s\n' "$1" >&2
    exit 2
}

case "${1:-}" in
    "" | --check) ;;
    *) stop "there is no option \"$1\": give --check or nothing" ;;
esac
python=.venv/bin/python
[ -x "$python" ] || stop "there is no .venv: run make setup and start again"

version=$("$python" -c 'from appliance.version import VERSION; print(VERSION)')
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] ||
    stop "appliance/version.py has $version: a version is MAJOR.MINOR.PATCH"
tag=v$version

head=$(grep -m 1 '^## ' CHANGELOG.md || true)
[[ $head =~ ^\#\#\ ${version//./\\.},\ [0-9]{4}-[0-9]{2}-[0-9]{2}$ ]] ||
    stop "CHANGELOG.md begins with \"$head\": its first version must be \"## $version, YYYY-MM-DD\""

[ -z "$(git status --porcelain)" ] || stop "the work tree has changes: commit or stash them"
make --no-print-directory generate >/dev/null
[ -z "$(git status --porcelain)" ] || {
    git diff --stat >&2
    stop "generated files were not current: commit what make generate wrote"
}
if git rev-parse -q --verify "refs/tags/$tag" >/dev/null; then
    stop "the tag $tag stands already: raise appliance/version.py"
fi
if [ "${1:-}" = --check ]; then
    printf 'release: %s is ready\n' "$tag"
    exit 0
fi
git tag --annotate "$tag" --message "bench $version"
printf 'release: tagged %s at %s\n' "$tag" "$(git rev-parse --short HEAD)"
