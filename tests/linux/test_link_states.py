"""Links of the moment: interfaces and the ports of RDMA adapters, as the kernel writes them."""

from pathlib import Path

import pytest

from appliance.linux.sysfs import Tree
from appliance.probe.conditions import condition_facts
from appliance.records.system import Fact

PORTS = "sys/class/infiniband"


def written(root: Path, files: dict[str, str]) -> Tree:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    return Tree(root)


def values(tree: Tree, begin: str) -> dict[str, object]:
    facts = condition_facts(tree, {})
    return {name: result.value for name, result in facts.items() if name.startswith(begin)}


def test_ports_of_adapters_tell_state_and_rate(tmp_path: Path) -> None:
    tree = written(
        tmp_path,
        {
            f"{PORTS}/mlx5_0/ports/1/state": "4: ACTIVE",
            f"{PORTS}/mlx5_0/ports/1/phys_state": "5: LinkUp",
            f"{PORTS}/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)",
            f"{PORTS}/mlx5_1/ports/1/state": "1: DOWN",
            f"{PORTS}/mlx5_1/ports/1/phys_state": "3: Disabled",
            f"{PORTS}/mlx5_1/ports/1/rate": "2.5 Gb/sec (1X SDR)",
        },
    )
    assert values(tree, "port_") == {
        "port_mlx5_0_1": "ACTIVE",
        "port_mlx5_0_1_physical": "LinkUp",
        "port_mlx5_0_1_speed": 400_000_000_000,
        "port_mlx5_1_1": "DOWN",
        "port_mlx5_1_1_physical": "Disabled",
        "port_mlx5_1_1_speed": 2_500_000_000,
    }


def test_a_node_without_adapters_has_no_ports(tmp_path: Path) -> None:
    assert values(Tree(tmp_path), "port_") == {}


@pytest.mark.parametrize("text", ["", "ACTIVE", "4: \x1b[31m", "9" * 300])
def test_damaged_states_are_not_reported_and_say_so(tmp_path: Path, text: str) -> None:
    files = {f"{PORTS}/a/ports/1/{name}": text for name in ("state", "phys_state", "rate")}
    facts = condition_facts(written(tmp_path, files), {})
    result = [facts[f"port_a_1{name}"] for name in ("", "_physical", "_speed")]
    assert [one.value for one in result] == [None] * 3
    assert all(one.hint for one in result)


def test_missing_file_of_a_port_is_not_reported(tmp_path: Path) -> None:
    tree = written(tmp_path, {f"{PORTS}/a/ports/1/state": "4: ACTIVE"})
    facts = condition_facts(tree, {})
    assert facts["port_a_1"] == Fact(value="ACTIVE", source=f"/{PORTS}/a/ports/1/state")
    assert facts["port_a_1_speed"].value is None


def test_state_and_speed_of_an_interface_are_conditions(tmp_path: Path) -> None:
    tree = written(
        tmp_path,
        {
            "sys/class/net/eth0/device/vendor": "0x15b3",
            "sys/class/net/eth0/operstate": "up",
            "sys/class/net/eth0/speed": "100000",
            "sys/class/net/eth1/device/vendor": "0x15b3",
            "sys/class/net/eth1/operstate": "down",
            "sys/class/net/eth1/speed": "-1",
        },
    )
    assert values(tree, "link_") == {
        "link_eth0": "up",
        "link_eth0_speed": 100_000_000_000,
        "link_eth1": "down",
        "link_eth1_speed": None,
    }
