"""CIFAR-10 from its archive, and crops of it to train on.

The archive is read member by member as it is unpacked, in memory: nothing is written, so no name in
it can lead anywhere. Its members are pickles, read by `parts/datasets/restricted_pickle.py`.
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from workloads.contract.failures import ParameterError
from workloads.parts.datasets import restricted_pickle
from workloads.parts.datasets.restricted_pickle import Array

DATASET, ARCHIVE = "cifar-10", "cifar-10-python.tar.gz"
SIDE, CLASSES = 32, 10
SHIFT = 4
"""Pixels by which a crop may be off the middle, each way."""
CUT = 8
"""Side of the square that is blanked out of every crop."""
_FOLDER = "cifar-10-batches-py"
_TRAINING = tuple(f"{_FOLDER}/data_batch_{number}" for number in range(1, 6))
_HELD_OUT = f"{_FOLDER}/test_batch"
_LARGEST = 64 << 20
"""Bytes of a member; those of CIFAR-10 have 31 million."""
_MEAN, _SD = (125.3, 123.0, 113.9), (63.0, 62.1, 66.7)
"""Of the published training images, by colour."""


@dataclass(frozen=True, kw_only=True)
class Images:
    """`pixels` (count, 3, 32, 32) of 0 to 255 as uint8, `labels` (count,) of 0 to 9 as int64."""

    pixels: torch.Tensor
    labels: torch.Tensor


def read(path: Path) -> tuple[Images, Images]:
    """Read an archive: the images to train on and those held out, on the host.

    Raises ParameterError if it is no archive of this kind, or a member of it is refused.
    """
    members = _members(path)
    missing = [name for name in (*_TRAINING, _HELD_OUT) if name not in members]
    if missing:
        raise ParameterError(f"{path} lacks {missing[0]}: fetch it with `bench data fetch`")
    training = [_images(members[name], f"{name} of {path}") for name in _TRAINING]
    return (
        Images(
            pixels=torch.cat([part.pixels for part in training]),
            labels=torch.cat([part.labels for part in training]),
        ),
        _images(members[_HELD_OUT], f"{_HELD_OUT} of {path}"),
    )


def _members(path: Path) -> dict[str, bytes]:
    """Contents of the members that are wanted, by name; links and devices are not."""
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r|gz") as archive:
            for member in archive:
                is_wanted = member.name in _TRAINING or member.name == _HELD_OUT
                if not (is_wanted and member.isreg()):
                    continue
                if member.size > _LARGEST or member.name in contents:
                    raise ParameterError(
                        f"{path} has {member.name} twice, or too large: fetch it again"
                    )
                stream = archive.extractfile(member)
                assert stream is not None  # noqa: S101 - a regular member has contents
                contents[member.name] = stream.read()
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        reason = str(error) or type(error).__name__
        raise ParameterError(
            f"{path} cannot be read as a packed archive ({reason}): fetch it again"
        ) from None
    return contents


def _images(data: bytes, source: str) -> Images:
    match restricted_pickle.load(data, source):
        case {b"data": Array(value=pixels), b"labels": list(labels)}:
            pass
        case _:
            raise ParameterError(f"{source} holds no images with labels: fetch it again")
    values = 3 * SIDE * SIDE
    is_whole = pixels.dtype == np.uint8 and pixels.shape == (len(labels), values) and labels
    if not (is_whole and all(type(label) is int and 0 <= label < CLASSES for label in labels)):
        raise ParameterError(f"{source} holds other images than 32 x 32 in ten classes")
    return Images(pixels=_tensor(pixels), labels=torch.tensor(labels))


def _tensor(pixels: NDArray[np.generic]) -> torch.Tensor:
    return torch.from_numpy(pixels.copy()).view(-1, 3, SIDE, SIDE)


def normalised(pixels: torch.Tensor) -> torch.Tensor:
    """Pixels (..., 3, 32, 32) as float32 of mean 0 and standard deviation 1, about."""
    mean, sd = (torch.tensor(of, device=pixels.device).view(3, 1, 1) for of in (_MEAN, _SD))
    return (pixels.float() - mean) / sd


# ------------------------------------------------------------------ what is trained on


@dataclass(kw_only=True)
class Crops:
    """Batches of images that are shifted, mirrored and have a square blanked, drawn beforehand.

    `chosen` (steps, batch) are numbers of images; `shifts` (2, steps, batch) rows and columns
    of 0 to 8 that a crop begins at in the image with four mirrored pixels around it;
    `is_mirrored` (steps, batch); `corners` (2, steps, batch) of the blanked squares.
    """

    images: Images
    chosen: torch.Tensor
    shifts: torch.Tensor
    is_mirrored: torch.Tensor
    corners: torch.Tensor
    places: torch.Tensor

    def __getitem__(self, index: int) -> Mapping[str, torch.Tensor]:
        chosen = self.chosen[index]
        rows, columns = (_mirror(shift[index, :, None] + self.places) for shift in self.shifts)
        columns = torch.where(self.is_mirrored[index, :, None], columns.flip(1), columns)
        pixels = self.images.pixels[chosen[:, None, None], :, rows[:, :, None], columns[:, None]]
        inputs = normalised(pixels.permute(0, 3, 1, 2))
        down, across = (self._is_blank(corner[index]) for corner in self.corners)
        is_blank = down[:, None, :, None] & across[:, None, None, :]
        return {
            "inputs": inputs.masked_fill(is_blank, 0.0),
            "labels": self.images.labels[chosen],
        }

    def copied_to(self, device: torch.device) -> Crops:
        """The same batches in the memory of a device, nothing of it shared with these."""
        copied = {
            item.name: getattr(self, item.name).to(device, copy=True)
            for item in fields(self)
            if item.name != "images"
        }
        images = Images(
            pixels=self.images.pixels.to(device, copy=True),
            labels=self.images.labels.to(device, copy=True),
        )
        return Crops(images=images, **copied)

    def _is_blank(self, corner: torch.Tensor) -> torch.Tensor:
        distance = self.places - corner[:, None]
        return (distance >= 0) & (distance < CUT)


def _mirror(places: torch.Tensor) -> torch.Tensor:
    """Rows or columns of the image that the padded ones show."""
    inside = (places - SHIFT).abs()
    return (SIDE - 1) - ((SIDE - 1) - inside).abs()


def crops(images: Images, generator: torch.Generator, *, steps: int, batch: int) -> Crops:
    """Draw `steps` batches: one random order of all images after another, each its own crop."""
    count, shape = len(images.labels), (steps, batch)
    passes = -(-steps * batch // count)
    order = torch.cat([torch.randperm(count, generator=generator) for _ in range(passes)])
    shifts = torch.randint(2 * SHIFT + 1, (2, *shape), generator=generator)
    corners = torch.randint(SIDE - CUT + 1, (2, *shape), generator=generator)
    is_mirrored = torch.rand(shape, generator=generator) < 0.5  # noqa: PLR2004 - every other one
    return Crops(
        images=images,
        chosen=order[: steps * batch].view(shape),
        shifts=shifts,
        is_mirrored=is_mirrored,
        corners=corners,
        places=torch.arange(SIDE),
    )
