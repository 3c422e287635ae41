"""A fleet of signed bundles of a real run, collected: what counts, what is refused, what is stated.

Forty nodes are made of one real run of two cases. They were forged, doubled or rejected by plan, so
that everything a collection says of them is known before.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from support.program import ROOT, TINY, bench, called, until_gone
from support.synthetic_fleet import (
    Base,
    Changes,
    Planted,
    campaign_of,
    make,
    node_name,
    sealed,
    write_campaign,
    write_node,
)

from appliance.challenge.campaign import FILE, Campaign
from appliance.collection import ledger, queries, statement
from appliance.collection.queries import Answer
from appliance.collection.report import as_csv
from appliance.fleet import folder as folders
from appliance.fleet import states
from appliance.fleet.node_runs import Reader
from appliance.signing import keys
from appliance.signing.keys import Key
from appliance.storage import bundle

NODES = 24
FAULTS = Planted(
    num_nodes=NODES,
    slow=(3,),
    slightly_slow=(),
    hot=(),
    other_driver=(5, 6, 7),
    forged=(8, 9, 10),
    rack_size=6,
)
REJECTED, RETESTED, OPEN, FOREIGN = 12, 13, 14, 15


@dataclass(frozen=True, kw_only=True)
class Made:
    """The campaign's folder with its nodes, the key that signed all, and its certificate."""

    folder: Path
    campaign: Campaign
    key: Key
    certificate: Path
    base: Base


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    place = tmp_path_factory.mktemp("fleet")
    done = bench("accept", "--suite", TINY, "--vendor", "cpu", "--out", str(place / "base"))
    (run,) = (place / "base").iterdir()
    assert done.returncode == 0, done.stderr
    key_file, certificate = keys.create_key("Maker of nodes", place / "keys")
    key, base = keys.load_key(key_file, certificate), Base.read(run)
    campaign = campaign_of(run, FAULTS)
    folder = write_campaign(place / "campaign", campaign, key, Path(TINY), base)
    nodes = folder / "nodes"
    for number in range(NODES):
        if number == OPEN:
            continue
        if number in {REJECTED, RETESTED}:
            for attempt in (1, 2) if number == REJECTED else (1,):
                changes = Changes(failed_check=True, run=attempt)
                own = make(base, campaign, number, key, changes)
                sealed(own, nodes / node_name(number) / "runs" / f"rejected-{attempt}")
        if number == REJECTED:
            late = make(base, campaign, number, key, Changes(run=3))
            sealed(late, nodes / node_name(number) / "runs" / "too-late")
        else:
            write_node(base, campaign, FAULTS, number, key=key, folder=nodes)
    shutil.copytree(run, nodes / node_name(FOREIGN) / "runs" / "of no campaign")
    begun = nodes / node_name(OPEN) / "runs" / "begun"
    begun.mkdir(parents=True)
    (begun / bundle.PLAN).write_bytes(b"{}")
    jobs = nodes / node_name(OPEN) / folders.JOBS
    jobs.mkdir()
    (jobs / "attempt-1.begun").touch()
    return Made(folder=folder, campaign=campaign, key=key, certificate=certificate, base=base)


