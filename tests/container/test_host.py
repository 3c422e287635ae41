"""The side of the container that is outside, without an engine: options, preflight, sockets."""

import errno
import os
import re
import shlex
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.engine_devices import on_bus, with_devices, with_nodes
from support.program import called

from appliance.container import engine_client, preflight
from appliance.container.container_options import (
    Bind,
    Container,
    Devices,
    Engine,
    Image,
    environment,
    line,
    options,
)
from appliance.errors import ApplianceError, RunInterrupted, UsageError
from appliance.linux.sysfs import Tree
from appliance.probe import container_facts
from appliance.vendors.containers import CONTAINERS
from appliance.vendors.registry import VENDORS
from appliance.verbs import start
from appliance.verbs.run_options import StartOptions, bytes_of

DOCKER = Engine(url="unix:///var/run/docker.sock", version="28.2.2", api="1.50", storage="overlay2")
PODMAN = replace(DOCKER, product="Podman", version="5.8.0", device_folders=("/etc/cdi",))
SPECIFICATIONS = {
    "nvidia.yaml": 'cdiVersion: "0.5.0"\nkind: nvidia.com/gpu\ndevices:\n- name: all\n',
    "amd.json": '{\n  "cdiVersion": "0.6.0",\n  "kind": "amd.com/gpu",\n  "devices": []\n}\n',
    "intel.yaml": "---\ncdiVersion: 0.5.0\nkind: 'intel.com/gpu'\n",
}


def container(**given: Any) -> Container:
    usual: dict[str, Any] = {
        "id": "abc",
        "image": Image(name="bench-cpu", id="sha256:1", layers="sha256:2"),
        "words": ("run", "--vendor", "cpu"),
        "user": "1000:1001",
        "binds": (Bind(source="/home/a b/out", target="/out", is_writable=True),),
        "engine": DOCKER,
    }
    return Container(**{**usual, **given})


# ------------------------------------------------------------------ which vendor


@pytest.mark.parametrize("vendor", CONTAINERS)
def test_vendor_is_the_one_whose_devices_are_there(tmp_path: Path, vendor: str) -> None:
    assert preflight.choose(with_devices(tmp_path, vendor), None) == vendor


def test_host_without_devices_is_its_processors(tmp_path: Path) -> None:
    on_bus(tmp_path, "0000:00:02.0", "0x8086", "0x030000")  # a processor's own graphics
    on_bus(tmp_path, "0000:02:00.0", "0x8086", "0x020000")  # a network card of the same vendor
    on_bus(tmp_path, "0000:03:00.0", "0x1a03", "0x030000")  # a board's management controller
    with_nodes(tmp_path, "0000:00:02.0", ["/dev/dri/renderD128"])
    assert preflight.choose(Tree(tmp_path), None) == "cpu"


def test_device_without_a_node_is_never_passed_over(tmp_path: Path) -> None:
    on_bus(tmp_path, "0000:1b:00.0", "0x10de", "0x030200")
    with pytest.raises(UsageError, match=r"0000:1b:00\.0 .* of NVIDIA without a node.*driver"):
        preflight.choose(Tree(tmp_path), None)
    assert preflight.choose(Tree(tmp_path), "cpu") == "cpu"


def test_unknown_vendor_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r'"cudaa".*"cuda"'):
        preflight.choose(Tree(tmp_path), "cudaa")


# ------------------------------------------------------------------ how devices are passed


@pytest.mark.parametrize("vendor", CONTAINERS)
def test_vendors_say_the_same_inside_and_outside(vendor: str) -> None:
    passing = CONTAINERS[vendor]
    requests = [{"count": -1, "capabilities": [["gpu"]]}] if passing.requests else []
    assert VENDORS[vendor]().container_options() == {
        "cdi": passing.cdi,
        "device_requests": requests,
        "devices": list(passing.devices),
        "group_nodes": list(passing.group_nodes),
    }


