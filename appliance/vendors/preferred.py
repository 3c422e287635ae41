"""The makers that can be tested, in the order in which they are preferred.

Their modules are light: a maker's library is loaded when its vendor is asked for devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from appliance.vendors.base import Vendor
from appliance.vendors.cpu import Cpu
from appliance.vendors.cuda import Cuda
from appliance.vendors.rocm import Rocm
from appliance.vendors.xpu import Xpu

VENDORS: Mapping[str, Callable[[], Vendor]] = {
    "cuda": Cuda,
    "rocm": Rocm,
    "xpu": Xpu,
    "cpu": Cpu,
}
"""The processors, always there, come last."""
