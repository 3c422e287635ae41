"""Whether the installed torch and Intel's extension for it belong together, without importing them.

Their packages do not require each other, so an installer mixes them without a word. The extension
itself ends the process if the first two numbers of the versions differ
(intel/intel-extension-for-pytorch, csrc: "needs to work with PyTorch/libtorch %d.%d.*"), which
would look like a crash of the first case; so they are compared when the node is probed.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

from appliance.errors import UsageError

EXTENSION = "intel-extension-for-pytorch"
INTEGER_PRODUCTS = (2, 9)
Version = Callable[[str], str]
"""Version of an installed distribution; raises PackageNotFoundError."""


def is_installed(name: str, of: Version = version) -> bool:
    try:
        of(name)
    except PackageNotFoundError:
        return False
    return True


def require_a_pair(of: Version = version) -> None:
    """Raise UsageError if the extension is installed and is not made for the torch that is."""
    if not is_installed(EXTENSION, of) or not is_installed("torch", of):
        return
    extension, torch = of(EXTENSION), of("torch")
    if _series(extension) != _series(torch):
        raise UsageError(
            f"{EXTENSION} {extension} does not work with torch {torch}: install torch "
            f"{_series(extension)}, or remove the extension (torch has xpu without it)"
        )


def has_integer_products(of: Version = version) -> bool:
    """Whether the installed torch multiplies 8-bit integers on these devices.

    It has the kernel of `torch._int_mm` from 2.9 on (pytorch/pytorch, native/mkldnn/xpu/Blas.cpp).
    """
    if not is_installed("torch", of):
        return False
    return tuple(map(int, _series(of("torch")).split("."))) >= INTEGER_PRODUCTS


def _series(number: str) -> str:
    """The first two numbers of a version: 2.8 of 2.8.10+xpu."""
    return ".".join(number.split(".")[:2])
