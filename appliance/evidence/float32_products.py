"""In which format launches made their float32 products, and whether the case asks for that one.

Each rank reads it back from torch's settings before its first step and after its last: what is set
is not always what holds, as an older switch of a library may outrank a newer one, a library may set
its own, and the environment may forbid it.
"""

from __future__ import annotations

from appliance.evidence.launches import CaseEvidence

MOMENTS = ("before", "after")


def other_products(evidence: CaseEvidence) -> str:
    """The first launch that made products in another format than the case asks for, or nothing."""
    requested = "tf32" if evidence.case.in_tf32 else "ieee"
    for launch in evidence.all_launches:
        for record in launch.float32_products:
            for kind, actual in record.formats.items():
                if actual != requested:
                    return (
                        f"launch {launch.id} made float32 products ({kind}) in {actual} "
                        f"{record.moment} its steps, where the case asks for {requested}"
                    )
    return ""


def unread_products(evidence: CaseEvidence) -> str:
    """The first completed launch of which a rank did not read the format back, or nothing."""
    ranks = range(evidence.case.ranks)
    expected = {(rank, moment) for rank in ranks for moment in MOMENTS}
    for launch in evidence.all_launches:
        read = {(one.rank, one.moment) for one in launch.float32_products if one.formats}
        if launch.is_completed and not expected <= read:
            return f"launch {launch.id} did not read back the format of its float32 products"
    return ""
