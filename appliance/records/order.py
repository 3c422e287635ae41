"""What the buyer hands over: the order's lines, and the challenge from which seeds derive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from appliance.records.json import Record, Scalar

OrderOperator = Literal["==", ">=", "<=", "in", "matches"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge(Record):
    """challenge.json: a buyer's nonce, from which all seeds of a run derive, and until when.

    `nonce` is 32 bytes in hexadecimal. `criteria` and `suite` are the sha256 of the files that
    the buyer asks for, empty where he leaves them to the node. `note` is his own reference.
    `buyer` is the certificate (PEM) of the key that signs the receipts of attempts, empty where
    attempts are not counted.
    """

    schema: Literal["bench/challenge/2"] = "bench/challenge/2"
    nonce: str
    issued_utc: str
    not_after_utc: str
    criteria: str
    suite: str
    note: str
    buyer: str

    @property
    def is_counted(self) -> bool:
        """Whether a run under it needs the buyer's receipt, which gives its number."""
        return bool(self.buyer)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderLine(Record):
    """One thing that was bought: a field of system.json, and what is to be found there.

    `field` is a dotted path ("devices.count", "devices.memory_bytes", "host.memory"). Of several
    parts all must be so, or at least `count` of them. `value` is a list for the operator "in".
    `unit` is that of the value; ordering.py says what each operator compares.
    """

    title: str
    field: str
    op: OrderOperator
    value: Scalar | tuple[Scalar, ...]
    unit: str = ""
    count: int | None = None
    required: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Order(Record):
    """order.toml: what the buyer bought, line by line."""

    schema: Literal["bench/order/1"] = "bench/order/1"
    name: str
    summary: str
    line: tuple[OrderLine, ...] = ()
