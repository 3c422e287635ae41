"""The environment that every child is given: chosen by name, and pointing into the run's folder.

A child inherits what its parent has, except what would change which code runs (LD_PRELOAD) and
what belongs to the signer. Homes, temporary files and caches lie in the run's working folder,
so that nothing is written elsewhere and nothing is read that another run left. Threads are
fixed before any library is loaded: one per physical core that this process may use, which is
what a numerical library gains from. The processes of one launch meet on the loopback interface,
which is there without a network and whatever the host is called.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path

import appliance
from appliance.linux.cgroup import cpu_quota
from appliance.linux.sysfs import Tree, Unreadable

REFUSED = ("LD_PRELOAD", "LD_AUDIT", "BENCH_SIGN_")
"""Names, or their beginnings, that no child is given."""
FLAGS = "_FLAGS"
"""How the name of a variable ends that holds several settings, one after the other."""
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_FOLDERS = {
    "HOME": "home",
    "TMPDIR": "tmp",
    "XDG_CACHE_HOME": "cache",
    "XDG_CONFIG_HOME": "config",
    "HF_HOME": "cache/huggingface",
    "TORCH_HOME": "cache/torch",
    "TORCHINDUCTOR_CACHE_DIR": "cache/inductor",
    "TRITON_CACHE_DIR": "cache/triton",
    "NUMBA_CACHE_DIR": "cache/numba",
    "JAX_COMPILATION_CACHE_DIR": "cache/jax",
    "MPLCONFIGDIR": "cache/matplotlib",
}
_FIXED = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # From 1.29 on, importing ONNX Runtime starts an uploader: a thread, which no fork may have,
    # a file that identifies this machine, and connections (microsoft/onnxruntime, pull request
    # 27379, which says that this leaves out all of it).
    "ORT_DISABLE_TELEMETRY": "1",
    # pyarrow, which transformers and scikit-learn import where it is there, brings a jemalloc that
    # starts a thread as it is loaded, and no fork may have one. This is the variable that jemalloc
    # reads as Arrow builds it, with the prefix je_arrow_; pages are then purged as memory is freed.
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    # JAX keeps only what compiled for a second unless it is told otherwise; a small row has
    # dozens of programs that compile for less.
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
    "GLOO_SOCKET_IFNAME": "lo",
}


def child_environment(
    *,
    inherited: Mapping[str, str],
    work: Path,
    num_threads: int,
    vendor: Mapping[str, str],
    tokens: Mapping[str, str],
    library_mode: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Variables of a child; makes the folders that they name.

    `vendor` shows it its devices; `library_mode` are those of another mode than the default.
    """
    for folder in _FOLDERS.values():
        (work / folder).mkdir(parents=True, exist_ok=True)
    return {
        **{name: value for name, value in inherited.items() if not name.startswith(REFUSED)},
        **dict.fromkeys(_THREADS, str(num_threads)),
        **{name: str(work / folder) for name, folder in _FOLDERS.items()},
        **_FIXED,
        "PYTHONPATH": _python_path(inherited.get("PYTHONPATH", "")),
        **vendor,
        **{
            name: _added(inherited.get(name, ""), value) if name.endswith(FLAGS) else value
            for name, value in (library_mode or {}).items()
        },
        **tokens,
    }


def _added(inherited: str, flags: str) -> str:
    """What the user has set, then our flags: of two that differ, the last one holds."""
    return f"{inherited} {flags}".strip()


def _python_path(inherited: str) -> str:
    """Lets the child find this very package, where it is not installed, from any folder."""
    parts = [part for part in inherited.split(os.pathsep) if part]
    here = Path(appliance.__file__).parents[1]
    is_installed = here.name in ("site-packages", "dist-packages")
    return os.pathsep.join(parts if is_installed else [str(here), *parts])


def usable_cores(tree: Tree | None = None) -> int:
    """Physical cores that this process may use: of its affinity, and within its quota."""
    tree = tree or Tree()
    allowed = os.sched_getaffinity(0)
    cores = {_core(tree, number) for number in allowed}
    try:
        quota = cpu_quota(tree)
    except Unreadable:
        quota = None
    return max(1, min(len(cores), len(cores) if quota is None else math.ceil(quota)))


def _core(tree: Tree, processor: int) -> tuple[int, ...]:
    """The physical core of a processor; the processor itself where the kernel does not say."""
    folder = f"/sys/devices/system/cpu/cpu{processor}/topology"
    try:
        return tree.numbers(f"{folder}/thread_siblings_list")
    except Unreadable:
        return (processor,)
