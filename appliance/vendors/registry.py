"""The makers that can be tested, in the order in which they are preferred.

Their modules are light: a maker's library is loaded when its vendor is asked for devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from appliance.vendors.amd.rocm import Rocm
from appliance.vendors.base import Vendor
from appliance.vendors.cpu import Cpu
from appliance.vendors.intel.xpu import Xpu
from appliance.vendors.nvidia.cuda import Cuda

VENDORS: Mapping[str, Callable[[], Vendor]] = {
    "cuda": Cuda,
    "rocm": Rocm,
    "xpu": Xpu,
    "cpu": Cpu,
}
"""The processors, always there, come last."""
