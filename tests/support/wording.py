"""What a device of any vendor says: every word of the one vocabulary, and why one is a gap."""

from __future__ import annotations

from collections.abc import Mapping

from appliance.records.system import Device
from appliance.records.vocabulary import COUNTERS, READINGS
from appliance.vendors.base import Vendor

VOCABULARY = {*READINGS, *COUNTERS}


def unspoken(one: Vendor, device: Device, reported: Mapping[str, object]) -> list[str]:
    """Words that are missing or foreign in `told`, or that are None without a line that says why.

    `told` are readings and counters; the facts of the device are looked through for gaps, too.
    """
    hints, absent = one.hints(device), one.absent(device)
    silent = {word for word, value in reported.items() if value is None}
    gaps = {word: fact.hint for word, fact in device.facts.items() if fact.value is None}
    return [
        *(f"{word}: not of the vocabulary, or left out" for word in {*reported} ^ VOCABULARY),
        *(f"{word}: a hint and a value, or neither" for word in {*hints} ^ silent),
        *(f"{word}: not one line of hint" for word in hints if _lines(hints[word]) != 1),
        *(f"{word}: absent, and told" for word in {*absent} - silent),
        *(f"{word}: a fact without value or hint" for word in gaps if not gaps[word]),
        *(f"{word}: may not be absent" for word in {*absent} & {"lost"}),
    ]


def _lines(hint: str) -> int:
    return len(hint.split("\n")) if hint else 0
