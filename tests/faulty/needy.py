"""A workload that needs what no device has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from faulty.misbehaving import Misbehaving


@dataclass(frozen=True, kw_only=True)
class Needy(Misbehaving):
    needs: ClassVar[frozenset[str]] = frozenset({"unobtainium"})


WORKLOAD = Needy
