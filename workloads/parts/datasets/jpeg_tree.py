"""A tree of JPEG files that a classifier can learn from, written by a real encoder.

Every class has a coarse pattern of its own; every image adds structure of its own, down to single
pixels, and has one of four shapes. With 500 pixels for the longer side a file has 99 kB on average
(measured: 40 files, 91 to 103 kB).

The manifest names each file with its class and two digests, of its bytes and of the pixels that it
decoded to when it was written. Who has the manifest can tell a file that changed, and a decoder
that does.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from workloads.contract.target import Artifacts

_FOLDER, _MANIFEST = "jpeg_tree", "jpeg_tree.json"
_COARSE = 8
_SHAPES = ((1.0, 0.75), (0.75, 1.0), (1.0, 2 / 3), (0.85, 0.85))
"""Width and height of a file, as shares of the longest side."""
_QUALITY = 90
_OWN, _FINE = 40.0, 21.0
"""Standard deviations of an image's own coarse and finest structure, of 256 levels."""

Pixels = NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class File:
    """One image: path in the tree, class, size in pixels, SHA-256 of its bytes and its pixels."""

    path: str
    label: int
    width: int
    height: int
    encoded: str
    decoded: str


@dataclass(frozen=True, kw_only=True)
class Tree:
    folder: Path
    files: tuple[File, ...]


def tree(artifacts: Artifacts, *, seed: int, count: int, classes: int, longest: int) -> Tree:
    """Return the run's tree of `count` images; it is written the first time it is asked for."""

    def make(path: Path) -> None:
        folder = path.parent / _FOLDER
        files = _write(folder, seed=seed, count=count, classes=classes, longest=longest)
        path.write_text(json.dumps([asdict(file) for file in files], indent=1))

    manifest = artifacts.once(_MANIFEST, make)
    files = tuple(File(**fields) for fields in json.loads(manifest.read_text()))
    return Tree(folder=manifest.parent / _FOLDER, files=files)


def _write(folder: Path, *, seed: int, count: int, classes: int, longest: int) -> Sequence[File]:
    labels = np.random.default_rng([seed, count]).integers(classes, size=count)

    def write(index: int) -> File:
        return _write_one(folder, seed=seed, index=index, label=int(labels[index]), longest=longest)

    # Pillow and numpy let other threads run while they work on an image.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(write, range(count)))


def _write_one(folder: Path, *, seed: int, index: int, label: int, longest: int) -> File:
    image = _draw(np.random.default_rng([seed, index]), label, longest)
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=_QUALITY)
    encoded = buffer.getvalue()
    path = folder / f"{label:04}" / f"{index:06}.jpeg"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(encoded)
        file.flush()
        os.fsync(file.fileno())  # only what lies on the disk can be dropped from memory
    return File(
        path=str(path.relative_to(folder)),
        label=label,
        width=image.shape[1],
        height=image.shape[0],
        encoded=hashlib.sha256(encoded).hexdigest(),
        decoded=digest(decode(encoded)),
    )


def _draw(rng: np.random.Generator, label: int, longest: int) -> Pixels:
    """Height by width by 3: the pattern of the class, and what this image has of its own."""
    wide, high = _SHAPES[rng.integers(len(_SHAPES))]
    size = round(longest * wide), round(longest * high)
    pattern = np.random.default_rng(label).normal(128, 48, (_COARSE, _COARSE, 3))
    own = rng.normal(0, _OWN, (2 * _COARSE, 2 * _COARSE, 3))
    fine = rng.normal(0, _FINE, (size[1], size[0], 3))
    return _bytes(_smooth(pattern, size) + _smooth(own + 128, size) - 128 + fine)


def _smooth(grid: NDArray[np.float64], size: tuple[int, int]) -> NDArray[np.float64]:
    return np.asarray(Image.fromarray(_bytes(grid)).resize(size, Image.Resampling.BICUBIC), float)


def _bytes(values: NDArray[np.float64]) -> Pixels:
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def decode(encoded: bytes) -> Pixels:
    """Height by width by 3; raises OSError for what is no whole JPEG."""
    with Image.open(io.BytesIO(encoded)) as image:
        return np.asarray(image.convert("RGB"))


def digest(pixels: Pixels) -> str:
    """SHA-256 of size and pixels."""
    total = hashlib.sha256(repr(pixels.shape).encode())
    total.update(np.ascontiguousarray(pixels).tobytes())
    return total.hexdigest()
