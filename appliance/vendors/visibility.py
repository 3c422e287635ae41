"""Why the devices of each vendor may not be visible, in words for the person who starts bench.

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
