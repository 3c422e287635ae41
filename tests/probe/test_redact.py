"""Redaction: no file names the machine, and who has the salt can prove what it is called."""

import hashlib
import hmac
import json
import os
import re
import socket
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from recorded import trees
from support.launching import Seen
from support.program import ROOT, bench

from appliance.errors import OutputError, UsageError
from appliance.linux.sysfs import Tree
from appliance.probe import node, redaction
from appliance.probe.redaction import Private, Redactor
from appliance.records.journal import (
    Environment,
    InterimAnalysis,
    KernelLogged,
    LaunchEnded,
    Libraries,
    LibrariesHashed,
)
from appliance.records.json import from_json
from appliance.records.plan import Plan
from appliance.records.system import Fact, System
from appliance.signing import html_attachments, keys, pades
from appliance.storage import bundle
from appliance.vendors.cpu import Cpu
from appliance.verbs import accept, publish
from appliance.verbs.run_options import RunOptions
from appliance.verification import verify
from appliance.verification.terms import Terms

TINY = (ROOT / "tests" / "suites" / "tiny.toml").read_text()
SALT = "5a" * 32
NAMES = ("node-017", "node-017.example.org", "gpu-farm-alias")
HARDWARE = ("a088c2000001", "a088c20300000001")
NETWORK = ("10.20.30.40", "fd00::17")
PRIVATE = Private(names=frozenset(NAMES), hardware=frozenset(HARDWARE), network=frozenset(NETWORK))
IDENTIFYING = re.compile(
    "node-?017|gpu-farm-alias|a0.?88.?c2.?0[03].?00.?00|10\\.20\\.30\\.40|fd00::17", re.IGNORECASE
)
"""Every name of the recorded machine, in any form."""


def digest(kind: str, name: str, salt: str = SALT) -> str:
    """As the documents say that it is made, by other means than the program's own."""
    made = hmac.new(salt.encode(), f"{kind}:{name}".encode(), hashlib.sha256).hexdigest()
    return f"{kind}-{made[:16]}"


@pytest.fixture
def redactor() -> Redactor:
    return Redactor(SALT, PRIVATE)


# ------------------------------------------------------------------ texts and records


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("node-017", "host", "node-017"),
        ("/home/NODE-017/run", "host", "node-017"),
        ("xnode-017x", "host", "node-017"),
        ("tcp://node-017.example.org:29500", "host", "node-017.example.org"),
        ("a0:88:c2:00:00:01", "mac", "a088c2000001"),
        ("A0-88-C2-00-00-01", "mac", "a088c2000001"),
        ("a088.c200.0001", "mac", "a088c2000001"),
        ("enxa088c2000001", "mac", "a088c2000001"),
        ("4c4c4544-0051-4b10-8031-a088c2000001", "mac", "a088c2000001"),
        ("a088:c203:0000:0001", "mac", "a088c20300000001"),
        ("10.20.30.40:29500", "ip", "10.20.30.40"),
        ("[fd00::17]:80", "ip", "fd00::17"),
    ],
)
def test_every_form_of_a_name_becomes_its_digest(
    redactor: Redactor, text: str, kind: str, name: str
) -> None:
    output = redactor.text(text)
    assert digest(kind, name) in output
    assert not IDENTIFYING.search(output)


@pytest.mark.parametrize(
    "text",
    ["110.20.30.40", "10.20.30.400", "10.20.30.40.5", "fd00::171", "fa088c2000001", "node 017"],
)
def test_what_only_looks_like_a_name_stays(redactor: Redactor, text: str) -> None:
    assert redactor.text(text) == text


def test_a_short_name_is_replaced_as_a_whole_word_and_never_in_the_name_of_a_fact() -> None:
    short = Redactor(SALT, Private(names=frozenset({"node"})))
    reported = short.record(
        Environment(launch="a", rank=0, facts={"numa_node": Fact(value="node x")})
    )
    assert reported.facts == {"numa_node": Fact(value=f"{digest('host', 'node')} x")}
    assert short.text("nodes of Node_3") == f"nodes of {digest('host', 'node')}_3"


