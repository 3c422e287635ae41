"""Stress whose memory, products, file, copies or links are damaged on the way to the comparison.

Run as a program, it is the process of a kind of stress with a fault of that kind: one bit. That of
links has a second process of its own for its partner, so that one launch alone shows it. Messages,
counts, checks and rulings are those of production.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from workloads.parts.burning.exact_pair import ExactPair
from workloads.parts.memory.memory_tests import Memory
from workloads.parts.memory.planted_memory_faults import FaultyMemory, StuckBit
from workloads.parts.stress import process
from workloads.parts.stress.copies import Copies
from workloads.parts.stress.disk import Disk
from workloads.parts.stress.host import Host
from workloads.parts.stress.links import Links
from workloads.parts.stress.stressors import PROCESS, Request, Stressor
from workloads.parts.stress.turns import Load, Turn

ADDRESS, BIT = 77, 5
PARTNER = "a second process"
_partners: list[Stressor] = []


@dataclass(kw_only=True)
class StuckMemory(Host):
    """One bit of each part of the host's memory is stuck."""

    def memory(self, words: torch.Tensor) -> Memory:
        return FaultyMemory(words=words, faults=[StuckBit(address=ADDRESS, bit=BIT)])


@dataclass(kw_only=True)
class WrongProduct(Host):
    """One bit of the product with this number flips."""

    wrong: int = 1
    made: int = 0

    def multiply(self, pair: ExactPair) -> torch.Tensor:
        out = super().multiply(pair)
        self.made += 1
        if self.made == self.wrong:
            out.view(torch.int32)[3, 5] ^= 1
        return out


def flip_on_disk(disk: Disk, offset: int) -> None:
    """Flip the lowest bit of a byte of the file, where it lies."""
    with Path(f"/proc/self/fd/{disk.file.number}").open("r+b", buffering=0) as file:
        (byte,) = os.pread(file.fileno(), 1, offset)
        os.pwrite(file.fileno(), bytes([byte ^ 1]), offset)
        os.fsync(file.fileno())


@dataclass(kw_only=True)
class RottenDisk(Disk):
    """One bit of the file flips before the first turn."""

    def turn(self) -> Turn:
        if self.number == 0:
            flip_on_disk(self, 8 * ADDRESS)
        return super().turn()


@dataclass(kw_only=True)
class BadWay(Copies):
    """One bit flips in each copy to the device, or in the copies whose numbers are given."""

    wrong: tuple[int, ...] | None = None
    made: int = 0

    def copy(self, into: torch.Tensor, source: torch.Tensor) -> None:
        super().copy(into, source)
        self.made += 1
        if into is self.there if self.wrong is None else self.made in self.wrong:
            into[ADDRESS] ^= 1 << BIT


@dataclass(kw_only=True)
class BadLink(Links):
    """One bit flips in what comes from the first of the other devices, each way, at each time."""

    def move(self, name: str, own: torch.Tensor) -> None:
        super().move(name, own)
        row = self.total if name == "sum" else self.received[self.rank - 1]
        row[ADDRESS] ^= 1 << BIT


def _remade(cls: type[Load], kind: str) -> Callable[[process.Request], Load]:
    """A maker whose loads are of a class with a fault."""

    def make(request: process.Request) -> Load:
        load = process.MAKERS[kind](request)
        load.__class__ = cls
        return load

    return make


def _link(request: process.Request) -> Load:
    """Links between the devices that were named, or to a partner where one alone was."""
    if "," in str(request["names"]):
        return _remade(BadLink, "links")(request)
    own = process.make_links(_with_partner(request))
    own.__class__ = BadLink
    return own


def _with_partner(request: process.Request) -> process.Request:
    """The request of the first of two devices; the second is a process that is begun here."""
    fields = {name: value for name, value in request.items() if name != "parent"}
    names, folder = f"{request['names']},{PARTNER}", tempfile.mkdtemp()
    both = {**fields, "names": names, "folder": folder}
    _partners.append(Stressor.begin(Request(**{**both, "rank": 1}), PROCESS))  # type: ignore[arg-type]
    return {**both, "rank": 0}


FAULTY: Mapping[str, Callable[[process.Request], Load]] = {
    "host": _remade(StuckMemory, "host"),
    "disk": _remade(RottenDisk, "disk"),
    "copies": _remade(BadWay, "copies"),
    "links": _link,
}

if __name__ == "__main__":
    process.main(FAULTY)
