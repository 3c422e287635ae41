"""Lines of the kernel's log in which NVIDIA's driver reports a fault, and what they mean.

"NVRM: Xid (PCI:0000:1b:00): 79, ..." is a fault of a device, "nvidia-nvswitch3: SXid
(PCI:0000:04:00.0): 22013, Non-fatal, ..." one of a switch between devices. Numbers and meanings:
NVIDIA's Xid catalog (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html), with the
names of src/common/sdk/nvidia/inc/nverror.h in NVIDIA/open-gpu-kernel-modules. A number is fatal
if that catalog wants a reset of the device or of the machine for it, or if it is on the list with
which Azure's node health checks refuse a node (github.com/Azure/azurehpc-health-checks).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from appliance.linux import pci
from appliance.linux.fact_reader import value_of
from appliance.linux.sysfs import Unreadable
from appliance.records.system import Device
from appliance.vendors.base import KernelFault

CATALOG = "NVIDIA Xid catalog"
AZURE = "fatal for Azure's node health checks"
RESET = frozenset({46, 62, 64, 79, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158})
"""The catalog's immediate action is a reset of the device or a restart of the machine."""
REFUSED = frozenset({48, 56, 57, 58, 62, 63, 64, 65, 68, 69, 73, 74, 79, 80, 81, 92, 119, 120})
"""Azure's list of fatal Xids."""
WITH_ANOTHER = frozenset({171, 172})
"""Details of a 48, which come with it."""
MEANINGS = {
    8: "the device stopped processing",
    11: "a command stream was invalid or damaged",
    13: "an exception in the compute engine: most often the program's own error",
    25: "a command stream was invalid",
    31: "a program used an address of the device's memory that it does not have",
    32: "a command stream was invalid or damaged",
    37: "an error of the driver's firmware",
    38: "an error of the driver's firmware",
    43: "the device stopped a program after an error",
    44: "a fault of the compute engine while it changed programs",
    45: "work was removed after an earlier error",
    46: "the device stopped processing and timed out",
    48: "a memory error of two bits, which error correction cannot repair",
    54: "the auxiliary power is not connected to the board",
    56: "an error of the display engine",
    57: "the training of the link to the memory failed",
    58: "a memory error",
    60: "an exception of a video processor",
    61: "a breakpoint of the internal micro-controller",
    62: "the internal micro-controller halted",
    63: "a part of the memory was retired or is to be replaced",
    64: "a part of the memory could not be retired or replaced",
    65: "an exception of a video encoder",
    66: "the driver made an illegal access",
    67: "the driver made an illegal access",
    68: "an exception of a video decoder",
    69: "a class error of the compute engine",
    73: "an exception of a video encoder",
    74: "an error of an NVLink",
    78: "a virtual device could not be started",
    79: "the device fell off the bus",
    80: "data sent to the device was damaged",
    81: "an error of the VGA subsystem",
    92: "a high rate of memory errors of one bit",
    93: "the inforom was written more often than it is made for",
    94: "a memory error that was not corrected, and reached one program only",
    95: "a memory error that was not corrected, and may have reached other programs",
    109: "a change between programs timed out",
    110: "a security fault",
    119: "the device's own processor (GSP) did not answer in time",
    120: "an error of the device's own processor (GSP)",
    121: "an error of the link between device and host processor",
    136: "the training of a link failed",
    137: "an access over an NVLink was not permitted",
    140: "a memory error from which the device did not recover",
    141: "an error of the fast path of a program",
    143: "the device could not be initialised",
    144: "an error of an NVLink (SAW)",
    145: "an error of an NVLink (RLW)",
    146: "an error of an NVLink (TLW)",
    147: "an error of an NVLink (TREX)",
    148: "an error of an NVLink (NVLPW)",
    149: "an error of an NVLink (NETIR)",
    150: "an error of an NVLink (MSE)",
    151: "the change of an encryption key failed",
    154: "what the device needs to recover has changed",
    155: "an error of an NVLink that software defines",
    156: "a part of the device was retired",
    157: "a part of the device could not be retired",
    158: "a fatal timeout of the device",
    160: "a channel of the memory was retired",
    161: "a channel of the memory could not be retired",
    167: "a fatal timeout of PCIe",
    168: "the memory has become smaller, for errors in a protected region",
    169: "an internal micro-controller halted",
    171: "a memory error that was not corrected, in DRAM",
    172: "a memory error that was not corrected, in SRAM",
}
"""What a number means; engines of the same kind (copy, video, JPEG) are in `ENGINES`."""
ENGINES = (
    ("a copy engine", (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136))),
    ("a video decoder", (83, 84, 88, 89, 96, 97, 98)),
    ("a JPEG engine", (82, *range(99, 106))),
    ("an optical flow engine", (86, 139)),
    ("a video encoder", (142,)),
)
RECOVERY_CHANGED = 154
WORDED = frozenset(range(144, 151))
"""The line itself says whether it is fatal (NETIR_LINK_EVT Fatal)."""
XID = re.compile(r"NVRM: Xid \((?:PCI:)?(?P<address>[0-9a-fA-F:.]+)\): (?P<code>\d+)(?P<rest>.*)")
SXID = re.compile(
    r"SXid \((?:PCI:)?(?P<address>[0-9a-fA-F:.]+)\): (?P<code>\d+), (?P<word>Fatal|Non-fatal)\b"
)
FALLEN = re.compile(r"NVRM: GPU (?P<address>[0-9a-fA-F:.]+): GPU has fallen off the bus")
UNEXPLAINED = "the vendor's catalog does not explain this number"


