"""Small files of /proc and /sys beneath a root, and the reason when one cannot be read.

The probe reads a machine through a `Tree`, so that a recorded machine in a folder is read by
the same code as the one that it runs on. A file that is not there, one that may not be read
and one that holds nonsense are three different things for whoever wants the value: the first
needs other hardware or another mount, the second a permission, the third a look at the
machine. So each is an `Unreadable` with its own sentence, and none of them is ever a zero.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

Value = TypeVar("Value")


class Unreadable(Exception):
    """A value cannot be read; `hint` says why, and is empty where only the reader can know."""

    def __init__(self, hint: str = "") -> None:
        super().__init__(hint)
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Tree:
    """The file system of one machine, live ("/") or recorded in a folder."""

    root: Path = Path("/")

    @property
    def is_live(self) -> bool:
        """True if this is the machine that the program runs on."""
        return self.root == Path("/")

    def path(self, name: str) -> Path:
        return self.root / name.lstrip("/")

    def exists(self, name: str) -> bool:
        """True if the name can be seen; False also where a folder on the way may not be entered."""
        return os.path.lexists(self.path(name))

    def data(self, name: str, limit: int = -1) -> bytes:
        """The first `limit` bytes of a file, or all of them. Raises Unreadable."""
        try:
            # Unbuffered: the kernel makes these files as they are read, and whole pages cost time.
            with self.path(name).open("rb", buffering=0) as file:
                return file.read(limit) if limit >= 0 else file.readall()
        except PermissionError:
            raise Unreadable(f"run as root to read {name}") from None
        except OSError:  # also a driver's EINVAL, ENODEV or EIO: it has no value to give
            raise Unreadable from None

    def text(self, name: str, limit: int = -1) -> str:
        """A file's text without the white space around it. Raises Unreadable if it has none."""
        text = self.data(name, limit).decode("utf-8", "replace").strip("\0 \t\r\n")
        if not text:
            raise Unreadable(f"{name} is empty")
        if "\ufffd" in text or "\0" in text:
            raise Unreadable(f"{name} is damaged: it holds no text")
        return text

    def line(self, name: str) -> str:
        """A file's one line, with single spaces. Raises Unreadable if it has several."""
        text = self.text(name)
        if "\n" in text:
            raise Unreadable(f"{name} is damaged: it holds more than one line")
        return " ".join(text.split())

    def number(self, name: str) -> int:
        """A file's decimal number. Raises Unreadable."""
        return number(self.text(name), name)

    def numbers(self, name: str) -> tuple[int, ...]:
        """A kernel list such as 0-3,8, ascending. Raises Unreadable."""
        members: set[int] = set()
        for part in self.text(name).split(","):
            first, _, last = part.partition("-")
            low, high = number(first, name), number(last or first, name)
            if not 0 <= low <= high < 1 << 16:
                raise Unreadable(f'{name} is damaged: it holds "{part[:20]}"')
            members.update(range(low, high + 1))
        return tuple(sorted(members))

    def names(self, folder: str, pattern: str = "") -> tuple[str, ...]:
        """Names in a folder that match a whole pattern, in human order. Raises Unreadable."""
        try:
            entries = os.listdir(self.path(folder))  # noqa: PTH208 - names alone are wanted
        except PermissionError:
            raise Unreadable(f"run as root to read {folder}") from None
        except OSError:
            raise Unreadable from None
        matching = [name for name in entries if re.fullmatch(pattern or ".*", name)]
        return tuple(sorted(matching, key=_human_order))

    def target(self, name: str) -> str:
        """Where a name leads to after all links, as a path of this machine. Raises Unreadable."""
        path = self.path(name)
        if not path.exists():
            raise Unreadable
        root = self.root.resolve()
        resolved = path.resolve()
        return f"/{resolved.relative_to(root)}" if resolved.is_relative_to(root) else str(resolved)


def number(text: str, source: str) -> int:
    """Read a decimal number; raises Unreadable, naming the source, if it is none."""
    if not re.fullmatch(r"-?[0-9]{1,20}", text.strip(), re.ASCII):
        raise Unreadable(f'{source} is damaged: "{text[:20]}" is no integer')
    return int(text)


def or_none(read: Callable[[], Value]) -> Value | None:
    """What `read` returns, or None where it raises Unreadable."""
    try:
        return read()
    except Unreadable:
        return None


def _human_order(name: str) -> tuple[tuple[int, str], ...]:
    """cpu2 before cpu10."""
    parts = re.findall(r"[0-9]+|[^0-9]+", name)
    return tuple((int(part), "") if part.isdecimal() else (-1, part) for part in parts)