@pytest.mark.parametrize(("vendor", "name"), list(zip(CONTAINERS, SPECIFICATIONS, strict=True)))
def test_cdi_is_preferred_where_the_engine_has_the_kind(
    tmp_path: Path, vendor: str, name: str
) -> None:
    tree = with_devices(tmp_path, vendor)
    (tmp_path / "etc/cdi").mkdir(parents=True)
    (tmp_path / "etc/cdi" / name).write_text(SPECIFICATIONS[name])
    engine = replace(DOCKER, device_folders=("/etc/cdi", "/var/run/cdi"))
    devices, missing = preflight.devices(tree, vendor, engine)
    assert (devices.cdi, devices.requests, devices.nodes) == (CONTAINERS[vendor].cdi, False, ())
    assert missing == ()
    assert not preflight.has_cdi(tree, CONTAINERS[vendor], DOCKER)  # an engine without CDI
    given = engine_client.arguments(container(devices=devices, engine=engine))
    assert given["device_requests"][0]["Driver"] == "cdi"
    assert given["device_requests"][0]["DeviceIDs"] == [CONTAINERS[vendor].cdi]
    assert ["--device", devices.cdi] == list(options(container(devices=devices)))[
        -2 - 2 * len(devices.groups) :
    ][:2]


def test_without_cdi_devices_are_asked_for_if_the_hook_is_there(tmp_path: Path) -> None:
    tree = with_devices(tmp_path, "cuda")
    devices, missing = preflight.devices(tree, "cuda", DOCKER)
    assert devices == Devices(count=2, requests=True)
    assert "nvidia-ctk cdi generate" in missing[0]
    with_nodes(tmp_path, "", ["/usr/bin/nvidia-container-runtime-hook"])
    assert preflight.devices(tree, "cuda", DOCKER) == (devices, ())
    _, missing = preflight.devices(tree, "cuda", PODMAN)  # it serves no such request
    assert "nvidia.com/gpu" in missing[0]
    assert list(options(container(devices=devices)))[-2:] == ["--gpus", "all"]
    (request,) = engine_client.arguments(container(devices=devices))["device_requests"]
    assert (request["Count"], request["Capabilities"]) == (-1, [["gpu"]])


def test_nodes_come_with_the_numbers_of_their_groups(tmp_path: Path) -> None:
    tree = with_devices(tmp_path, "rocm")
    group = (tmp_path / "dev/kfd").stat().st_gid
    devices, missing = preflight.devices(tree, "rocm", DOCKER)
    assert devices == Devices(count=1, nodes=("/dev/kfd", "/dev/dri"), groups=(group,))
    assert missing == ()
    given = engine_client.arguments(container(devices=devices))
    assert given["devices"] == ["/dev/kfd", "/dev/dri"]
    assert given["group_add"] == [str(group)]


def test_rootless_podman_keeps_the_callers_groups_and_takes_cdi_as_a_device() -> None:
    devices = Devices(count=1, cdi="amd.com/gpu=all", groups=(44,))
    own = container(devices=devices, engine=replace(PODMAN, is_rootless=True))
    given = engine_client.arguments(own)
    assert given["group_add"] == ["keep-groups"]
    assert given["devices"][0]["PathOnHost"] == "amd.com/gpu=all"
    assert given["device_requests"] == []
    assert given["log_config"]["Type"] == "k8s-file"
    assert preflight.run_user(Path(), own.engine) == "0:0"


@pytest.mark.parametrize("vendor", CONTAINERS)
def test_missing_nodes_are_named_with_the_driver(tmp_path: Path, vendor: str) -> None:
    _, missing = preflight.devices(Tree(tmp_path), vendor, DOCKER)
    for node in CONTAINERS[vendor].nodes:
        assert node in missing[0]
    assert CONTAINERS[vendor].driver in missing[0]


# ------------------------------------------------------------------ options


