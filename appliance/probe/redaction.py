"""Host names and addresses replaced by salted digests, before anything is written.

`--redact` is for whoever may not tell others what his machines are called. Every name of the host,
every hardware address and every IP address of its interfaces becomes a digest, the same one
everywhere in the bundle: HMAC-SHA256 of the name under a salt that is drawn for the run. Without
the salt a digest says nothing, because names and addresses could be tried out; with it, anybody
can see that a digest is of a certain name. So the salt stays beside the run's folder, readable for
its owner alone, and the plan holds its sha256, which no other salt has.

What a host is called may stand in any text that it hands out: a library that cannot connect, a
driver that names its port. So texts are searched, not fields: all but those that the appliance
itself made to be compared.
"""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import ipaddress
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import psutil

from appliance.errors import OutputError, UsageError
from appliance.linux.sysfs import Tree, or_none
from appliance.probe.components import NET
from appliance.records.journal import InterimAnalysis, LaunchEnded, Libraries, LibrariesMapped
from appliance.records.json import sha256
from appliance.records.system import System

HOSTNAMES = ("/proc/sys/kernel/hostname", "/etc/hostname")
HOSTS = "/etc/hosts"
NAMELESS = frozenset(("", "localhost", "localhost.localdomain", "(none)"))
LONG_NAME = 8  # characters from which a name is looked for inside of words, too
DIGITS = 16  # of a digest
SALT = re.compile(r"[0-9a-f]{64}", re.ASCII)
ADDRESS_FILES = ("address", "bonding_slave/perm_hwaddr")
ADDRESS_FACTS = ("mac", "node_guid")
GUID_DIGITS = 16
UNREDACTED = frozenset(
    [
        "boot",
        "case",
        "cases",
        "code",
        "device",
        "digest",
        "digests",
        "id",
        "injector",
        "interrupted",
        "kind",
        "launch",
        "mode",
        "model",
        "moment",
        "outcome",
        "phase",
        "plan",
        "run_id",
        "schema",
        "sha256",
        "system",
        "unit",
        "utc",
        "vendor",
        "what",
    ]
)
"""Fields that the appliance compares, and that it made itself."""
UNREDACTED_REASONS = (LaunchEnded, InterimAnalysis)
"""Whose reason is the appliance's own word."""

Rule = tuple[str, re.Pattern[str]]
R = TypeVar("R")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Private:
    """What must not be published: names of the host, digits of hardware addresses, IP addresses."""

    names: frozenset[str] = frozenset()
    hardware: frozenset[str] = frozenset()
    network: frozenset[str] = frozenset()


class Redactor:
    """Replaces what is private by digests under one salt (64 hexadecimal digits)."""

    def __init__(self, salt: str, private: Private) -> None:
        self._salt = salt
        self._addresses = [*_address_rules(private)]
        self._names = [*_name_rules(private)]

    @property
    def commitment(self) -> str:
        """The sha256 of the salt, which the plan holds."""
        return commitment(self._salt)

    def text(self, text: str) -> str:
        """The text without anything private."""
        return self._replaced(text, (*self._addresses, *self._names))

    def key(self, text: str) -> str:
        """The name of a fact, which may hold an address; its other words are the appliance's."""
        return self._replaced(text, self._addresses)

    def _replaced(self, text: str, rules: Iterable[Rule]) -> str:
        for kind, pattern in rules:
            replacement = partial(self._digest, kind)
            text = pattern.sub(replacement, text)
        return text

    def data(self, data: bytes) -> bytes:
        """What a launch printed, whatever its encoding."""
        return self.text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def record(self, record: R) -> R:
        """The same record with every text of it redacted, but for the fields in UNREDACTED."""
        redacted: R = self._redacted(record)
        return redacted

    def _redacted(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.key(key): self._redacted(item) for key, item in value.items()}
        if isinstance(value, tuple):
            is_plain = bool(value) and isinstance(value[0], int | float)
            return value if is_plain else tuple(map(self._redacted, value))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return dataclasses.replace(value, **self._fields(value))
        return value

    def _fields(self, record: Any) -> dict[str, Any]:
        unredacted = UNREDACTED | ({"reason"} if isinstance(record, UNREDACTED_REASONS) else set())
        if isinstance(record, Libraries | LibrariesMapped):  # paths
            return {"files": {self.text(path): known for path, known in record.files.items()}}
        names = (item.name for item in dataclasses.fields(record) if item.name not in unredacted)
        return {name: self._redacted(getattr(record, name)) for name in names}

    def _digest(self, kind: str, match: re.Match[str]) -> str:
        return f"{kind}-{digest(self._salt, kind, match[0])}"


def digest(salt: str, kind: str, name: str) -> str:
    """The digest that stands for a name: of "host:NAME", "mac:HEXADECIMAL" or "ip:ADDRESS".

    Names are in small letters, hardware addresses without the signs between their digits.
    """
    plain = re.sub("[^0-9a-f]", "", name.lower()) if kind == "mac" else name.lower()
    code = hmac.new(salt.encode(), f"{kind}:{plain}".encode(), hashlib.sha256)
    return code.hexdigest()[:DIGITS]


