"""The buyer's challenge with its ledger beside it, opened so that nobody else writes meanwhile."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from appliance.challenge import ledger
from appliance.errors import EvidenceError, OutputError, UsageError
from appliance.planning import challenge_window
from appliance.planning.challenge_window import utc_words
from appliance.records.json import sha256
from appliance.records.order import Challenge
from appliance.signing.keys import Key
from appliance.storage import input_file, plain_files


def ledger_path(challenge: Path) -> Path:
    """Where the ledger of a challenge is: beside it."""
    return challenge.with_name(f"{challenge.stem}.ledger.jsonl")


def ledger_of(challenge: Path) -> bytes | None:
    """The ledger beside a challenge, None where there is none."""
    path = ledger_path(challenge)
    return input_file.read(path) if path.exists() else None


@dataclass(frozen=True, kw_only=True)
class Book:
    """A challenge with its ledger, which nobody else writes meanwhile."""

    path: Path
    content: bytes
    challenge: Challenge
    buyer: x509.Certificate
    data: bytes
    ledger: ledger.Ledger

    @property
    def digest(self) -> str:
        return sha256(self.content)

    def check_key(self, key: Key) -> None:
        """UsageError unless this key is the one that the challenge names."""
        if key.certificate != self.buyer:
            raise UsageError(
                f"{self.path} was drawn with another key, that of "
                f"{self.buyer.subject.rfc4514_string()}: name that one with --key and --certificate"
            )

    def now(self) -> datetime:
        """The time; UsageError for a clock that is behind the ledger's last entry."""
        now = datetime.now(UTC).replace(microsecond=0)
        if utc_words(now) < self.ledger.utc:
            raise UsageError(
                f"this machine's clock says {utc_words(now)}, earlier than the ledger's last entry "
                f"({self.ledger.utc}): set the clock right"
            )
        return now

    def append(self, envelope: bytes) -> None:
        """Add an entry; nobody else has meanwhile."""
        write(ledger_path(self.path), self.data + envelope + b"\n")


@contextmanager
def opened(challenge: Path) -> Iterator[Book]:
    """The challenge and its ledger, locked; UsageError where it counts no attempts."""
    content = input_file.read(challenge, fix="name your challenge")
    parsed = challenge_window.parse(content, challenge.name)
    if not parsed.is_counted:
        raise UsageError(
            f"{challenge} was drawn with --uncounted: it has no attempts and no ledger"
        )
    buyer = ledger.buyer_of(parsed)
    path = ledger_path(challenge)
    descriptor = plain_files.opened(challenge, follow=True)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            data = plain_files.read(path, input_file.LARGEST, follow=True)
        except FileNotFoundError:
            raise EvidenceError(
                f"{path} is missing: without its ledger no attempt can be counted; restore it"
            ) from None
        except OSError as error:
            raise UsageError(f"{path} cannot be read ({error.strerror})") from None
        yield Book(
            path=challenge,
            content=content,
            challenge=parsed,
            buyer=buyer,
            data=data,
            ledger=ledger.read_ledger(data, buyer, sha256(content)),
        )
    finally:
        os.close(descriptor)


def write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; OutputError if it cannot be."""
    try:
        plain_files.replace(path, data)
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written ({error.strerror}): make room, or name another with --out"
        ) from None