def test_container_is_closed_off() -> None:
    given = engine_client.arguments(container())
    assert given["read_only"] is True
    assert given["cap_drop"] == ["ALL"]
    assert given["network_mode"] == "none"
    assert given["security_opt"] == ["no-new-privileges"]
    assert given["user"] == "1000:1001"
    assert given["labels"] == {"bench.run": "abc"}
    assert [mount["ReadOnly"] for mount in given["mounts"]] == [False]
    assert given["image"] == "sha256:1"
    assert "privileged" not in given


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"memory_bytes": 2**30}, "--memory 1073741824 --memory-swap 1073741824"),
        ({"relaxes_seccomp": True}, "--security-opt seccomp=unconfined"),
        ({"locks_memory": True}, "--ulimit memlock=-1:-1"),
        ({"devices": Devices(count=8, requests=True)}, f"--shm-size {8 * 2**30}"),
        ({"engine": replace(DOCKER, remaps_users=True)}, "--userns host"),
        ({"engine": replace(DOCKER, labels_files=True)}, "--security-opt label=disable"),
    ],
)
def test_what_is_asked_for_is_in_the_line_and_in_the_evidence(
    given: dict[str, Any], words: str
) -> None:
    made = container(**given)
    assert words in " ".join(options(made))
    assert words in line(made)
    reported = container_facts.condition_facts(environment(made))
    assert words in str(reported["container_options"].value)


def test_options_in_the_evidence_name_no_folder_and_no_user() -> None:
    words = " ".join(options(container()))
    assert "/home" not in words
    assert "1000" not in words


def test_refused_limit_is_told() -> None:
    made = container(locks_memory=False)
    assert "memlock" not in line(made)
    reported = container_facts.condition_facts(environment(made))
    assert "refused" in str(reported["container_locked_memory"].value)


def test_line_is_one_that_a_shell_reads() -> None:
    words = shlex.split(line(container()))
    assert words[:4] == ["mkdir", "-p", "/home/a b/out", "&&"]
    assert words[words.index("--mount") + 1] == "type=bind,source=/home/a b/out,target=/out"
    assert words[-4:] == ["bench-cpu", "run", "--vendor", "cpu"]
    odd = container(binds=(Bind(source='/a,"b', target="/in/x"),))
    assert 'type=bind,"source=/a,""b",target=/in/x,readonly' in shlex.split(line(odd))


@pytest.mark.parametrize(
    ("text", "size"), [("512m", 2**29), ("64G", 2**36), ("8000k", 8000 * 2**10)]
)
def test_sizes(text: str, size: int) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1g", "1.5g", "lots", "1b", "5m", "1024t", "99999999g"])
def test_bad_size_is_one_sentence(text: str) -> None:
    with pytest.raises(UsageError, match="--memory"):
        bytes_of(text)


# ------------------------------------------------------------------ what is told


def test_told_facts_are_marked_and_unknown_names_are_left_out() -> None:
    reported = {
        container_facts.VARIABLE: '{"image_layers": "sha256:2", "foreign": "x", "launcher": 7}'
    }
    assert list(container_facts.identity_facts(reported)) == ["image_layers"]
    assert (
        "reported by the launcher"
        in container_facts.identity_facts(reported)["image_layers"].source
    )
    assert container_facts.condition_facts(reported)["launcher"].value is None
    with pytest.raises(KeyError):
        container_facts.encode({"foreign": "x"})


@pytest.mark.parametrize("value", ["", "[]", "{", "null"])
def test_damaged_word_of_a_launcher_is_no_word(value: str) -> None:
    assert container_facts.identity_facts({container_facts.VARIABLE: value}) == {}
    assert (
        "bench start"
        in container_facts.condition_facts({container_facts.VARIABLE: value})["launcher"].hint
    )


@pytest.mark.parametrize(
    ("references", "digest"),
    [
        ((), "sha256:1"),
        (("a@sha256:9", "b@sha256:9"), "sha256:9"),
        (("a@s:8", "b@s:9"), "sha256:1"),
    ],
)
def test_digest_is_the_registries_if_they_agree(references: tuple[str, ...], digest: str) -> None:
    assert Image(name="a", id="sha256:1", references=references).digest == digest


# ------------------------------------------------------------------ sockets


