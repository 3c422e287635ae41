"""What each confined child would build for itself, built once where it is forked from."""

from __future__ import annotations

import gc

from appliance.extras import is_in_range
from appliance.generator import maps
from appliance.records.baseline import Baselines, Peaks
from appliance.records.criteria import Criteria
from appliance.records.journal import Line
from appliance.records.json import Record, adapter
from appliance.records.order import Challenge
from appliance.records.plan import Plan
from appliance.records.qualified import Qualified
from appliance.records.signer import Signer
from appliance.records.suite import Suite
from appliance.records.system import Identity, System
from appliance.records.verdict import Verdict
from appliance.storage import qualified_file
from appliance.verification.facts import shipped

RECORDS = (
    Plan,
    System,
    Identity,
    Criteria,
    Baselines,
    Peaks,
    Qualified,
    Signer,
    Verdict,
    Line,
    Challenge,
    Suite,
)
DTYPES = ("float32", "bfloat16", "float16")


def warm(*more: type[Record]) -> None:
    """Load and build it, and keep it out of the way of the children.

    Readers of records, those of `more` too, what the release knows, tables of drawn numbers: two
    thirds of the time of a small bundle. Nothing of a stranger is read here.
    """
    for kind in (*RECORDS, *more):
        adapter(kind)
    shipped()
    qualified_file.load_observed()
    is_in_range("1.0", ">=1.0")
    for dtype in DTYPES:
        maps.table(maps.parse("normal"), dtype)
    gc.collect()
    gc.freeze()
