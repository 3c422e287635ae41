"""Memory modules from the SMBIOS table that the machine's firmware leaves for the system.

Structure type 17 of DSP0134 (System Management BIOS reference, 3.7): one per slot. The table
is read here rather than by dmidecode, which the image would have to carry and which prints for
people. A table that does not add up is refused whole: a list of modules that misses one would
be a wrong fact about what was bought.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

_MEMORY_DEVICE = 17
_END_OF_TABLE = 127
_HEADER = 4
_UNKNOWN = 0xFFFF  # as a size or a width
_EXTENDED_SIZE = 0x7FFF
_EXTENDED_SPEED = 0xFFFF
_KINDS = {
    0x0F: "SDRAM",
    0x12: "DDR",
    0x13: "DDR2",
    0x14: "DDR2 FB-DIMM",
    0x18: "DDR3",
    0x1A: "DDR4",
    0x1B: "LPDDR",
    0x1C: "LPDDR2",
    0x1D: "LPDDR3",
    0x1E: "LPDDR4",
    0x1F: "logical non-volatile",
    0x20: "HBM",
    0x21: "HBM2",
    0x22: "DDR5",
    0x23: "LPDDR5",
    0x24: "HBM3",
}


class DamagedTableError(ValueError):
    """The table does not follow the standard; the text says where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryModule:
    """One slot. None is what the firmware does not report; `size_bytes` 0 is an empty slot.

    Speeds are in transfers per second. Widths are in bits; a total width above the data width
    is error correction.
    """

    locator: str
    bank: str
    size_bytes: int | None
    kind: str | None
    manufacturer: str
    serial: str
    part: str
    rated_speed: int | None
    configured_speed: int | None
    total_width: int | None
    data_width: int | None
    ranks: int | None


@dataclass(frozen=True, slots=True)
class _Structure:
    """One structure: its formatted bytes and its strings."""

    kind: int
    body: bytes
    strings: tuple[str, ...]

    def unsigned(self, offset: int, size: int) -> int | None:
        """A little-endian number, or None where this version of the standard has no such field."""
        field = self.body[offset : offset + size]
        return int.from_bytes(field, "little") if len(field) == size else None

    def string(self, offset: int) -> str:
        index = self.unsigned(offset, 1) or 0
        if index > len(self.strings):
            raise DamagedTableError(f"string {index} of a structure of type {self.kind} is missing")
        return self.strings[index - 1].strip() if index else ""


def memory_modules(table: bytes) -> tuple[MemoryModule, ...]:
    """All memory slots of a table, in its order. Raises DamagedTableError."""
    return tuple(_module(one) for one in _structures(table) if one.kind == _MEMORY_DEVICE)


def _structures(table: bytes) -> Iterator[_Structure]:
    offset = 0
    while offset < len(table):
        header = table[offset : offset + _HEADER]
        if len(header) < _HEADER or header[1] < _HEADER:
            raise DamagedTableError(f"no structure begins at byte {offset}")
        end = table.find(b"\0\0", offset + header[1])
        if end < 0:
            raise DamagedTableError(f"the structure at byte {offset} has no end")
        text = table[offset + header[1] : end]
        strings = tuple(part.decode("latin-1") for part in text.split(b"\0")) if text else ()
        yield _Structure(header[0], table[offset : offset + header[1]], strings)
        if header[0] == _END_OF_TABLE:
            return
        offset = end + 2
    raise DamagedTableError("it has no end-of-table structure")


def _module(one: _Structure) -> MemoryModule:
    attributes = one.unsigned(0x1B, 1) or 0
    return MemoryModule(
        locator=one.string(0x10),
        bank=one.string(0x11),
        size_bytes=_size(one),
        kind=_KINDS.get(one.unsigned(0x12, 1) or 0),
        manufacturer=one.string(0x17),
        serial=one.string(0x18),
        part=one.string(0x1A),
        rated_speed=_speed(one, 0x15, 0x54),
        configured_speed=_speed(one, 0x20, 0x58),
        total_width=_known(one.unsigned(0x08, 2)),
        data_width=_known(one.unsigned(0x0A, 2)),
        ranks=(attributes & 0x0F) or None,
    )


def _size(one: _Structure) -> int | None:
    """Bytes: in MiB, or KiB if the top bit is set, or in the extended field above 32 GiB."""
    size = one.unsigned(0x0C, 2)
    if size is None or size == _UNKNOWN:
        return None
    if size == _EXTENDED_SIZE:
        extended = one.unsigned(0x1C, 4)
        return None if extended is None else (extended & 0x7FFFFFFF) << 20
    return (size & 0x7FFF) << 10 if size & 0x8000 else size << 20


def _speed(one: _Structure, offset: int, extended: int) -> int | None:
    speed = one.unsigned(offset, 2)
    if speed == _EXTENDED_SPEED:
        speed = (one.unsigned(extended, 4) or 0) & 0x7FFFFFFF
    return speed * 10**6 if speed else None


def _known(width: int | None) -> int | None:
    return None if width in (None, 0, _UNKNOWN) else width