def test_sockets_are_tried_in_order() -> None:
    own = {"XDG_RUNTIME_DIR": "/run/user/7"}
    assert engine_client.addresses(None, own) == (
        "unix:///var/run/docker.sock",
        "unix:///run/user/7/docker.sock",
        "unix:///run/user/7/podman/podman.sock",
        "unix:///run/podman/podman.sock",
    )
    named = {**own, "DOCKER_HOST": "unix:///x"}
    assert engine_client.addresses(None, named) == ("unix:///x",)
    assert engine_client.addresses("/y/socket", named) == ("unix:///y/socket",)


def test_first_socket_that_answers_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = engine_client._trial
    monkeypatch.setattr(  # an engine of this machine is not looked at
        engine_client, "_trial", lambda path: errno.ENOENT if path.startswith("/") else real(path)
    )
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    (tmp_path / "podman").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("podman/podman.sock")
        listening.listen()
        variables = {"XDG_RUNTIME_DIR": "."}
        assert engine_client.address(None, variables) == "unix://./podman/podman.sock"
    with pytest.raises(UsageError, match="listens"):
        engine_client.address("unix://podman/podman.sock", {})


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (errno.EACCES, "usermod -aG docker"),
        (errno.ECONNREFUSED, "systemctl start docker"),
        (errno.ENOENT, "install Docker Engine or Podman"),
    ],
)
def test_engine_that_cannot_be_reached_has_its_own_fix(
    monkeypatch: pytest.MonkeyPatch, fault: int, words: str
) -> None:
    monkeypatch.setattr(engine_client, "_trial", lambda _: fault)
    with pytest.raises(UsageError, match=re.escape(words)):
        engine_client.address(None, {})


def test_engine_on_another_machine_is_refused() -> None:
    with pytest.raises(UsageError, match="on this machine"):
        engine_client.address(None, {"DOCKER_HOST": "tcp://10.0.0.1:2375"})


def test_engine_says_what_it_is() -> None:
    info = {
        "SecurityOptions": ["name=seccomp,profile=default", "name=rootless"],
        "Driver": "overlay",
    }
    podman = {"Version": "5.8.0", "Components": [{"Name": "Podman Engine"}]}
    result = engine_client._engine("unix:///x", info, podman)
    assert (result.product, result.is_rootless, result.remaps_users) == ("Podman", True, False)
    assert result.device_folders == ("/etc/cdi", "/var/run/cdi")
    docker = {"Version": "28.2.2", "ApiVersion": "1.50"}
    result = engine_client._engine("unix:///x", {"CDISpecDirs": ["/etc/cdi"]}, docker)
    assert (result.product, result.device_folders) == ("Docker", ("/etc/cdi",))
    assert engine_client._engine("unix:///x", {}, docker).device_folders == ()


# ------------------------------------------------------------------ folders and ends


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder away needs root")
def test_root_runs_as_the_owner_of_the_folder(tmp_path: Path) -> None:
    os.chown(tmp_path, 1234, 1235)
    assert preflight.run_user(tmp_path, DOCKER) == "1234:1235"
    assert list(preflight.missing_out(tmp_path)) == []


def test_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 7)
    (sentence,) = preflight.missing_out(tmp_path)
    assert "belongs to user" in sentence
    assert "chown" in sentence


def test_folder_that_takes_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "is not a folder" in next(preflight.missing_out(tmp_path / "file"))
    tmp_path.chmod(0o500)
    assert "chmod u+rwx" in next(preflight.missing_out(tmp_path))
    tmp_path.chmod(0o700)
    assert list(preflight.missing_out(tmp_path / "new" / "er")) == []


def test_file_that_the_runs_user_cannot_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "order.toml"
    path.write_text("")
    path.chmod(0o600)
    assert "chmod a+rX" in preflight.missing_files([path], "54321:54321")[0]
    path.chmod(0o644)
    assert preflight.missing_files([path], "54321:54321") == ()
    assert "cannot be read" in preflight.missing_files([tmp_path / "none"], "1:1")[0]


