"""New lines of the kernel's log, read where the kernel allows it.

/dev/kmsg gives one record per read (Documentation/ABI/testing/dev-kmsg): "priority,sequence,
microseconds,flags;text". A container has no such device, and most kernels ask for CAP_SYSLOG, so
that nothing may be read at all: then `hint` says what would allow it, and nothing is made of it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from appliance.linux.sysfs import Unreadable

DEVICE = "/dev/kmsg"
LONGEST = 8192
"""Bytes: the kernel refuses a shorter buffer for its longest record."""
FORBIDDEN = (
    "the kernel's log may not be read: in a container add --device /dev/kmsg and "
    "--cap-add SYSLOG; on the host run as root or set kernel.dmesg_restrict to 0"
)
ABSENT = "there is no /dev/kmsg here: in a container add --device /dev/kmsg and --cap-add SYSLOG"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record: its number since boot, seconds since boot, and its text."""

    sequence: int
    seconds: float
    text: str


class KernelLog:
    """The log from where it stands when this is opened, or from its oldest line.

    Raises Unreadable with a hint where it may not be read.
    """

    def __init__(self, *, from_start: bool, path: Path = Path(DEVICE)) -> None:
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            raise Unreadable(ABSENT) from None
        except OSError:
            raise Unreadable(FORBIDDEN) from None
        try:
            if not from_start:
                os.lseek(self._file, 0, os.SEEK_END)
        except OSError:
            os.close(self._file)
            raise Unreadable(FORBIDDEN) from None

    def close(self) -> None:
        os.close(self._file)

    def new(self) -> Iterator[Record]:
        """Records since the last call. Raises Unreadable if the kernel stops giving them."""
        while True:
            try:
                data = os.read(self._file, LONGEST)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.EPIPE:  # records were overwritten before they were read
                    continue
                raise Unreadable(FORBIDDEN) from None
            if not data:
                return
            record = parse(data.decode("utf-8", "replace"))
            if record is not None:
                yield record


def parse(text: str) -> Record | None:
    """One record of /dev/kmsg; None for what is not in its form."""
    head, mark, message = text.partition(";")
    fields = head.split(",")
    if not mark or len(fields) < 3 or not all(field.isdecimal() for field in fields[1:3]):  # noqa: PLR2004
        return None
    return Record(
        sequence=int(fields[1]), seconds=int(fields[2]) / 1e6, text=message.partition("\n")[0]
    )
