"""The verb `challenge`: a buyer draws the nonce that a run's seeds must derive from.

He draws it after suite and criteria are settled, keeps the file, and sends it to whoever runs the
node. `accept --challenge` derives every seed from it; `verify --challenge` holds a bundle to it.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from appliance.errors import OutputError, UsageError
from appliance.records.json import sha256, to_json
from appliance.records.order import Challenge
from appliance.storage import criteria_file, suite_file

LONGEST_DAYS = 366


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a buyer asks for: names or paths of criteria and suite, or None to leave them open."""

    out: Path
    days: float = 14.0
    criteria: str | None = None
    suite: str | None = None
    note: str = ""


def issue(request: Request) -> Challenge:
    """Draw a challenge and write it; UsageError for a span that is none.

    OutputError where the file is there already or cannot be written: a nonce is used once.
    """
    if not 0 < request.days <= LONGEST_DAYS:
        raise UsageError(f"--days is {request.days:g}: give more than 0 and at most {LONGEST_DAYS}")
    criteria = (
        "" if request.criteria is None else sha256(criteria_file.load_criteria(request.criteria)[1])
    )
    suite = "" if request.suite is None else sha256(suite_file.load_suite(request.suite)[1])
    now = datetime.now(UTC).replace(microsecond=0)
    challenge = Challenge(
        nonce=secrets.token_hex(32),
        issued_utc=f"{now:%Y-%m-%dT%H:%M:%SZ}",
        not_after_utc=f"{now + timedelta(days=request.days):%Y-%m-%dT%H:%M:%SZ}",
        criteria=criteria,
        suite=suite,
        note=request.note,
    )
    try:
        with request.out.open("xb") as stream:
            stream.write(to_json(challenge))
    except FileExistsError:
        message = (
            f"{request.out} is there already: a nonce is used once, so name another with --out"
        )
        raise OutputError(message) from None
    except OSError as error:
        raise OutputError(f"{request.out} cannot be written ({error.strerror})") from None
    return challenge