def fault(line: str, devices: Sequence[Device]) -> KernelFault | None:
    """The fault of one of `devices`, or of a switch, that a line reports; None if it is none.

    The lines with data and severity that follow an SXid only repeat its number: they are none.
    """
    if matched := XID.search(line):
        return _xid(int(matched["code"]), matched["rest"], known(matched["address"], devices))
    if matched := SXID.search(line):
        return _sxid(int(matched["code"]), is_fatal=matched["word"] == "Fatal")
    if matched := FALLEN.search(line):
        device = known(matched["address"], devices)
        text = f"{MEANINGS[79]} ({CATALOG}, 79)"
        return KernelFault(code="fallen off the bus", device=device, is_fatal=True, meaning=text)
    return None


def known(address: str, devices: Sequence[Device]) -> str:
    """The id of the first device at an address, which a log writes without function; else empty."""
    try:
        wanted = pci.address(address if "." in address else f"{address}.0")
    except Unreadable:
        return ""
    matching = (one.id for one in devices if value_of(one.facts, "pci_address") == wanted)
    return next(matching, "")


def _xid(code: int, rest: str, device: str) -> KernelFault:
    sources = [CATALOG] if _meaning(code) else []
    sources += [AZURE] if code in REFUSED else []
    text = _meaning(code) or UNEXPLAINED
    return KernelFault(
        code=f"Xid {code}",
        device=device,
        is_fatal=_is_fatal(code, rest),
        meaning=f"{text} ({'; '.join(sources)})" if sources else text,
    )


def _is_fatal(code: int, rest: str) -> bool:
    if code in WORDED:
        return re.search(r"\bFatal\b", rest) is not None
    if code == RECOVERY_CHANGED:  # "... changed from 0x0 (None) to 0x1 (GPU Reset Required)"
        return re.search(r"\bto 0x0\b", rest) is None
    return code in RESET | REFUSED | WITH_ANOTHER


def _meaning(code: int) -> str:
    engine = next((name for name, codes in ENGINES if code in codes), "")
    return MEANINGS.get(code, f"an exception of {engine}" if engine else "")


def _sxid(code: int, *, is_fatal: bool) -> KernelFault:
    word = "fatal" if is_fatal else "not fatal"
    return KernelFault(
        code=f"SXid {code}",
        device="",
        is_fatal=is_fatal,
        meaning=f"an error of a switch between devices, which its driver calls {word} (NVIDIA "
        "Fabric Manager User Guide, SXid errors)",
    )
