"""Writes appliance/schemas/*.json, the JSON Schemas of the bundle's files, from the records.

Part of `make generate`; run that after a change of appliance/records/; a test compares what it
would write with what is there. JSON files hold every key of their record, so there every key is
required; TOML files are written by people, who may leave out what has a default.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from appliance.challenge.campaign import Campaign  # noqa: E402 - after the path
from appliance.challenge.entries import AttemptRequest  # noqa: E402 - the same
from appliance.comparison.compare_runs import Comparison  # noqa: E402 - the same
from appliance.records import (  # noqa: E402 - the script runs where nothing is installed
    baseline,
    criteria,
    journal,
    order,
    plan,
    qualified,
    signer,
    suite,
    system,
    verdict,
)
from appliance.records import json as records_json  # noqa: E402 - the same
from appliance.verbs.challenge import LedgerTable  # noqa: E402 - the same
from appliance.verbs.rerun_diff import Rerun  # noqa: E402 - the same
from appliance.verification.verify import Verification  # noqa: E402 - the same

FOLDER = ROOT / "appliance" / "schemas"
MACHINE_WRITTEN = {
    "plan": plan.Plan,
    "system": system.System,
    "baselines": baseline.Baselines,
    "peaks": baseline.Peaks,
    "qualified": qualified.Qualified,
    "signer": signer.Signer,
    "challenge": order.Challenge,
    "attempt-request": AttemptRequest,
    "ledger": LedgerTable,
    "campaign": Campaign,
    "journal-line": journal.Line,
    "verdict": verdict.Verdict,
    "verification": Verification,
    "comparison": Comparison,
    "rerun": Rerun,
}
HAND_WRITTEN = {
    "criteria": criteria.Criteria,
    "device": baseline.DeviceFile,
    "order": order.Order,
    "suite": suite.Suite,
}


LATER = frozenset({"stage_seconds"})
"""Properties that records lack which were made before them."""


def schemas() -> dict[str, bytes]:
    """Content of every schema file, by its name."""
    written = {name: _complete(_schema(kind)) for name, kind in MACHINE_WRITTEN.items()}
    written |= {name: _schema(kind) for name, kind in HAND_WRITTEN.items()}
    return {
        f"{name}.json": (json.dumps(schema, indent=2, sort_keys=True) + "\n").encode()
        for name, schema in written.items()
    }


def _schema(kind: type[object]) -> dict[str, Any]:
    schema = records_json.adapter(kind).json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _complete(schema: Any) -> Any:
    """The same schema with every named property required, but those of LATER."""
    if isinstance(schema, list):
        return [_complete(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    whole = {key: _complete(value) for key, value in schema.items()}
    if whole.get("type") == "object" and isinstance(whole.get("properties"), dict):
        whole["required"] = sorted(whole["properties"].keys() - LATER)
    return whole


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in schemas().items():
        (FOLDER / name).write_bytes(text)


if __name__ == "__main__":
    main()
