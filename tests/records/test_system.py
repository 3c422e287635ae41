"""What changed between two identities of a node, in sentences."""

from dataclasses import replace

from support.builders import an_identity

from appliance.records.system import Fact, identity_differences


def test_differences_name_every_changed_fact() -> None:
    before = an_identity(disks=({"serial": Fact(value="S1")},))
    device = replace(before.devices[0], model="B", facts={"microcode": Fact(value=None, hint="x")})
    after = an_identity(
        devices=(device,), host={"kernel": Fact(value="6.1", source="uname"), "bios": Fact(value=1)}
    )
    assert identity_differences(before, before) == []
    assert identity_differences(before, after) == [
        "cpu:0: model was A and is B",
        "cpu:0: microcode was 0x1 and is not reported",
        "host: kernel is read another way (source unknown before, uname now)",
        "disk 1: serial is gone",
        "host: bios is new",
    ]