def test_the_same_name_has_one_digest_under_one_salt_and_another_under_another() -> None:
    one, other = Redactor(SALT, PRIVATE), Redactor("5b" * 32, PRIVATE)
    assert one.text("node-017") == one.text("NODE-017") == digest("host", "node-017")
    assert one.text("node-017") != other.text("node-017")
    assert one.commitment == hashlib.sha256(SALT.encode()).hexdigest() != other.commitment


def test_bytes_that_are_no_text_are_kept(redactor: Redactor) -> None:
    assert redactor.data(b"\xff node-017\n") == f"\udcff {digest('host', 'node-017')}\n".encode(
        "utf-8", "surrogateescape"
    )


def test_words_that_the_appliance_compares_are_kept() -> None:
    common = Redactor(SALT, Private(names=frozenset({"gemm", "decided", "cpu", "completed"})))
    ended = LaunchEnded(
        launch="gemm@cpu:0/1",
        outcome="completed",
        reason="decided",
        detail="gemm",
        exit_code=0,
        wall_ns=1,
        peak_memory_bytes=None,
    )
    assert common.record(ended) == replace(ended, detail=digest("host", "gemm"))
    analysed = InterimAnalysis(
        case="gemm@cpu:0", launches=5, is_decided=True, reason="decided: gemm"
    )
    assert common.record(analysed) == analysed


def test_paths_and_the_kernels_words_are_searched(redactor: Redactor) -> None:
    files = redactor.record(
        Libraries(launch="a", rank=0, files={"/home/node-017/lib.so": None})
    ).files
    assert files == {f"/home/{digest('host', 'node-017')}/lib.so": None}
    hashed = LibrariesHashed(digests={"1:17:3:4:5": "017" + "d" * 61})
    assert redactor.record(hashed) == hashed
    logged = KernelLogged(
        launch="",
        device="cpu:0",
        code="Xid 79",
        is_fatal=True,
        meaning="gone",
        text="mlx5 a0:88:c2:00:00:01: link down",
        sequence=1,
    )
    assert redactor.record(logged).text == f"mlx5 {digest('mac', 'a088c2000001')}: link down"


# ------------------------------------------------------------------ what is private


@pytest.fixture
def xeon(tmp_path: Path) -> Path:
    root = trees.unpack("xeon_two_sockets", tmp_path / "xeon")
    (root / "etc/hosts").write_text(
        "127.0.0.1 localhost\n10.20.30.40 node-017.example.org node-017 gpu-farm-alias # me\n"
        "10.20.30.41 other-node\n"
    )
    return root


def test_a_machine_s_names_are_those_of_its_kernel_and_its_files(xeon: Path) -> None:
    system = node.probe((Cpu(xeon),), root=xeon, environment={}, window_seconds=0.0)
    result = redaction.private(Tree(xeon), system)
    assert result.names == {*NAMES}
    assert result.hardware == {*HARDWARE}
    text = json.dumps(Redactor(SALT, result).text(str(system)))
    assert not IDENTIFYING.search(text)


def test_localhost_and_addresses_of_zeros_are_no_names(tmp_path: Path) -> None:
    root = trees.unpack("kvm_guest", tmp_path / "guest")
    (root / "proc/sys/kernel/hostname").write_text("localhost\n")
    port = root / "sys/class/net/lo"
    port.mkdir(parents=True)
    (port / "address").write_text("00:00:00:00:00:00\n")
    assert redaction.private(Tree(root)) == Private()


def test_an_address_of_infiniband_is_private_with_its_guid(tmp_path: Path) -> None:
    port = tmp_path / "sys/class/net/ib0"
    port.mkdir(parents=True)
    guid = "a088c203000000ff"
    digits = f"0000104bfe80000000000000{guid}"
    pairs = ":".join(digits[place : place + 2] for place in range(0, len(digits), 2))
    (port / "address").write_text(f"{pairs}\n")
    assert redaction.private(Tree(tmp_path)).hardware == {digits, guid}


def test_this_machine_s_own_names_and_addresses_are_found() -> None:
    result = redaction.private(Tree())
    name = socket.gethostname()
    assert name in result.names or name.lower() in redaction.NAMELESS
    assert not any(address.startswith("127.") for address in result.network)


