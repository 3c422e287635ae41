"""An order's lines, and the node that fits them."""

from appliance.records.json import Scalar
from appliance.records.system import Conditions, Device, Fact, Facts, Identity, System

GIB = 2**30


def facts(**values: Scalar | None) -> Facts:
    return {name: Fact(value=value, hint="" if value else "no") for name, value in values.items()}


def accelerator(number: int, **values: Scalar | None) -> Device:
    own: dict[str, Scalar | None] = {
        "driver": "580.65.06",
        "link_kind": "Fabric",
        "num_links": 18,
        "vbios": "96.00.5E",
    }
    reported = facts(**(own | values))
    bandwidth = Fact(value=25e9, unit="bytes per second")
    return Device(
        id=f"vendor:{number}",
        vendor="vendor",
        index=number,
        model="Accelerator X1",
        serial=f"S{number}",
        memory_bytes=80 * GIB,
        facts={**reported, "link_bytes_per_second": bandwidth},
    )


DISK = {"model": Fact(value="A disk"), "size": Fact(value=3_840_755_982_336, unit="bytes")}

MODULE = {"size": Fact(value=64 * GIB, unit="bytes"), "kind": Fact(value="DDR5")}

NODE = System(
    identity=Identity(
        devices=tuple(map(accelerator, range(4))),
        host={
            **facts(processor_model="Processor P", memory_modules=2, disks=2, kernel="6.10.3"),
            "network_interfaces": Fact(value=None, hint="mount /sys"),
            "memory": Fact(value=128 * GIB, unit="bytes"),
            "system_product": Fact(value=None, hint="run as root"),
            "virtual_machine": Fact(value=False),
        },
        memory_modules=(MODULE, MODULE),
        disks=(DISK, {**DISK, "model": Fact(value="Another disk")}),
        interfaces=(),
        software={"torch": Fact(value="2.13.0")},
    ),
    conditions=Conditions(
        utc="2026-11-22T00:00:00Z",
        facts={
            "link_a": Fact(value="up"),
            "link_a_speed": Fact(value=400_000_000_000, unit="bit/s"),
            "link_b": Fact(value="down"),
            "link_b_speed": Fact(value=None, unit="bit/s", hint="the link is down"),
        },
        foreign_processes=(),
    ),
)

HEAD = 'name = "an order"\nsummary = "for tests"\n'

LINE = '[[line]]\ntitle = "Memory"\nfield = "host.memory"\nop = ">="\nvalue = 64\nunit = "GiB"\n'
