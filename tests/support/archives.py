"""Archives of data sets as their publishers make them."""

from __future__ import annotations

import io
import struct
import tarfile
from pathlib import Path

import numpy as np
import torch
from support.labelled_images import labelled_images

from workloads.parts.datasets.restricted_pickle import Matrix

ARRAY = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"

NUM_TRAINING, NUM_HELD_OUT = 120, 200

FOLDER = "cifar-10-batches-py"


def old_pickle(value: object) -> bytes:
    """The value as Python 2 wrote it in protocol 2, as far as these data sets go."""
    return b"\x80\x02" + _written(value) + b"."


def _written(value: object) -> bytes:
    match value:
        case bytes():
            written = b"T" + struct.pack("<i", len(value)) + value
        case int():
            written = b"J" + struct.pack("<i", value)
        case list():
            written = b"](" + b"".join(map(_written, value)) + b"e"
        case tuple():
            written = b"(" + b"".join(map(_written, value)) + b"t"
        case dict():
            written = b"}(" + b"".join(_written(k) + _written(v) for k, v in value.items()) + b"u"
        case Matrix():
            names = {"_shape": "shape", "indptr": "offsets", "indices": "columns", "data": "data"}
            state = {new.encode(): getattr(value, old) for new, old in names.items()}
            written = b"cscipy.sparse.csr\ncsr_matrix\n)\x81" + _written(state) + b"b"
        case np.ndarray():
            parts = _written(value.shape), _format(value.dtype), b"\x89", _written(value.tobytes())
            written = ARRAY + b"(K\x01" + b"".join(parts) + b"tb"
    return written


def _format(dtype: np.dtype) -> bytes:
    order = b"|" if dtype.itemsize == 1 else b"<"
    made = b"cnumpy\ndtype\n" + _written(dtype.str[1:].encode()) + b"K\x00K\x01\x87R"
    return made + b"(K\x03" + _written(order) + b"NNN" + 2 * b"J\xff\xff\xff\xff" + b"K\x00tb"


def an_archive(path: Path, changes: dict[str, bytes | None] | None = None) -> Path:
    """Images with a pattern by class in an archive of CIFAR-10's format; None leaves one out."""
    rng = torch.Generator().manual_seed(7)
    members: dict[str, bytes | None] = {
        f"{FOLDER}/batches.meta": old_pickle({b"label_names": [b"%d" % n for n in range(10)]})
    }
    counts = {f"data_batch_{number}": NUM_TRAINING for number in range(1, 6)}
    for name, count in {**counts, "test_batch": NUM_HELD_OUT}.items():
        images, labels = labelled_images(rng, count=count, side=32, classes=10)
        pixels = (128 + 50 * images).clamp(0, 255).to(torch.uint8).flatten(1).numpy()
        members[f"{FOLDER}/{name}"] = old_pickle(
            {
                b"batch_label": name.encode(),
                b"labels": labels.tolist(),
                b"data": pixels,
                b"filenames": [b"%05d.png" % number for number in range(count)],
            }
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, contents in (members | (changes or {})).items():
            if contents is not None:
                member = tarfile.TarInfo(name)
                member.size = len(contents)
                archive.addfile(member, io.BytesIO(contents))
    return path
