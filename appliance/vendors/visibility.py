"""What people call each vendor, and why its devices may not be visible.

Data only, so that a vendor can be named in a message where its own module is not at work.
"""

from __future__ import annotations

from collections.abc import Mapping

NOT_VISIBLE: Mapping[str, str] = {
    "cuda": "was --gpus all given?",
    "rocm": "were --device /dev/kfd and --device /dev/dri given?",
    "xpu": "was --device /dev/dri given?",
}
"""What to check when a vendor that was selected by name has no device."""

VENDOR_NAMES: Mapping[str, str] = {"nvidia": "cuda", "amd": "rocm", "intel": "xpu"}
"""Companies' names, by which people ask for the vendors of these devices."""


def vendor_of(word: str | None) -> str | None:
    """The vendor's name, where a company's stands for it; any other word as it is."""
    return None if word is None else VENDOR_NAMES.get(word.lower(), word)
