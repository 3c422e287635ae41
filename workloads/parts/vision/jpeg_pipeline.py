"""From JPEG files to batches on the device: read, decode, crop, resize, mirror, normalise.

Processes of torch's DataLoader read and decode; each makes whole batches and writes them into a
ring of buffers that it shares with the training process, so that nothing but numbers passes
between them, and neither the size of /dev/shm nor a copy limits the rate. A file's pages are
dropped from the host's memory when it has been read, so that the next pass reads the disk again;
on a file system that lies in memory that changes nothing.

Files come in a new order in every pass. A crop has 8 to 100 % of the area and a ratio of 3:4 to
4:3, is resized bilinearly and mirrored half of the time: the usual recipe of ImageNet. Order and
crops follow from the seed and the image's position alone, whichever process makes it and when.
Pixels become numbers of about unit variance by a difference and a quotient by a power of two: both
are exact in float32, so every device makes the same bits of the same files.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import mmap
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageFile
from torch.utils.data import DataLoader, Dataset

from workloads.parts.datasets.jpeg_tree import File, Pixels, Tree, decode, digest

_AHEAD = 2
"""Batches that each process may be ahead."""
_MIDDLE, _UNIT = 127.5, 64.0
_LEAST_AREA, _RATIO, _TRIES = 0.08, 4 / 3, 10
_NUM_CACHED = 2

Box = tuple[int, int, int, int]


@dataclass(frozen=True, kw_only=True)
class Course:
    """Which crop of which file is where, for all steps: of `tree`, in an order by `seed`."""

    tree: Tree
    seed: int
    batch: int
    side: int

    def files(self, number: int) -> list[File]:
        """Files of the batch with this number, from 0; a pass ends with a batch."""
        count = len(self.tree.files)
        epoch, first = divmod(number * self.batch, count)
        order = _order(self.seed, epoch, count)
        return [self.tree.files[index] for index in order[first : first + self.batch]]

    def crop(self, number: int, place: int, file: File) -> tuple[Box, bool]:
        """Left, top, right and bottom in pixels, and whether it is mirrored."""
        rng = np.random.default_rng([self.seed, number * self.batch + place])
        return _box(rng, file.width, file.height), bool(rng.integers(2))


@functools.lru_cache(maxsize=2)
def _order(seed: int, epoch: int, count: int) -> list[int]:
    order: list[int] = np.random.default_rng([seed, epoch, count]).permutation(count).tolist()
    return order


def _box(rng: np.random.Generator, width: int, height: int) -> Box:
    """A random part of the image, or the middle if none of ten fits."""
    for _ in range(_TRIES):
        area = width * height * rng.uniform(_LEAST_AREA, 1)
        ratio = math.exp(rng.uniform(-math.log(_RATIO), math.log(_RATIO)))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            left = int(rng.integers(width - wide + 1))
            top = int(rng.integers(height - high + 1))
            return left, top, left + wide, top + high
    wide, high = min(width, round(height * _RATIO)), min(height, round(width * _RATIO))
    left, top = (width - wide) // 2, (height - high) // 2
    return left, top, left + wide, top + high


def _resized(image: Image.Image, box: Box, side: int, *, is_mirrored: bool) -> Pixels:
    pixels = np.asarray(image.resize((side, side), Image.Resampling.BILINEAR, box=box))
    return pixels[:, ::-1] if is_mirrored else pixels


# ------------------------------------------------------------------ in the loop


class Pipeline:
    """The batches of a course on the device, in their order; the last two are kept."""

    def __init__(
        self, course: Course, *, workers: int, device: torch.device, layout: torch.memory_format
    ) -> None:
        self.course = course
        # What a training starts from, for who compares two: the pixels come when asked for.
        digests = "".join(file.encoded + file.decoded for file in course.tree.files)
        self.digests = np.frombuffer(digests.encode(), np.uint8)
        self._arrivals = _arrivals(course, workers)
        self._device = device
        self._layout = layout
        self._cached: dict[int, dict[str, torch.Tensor]] = {}
        self._next = 0

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        """Return the batch of a step; waits for it, and for those before it."""
        while self._next <= number:
            pixels, labels = next(self._arrivals)
            self._cached[self._next] = self._placed(pixels, labels)
            self._cached.pop(self._next - _NUM_CACHED, None)
            self._next += 1
        return self._cached[number]

    def _placed(self, pixels: torch.Tensor, labels: list[int]) -> dict[str, torch.Tensor]:
        images = pixels.permute(0, 3, 1, 2).to(self._device).to(torch.float32)
        images = images.sub_(_MIDDLE).div_(_UNIT).contiguous(memory_format=self._layout)
        return {"pixel_values": images, "labels": torch.tensor(labels).to(self._device)}


def _arrivals(course: Course, workers: int) -> Iterator[tuple[torch.Tensor, list[int]]]:
    """Pixels (batch, side, side, 3) of one batch after the other, and its classes.

    The pixels lie in a buffer that is written again once the next batch is asked for.
    """
    buffers = _Buffers.allocated(course, count=workers * _AHEAD + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of more processes than processors, which a case may ask
        loader = DataLoader(
            _Batches(course, buffers),
            batch_size=None,
            sampler=itertools.count(),
            num_workers=workers,
            prefetch_factor=_AHEAD,
            collate_fn=_as_it_is,
            multiprocessing_context="fork",  # which shares the buffers
        )
        arrivals = iter(loader)
    for number, labels in arrivals:
        yield torch.from_numpy(buffers[number]), labels


def _as_it_is(batch: Any) -> Any:
    return batch


@dataclass(frozen=True)
class _Buffers:
    """A ring of batches in memory that processes share which are forked from this one.

    The loader hands out one task more when a batch is taken, so as many buffers are written or
    waiting as tasks are out, and one is read.
    """

    pixels: Pixels

    @classmethod
    def allocated(cls, course: Course, count: int) -> _Buffers:
        shape = (count, course.batch, course.side, course.side, 3)
        shared = mmap.mmap(-1, math.prod(shape))
        return cls(np.frombuffer(shared, dtype=np.uint8).reshape(shape))

    def __getitem__(self, number: int) -> Pixels:
        pixels: Pixels = self.pixels[number % len(self.pixels)]
        return pixels


class _Batches(Dataset[tuple[int, list[int]]]):
    """In a process of the loader: makes the batch with a number, and gives its classes."""

    def __init__(self, course: Course, buffers: _Buffers) -> None:
        self.course = course
        self.buffers = buffers

    def __getitem__(self, number: int) -> tuple[int, list[int]]:
        course, buffer = self.course, self.buffers[number]
        files = course.files(number)
        ImageFile.LOAD_TRUNCATED_IMAGES = False  # whatever a library made of it before the fork
        for place, file in enumerate(files):
            box, is_mirrored = course.crop(number, place, file)
            with (course.tree.folder / file.path).open("rb") as stream:
                with Image.open(stream) as image:
                    buffer[place] = _resized(
                        image.convert("RGB"), box, course.side, is_mirrored=is_mirrored
                    )
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return number, [file.label for file in files]


# ------------------------------------------------------------------ for the check


@dataclass(frozen=True, kw_only=True)
class Again:
    """A batch made anew: float32 images (batch, 3, side, side), classes, and what is amiss.

    `changed` counts files that are not as they were written, `misread` those that decode to other
    pixels than when they were.
    """

    images: torch.Tensor
    labels: torch.Tensor
    changed: int
    misread: int


def again(course: Course, number: int) -> Again:
    """Make a batch from its files in this process, one after the other."""
    images, changed, misread = [], 0, 0
    files = course.files(number)
    for place, file in enumerate(files):
        encoded = (course.tree.folder / file.path).read_bytes()
        changed += hashlib.sha256(encoded).hexdigest() != file.encoded
        pixels = decode(encoded)
        misread += digest(pixels) != file.decoded
        box, is_mirrored = course.crop(number, place, file)
        resized = _resized(Image.fromarray(pixels), box, course.side, is_mirrored=is_mirrored)
        images.append(torch.from_numpy(resized.transpose(2, 0, 1).astype(np.float32)))
    return Again(
        images=(torch.stack(images) - _MIDDLE) / _UNIT,
        labels=torch.tensor([file.label for file in files]),
        changed=changed,
        misread=misread,
    )
