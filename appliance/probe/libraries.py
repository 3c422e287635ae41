"""The libraries that compute: their versions, and how torch is built, without importing any.

Versions are those of the installed packages. torch's header says what it is built with, and the
processors which of its kernels it chooses; where the two do not, only an import can, which is the
worker's.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping, Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from appliance import extras
from appliance.linux.processors import Processors
from appliance.linux.sysfs import Tree, Unreadable
from appliance.records.system import DeviceLibraries, Fact, Facts

LIBRARIES = (
    *("torch", "transformers", "onnxruntime", "onnx", "onnxscript", "numpy", "scipy"),
    *("scikit-learn", "pillow", "diffusers", "torch-geometric", "lightning", "peft"),
    *("jax", "jaxlib", "optax", "brax", "gymnax", "six", "ale-py"),
)
"""Whose versions are recorded: all that a workload needs, by which a case is planned or not."""
ONNX, JAX = "onnxruntime", "jax"
HEADER = "include/ATen/Config.h"
"""Of the torch package: what it is built with."""
CHOICE = "ATEN_CPU_CAPABILITY"
"""Variable by which a user chooses torch's kernels himself."""
CAPABILITIES = {
    "AVX512": frozenset({"avx512vl", "avx512bw", "avx512dq", "fma"}),
    "AVX2": frozenset({"avx2", "fma"}),
}
"""Instructions by which torch chooses, the best first (ATen/native/DispatchStub.cpp)."""


def version(library: str) -> Fact:
    """The version of a library by its package."""
    number = extras.installed_version(library)
    hint = f"{library} is not installed" if number is None else ""
    return Fact(value=number, source="package metadata", hint=hint)


def versions() -> Facts:
    """Those of all libraries that a workload needs."""
    return {library: version(library) for library in LIBRARIES}


def software(
    num_threads: int, environment: Mapping[str, str], tree: Tree | None = None
) -> Facts | None:
    """Versions, and what torch is built with; None where only an import can tell.

    `num_threads` are those that children are given.
    """
    capability = _capability(tree or Tree(), environment)
    header = _header()
    if capability is None or header.get("AT_MKL_ENABLED") != "1":
        return None  # another library for matrices, which the header does not name
    facts = {
        "torch_cpu_capability": Fact(value=capability, source="/proc/cpuinfo"),
        "torch_blas": Fact(value="mkl", source=HEADER),
        "torch_onednn": Fact(value=header.get("AT_MKLDNN_ENABLED") == "1", source=HEADER),
        "torch_threads": Fact(value=num_threads, source="cores of this process"),
        "python": Fact(value=platform.python_version(), source="interpreter"),
    }
    return {**versions(), **facts}


def _capability(tree: Tree, environment: Mapping[str, str]) -> str | None:
    """Which kernels torch chooses on these processors; None on others than x86."""
    if CHOICE in environment:
        return None
    processors = Processors(tree)
    try:
        processors.stated("flags")
        known = set(processors.instruction_sets().split())
    except Unreadable:
        return None
    return next((name for name, needed in CAPABILITIES.items() if needed <= known), "DEFAULT")


def _header() -> Mapping[str, str]:
    """The definitions of torch's header; none where there is no such file."""
    spec = find_spec("torch")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder, HEADER)
        if path.is_file():
            return dict(re.findall(r"^#define (\w+)\(\) (\d)$", path.read_text(), re.MULTILINE))
    return {}


# ------------------------------------------------------------------ what the devices lack


def provider_lack(wanted: DeviceLibraries, available: Sequence[str]) -> str:
    """What ONNX Runtime lacks for these devices, of which it has these providers; or empty."""
    plugin, name = wanted.onnx_plugin, wanted.onnx_provider
    if name in available or (plugin and find_spec(plugin)):
        return ""
    package = wanted.onnx_package
    fix = f"pip install {package}" + ("" if plugin else f", in place of {ONNX}")
    return f"ONNX Runtime has no {name}, only {', '.join(available) or 'none'}: {fix}"


def has_provider(wanted: DeviceLibraries) -> bool:
    """Whether the package is installed that brings the provider; only an import is sure of it."""
    if wanted.onnx_plugin and find_spec(wanted.onnx_plugin):
        return True
    try:
        metadata.version(wanted.onnx_package)
    except metadata.PackageNotFoundError:
        return False
    return not wanted.onnx_plugin


def plugin_lack(wanted: DeviceLibraries) -> str:
    """What JAX lacks for these devices; or empty."""
    if not wanted.jax_plugins or any(map(find_spec, wanted.jax_plugins)):
        return ""
    return f"JAX has no plug-in for this device: pip install {wanted.jax_package}"
