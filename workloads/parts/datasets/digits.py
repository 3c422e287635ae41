"""Handwritten digits: 1,797 scanned images of 8 x 8 pixels, in the file that scikit-learn brings.

The file is read where it lies. Importing `sklearn.datasets`, which reads the same one, takes as
long as all else that a small launch imports.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def package_file(package: str, path: str) -> Path:
    """A file of an installed package, which is not imported; ModuleNotFoundError without it."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
    return Path(spec.submodule_search_locations[0]) / path


FILE = package_file("sklearn", "datasets/data/digits.csv.gz")


def digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Brightness of each pixel, images x 64, from 0 to 16; and the digit that each image shows."""
    table = np.loadtxt(FILE, delimiter=",")
    return table[:, :-1], table[:, -1].astype(np.int64)
