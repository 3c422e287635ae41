"""What a host needs to pass each vendor's devices into a container, and how they are passed.

Data only, for the program that starts the container and for `bench doctor`, neither of which loads
a vendor's library, and for the vendor's own module, which works inside the container. Read 2026-11:

- https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html
  (kind nvidia.com/gpu, `nvidia-ctk cdi generate`); moby, daemon/nvidia_linux.go: the engine
  serves `--gpus` if nvidia-container-runtime-hook is installed;
  https://docs.kernel.org/admin-guide/devices.html and the driver's README, chapter "Device Nodes".
- https://rocm.docs.amd.com, "Run ROCm Docker containers" (/dev/kfd, /dev/dri, groups video and
  render); https://instinct.docs.amd.com/projects/container-toolkit (kind amd.com/gpu, `amd-ctk`).
- https://intel.github.io/intel-device-plugins-for-kubernetes/cmd/gpu_plugin/cdi.html (kind
  intel.com/gpu; without it /dev/dri).
- PCI vendor numbers and classes: https://pci-ids.ucw.cz.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePassthrough:
    """How one vendor's devices are detected on a host and passed into a container.

    `nodes` must all be there; `device_nodes` is the folder and the pattern of those of which
    there is one per device, and which belong to the vendor if `is_shared` is not set, else if
    their PCI function is his. `cdi` is the device of the Container Device Interface that means
    all of them; where the engine has no such device, `requests` says that it is requested
    (`--gpus all`), which needs the program `hook`, else `devices` are passed, and the groups of
    `group_nodes` with them. The rest are words for people: how to put right what is missing.
    """

    title: str
    image: str
    pci_vendor: str
    own_graphics: str = ""
    """PCI address at which a processor has its own graphics, which are no device of ours."""
    nodes: tuple[str, ...]
    device_nodes: tuple[str, str]
    is_shared: bool
    cdi: str
    requests: bool = False
    hook: str = ""
    devices: tuple[str, ...] = ()
    group_nodes: tuple[str, ...] = ()
    driver: str
    toolkit: str

    def options(self) -> Mapping[str, object]:
        """How an engine passes all of the vendor's devices (`Vendor.container_options`)."""
        everything = {"count": -1, "capabilities": [["gpu"]]}
        return {
            "cdi": self.cdi,
            "device_requests": [everything] if self.requests else [],
            "devices": [*self.devices],
            "group_nodes": [*self.group_nodes],
        }


PCI_CLASSES = ("0x03", "0x12")
"""Display controllers and processing accelerators."""
CONTAINERS: Mapping[str, DevicePassthrough] = {
    "cuda": DevicePassthrough(
        title="NVIDIA",
        image="bench-cuda",
        pci_vendor="0x10de",
        nodes=("/dev/nvidiactl",),
        device_nodes=("/dev", r"nvidia\d+"),
        is_shared=False,
        cdi="nvidia.com/gpu=all",
        requests=True,
        hook="nvidia-container-runtime-hook",
        driver="install the NVIDIA driver and load it (`nvidia-smi` must list the devices)",
        toolkit="install the NVIDIA Container Toolkit and run `sudo nvidia-ctk cdi generate "
        "--output=/etc/cdi/nvidia.yaml`, or `sudo nvidia-ctk runtime configure` and restart "
        "the engine",
    ),
    "rocm": DevicePassthrough(
        title="AMD",
        image="bench-rocm",
        pci_vendor="0x1002",
        nodes=("/dev/kfd",),
        device_nodes=("/dev/dri", r"renderD\d+"),
        is_shared=True,
        cdi="amd.com/gpu=all",
        devices=("/dev/kfd", "/dev/dri"),
        group_nodes=("/dev/kfd", "/dev/dri/renderD*"),
        driver="install amdgpu-dkms and load it (`sudo modprobe amdgpu`)",
        toolkit="install the AMD Container Toolkit and run `sudo amd-ctk cdi generate "
        "--output=/etc/cdi/amd.json`",
    ),
    "xpu": DevicePassthrough(
        title="Intel",
        image="bench-xpu",
        pci_vendor="0x8086",
        own_graphics="0000:00:02.0",
        nodes=(),
        device_nodes=("/dev/dri", r"renderD\d+"),
        is_shared=True,
        cdi="intel.com/gpu=all",
        devices=("/dev/dri",),
        group_nodes=("/dev/dri/renderD*",),
        driver="load the kernel's driver of the device (`sudo modprobe xe`, or i915)",
        toolkit="put a specification of the kind intel.com/gpu into /etc/cdi",
    ),
}
"""Vendors of accelerators in the order in which they are preferred."""
PROCESSORS_IMAGE = "bench-cpu"