def _address_rules(private: Private) -> Iterator[Rule]:
    """Addresses, longest first, so that a part is never taken for the whole."""
    for network in _longest_first(private.network):
        v6 = ":" in network
        before, after = ("[0-9a-f:]", "[0-9a-f:]") if v6 else ("[0-9.]", r"[0-9]|\.[0-9]")
        pattern = f"(?<!{before}){re.escape(network)}(?!{after})"
        yield "ip", re.compile(pattern, re.IGNORECASE)
    for digits in _longest_first(private.hardware):
        pattern = f"(?<![0-9a-f]){'[:.-]?'.join(digits)}(?![0-9a-f])"
        yield "mac", re.compile(pattern, re.IGNORECASE)


def _name_rules(private: Private) -> Iterator[Rule]:
    """Names, longest first; a short one matches whole words only."""
    for name in _longest_first(private.names):
        is_long = len(name) >= LONG_NAME
        pattern = re.escape(name) if is_long else f"(?<![a-z0-9]){re.escape(name)}(?![a-z0-9])"
        yield "host", re.compile(pattern, re.IGNORECASE)


def _longest_first(texts: Iterable[str]) -> list[str]:
    return sorted(texts, key=lambda text: (-len(text), text))


# ------------------------------------------------------------------ what is private here


def private(tree: Tree, system: System | None = None) -> Private:
    """What names this machine, as its kernel and its files name it, and what system.json has."""
    hostnames = (or_none(partial(tree.line, path)) for path in HOSTNAMES)
    names = {*filter(None, hostnames), *((os.uname().nodename,) if tree.is_live else ())}
    names |= set(_aliases(tree, names))
    names |= {name.partition(".")[0] for name in names}
    return Private(
        names=frozenset(name for name in names if name.lower() not in NAMELESS),
        hardware=frozenset(_hardware(tree, system)),
        network=frozenset(_network()) if tree.is_live else frozenset(),
    )


def _aliases(tree: Tree, names: set[str]) -> Iterator[str]:
    """Other names that stand beside one of these in /etc/hosts."""
    for row in (or_none(lambda: tree.text(HOSTS)) or "").splitlines():
        _, *aliases = row.partition("#")[0].split() or [""]
        if names & set(aliases):
            yield from aliases


def _hardware(tree: Tree, system: System | None) -> Iterator[str]:
    texts = [
        text
        for name in or_none(lambda: tree.names(NET)) or ()
        for file in ADDRESS_FILES
        if (text := or_none(partial(tree.line, f"{NET}/{name}/{file}")))
    ]
    interfaces = system.identity.interfaces if system else ()
    facts = (part[name].value for part in interfaces for name in ADDRESS_FACTS if name in part)
    for text in (*texts, *(one for value in facts if value for one in str(value).split(", "))):
        digits = re.sub("[^0-9a-f]", "", text.lower())
        for one in {digits, digits[-GUID_DIGITS:]}:  # an address of InfiniBand ends in its GUID
            if set(one) - {"0"} and set(one) - {"f"}:
                yield one


def _network() -> Iterator[str]:
    """IP addresses of this machine's interfaces, but for those that every machine has."""
    for addresses in psutil.net_if_addrs().values():
        for entry in addresses:
            text = entry.address.partition("%")[0]
            with suppress(ValueError):
                address = ipaddress.ip_address(text)
                if not address.is_loopback and not address.is_unspecified:
                    yield text


# ------------------------------------------------------------------ the salt


def draw() -> str:
    """A new salt."""
    return secrets.token_hex(32)


def commitment(salt: str) -> str:
    """The sha256 of a salt's file."""
    return sha256(salt.encode())


def salt_path(folder: Path) -> Path:
    """Where the salt of a run is: beside its folder, so that it is no part of the bundle."""
    folder = folder.resolve()
    return folder.with_name(f"{folder.name}.salt")


def keep(salt: str, path: Path) -> None:
    """Write a salt that only its owner may read; OutputError where there is one or no room."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(salt)
            file.flush()
            os.fsync(descriptor)
    except OSError as error:
        raise OutputError(f"{path} cannot be written ({error.strerror})") from None


def read_salt(path: Path) -> str:
    """A salt that `keep` wrote. Raises UsageError."""
    try:
        text = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        what = getattr(error, "strerror", None) or "it holds no salt"
        raise UsageError(f"{path} cannot be read ({what}): name the salt of the run") from None
    if not SALT.fullmatch(text):
        raise UsageError(f"{path} holds no salt: it needs 64 hexadecimal digits")
    return text


def of_run(folder: Path, committed: str) -> str:
    """The salt of a run that is to go on; UsageError unless it is the one that its plan names."""
    path = salt_path(folder)
    if not path.exists():
        raise UsageError(
            f"{folder} was begun with --redact, and its salt {path} is gone: put it back, or "
            "start a new run"
        )
    salt = read_salt(path)
    if commitment(salt) != committed:
        raise UsageError(f"{path} is not the salt that {folder} was begun with: put that one back")
    return salt
