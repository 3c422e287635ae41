"""Who signs a bundle, fixed before its report is rendered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from appliance.records.json import Record
from appliance.roles import Role


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
