#!/bin/sh
# Makes the environment of bench in an image, from the Python that the image has:
#
#     scripts/environment.sh PYTHON FOLDER [LOCK]
#
# Where that Python already sees a torch, its vendor built the base image around it: the new
# environment then sees the packages of that Python, torch and pip among them, behind its own, and
# what is installed goes into the new folder alone. A venv made with --system-site-packages would
# not do, because the Python of a base image may stand in a venv itself. Where the LOCK has a torch
# of its own, nothing of the image's packages is seen: its extensions go with its torch alone.
set -eu

python=$1
folder=$2
lock=${3:-}

seen=$("$python" -I - <<'END'
import importlib.util
import sys

if importlib.util.find_spec("torch"):
    print(*(path for path in sys.path if path.endswith(("site-packages", "dist-packages"))), sep="\n")
END
)
if [ -z "$seen" ] || { [ -n "$lock" ] && grep -q '^torch==' "$lock"; }; then
    exec "$python" -m venv "$folder"
fi
"$python" -m venv --without-pip "$folder"
own=$("$folder/bin/python" -I -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
printf '%s\n' "$seen" >"$own/image.pth"
if ! "$folder/bin/python" -m pip --version >/dev/null; then
    echo "setup: $python has a torch and no pip: install pip into the base image" >&2
    exit 2
fi
