"""First process of the images: looks that /out takes files, runs bench, and tidies up after it.

Inside an image only /out may be written, the user may be any number without an account, and
nothing is known of the host. So HOME, TMPDIR and every cache are sent to a folder of this
container's own below /out/.work, which is removed at the end; what cannot work is said in one
sentence with the line to run, before anything starts. As process 1 it also passes signals on
(a stop is an interruption that can be resumed) and buries processes that lost their parent.
It needs the standard library alone.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

OUT = Path("/out")
WRITING = ("accept", "run")
CACHES = {
    "XDG_CACHE_HOME": "cache",
    "XDG_CONFIG_HOME": "config",
    "XDG_DATA_HOME": "share",
    "XDG_STATE_HOME": "state",
    "XDG_RUNTIME_DIR": "runtime",
    "HF_HOME": "huggingface",
    "TORCH_HOME": "torch",
    "TORCH_EXTENSIONS_DIR": "torch-extensions",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "NUMBA_CACHE_DIR": "numba",
    "MPLCONFIGDIR": "matplotlib",
}


def line_to_run() -> str:
    """How a person starts this image so that the evidence stays on the host."""
    words = ["docker run --rm", *os.environ.get("BENCH_RUN_OPTIONS", "").split()]
    words += ['--user "$(id -u):$(id -g)" -v "$PWD/out:/out"']
    return f"mkdir -p out && {' '.join([*words, os.environ.get('BENCH_IMAGE', 'IMAGE')])}"


def private_folder(out: Path) -> Path | None:
    """A new folder of this container's own below `out`; None where nothing can be written.

    A link by that name is not followed: others write into `out` too.
    """
    try:
        (out / ".work").mkdir(exist_ok=True)
        above = os.open(out / ".work", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            name = f"container-{secrets.token_hex(8)}"
            os.mkdir(name, 0o700, dir_fd=above)
        finally:
            os.close(above)
    except OSError:
        return None
    return out / ".work" / name


def environment(given: Mapping[str, str], work: Path) -> dict[str, str]:
    """`given`, with every place that a library may write to below `work`."""
    places = {name: str(work / folder) for name, folder in CACHES.items()}
    places |= {"HOME": str(work), "TMPDIR": str(work / "tmp")}
    for place in places.values():
        Path(place).mkdir(exist_ok=True, mode=0o700)
    # a user without an account has no name, and some libraries ask for one
    return {"USER": "bench", "LOGNAME": "bench", **given, **places}


def command(words: Sequence[str], out: Path) -> list[str]:
    """The command line of bench: runs go to `out` unless another folder is named."""
    named = any(word.split("=")[0] in ("--out", "--resume", "--help") for word in words)
    where = [] if named or words[:1] == [] or words[0] not in WRITING else ["--out", str(out)]
    return [str(Path(sys.executable).with_name("bench")), *words, *where]


def supervise(argv: Sequence[str], variables: Mapping[str, str]) -> int:
    """Run to the end, and answer with its exit code (128 and the signal, if one ended it)."""
    stopped: list[int] = []
    children: list[subprocess.Popen[bytes]] = []

    def stop(number: int, _frame: object) -> None:
        stopped.append(number)
        for child in children:
            child.send_signal(signal.SIGINT)

    # before the child is there: a stop is never lost, and what is caught here is not ignored there
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    # and it waits in the child until bench has loaded: before, an interpreter leaves with 1
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    with subprocess.Popen(argv, env=variables, start_new_session=True) as child:  # noqa: S603 - bench
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        children.append(child)
        if stopped:
            child.send_signal(signal.SIGINT)
        while True:  # as process 1 it inherits every process whose parent died
            pid, status = os.waitpid(-1, 0)
            if pid == child.pid:
                child.returncode = os.waitstatus_to_exitcode(status)
                break
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def is_mounted(path: Path) -> bool:
    """Whether a folder of the host lies at `path`."""
    table = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    return any(line.split()[4] == str(path) for line in table.splitlines())


def main(words: Sequence[str], out: Path = OUT) -> int:
    """Run bench with `words`; its exit code, or 2 where `out` takes no file."""
    work = private_folder(out)
    if work is None and (not words or words[0] in WRITING):
        print(
            f"bench: {out} cannot be written by user {os.getuid()}, so no evidence could be "
            f"kept; start with: {line_to_run()}",
            file=sys.stderr,
        )
        return 2
    if work is None:  # verify, list and their like read only
        return supervise(command(words, out), os.environ)
    try:
        code = supervise(command(words, out), environment(os.environ, work))
    finally:
        shutil.rmtree(work, ignore_errors=True)
        if not any((out / ".work").iterdir()):
            (out / ".work").rmdir()
    has_evidence = any(out.glob("*/plan.json"))
    if words and words[0] in WRITING and has_evidence and not is_mounted(out):
        name = os.environ.get("HOSTNAME", "CONTAINER")
        print(
            f"\n{out} is inside this container, and the evidence goes with it.\n"
            f"To keep it, copy it out, unless the container was started with --rm:\n"
            f"    docker cp {name}:{out}/. out\n"
            f"or run again with a folder for it:\n"
            f"    {line_to_run()}",
            file=sys.stderr,
        )
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
