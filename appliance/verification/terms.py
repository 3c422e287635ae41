"""On what terms evidence is verified: whom the reader trusts, and what he wants to be answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from appliance.storage import limits
from appliance.verification.facts import Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """What the reader wants to have been asked; None where he leaves it to the signer.

    `criteria_digest` is the sha256 of the criteria file; `suite` a suite's name, path or sha256;
    `order` and `challenge` the bytes of the files that the buyer gave, `ledger` those of his ledger
    of the challenge.
    """

    criteria_digest: str | None = None
    suite: str | None = None
    order: bytes | None = None
    challenge: bytes | None = None
    ledger: bytes | None = None

    @property
    def are_any(self) -> bool:
        """Whether anything is expected."""
        return self != Expectations()


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Whom the reader trusts, what he expects, and how much he takes.

    `trusted` are certificates in PEM form, `moment` is when they must be valid (default: now),
    `facts` those of the release that made the run, or the bytes of its signed file (default: of
    this one), `total` how many bytes the evidence may have. A journal of more than
    `unknown_journal` bytes is parsed only where the signer is trusted. Who compares the words of
    the pages afterwards (`are_words_next`) says himself where they are not.
    """

    trusted: Sequence[bytes] = ()
    allow_development: bool = False
    expectations: Expectations = Expectations()
    facts: Facts | bytes | None = None
    moment: datetime | None = None
    total: int = limits.TOTAL
    unknown_journal: int = limits.UNKNOWN_JOURNAL
    are_words_next: bool = False


ANYBODY = Terms()
"""Nobody is trusted and nothing expected: whether the evidence is sound."""
