"""A container engine that has devices."""

from pathlib import Path

from appliance.linux.sysfs import Tree

NODES = {
    "cuda": ("0x10de", "0x030200", ["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1"]),
    "rocm": ("0x1002", "0x120000", ["/dev/kfd", "/dev/dri/renderD128"]),
    "xpu": ("0x8086", "0x038000", ["/dev/dri/renderD128"]),
}


def on_bus(root: Path, address: str, vendor: str, kind: str) -> None:
    folder = root / "sys/bus/pci/devices" / address
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "class").write_text(f"{kind}\n")


def with_nodes(root: Path, address: str, nodes: list[str]) -> None:
    for node in nodes:
        path = root / node.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        if "/dri/" in node:
            drm = root / "sys/class/drm" / path.name
            drm.mkdir(parents=True)
            (drm / "device").symlink_to(root / "sys/bus/pci/devices" / address)


def with_devices(root: Path, vendor: str) -> Tree:
    """A host with a device of a vendor, driver and nodes."""
    number, kind, nodes = NODES[vendor]
    on_bus(root, "0000:1b:00.0", number, kind)
    with_nodes(root, "0000:1b:00.0", nodes)
    return Tree(root)
