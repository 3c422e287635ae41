"""Patterns written over memory and read back: stuck cells, shorted lines, wrong addresses.

All zeros and all ones show a cell that is stuck; 0x55 and 0xAA, the bits in turn, one that
follows its neighbour; the word's own address, and its inverse, a line of the address that is
stuck, so that two addresses share a cell. Words are of 64 bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

PATTERNS = ("zeros", "ones", "0x55", "0xaa", "address", "inverted address")
_CONSTANTS = {"zeros": 0, "ones": -1, "0x55": 0x5555555555555555, "0xaa": ~0x5555555555555555}
_PIECE = 2**22  # words compared at once: the marks of which are wrong take no more memory


@dataclass(frozen=True, kw_only=True)
class MismatchCount:
    """What was read back wrongly, on the device.

    `count` is the number of wrong words; `first` is (address, word read) of the first of them,
    (-1, 0) where there is none.
    """

    count: torch.Tensor
    first: torch.Tensor


def write(name: str, memory: torch.Tensor, address: int) -> None:
    """Fill `memory` (1-D, int64), whose first word has this address, with a pattern."""
    if name in _CONSTANTS:
        memory.fill_(_CONSTANTS[name])
        return
    for start, piece in _pieces(memory, address):
        torch.arange(start, start + len(piece), out=piece)
        if name != "address":
            piece.bitwise_not_()


def read_back(name: str, memory: torch.Tensor, address: int) -> MismatchCount:
    """Compare every word with the pattern, without waiting for the device."""
    count = torch.zeros((), dtype=torch.int64, device=memory.device)
    first = torch.tensor([-1, 0]).to(memory.device)
    for start, piece in _pieces(memory, address):
        wrong = piece != _expected(name, piece, start)
        number = wrong.sum()
        place = wrong.to(torch.uint8).argmax()
        here = torch.stack([place + start, piece.index_select(0, place.reshape(1))[0]])
        first = torch.where((count == 0) & (number > 0), here, first)
        count = count + number
    return MismatchCount(count=count, first=first)


def _expected(name: str, piece: torch.Tensor, start: int) -> int | torch.Tensor:
    if name in _CONSTANTS:
        return _CONSTANTS[name]
    addresses = torch.arange(start, start + len(piece), device=piece.device)
    return addresses if name == "address" else addresses.bitwise_not_()


def _pieces(memory: torch.Tensor, address: int) -> list[tuple[int, torch.Tensor]]:
    pieces = torch.split(memory, _PIECE)
    return [(address + number * _PIECE, piece) for number, piece in enumerate(pieces)]


def expected_word(name: str, address: int) -> int:
    """The word, as a signed 64-bit integer, that the pattern has at an address."""
    if name in _CONSTANTS:
        return _CONSTANTS[name]
    return address if name == "address" else ~address
