"""Links between devices that the driver shows nothing of, and when that stands in nobody's way.

The driver of a device that is passed through to a virtual machine may support no question about its
links (NVML_ERROR_NOT_SUPPORTED for each of them). Whether the part has links then, nobody can see;
but a device alone has nothing at their other end. So they are not judged where the device is the
only one of its vendor, and the order asks for no links. Of two devices they are what joins the two:
there what is not seen stays inconclusive.
"""

from __future__ import annotations

from appliance.evidence.device_health import Observed
from appliance.linux.fact_reader import value_of
from appliance.records.criteria import Criterion
from appliance.records.order import Order
from appliance.records.system import System
from appliance.records.vocabulary import CONNECTION

SENTENCE = "links not judged: the driver shows none"
METRICS = ("links_", "link_")
"""Beginnings of what counts links or is counted by them."""
ORDERED = ("link", "num_links", CONNECTION)
"""Beginnings of the facts of a device by which an order asks for links."""


def are_hidden(
    criterion: Criterion, observed: Observed, system: System, order: Order | None
) -> bool:
    """Whether this is unseen for no other reason than that the driver shows no links.

    A device that stops to answer while it works gives another reason than at the probe.
    """
    devices = system.identity.devices
    device = next((one for one in devices if one.id == observed.device), None)
    if device is None or not criterion.metric.startswith(METRICS):
        return False
    links = device.facts.get("num_links")
    is_alone = sum(one.vendor == device.vendor for one in devices) == 1
    return (
        value_of(device.facts, "links_shown") is False
        and links is not None
        and links.value is None
        and observed.gap == links.hint
        and is_alone
        and not _asks_for_links(order)
    )


def _asks_for_links(order: Order | None) -> bool:
    lines = () if order is None else order.line
    fields = [line.field.partition(".") for line in lines]
    return any(place == "devices" and name.startswith(ORDERED) for place, _, name in fields)
