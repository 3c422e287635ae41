"""Who signs a bundle, fixed before its report is rendered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from appliance.records.json import Record

Role = Literal["tester", "vendor", "buyer", "witness"]
ROLES: tuple[Role, ...] = get_args(Role)


@dataclass(frozen=True, slots=True, kw_only=True)
class Signer(Record):
    """signer.json: who will sign, fixed before the report is rendered."""

    schema: Literal["bench/signer/1"] = "bench/signer/1"
    certificate_pem: str
    subject: str
    sha256: str
    not_after_utc: str
    role: Role
    is_development: bool
