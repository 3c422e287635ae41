"""What differs between vendors of accelerators, and nothing else.

One module per vendor implements `Vendor`; nothing outside that module knows the vendor's
words. A value that the vendor's tool does not give is None and is shown as "not reported".
Vendor libraries are imported inside the module's functions, never at its top, so that
`bench probe` works where only one vendor's library is installed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from appliance.records.system import Device, DeviceLibraries


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFault:
    """A fault of a device that a line of the kernel's log reports.

    `code` is the vendor's number or word for it ("Xid 79"), `device` the id of the device if the
    line names one that is known, else empty. `is_fatal`: the device must not be accepted.
    `meaning` is one sentence with its source.
    """

    code: str
    device: str
    is_fatal: bool
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUsers:
    """How many compute processes have a device at one moment, ours and others' alike.

    Nothing names them: a container shows no process numbers, or the host's. `count` is None where
    they cannot be seen, and `hint` says why or what would allow it; none at all are 0.
    `memory_bytes` is what they hold of the device's memory together, None where not reported.
    """

    count: int | None
    memory_bytes: int | None = None
    hint: str = ""


class Vendor(Protocol):
    """One vendor: how its devices are enumerated, read and made visible."""

    name: str
    torch_type: str
    collectives: str
    """Name of the torch.distributed backend."""
    fork_safe: bool
    """A process that has imported torch, and run nothing, may be forked and then use a device."""
    overlaps: bool
    """The next launch's process begins beside the end of the launch before (runner/overlap.py)."""
    libraries: DeviceLibraries
    """What other libraries need to drive the devices; without it a case cannot run: software."""

    def probe(self) -> tuple[Device, ...]:
        """Devices that are present, in a stable order; empty if there are none of this vendor."""

    def read(self, device: Device) -> Mapping[str, float | None]:
        """Telemetry of one moment, in SI units named in the key (`power_watts`).

        It never raises: a device that is lost or forbidden gives None for everything. The names
        of an accelerator are those of `vocabulary.READINGS`.
        """

    def counters(self, device: Device) -> Mapping[str, int | None]:
        """Error counters since boot (`ecc_uncorrected`), by the names of `vocabulary.COUNTERS`.

        It never raises; `lost` is 1 for a device that `probe` returned and that is gone.
        """

    def users(self, device: Device) -> DeviceUsers | None:
        """The compute processes on a device now; never asked while steps are timed.

        None of a device whose readings already say what others use of it (processors). It never
        raises; a device that is lost or forbidden cannot be seen.
        """

    def hints(self, device: Device) -> Mapping[str, str]:
        """For each reading or counter that is None now: why, or what would allow it."""

    def absent(self, device: Device) -> frozenset[str]:
        """Counters and readings that this device cannot have, whatever the permission.

        A card without links has no `links_down`, a part that replaces rows retires no pages. Only
        what its model, its vendor's documents or the device itself ("num_links" 0) rule out, and
        what the vendor's tools have no question for on any part. What the driver, the permission or
        a setting withholds (error correction that is switched off, an old driver, a container) is
        None with a hint and never in here, for a criterion may call what is absent not applicable.
        `lost` never is on an accelerator. It never raises; of a device that is lost it is what was
        known before, or empty.
        """

    def kernel_fault(self, line: str, devices: Sequence[Device]) -> KernelFault | None:
        """The fault of one of `devices` that a line of the kernel's log reports, else None."""

    def environment(self, *devices: Device) -> Mapping[str, str]:
        """Variables that a child must have to see these devices alone, in this order."""

    def deterministic_environment(self) -> Mapping[str, str]:
        """Variables by which its libraries give the same bits each time, set before any import.

        They belong to the library mode `deterministic`. A variable of flags (`XLA_FLAGS`) adds to
        what the user has set there; every other replaces it.
        """

    def onnx_providers(self) -> tuple[str, ...]:
        """ONNX Runtime providers in order of preference; the first must be the one used."""

    def onnx_options(self, dtype: str) -> Mapping[str, str]:
        """What the first provider is opened with for a graph of this number format.

        Empty where its defaults compute on the device and in the graph's own format.
        """

    def features(self, device: Device) -> frozenset[str]:
        """What workloads may need and this device has.

        Number formats (`float64`, `tf32`, `float8`), and `jax` where it drives this device.
        """

    def prepare(self) -> None:
        """Called in the worker alone, before torch is used; may import the vendor's extension.

        After it, float32 means IEEE float32: a vendor whose libraries shorten it by default (TF32)
        switches that off here, and a workload that wants less says so in its parameters.
        """

    def container_options(self) -> Mapping[str, object]:
        """How the docker SDK passes the devices into a container."""