# ------------------------------------------------------------------ the salt


def test_salt_is_for_its_owner_alone_and_never_written_over(tmp_path: Path) -> None:
    path = redaction.salt_path(tmp_path / "run")
    assert path == tmp_path / "run.salt"
    salt = redaction.draw()
    redaction.keep(salt, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert redaction.read_salt(path) == salt
    with pytest.raises(OutputError, match="cannot be written"):
        redaction.keep(salt, path)


@pytest.mark.parametrize("text", [b"", b"short", b"Z" * 64, b"\xff" * 64])
def test_what_is_no_salt_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "salt").write_bytes(text)
    with pytest.raises(UsageError, match="salt"):
        redaction.read_salt(tmp_path / "salt")


def test_salt_of_a_run_that_goes_on_must_be_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(UsageError, match="is gone"):
        redaction.of_run(folder, redaction.commitment(SALT))
    redaction.keep("5b" * 32, redaction.salt_path(folder))
    with pytest.raises(UsageError, match="not the salt"):
        redaction.of_run(folder, redaction.commitment(SALT))


# ------------------------------------------------------------------ a whole run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a signed and redacted run on the recorded machine, which tells its names."""
    home = tmp_path_factory.mktemp("redacted")
    root = trees.unpack("xeon_two_sockets", home / "machine")
    (root / "etc/hosts").write_text("10.20.30.40 node-017.example.org node-017 gpu-farm-alias\n")
    kept = TINY[: TINY.index("[[case]]", TINY.index("[[case]]") + 1)]
    (home / "suite.toml").write_text(
        kept + '[[case]]\nid = "telltale"\nworkload = "faulty.telltale"\nsmall = true\n'
        "expected_seconds = 1\nreference_seconds = 1\ntime_limit_seconds = 300\n"
        "memory_limit_gib = 4\nlaunches = 1\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        on_recorded_machine(patch, root)
        request = RunOptions(
            suite=str(home / "suite.toml"), vendor="cpu", out=home / "out", redact=True
        )
        finished = accept.run(request, Seen())
    return finished.folder


def on_recorded_machine(patch: pytest.MonkeyPatch, root: Path) -> None:
    """The host is the recorded one, where the processors are this machine's."""
    probing, private = node.probe, redaction.private

    def recorded(*vendors: object, **options: object) -> System:
        return probing(*vendors, **options, root=root, window_seconds=0.0)  # type: ignore[arg-type]

    def known(_: Tree, system: System) -> Private:
        return replace(private(Tree(root), system), network=frozenset(NETWORK))

    patch.setattr(node, "probe", recorded)
    patch.setattr(redaction, "private", known)
    patch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{ROOT / 'tests'}")


@pytest.mark.slow
def test_no_file_of_the_bundle_names_the_machine(run: Path, tmp_path: Path) -> None:
    publish.sign(run, keys.development_key(), "tester")
    files = {str(path.relative_to(run)): path for path in run.rglob("*") if path.is_file()}
    assert {name for name in files if name.startswith("logs/")} >= {
        "logs/telltale-cpu-0.0.stderr",
        "logs/telltale-cpu-0.0.stdout",
    }
    data = {name: path.read_bytes() for name, path in files.items()}
    pdf = data[bundle.PDF]
    attached = {f"{name} in the PDF": text for name, text in pades.attachments(pdf).items()}
    carried = {
        f"{name} in the HTML": text
        for name, text in html_attachments.carried_files(data[bundle.HTML]).items()
    }
    (tmp_path / "report.pdf").write_bytes(pdf)
    shown = subprocess.run(
        ["pdftotext", "-layout", "report.pdf", "-"], cwd=tmp_path, check=True, capture_output=True
    )
    everything = {**data, **attached, **carried, "the PDF's text": shown.stdout}
    reported = {
        name: result[0]
        for name, text in everything.items()
        if (result := IDENTIFYING.search(text.decode("utf-8", "replace")))
    }
    assert reported == {}
    assert verify.verify(run, Terms(allow_development=True)).faults == ()


@pytest.mark.slow
def test_what_the_workload_said_is_there_with_digests_in_place_of_names(run: Path) -> None:
    salt = redaction.salt_path(run).read_text()
    host = digest("host", "node-017", salt)
    log = (run / "logs" / "telltale-cpu-0.0.stderr").read_text()
    assert f"{host}: connect to {digest('host', 'node-017.example.org', salt)}:29500" in log
    assert digest("mac", "a088c2000001", salt) in log
    journal = (run / bundle.JOURNAL).read_text()
    assert f"{host}: connect to" in journal
    assert f'"value":"{host}"' in (run / bundle.SYSTEM).read_text()
    plan = from_json(Plan, (run / bundle.PLAN).read_bytes(), name="plan.json")
    assert plan.redacted == hashlib.sha256(salt.encode()).hexdigest()


@pytest.mark.slow
def test_a_redacted_run_goes_on_under_its_salt_alone(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_recorded_machine(monkeypatch, run.parents[1] / "machine")
    cut = tmp_path / "out" / run.name
    cut.mkdir(parents=True)
    for name in bundle.PREPARED_FILES:
        (cut / name).write_bytes((run / name).read_bytes())
    lines = (run / bundle.JOURNAL).read_bytes().splitlines(keepends=True)
    (cut / bundle.JOURNAL).write_bytes(b"".join(lines[:-1]))
    with pytest.raises(UsageError, match="is gone"):
        accept.resume(RunOptions(resume=cut, redact=True), Seen())
    salt = redaction.salt_path(run).read_text()
    redaction.keep(salt, redaction.salt_path(cut))
    finished = accept.resume(RunOptions(resume=cut, redact=True), Seen())
    assert finished.verdict.num_interruptions == 1
    assert not IDENTIFYING.search((cut / bundle.JOURNAL).read_text())


# ------------------------------------------------------------------ at the command line


@pytest.mark.slow
def test_probe_under_the_salt_of_a_run_shows_what_that_run_shows(tmp_path: Path) -> None:
    suite = str(ROOT / "tests/suites/tiny.toml")
    made = bench("run", "--suite", suite, "--vendor", "cpu", "--redact", "--out", str(tmp_path))
    assert made.returncode == 0, made.stderr
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    salt = redaction.salt_path(folder)
    assert str(salt) in made.stderr
    assert stat.S_IMODE(salt.stat().st_mode) == 0o600
    again = bench("probe", "--vendor", "cpu", "--redact-with", str(salt), "--json")
    then = json.loads((folder / "system.json").read_text())
    now = json.loads(again.stdout)
    shown = [one["conditions"]["facts"]["hostname"]["value"] for one in (then, now)]
    assert shown[0] == shown[1] == digest("host", socket.gethostname().lower(), salt.read_text())
    assert then["identity"]["interfaces"] == now["identity"]["interfaces"]
    others = [bench("probe", "--redact", "--json").stdout for _ in range(2)]
    hosts = {json.loads(one)["conditions"]["facts"]["hostname"]["value"] for one in others}
    assert len(hosts | {shown[0]}) == 3
    addresses = redaction.private(Tree()).hardware
    everything = [path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file()]
    reported = "".join([*everything, again.stdout, *others]).lower()
    assert not any(re.search("[:.-]?".join(address), reported) for address in addresses)


def test_salt_that_is_not_there_is_one_sentence() -> None:
    done = bench("probe", "--redact-with", "nowhere.salt")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "nowhere.salt cannot be read" in done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("probe", "order.toml"), "--as-order"),
        (("probe", "--as-order", "--redact"), "give it alone"),
        (("probe", "--as-order", "--json"), "give it alone"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words: tuple[str, ...], expected: str) -> None:
    done = bench(*words)
    assert done.returncode == 2
    assert expected in done.stderr


@pytest.mark.slow
def test_a_run_that_was_not_redacted_is_not_redacted_when_it_goes_on(tmp_path: Path) -> None:
    suite = str(ROOT / "tests/suites/tiny.toml")
    request = RunOptions(suite=suite, vendor="cpu", out=tmp_path)
    folder = accept.run(request, Seen()).folder
    assert not redaction.salt_path(folder).exists()
    with pytest.raises(UsageError, match="begun without --redact"):
        accept.resume(RunOptions(resume=folder, redact=True), Seen())