def ended(**given: Any) -> engine_client.ContainerExit:
    usual: dict[str, Any] = {
        "reason": "ended",
        "exit_code": 5,
        "ran_out_of_memory": False,
        "detail": "",
        "container": container(memory_bytes=2**26),
    }
    return engine_client.ContainerExit(**{**usual, **given})


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ({"reason": "stopped", "exit_code": 130}, RunInterrupted, "bench start --resume"),
        ({"reason": "timed_out", "exit_code": 137}, RunInterrupted, "--timeout"),
        ({"reason": "engine_lost", "exit_code": None}, ApplianceError, "unix:///var/run"),
        ({"exit_code": 137, "ran_out_of_memory": True}, ApplianceError, "64 MiB: raise --memory"),
        ({"exit_code": 137}, ApplianceError, "exit code 137"),
        ({"exit_code": 130}, RunInterrupted, "inside its container"),
        ({"exit_code": 2}, UsageError, "everything recorded stays"),
        ({"exit_code": 5}, ApplianceError, "exit code 5"),
    ],
)
def test_each_end_has_its_error_and_keeps_the_evidence(
    tmp_path: Path, given: dict[str, Any], kind: type[Exception], words: str
) -> None:
    (tmp_path / "journal.jsonl").write_text("")
    fault = start.fault(ended(**given), tmp_path)
    assert type(fault) is kind
    assert words in str(fault)
    assert f"--resume {tmp_path}" in str(fault)
    assert "--resume" not in str(start.fault(ended(**given), None))


def test_what_the_run_itself_has_said_is_not_said_again() -> None:
    assert str(start.fault(ended(exit_code=2), None)) == ""


# ------------------------------------------------------------------ the line


def test_dry_run_needs_no_engine_and_touches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_client, "_trial", lambda _: errno.ENOENT)
    suite = tmp_path / "my suite.toml"
    suite.write_text("")
    request = StartOptions(
        vendor="rocm", suite=str(suite), out=tmp_path / "out", criteria="functional"
    )
    root = tmp_path / "root"
    printed, missing = start.dry_line(request, with_devices(root, "rocm"))
    words = shlex.split(printed)
    assert "bench-rocm" in words
    assert words[words.index("bench-rocm") + 1 :] == [
        "run",
        "--vendor",
        "rocm",
        "--suite",
        "/in/suite/my suite.toml",
        "--criteria",
        "functional",
    ]
    assert len(missing) == 1
    assert "no container engine" in missing[0]
    assert not (tmp_path / "out").exists()


def test_dry_run_that_would_not_start_ends_with_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_client, "_trial", lambda _: errno.ENOENT)
    done = called("start", "--dry-run", "--vendor", "cpu", "--out", str(tmp_path / "out"))
    assert (done.returncode, "docker" in done.stdout) == (2, True)
    assert "would not start: no container engine" in done.stderr
    monkeypatch.setattr(start, "dry_line", lambda _: ("docker run", ()))
    assert called("start", "--dry-run").returncode == 0


def test_container_chooses_the_suite_that_nobody_named(tmp_path: Path) -> None:
    request = StartOptions(vendor="rocm", out=tmp_path / "out")
    printed, _ = start.dry_line(request, with_devices(tmp_path / "root", "rocm"))
    words = shlex.split(printed)
    assert words[words.index("bench-rocm") + 1 :] == ["run", "--vendor", "rocm"]
    printed, _ = start.dry_line(replace(request, minutes=30), Tree(tmp_path / "root"))
    assert shlex.split(printed)[-2:] == ["--minutes", "30"]


def test_what_is_missing_is_one_sentence_with_every_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_client, "_trial", lambda _: errno.ENOENT)
    request = StartOptions(vendor="cuda", out=tmp_path / "out")
    _, missing = start.dry_line(request, Tree(tmp_path))
    assert [word in " ".join(missing) for word in ("/dev/nvidiactl", "--engine")] == [True, True]
    with pytest.raises(UsageError) as raised:
        start.start(
            request,
            None,
            "tester",
            say=print,
            write=print,
            tree=Tree(tmp_path),  # type: ignore[arg-type]
        )
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_folder_that_is_no_run_cannot_go_on(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no run"):
        start.dry_line(StartOptions(resume=tmp_path))