def collect(made: Made, out: Path, *places: object) -> dict[str, object]:
    """The JSON document of `fleet collect`."""
    words = ["fleet", "collect", str(made.folder), *map(str, places), "--out", str(out)]
    done = called(*words, "--trust", str(made.certificate), "--json")
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def collected(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("collected") / "out"
    document = collect(made, out)
    # two more of the rejected, and one each of the retested, doubled and foreign
    assert document["num_new"] == NODES - 1 + 2 + 3
    return out


def rows(collected: Path, query: str) -> list[dict[str, object]]:
    with queries.opened(collected) as tables:
        return tables.ask(query).records


# ------------------------------------------------------------------ what counts


def test_every_forged_or_doubled_bundle_is_refused_by_name(collected: Path) -> None:
    refused = {(one["node"], one["reason"]) for one in rows(collected, "refusals")}
    assert refused == {
        (node_name(8), "double"),
        (node_name(9), "not_verified"),
        (node_name(10), "other_node"),
        ("", "foreign"),
        ("", "unfinished"),
    }
    by_reason = {one["reason"]: str(one["sentence"]) for one in rows(collected, "refusals")}
    assert by_reason["not_verified"].startswith("journal.jsonl is not the file that was signed")
    assert by_reason["other_node"].endswith(f"with SN-{node_name(11)} of {node_name(11)}")
    assert "under no challenge" in by_reason["foreign"]


def test_failed_attempts_are_kept_and_counted(collected: Path) -> None:
    nodes = {one["node"]: one for one in rows(collected, "nodes")}
    kept = {name: (one["state"], one["num_attempts"]) for name, one in nodes.items()}
    assert {name: one["num_lost"] for name, one in nodes.items() if one["num_lost"]} == {
        node_name(OPEN): 1
    }
    assert kept.pop(node_name(REJECTED)) == ("rejected", 3)
    assert kept.pop(node_name(RETESTED)) == ("accepted", 2)
    for number in (9, 10, OPEN):
        assert kept.pop(node_name(number)) == ("open", 0)
    assert set(kept.values()) == {("accepted", 1)}
    (first, *_) = [one for one in rows(collected, "attempts") if one["node"] == node_name(REJECTED)]
    assert "sampled rows against float64" in str(first["failures"])


def test_gate_and_status_hold_a_node_to_the_rule_of_the_statement(
    made: Made, collected: Path
) -> None:
    """It was rejected in its first run and in its only retest, and accepted in one run more."""
    verdicts = [
        one["verdict"] for one in rows(collected, "attempts") if one["node"] == node_name(REJECTED)
    ]
    assert verdicts == ["REJECTED", "REJECTED", "ACCEPTED"]
    trust = ("--trust", str(made.certificate))
    for number, code, verdict in ((REJECTED, 1, "REJECTED"), (RETESTED, 0, "ACCEPTED")):
        name = node_name(number)
        done = called("fleet", "gate", str(made.folder), "--node", name, *trust, "--json")
        assert (done.returncode, json.loads(done.stdout)["verdict"]) == (code, verdict), name
    folder = folders.opened(made.folder, [made.certificate.read_bytes()])
    reader = Reader(folder=folder, trusted=[made.certificate.read_bytes()])
    shown = {one.name: one for one in states.node_states(folder, reader, ())}
    assert {name: one.state for name, one in shown.items()} == {
        one["node"]: one["state"] for one in rows(collected, "nodes")
    }
    assert shown[node_name(REJECTED)].next_sessions is None, "no further run can decide"
    assert {name for name, one in shown.items() if one.failed} == {node_name(OPEN)}
    assert "is not the file that was signed" in shown[node_name(9)].sentence
    again = states.node_states(folder, replace(reader, uses_stored=True), ())
    assert again == list(shown.values())


def test_copy_of_a_run_is_refused_by_status_too(made: Made, tmp_path: Path) -> None:
    folder = folders.opened(made.folder, [made.certificate.read_bytes()])
    copy = replace(folder, path=tmp_path)
    shutil.copy(folder.suite, copy.suite)
    place = tmp_path / "nodes" / node_name(0) / "runs"
    for name in ("a", "b"):
        shutil.copytree(folder.runs(node_name(0)) / "run", place / name)
    reader = Reader(folder=copy, trusted=[made.certificate.read_bytes()])
    first, second = reader.runs(copy.node(node_name(0)))
    assert (first.state, second.state) == ("verified", "refused")
    assert second.sentence == "the same run lies at a"


def test_other_driver_is_in_the_inventory(collected: Path) -> None:
    differing = rows(collected, "differing")
    assert {one["node"] for one in differing} == {node_name(n) for n in FAULTS.other_driver}
    assert {one["component"] for one in differing} == {"device driver"}


def test_slow_node_is_beyond_the_fences(collected: Path) -> None:
    assert {one["node"] for one in rows(collected, "beyond")} == {node_name(3)}


# ------------------------------------------------------------------ what is stated


def test_openssl_verifies_the_statement(collected: Path, tmp_path: Path) -> None:
    envelope = json.loads((collected / statement.FILE).read_bytes())
    payload = base64.b64decode(envelope["payload"])
    kind = envelope["payloadType"]
    (tmp_path / "signed").write_bytes(
        f"DSSEv1 {len(kind)} {kind} {len(payload)} ".encode() + payload
    )
    (tmp_path / "signature").write_bytes(base64.b64decode(envelope["signatures"][0]["sig"]))

    def openssl(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["openssl", *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )

    certificate = str(collected / "certificate.pem")
    (tmp_path / "key.pem").write_text(
        openssl("x509", "-in", certificate, "-pubkey", "-noout").stdout
    )
    verify = ("dgst", "-sha256", "-verify", "key.pem", "-signature", "signature", "signed")
    assert openssl(*verify).stdout == "Verified OK\n"
    with (tmp_path / "signed").open("ab") as file:
        file.write(b" ")
    assert openssl(*verify).returncode == 1


def test_statement_has_the_digest_of_every_bundle_that_counts(made: Made, collected: Path) -> None:
    import hashlib  # noqa: PLC0415 - as a reader without this program would

    envelope = json.loads((collected / statement.FILE).read_bytes())
    stated = json.loads(base64.b64decode(envelope["payload"]))
    digests = {one["name"]: one["digest"]["sha256"] for one in stated["subject"]}
    assert stated["_type"] == "https://in-toto.io/Statement/v1"
    attempts = rows(collected, "attempts")
    assert sum(name.startswith("node-") for name in digests) == len(attempts) == NODES
    for one in attempts:
        data = (Path(str(one["source"])) / bundle.REPORT).read_bytes()
        name = f"{one['node']}/{one['run_id']}/{bundle.REPORT}"
        assert digests[name] == hashlib.sha256(data).hexdigest()
    predicate = stated["predicate"]
    assert (predicate["rejected"], predicate["suite"]) == ("1", "tiny")
    assert predicate["criteria_digest"] == made.campaign.criteria_digest


def test_changed_table_is_refused(collected: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(collected, folder)
    with (folder / "tables" / "nodes.parquet").open("r+b") as file:
        file.seek(4)
        file.write(b"\0\0")
    done = called("fleet", "report", str(folder), "--json", "--query", "states")
    assert done.returncode == 4
    assert "nodes.parquet is not the file that was signed: collect again" in done.stderr


# ------------------------------------------------------------------ reading again


def test_what_was_read_is_not_read_again(made: Made, collected: Path, tmp_path: Path) -> None:
    folder = tmp_path / "again"
    shutil.copytree(collected, folder)
    before = {path.name: path.read_bytes() for path in (folder / "tables").iterdir()}
    assert collect(made, folder)["num_new"] == 0
    assert {path.name: path.read_bytes() for path in (folder / "tables").iterdir()} == before


def test_campaign_of_a_synthetic_fleet_that_is_made_again_is_the_same_file(made: Made) -> None:
    """A collection goes on under the digest of the signed file."""
    before = (made.folder / FILE).read_bytes()
    write_campaign(made.folder, made.campaign, made.key, Path(TINY), made.base)
    assert (made.folder / FILE).read_bytes() == before


def test_killed_at_any_time_it_goes_on(made: Made, collected: Path, tmp_path: Path) -> None:
    words = ["fleet", "collect", str(made.folder), "--out", str(tmp_path / "out"), "--json"]
    command = [sys.executable, "-m", "appliance", *words, "--trust", str(made.certificate)]
    kept: list[int] = []
    for wanted in (1, 8):
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in _until(lambda number=wanted: _lines(tmp_path / "out") > number, process):
            pass
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        # a process of its pool has the lock as well, and a moment more to live
        until_gone(tmp_path)
        kept.append(_lines(tmp_path / "out"))
    document = collect(made, tmp_path / "out")
    total = _lines(collected) - 1
    assert 0 < kept[0] <= kept[1] <= total + 1
    assert _lines(tmp_path / "out") == total + 1
    assert isinstance(document["num_new"], int)
    assert document["num_new"] <= total - kept[1] + 2  # a line that was cut is read again
    first, second = (_entries(folder) for folder in (collected, tmp_path / "out"))
    assert first == second


def _lines(out: Path) -> int:
    path = out / ledger.FILE
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def _until(is_so: object, process: subprocess.Popen[bytes]) -> Iterator[None]:
    assert callable(is_so)
    end = time.monotonic() + 600
    while not is_so() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
        yield


def _entries(out: Path) -> list[object]:
    return sorted(ledger.read(out)[1], key=lambda one: one.source)


def test_full_disk_is_one_sentence_and_loses_nothing(made: Made, tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk: the kernel refuses the write just so."""
    code = (
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))\n"
        "from appliance.cli.main import main\n"
        "main()\n"
    )
    words = ["fleet", "collect", str(made.folder), "--out", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, "-c", code, *words, "--trust", str(made.certificate)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "cannot be written (File too large): make room" in done.stderr
    assert "Traceback" not in done.stderr
    assert 1 < _lines(tmp_path / "out") < NODES
    (tmp_path / "out" / ledger.FILE).read_bytes().splitlines()
    assert collect(made, tmp_path / "out")["num_nodes"] == NODES


# ------------------------------------------------------------------ places and signers


def test_object_storage_gives_the_same_as_the_folder(
    made: Made, collected: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from moto.server import ThreadedMotoServer  # noqa: PLC0415 - two seconds to import

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        import s3fs  # noqa: PLC0415 - the client of that storage

        files = s3fs.S3FileSystem()
        files.mkdir("bundles")
        wanted = [node_name(number) for number in (0, 9, 12)]
        for name in wanted:
            files.put(str(made.folder / "nodes" / name), f"bundles/{name}", recursive=True)
        collect(made, tmp_path / "out", "s3://bundles")
    finally:
        server.stop()
    ours = {one.digest: one.finding for one in ledger.read(tmp_path / "out")[1]}
    theirs = {one.digest: one.finding for one in ledger.read(collected)[1]}
    assert len(ours) == 5
    assert all(theirs[digest] == finding for digest, finding in ours.items())
    assert not list((tmp_path / "out").glob(".incoming*"))


def test_storage_that_breaks_off_keeps_what_was_fetched_and_goes_on(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsspec.implementations.local import LocalFileSystem  # noqa: PLC0415 - as storage is read

    read = LocalFileSystem.cat_file

    def breaks(self: LocalFileSystem, path: str, *more: object, **named: object) -> bytes:
        if node_name(1) in path and path.endswith(bundle.JOURNAL):
            raise ConnectionResetError("by the other side")
        return bytes(read(self, path, *more, **named))

    places = [f"file://{made.folder}/nodes/{node_name(number)}" for number in (0, 1)]
    words = ["fleet", "collect", str(made.folder), *places, "--out", str(tmp_path / "out")]
    with monkeypatch.context() as patch:
        patch.setattr(LocalFileSystem, "cat_file", breaks)
        done = called(*words, "--trust", str(made.certificate))
    assert done.returncode == 2
    assert "cannot be read (ConnectionResetError: by the other side)" in done.stderr
    assert "collect again" in done.stderr
    assert [one.finding.node for one in ledger.read(tmp_path / "out")[1]] == [node_name(0)]
    document = collect(made, tmp_path / "out", *places)
    assert (document["num_new"], document["num_bundles"], document["num_refused"]) == (1, 2, 0)


def test_path_that_no_record_can_hold_is_refused_by_it(made: Made, tmp_path: Path) -> None:
    place = tmp_path / os.fsdecode(b"\xff\n<b>")
    shutil.copytree(made.folder / "nodes" / node_name(0), place / "nodes")
    document = collect(made, tmp_path / "out", tmp_path)
    assert (document["num_bundles"], document["num_refused"]) == (0, 1)
    (entry,) = ledger.read(tmp_path / "out")[1]
    assert entry.finding.sentence == "its path is not UTF-8: rename it, and collect again"
    assert "/\\xff\n<b>/nodes/" in entry.source


def test_bundles_refused_for_a_certificate_that_was_not_named_count_once_it_is(
    made: Made, tmp_path: Path
) -> None:
    """The campaign is signed by another than its nodes, as a buyer's is."""
    campaign, buyer = tmp_path / "campaign", keys.create_key("Buyer", tmp_path / "keys")
    own = keys.load_key(*buyer)
    write_campaign(campaign, made.campaign, own, Path(TINY), made.base)
    bundles = [str(made.folder / "nodes" / node_name(number)) for number in (0, 1)]
    words = ["fleet", "collect", str(campaign), *bundles, "--out", str(tmp_path / "out"), "--json"]
    mine, theirs = ("--trust", str(buyer[1])), ("--trust", str(made.certificate))

    def counted(*trust: str) -> tuple[int, int, int]:
        done = called(*words, *trust)
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        return found["num_new"], found["num_bundles"], found["num_refused"]

    assert counted(*mine) == (2, 0, 2)
    assert counted(*mine, *theirs) == (2, 2, 0)
    assert counted(*theirs, *mine) == (0, 2, 0)
    del words[4]  # the second node's place
    narrower = called(*words, *mine)
    assert narrower.returncode == 2
    assert "1 bundles, as" in narrower.stderr
    assert "were collected under another --trust" in narrower.stderr


def test_zip_of_a_bundle_is_read(made: Made, tmp_path: Path) -> None:
    name = node_name(0)
    shutil.make_archive(str(tmp_path / "one"), "zip", made.folder / "nodes" / name / "runs" / "run")
    document = collect(made, tmp_path / "out", tmp_path / "one.zip")
    assert (document["num_new"], document["accepted"], document["num_refused"]) == (1, 1, 0)


def test_campaign_of_an_untrusted_signer_is_refused(made: Made, tmp_path: Path) -> None:
    done = called("fleet", "collect", str(made.folder), "--out", str(tmp_path / "out"))
    assert done.returncode == 4
    assert "is not a trusted signer" in done.stderr
    assert not (tmp_path / "out").exists()


def test_place_that_is_not_there_is_named(made: Made, tmp_path: Path) -> None:
    words = (
        "fleet",
        "collect",
        str(made.folder),
        str(tmp_path / "none"),
        "--out",
        str(tmp_path / "o"),
    )
    done = called(*words, "--trust", str(made.certificate))
    assert done.returncode == 2
    assert f"there is no folder {tmp_path / 'none'}: name one that holds bundles" in done.stderr


# ------------------------------------------------------------------ report


def test_report_is_json_or_csv(collected: Path) -> None:
    document = json.loads(called("fleet", "report", str(collected), "--json").stdout)
    assert document["schema"] == "bench/fleet-report/1"
    assert len(document["nodes"]) == NODES
    assert {one["state"]: one["num_nodes"] for one in document["states"]} == {
        "accepted": NODES - 4,
        "open": 3,
        "rejected": 1,
    }
    lines = called("fleet", "report", str(collected), "--csv").stdout.splitlines()
    assert lines[0].startswith("node,rack,state,")
    assert len(lines) == NODES + 1


def test_text_that_a_spreadsheet_would_run_is_text() -> None:
    begins = ("=1", "+1", "-1", "@A", "\t=1", "\r=1", "\n=1")
    answer = Answer(columns=("text", "number"), rows=tuple((text, -1.5) for text in begins))
    _, *lines = csv.reader(io.StringIO(as_csv(answer), newline=""))
    assert lines == [[f"'{text}", "-1.5"] for text in begins]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "a fleet's report is JSON or CSV: give --json or --csv"),
        (("--json", "--query", "none"), 'there is no query "none": use attempts, beyond,'),
    ],
)
def test_report_says_what_to_give(collected: Path, words: tuple[str, ...], sentence: str) -> None:
    done = called("fleet", "report", str(collected), *words)
    assert done.returncode == 2
    assert sentence in done.stderr
