"""What differs between makers of accelerators, and nothing else.

One module per maker implements `Vendor`; nothing outside that module knows the maker's
words. A value that the maker's tool does not give is None and is shown as "not reported".
Vendor libraries are imported inside the module's functions, never at its top, so that
`bench probe` works where only one maker's library is installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from appliance.records import Device


class Vendor(Protocol):
    """One maker: how its devices are found, read and made visible."""

    name: str
    torch_type: str
    collectives: str
    """Name of the torch.distributed backend."""
    fork_safe: bool
    """A process that has imported torch, and run nothing, may be forked and then use a device."""

    def probe(self) -> tuple[Device, ...]:
        """Devices that are present, in a stable order; empty if there are none of this maker."""

    def read(self, device: Device) -> Mapping[str, float | None]:
        """Telemetry of one moment, in SI units named in the key (`power_watts`)."""

    def counters(self, device: Device) -> Mapping[str, int | None]:
        """Error counters since boot (`ecc_uncorrected`)."""

    def environment(self, *devices: Device) -> Mapping[str, str]:
        """Variables that a child must have to see these devices alone, in this order."""

    def onnx_providers(self) -> tuple[str, ...]:
        """ONNX Runtime providers in order of preference; the first must be the one used."""

    def features(self, device: Device) -> frozenset[str]:
        """What workloads may need and this device has.

        Number formats (`float64`, `tf32`, `float8`), and `jax` where it drives this device.
        """

    def prepare(self) -> None:
        """Called in the worker alone, before torch is used; may import the maker's extension.

        After it, float32 means IEEE float32: a maker whose libraries shorten it by default (TF32)
        switches that off here, and a workload that wants less says so in its parameters.
        """

    def container_options(self) -> Mapping[str, object]:
        """How the docker SDK passes the devices into a container."""
