"""Campaigns on a real Slurm with four virtual nodes: nothing is lost, and nothing is done twice."""

from __future__ import annotations

import hashlib
import html as markup
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from cryptography import x509
from support import slurm
from support.campaigns import answer, fleet, nodes, planned, signing
from support.full_disk import full_disk
from support.program import ROOT, called, until_gone
from support.slurm import Cluster, wait_for

from appliance.challenge import campaign as campaigns
from appliance.challenge.campaign import FILE
from appliance.collection import ledger, statement
from appliance.fleet import folder as folders
from appliance.fleet import submissions
from appliance.signing import keys as signers
from appliance.signing import pades

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
SLOW_RUN = 900.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of four nodes; skipped without Slurm, but not where REQUIRE_SLURM is set."""
    lacking = slurm.missing()
    if lacking and not os.environ.get("REQUIRE_SLURM"):
        pytest.skip(f"there is no Slurm: {lacking}")
    with (
        slurm.cluster(tmp_path_factory.mktemp("slurm")) as made,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in made.environment.items():
            patch.setenv(name, value)
        yield made


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    assert called("keys", "create", "Buyer", "--out", str(folder)).returncode == 0
    return folder


@pytest.fixture
def sleeper(cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    """A program in the place of bench, whose jobs stay until they are ended."""
    path = tmp_path / "sleeper"
    path.write_text("#!/bin/sh\nexec sleep 600\n")
    path.chmod(0o755)
    yield path
    # those that wait first: one of them may begin meanwhile, and none that runs waits again
    cluster.ask("scancel", "--quiet", "--state=PENDING", f"--user={os.getuid()}")
    cluster.ask("scancel", "--quiet", "--nodelist=n1,n2,n3,n4")
    wait_for(cluster.idle, "the nodes are idle again")


def virtual_bench(folder: Path) -> Path:
    """`bench` as the virtual nodes have it."""
    path = folder / "bench"
    program = ROOT / "tests" / "support" / "virtual_bench.py"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {program} "$@"\n')
    path.chmod(0o755)
    return path


def queue(cluster: Cluster, form: str = "%i|%k|%T|%E") -> list[list[str]]:
    lines = cluster.ask("squeue", "--noheader", f"--format={form}").splitlines()
    apart = tuple(f"node={name} " for name in (slurm.APART, slurm.LIMITED))
    return [line.split("|") for line in lines if not any(one in line for one in apart)]


def limiting(
    cluster: Cluster,
    campaign: Path,
    job: tuple[str, int],
    *,
    event: str,
    minutes: int,
    step: list[str] | None = None,
) -> threading.Thread:
    """What limits a node's job once its run has such an event; into `step` goes its step then."""
    node, number = job
    runs = campaign / "nodes" / node / "runs"

    def has_event() -> bool:
        return any(f'"{event}"' in path.read_text() for path in runs.glob("*/journal.jsonl"))

    def insist(*words: str) -> str:
        while True:  # another test ends the controller for a while
            with suppress(subprocess.CalledProcessError):
                return cluster.ask("scontrol", *words)
            time.sleep(0.5)

    def limit() -> None:
        wait_long(has_event, f"the run of {node} has {event}")
        time.sleep(5.0)  # a moment after the record it is ready to be ended in order
        if step is not None:
            step.append(insist("show", "step", f"{number}.0"))
        insist("update", f"JobId={number}", f"TimeLimit={minutes}")

    thread = threading.Thread(target=limit, daemon=True)
    thread.start()
    return thread


@pytest.fixture(scope="module")
def too_long(cluster: Cluster, keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign whose run waits longer than its job may last: an hour between its sessions.

    Its limit is a minute from when it waits on, however long the first session took.
    """
    folder = tmp_path_factory.mktemp("too-long")
    campaign = planned(
        folder,
        keys,
        virtual_bench(folder),
        settings='minutes = 9\nsessions = 2\npause = "1h"',  # too few for a signal before the end
        nodes=f"{slurm.APART},c",
    )
    (job,) = answer("submit", campaign, keys)["submitted"].items()
    assert job[0] == slurm.APART
    limiting(cluster, campaign, job, event="session_ended", minutes=1)
    return campaign


@dataclass(frozen=True)
class Limited:
    """A campaign by pyxis whose job Slurm interrupts; `shortens` makes its limit the signal's time.

    `words` has what the script called srun with, and `step` says what Slurm gave the step.
    """

    campaign: Path
    shortens: threading.Thread
    words: Path
    step: list[str]

    def submit(self, keys: Path) -> dict[str, int]:
        """Submit, with the script's srun ahead of Slurm's own."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", f"{self.words.parent / 'bin'}{os.pathsep}{slurm.PATH}")
            return answer("submit", self.campaign, keys)["submitted"]


WITHOUT_PYXIS = """\
#!/bin/sh
# Slurm's own srun, which without the plugin refuses the options of pyxis
printf '%s\\n' "$@" >{words}
for word do
    shift
    case "$word" in --container-* | --no-container-*) ;; *) set -- "$@" "$word" ;; esac
done
exec {srun} "$@"
"""


@pytest.fixture(scope="module")
def limited(cluster: Cluster, keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Limited:
    """Its run waits for its second session when the signal comes, or is in the first yet."""
    folder = tmp_path_factory.mktemp("limited")
    program, words = folder / "bin" / "srun", folder / "words"
    program.parent.mkdir()
    srun = shutil.which("srun", path=slurm.PATH)
    program.write_text(WITHOUT_PYXIS.format(words=words, srun=srun))
    program.chmod(0o755)
    campaign = planned(
        folder,
        keys,
        virtual_bench(folder),
        settings='minutes = 30\nsessions = 2\npause = "1h"',
        nodes=f"{slurm.LIMITED},c",
        launcher='kind = "pyxis"\nimage = "registry/bench:1"',
    )
    made = Limited(campaign=campaign, shortens=threading.Thread(), words=words, step=[])
    (job,) = made.submit(keys).items()
    assert job[0] == slurm.LIMITED
    # the signal comes two minutes before the end, when the run has had a minute for its begin
    shortens = limiting(cluster, campaign, job, event="run_started", minutes=3, step=made.step)
    return replace(made, shortens=shortens)


# ------------------------------------------------------------------ jobs and lanes


@pytest.mark.usefixtures("limited")  # its signal comes within the time of the other tests
@pytest.mark.usefixtures("too_long")  # its minute begins before the other tests
def test_two_lanes_hold_four_jobs_and_a_second_submit_gives_none(
    cluster: Cluster, keys: Path, sleeper: Path, tmp_path: Path
) -> None:
    campaign = planned(tmp_path, keys, sleeper, concurrency=2)
    first = answer("submit", campaign, keys)["submitted"]
    assert sorted(first) == ["n1", "n2", "n3", "n4"]
    jobs = queue(cluster)
    assert {comment for _, comment, _, _ in jobs} == {
        f"bench node={name} attempt=1" for name in first
    }
    waits = {int(number): after for number, _, _, after in jobs}
    assert f"afterany:{first['n1']}" in waits[first["n3"]]
    assert f"afterany:{first['n2']}" in waits[first["n4"]]
    again = answer("submit", campaign, keys)
    assert again["submitted"] == {}
    assert again["under_way"] == 4
    assert len(queue(cluster)) == 4
    cancelled = answer("cancel", campaign, keys, "--node", "n1")["cancelled"]
    assert cancelled == {"n1": first["n1"]}
    wait_for(lambda: nodes(campaign, keys)["n3"]["state"] == "running", "the lane goes on with n3")
    assert nodes(campaign, keys)["n1"]["state"] == "open"
    assert answer("submit", campaign, keys)["submitted"].keys() == {"n1"}
    assert nodes(campaign, keys)["n1"]["attempts"] == 0, "no attempt began that was cancelled"


def test_a_submit_that_was_killed_behind_sbatch_is_not_made_twice(
    cluster: Cluster, keys: Path, sleeper: Path, tmp_path: Path
) -> None:
    campaign = planned(tmp_path, keys, sleeper)
    given = answer("submit", campaign, keys)["submitted"]
    path = campaign / submissions.FILE
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:20])  # killed while it wrote the last line
    assert answer("submit", campaign, keys)["submitted"] == {}
    assert {line.job for line in submissions.read(campaign) if line.step == "given"} == {
        *given.values()
    }
    path.unlink()  # all that was noted is lost
    assert answer("submit", campaign, keys)["submitted"] == {}
    assert len(queue(cluster)) == 4


@pytest.mark.parametrize("verb", ["submit", "resume"])
def test_kill_9_of_submit_leaves_each_node_at_most_one_job(
    verb: str, cluster: Cluster, keys: Path, sleeper: Path, tmp_path: Path
) -> None:
    campaign = planned(tmp_path, keys, sleeper)
    words = ("fleet", verb, str(campaign), "--trust", f"{keys}/certificate.pem")
    process = subprocess.Popen(
        [sys.executable, "-m", "appliance", *words], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    wait_for(lambda: bool(submissions.read(campaign)), "a first job is asked for")
    process.send_signal(signal.SIGKILL)
    process.wait()
    # its sbatch lives on, and what Slurm has not got yet no other submit can find
    until_gone(campaign)
    assert fleet(verb, campaign, keys).returncode == 0
    comments = [comment for _, comment, _, _ in queue(cluster)]
    assert sorted(comments) == [f"bench node={name} attempt=1" for name in slurm.NODES]


def test_slurm_down_while_submitting_is_one_sentence_and_the_rest_comes_later(
    cluster: Cluster, keys: Path, sleeper: Path, tmp_path: Path
) -> None:
    campaign = planned(tmp_path, keys, sleeper)
    cluster.stop_controller()
    try:
        done = fleet("submit", campaign, keys)
    finally:
        cluster.start_controller()
    assert done.returncode == 3
    assert "Unable to contact slurm controller" in done.stderr
    wait_for(cluster.idle, "the nodes are idle again")
    assert len(answer("submit", campaign, keys)["submitted"]) == 4


def test_a_node_that_vanished_is_passed_over_and_its_queued_job_taken_back(
    cluster: Cluster, keys: Path, sleeper: Path, tmp_path: Path
) -> None:
    campaign = planned(tmp_path, keys, sleeper, concurrency=1)
    answer("submit", campaign, keys)
    cluster.ask("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=pulled")
    try:
        done = answer("resume", campaign, keys)
        assert done["taken_back"].keys() == {"n2"}
        assert done["passed_over"] == {"n2": "Slurm says that it is down"}
        assert done["submitted"] == {}
        assert {comment.split()[1] for _, comment, _, _ in queue(cluster)} == {
            "node=n1",
            "node=n3",
            "node=n4",
        }
    finally:
        cluster.ask("scontrol", "update", "NodeName=n2", "State=RESUME")
    wait_for(lambda: cluster.node_state("n2") == "idle", "n2 is back")
    assert answer("resume", campaign, keys)["submitted"].keys() == {"n2"}


# ------------------------------------------------------------------ bad moments


def test_status_without_a_scheduler_shows_the_bundles_and_says_so(
    cluster: Cluster, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = planned(tmp_path, keys, tmp_path / "bench")
    monkeypatch.setenv("PATH", str(tmp_path))
    done = fleet("status", campaign, keys, "--once")
    assert done.returncode == 3
    assert "4 open; the scheduler was not asked: there is no squeue here" in done.stderr
    assert fleet("submit", campaign, keys).returncode == 3
    assert not (campaign / submissions.FILE).exists()


def test_a_full_disk_is_one_sentence_and_no_job_is_given(
    cluster: Cluster, keys: Path, sleeper: Path, tmp_path: Path
) -> None:
    campaign = planned(tmp_path, keys, sleeper)
    (campaign / submissions.FILE).write_bytes(b"")
    for verb in ("submit", "resume"):
        with full_disk():
            done = fleet(verb, campaign, keys)
        assert done.returncode == 2, verb
        assert "submissions.jsonl cannot be written" in done.stderr, verb
    assert queue(cluster) == []
    assert len(answer("submit", campaign, keys)["submitted"]) == 4
    with full_disk():
        done = fleet("cancel", campaign, keys)
    assert done.returncode == 0
    assert "the jobs are cancelled, and no note of it is made: " in done.stderr
    assert "4 jobs are cancelled" in done.stderr


def test_a_second_operator_waits_for_the_first(
    cluster: Cluster, keys: Path, sleeper: Path, tmp_path: Path
) -> None:
    campaign = planned(tmp_path, keys, sleeper)
    with folders.locked(folders.opened_on_node(campaign)):
        done = fleet("submit", campaign, keys)
    assert done.returncode == 2
    assert "another `bench fleet` works on" in done.stderr
    assert queue(cluster) == []


def test_a_campaign_of_sinfo_has_every_node_that_slurm_knows(
    cluster: Cluster, keys: Path, tmp_path: Path
) -> None:
    planned(tmp_path, keys, tmp_path / "bench")
    file, out = str(tmp_path / "campaign.toml"), str(tmp_path / "all")
    done = called("fleet", "plan", file, "--from-sinfo", "--out", out, *signing(keys), "--json")
    names = [node["name"] for node in json.loads(done.stdout)["campaign"]["nodes"]]
    assert names == [*slurm.NODES, slurm.APART, slurm.LIMITED]
    assert cluster.node_state(slurm.APART)


# ------------------------------------------------------------------ a whole campaign


def wait_long(is_so: Callable[[], bool], what: str) -> None:
    """As `wait_for`, for what takes runs: longer, and looked at less often."""
    wait_for(is_so, what, SLOW_RUN, every=0.5)


@dataclass(frozen=True)
class Story:
    """A campaign from its plan to its last verdict, and its nodes at two moments.

    `early` is when n1 and n4 were accepted, n2 was rejected and n3 had lost its power; `gates` are
    exit codes of that moment, `drained` what Slurm then said of n2, `over` what was passed over.
    `collection` was begun at that moment, which `collected` says.
    """

    campaign: Path
    collection: Path
    collected: dict[str, object]
    early: dict[str, dict[str, object]]
    gates: dict[str, int]
    drained: str
    over: object
    again: dict[str, object]
    late: dict[str, dict[str, object]]


def text_of(page: Path) -> str:
    """What a page of the site says, its words by single spaces."""
    return " ".join(markup.unescape(re.sub("<[^>]+>", " ", page.read_text())).split())


def states(campaign: Path, keys: Path) -> dict[str, object]:
    return {name: one["state"] for name, one in nodes(campaign, keys).items()}


def is_done(campaign: Path, keys: Path) -> bool:
    return {"running", "queued"}.isdisjoint(states(campaign, keys).values())


@pytest.fixture(scope="module")
def story(cluster: Cluster, keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """n2 has another device than was ordered, and gets the right one; n3 loses its power."""
    folder = tmp_path_factory.mktemp("story")
    serials, orders = folder / "serials", folder / "orders"
    serials.mkdir()
    orders.mkdir()
    (serials / "n2").write_text("another")
    line = 'title = "Serial"\nfield = "devices.serial"\nop = "=="\nvalue = "n2"\n'
    order = f'name = "n2"\nsummary = "what was bought"\n[[line]]\n{line}'
    (orders / "n2.toml").write_text(order)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VIRTUAL_SERIALS", str(serials))
        program = virtual_bench(folder)
        campaign = planned(folder, keys, program, "--orders", str(orders), concurrency=2)
        assert len(answer("submit", campaign, keys)["submitted"]) == 4
        _power_off(cluster, campaign)
        wait_long(lambda: is_done(campaign, keys), "n4 is done, and n3 has no job any more")
        early = nodes(campaign, keys)
        gates = {name: gate(campaign, keys, name) for name in slurm.NODES}
        gates["n3 while open"] = gate(campaign, keys, "n3", "--allow-open")
        gates["n2 drained"] = gate(campaign, keys, "n2", "--drain")
        drained = cluster.ask("scontrol", "show", "node", "n2", "--oneliner")
        over = answer("submit", campaign, keys, "--node", "n2")["passed_over"]
        collected = collect(campaign, keys, folder / "collection")
        cluster.ask("scontrol", "update", "NodeName=n2", "State=RESUME")
        (serials / "n2").unlink()
        cluster.start_node("n3")
        wait_for(cluster.idle, "n2 and n3 are back")
        again = answer("submit", campaign, keys)
        wait_long(lambda: is_done(campaign, keys), "all are done")
        wait_long(cluster.idle, "their jobs have ended, too")  # a bundle is there before that
        late = nodes(campaign, keys)
    return Story(
        campaign=campaign,
        collection=folder / "collection",
        collected=collected,
        early=early,
        gates=gates,
        drained=drained,
        over=over,
        again=again,
        late=late,
    )


def _power_off(cluster: Cluster, campaign: Path) -> None:
    """Once n3 is in its run, and has recorded something of it."""
    runs = campaign / "nodes" / "n3" / "runs"
    wait_long(
        lambda: any(path.stat().st_size for path in runs.glob("*/journal.jsonl")),
        "n3 has begun its run",
    )
    cluster.kill_node("n3")
    wait_long(lambda: cluster.node_state("n3").startswith("down"), "Slurm misses n3")


def collect(campaign: Path, keys: Path, out: Path) -> dict[str, object]:
    """What `fleet collect` says of the campaign's folder."""
    return answer("collect", campaign, keys, "--out", str(out), *signing(keys))


def gate(campaign: Path, keys: Path, node: str, *words: str) -> int:
    return fleet("gate", campaign, keys, "--node", node, "--max-age", "1h", *words).returncode


def test_a_rejected_node_is_due_for_a_retest_and_one_without_power_for_another_attempt(
    story: Story,
) -> None:
    assert {name: one["state"] for name, one in story.early.items()} == {
        "n1": "accepted",
        "n2": "retest",
        "n3": "open",
        "n4": "accepted",
    }
    assert (story.early["n2"]["verdict"], story.early["n2"]["rejections"]) == ("REJECTED", 1)
    assert (story.early["n3"]["attempts"], story.early["n3"]["failed"]) == (1, 1)


def test_a_gate_passes_only_who_has_an_accepting_bundle_and_drains_with_the_reason(
    story: Story,
) -> None:
    assert story.gates == {
        "n1": 0,
        "n2": 1,
        "n3": 3,
        "n4": 0,
        "n3 while open": 0,
        "n2 drained": 1,
    }
    assert "State=IDLE+DRAIN" in story.drained
    assert "Reason=bench: n2 is REJECTED by the run" in story.drained
    assert story.over == {"n2": "Slurm says that it is drained"}


def test_only_what_is_due_runs_again_and_in_the_end_all_are_accepted(
    story: Story, keys: Path
) -> None:
    assert sorted(story.again["submitted"]) == ["n2", "n3"]
    assert story.again["finished"] == 2
    assert {one["state"] for one in story.late.values()} == {"accepted"}, story.late
    assert (story.late["n2"]["attempts"], story.late["n2"]["rejections"]) == (2, 1)
    (run,) = (story.campaign / "nodes" / "n3" / "runs").glob("2*")
    assert '"run_resumed"' in (run / "journal.jsonl").read_text(), "it went on where it ended"
    shown = fleet("status", story.campaign, keys, "--once")
    assert shown.returncode == 0
    assert "test, 4 nodes: 4 accepted" in shown.stderr
    assert answer("submit", story.campaign, keys)["submitted"] == {}


def test_a_bundle_is_of_its_node_and_of_no_other(story: Story, keys: Path, tmp_path: Path) -> None:
    campaign = Path(shutil.copytree(story.campaign, tmp_path / "campaign"))
    (mine,) = (campaign / "nodes" / "n1" / "runs").glob("2*")
    for node, code in (("n1", 0), ("n4", 4)):
        challenge = str(campaign / "nodes" / node / "challenge.json")
        trust = ("--trust", f"{keys}/certificate.pem")
        assert called("verify", str(mine), *trust, "--challenge", challenge).returncode == code
    theirs = campaign / "nodes" / "n4" / "runs"
    shutil.rmtree(theirs)
    shutil.copytree(mine, theirs / mine.name)
    assert gate(campaign, keys, "n4") == 3
    found = nodes(campaign, keys)["n4"]
    assert found["state"] == "open"
    assert "not made for the challenge.json that you expect" in str(found["sentence"])


def test_kill_9_of_status_leaves_the_next_one_the_same(
    story: Story, keys: Path, tmp_path: Path
) -> None:
    campaign = Path(shutil.copytree(story.campaign, tmp_path / "campaign"))
    before = nodes(campaign, keys)
    stored = sorted(campaign.glob("nodes/*/verified.json"))
    assert len(stored) == 4
    for path in stored:
        path.unlink()
    words = ("fleet", "status", str(campaign), "--trust", f"{keys}/certificate.pem", "--once")
    process = subprocess.Popen(
        [sys.executable, "-m", "appliance", *words], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    wait_for(stored[0].exists, "it has verified a node")
    process.kill()
    process.wait()
    until_gone(campaign)
    assert nodes(campaign, keys) == before
    assert sorted(campaign.glob("nodes/*/verified.json")) == stored
    assert not [*campaign.glob("nodes/*/.unfinished-*")]


def test_a_changed_byte_of_a_campaign_is_exit_4(story: Story, keys: Path, tmp_path: Path) -> None:
    for name in (FILE, folders.CERTIFICATE):
        shutil.copy(story.campaign / name, tmp_path)
    signed = tmp_path / FILE
    signed.write_bytes(signed.read_bytes().replace(b"a", b"b", 1))
    assert fleet("status", tmp_path, keys).returncode == 4


# ------------------------------------------------------------------ collected and shown


@dataclass(frozen=True)
class Shown:
    """The story's collection when all was over: what that said, its report, and its site."""

    collected: dict[str, object]
    report: dict[str, list[dict[str, object]]]
    site: Path


@pytest.fixture(scope="module")
def shown(story: Story, keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    collected = collect(story.campaign, keys, story.collection)
    site = tmp_path_factory.mktemp("shown") / "site"
    made = called("fleet", "site", str(story.collection), "--out", str(site), *signing(keys))
    assert made.returncode == 0, made.stderr
    report = called("fleet", "report", str(story.collection), "--json")
    assert report.returncode == 0, report.stderr
    return Shown(collected=collected, report=json.loads(report.stdout), site=site)


def counts(collected: dict[str, object]) -> dict[str, object]:
    words = ("num_new", "num_bundles", "num_refused", "accepted", "rejected", "open")
    return {word: collected[word] for word in words}


def test_a_collection_goes_on_from_a_campaign_under_way_to_its_end(
    story: Story, shown: Shown
) -> None:
    assert counts(story.collected) == {
        "num_new": 3,
        "num_bundles": 3,
        "num_refused": 1,  # the run of n3, which had not ended
        "accepted": 2,
        "rejected": 0,
        "open": 2,
    }
    assert counts(shown.collected) == {
        "num_new": 2,
        "num_bundles": 5,
        "num_refused": 0,
        "accepted": 4,
        "rejected": 0,
        "open": 0,
    }
    _, entries = ledger.read(story.collection)
    runs = [path.parent for path in story.campaign.glob("nodes/*/runs/*/report.dsse.json")]
    assert sorted(entry.source for entry in entries) == sorted(map(str, runs))
    assert {entry.finding.reason for entry in entries} == {""}


def test_report_has_the_attempts_of_each_node_and_the_one_that_was_killed(
    story: Story, shown: Shown
) -> None:
    found = {
        one["node"]: (one["state"], one["num_attempts"], one["num_lost"], one["decided_by"])
        for one in shown.report["nodes"]
    }
    assert found == {
        "n1": ("accepted", 1, 0, 1),
        "n2": ("accepted", 2, 0, 2),
        "n3": ("accepted", 1, 1, 1),
        "n4": ("accepted", 1, 0, 1),
    }
    for name, one in story.late.items():
        _, bundles, lost, _ = found[name]
        assert one["attempts"] == bundles + lost, "as `fleet status` counts them"
    words = ("fleet", "report", str(story.collection), "--json", "--query", "attempts")
    attempts = json.loads(called(*words).stdout)["attempts"]
    verdicts = [one["verdict"] for one in attempts if one["node"] == "n2"]
    assert verdicts == ["REJECTED", "ACCEPTED"]


def test_site_says_of_each_node_what_became_of_it(shown: Shown) -> None:
    overview = text_of(shown.site / "index.html")
    assert "4 ✓ accepted 0 ✗ rejected 0 ◆ open" in overview
    assert "4 nodes, 5 verified bundles. No bundle was refused." in overview
    pages = {name: text_of(shown.site / "nodes" / f"{name}.html") for name in slurm.NODES}
    for name, page in pages.items():
        last = 2 if name == "n2" else 1
        assert f"✓ accepted Why attempt {last} is accepted" in page, name
        assert f"Attempt {last}: ACCEPTED" in page, name
        assert f"Attempt {last + 1}:" not in page, name
        assert ("Attempts without a bundle 1" in page) == (name == "n3"), name
    assert "Attempt 1: REJECTED Run" in pages["n2"], "without a word that it decides nothing"
    reason = pages["n2"].partition("Not accepted for ")[2]
    assert reason.startswith("order"), reason
    assert "another" in reason.partition(" Bundle ")[0]


def test_site_leads_to_every_report_and_its_summary_is_signed(
    story: Story, shown: Shown, keys: Path
) -> None:
    linked = {
        (page.parent / link).resolve()
        for page in (shown.site / "nodes").iterdir()
        for link in re.findall(r'href="([^"]+/report\.html)"', page.read_text())
    }
    assert linked == {path.resolve() for path in story.campaign.glob("nodes/*/runs/*/report.html")}
    certificate = x509.load_pem_x509_certificate((keys / "certificate.pem").read_bytes())
    pades.check_pdf((shown.site / "summary.pdf").read_bytes(), certificate)


@pytest.mark.skipif(
    not all(map(shutil.which, ("sh", "jq", "base64", "openssl"))), reason="jq or openssl is missing"
)
def test_the_documented_commands_verify_the_statement(
    story: Story, shown: Shown, tmp_path: Path
) -> None:
    guide = (ROOT / "docs" / "how-to" / "fleets-collect.md").read_text()
    part = guide.partition("## Check the statement without bench")[2]
    commands = part.partition("```sh\n")[2].partition("```")[0]
    for name in (statement.FILE, "certificate.pem"):
        shutil.copy(story.collection / name, tmp_path)
    words = ["sh", "-euc", commands]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    first, *lines = done.stdout.splitlines()
    assert first == "Verified OK"
    stated = {name: digest for digest, name in map(str.split, lines)}
    for run in story.campaign.glob("nodes/*/runs/2*"):
        digest = hashlib.sha256((run / "report.dsse.json").read_bytes()).hexdigest()
        assert stated.pop(f"{run.parents[1].name}/{run.name}/report.dsse.json") == digest
    assert stated.pop(FILE) == hashlib.sha256((story.campaign / FILE).read_bytes()).hexdigest()
    assert set(stated) == {
        str(path.relative_to(story.collection))
        for path in (story.collection / ledger.FILE, *story.collection.glob("tables/*.parquet"))
    }
    for name, digest in stated.items():
        assert hashlib.sha256((story.collection / name).read_bytes()).hexdigest() == digest


def test_a_bundle_whose_devices_differ_from_the_inventory_is_refused(
    story: Story, keys: Path, tmp_path: Path
) -> None:
    """The same campaign, with n1's device as ordered and another than n4 has in its inventory."""
    copy = Path(shutil.copytree(story.campaign, tmp_path / "campaign"))
    key = signers.load_key(keys / "key.pem", keys / "certificate.pem")
    campaign = campaigns.read((copy / FILE).read_bytes(), key.certificate)
    parts = {"n1": ("n1",), "n4": ("ordered",)}
    own = tuple(replace(node, devices=parts.get(node.name)) for node in campaign.nodes)
    (copy / FILE).write_bytes(campaigns.write(replace(campaign, nodes=own), key))
    found = nodes(copy, keys)
    sentence = "its devices are n4, and the inventory has ordered for n4"
    assert {name: one["state"] for name, one in found.items()} == {
        "n1": "accepted",
        "n2": "accepted",
        "n3": "accepted",
        "n4": "open",
    }
    assert str(found["n4"]["sentence"]).endswith(f" is refused: {sentence}")
    assert gate(copy, keys, "n4") == 3
    assert gate(copy, keys, "n1") == 0
    assert collect(copy, keys, tmp_path / "collection")["num_refused"] == 1
    report = called("fleet", "report", str(tmp_path / "collection"), "--json").stdout
    (refused,) = json.loads(report)["refusals"]
    assert (refused["node"], refused["reason"]) == ("n4", "other_node")
    assert refused["sentence"] == sentence


# ------------------------------------------------------------------ time limits


def test_a_job_that_its_time_limit_ends_counts_as_an_attempt_and_another_is_due(
    keys: Path, too_long: Path
) -> None:
    def state() -> dict[str, object]:
        return nodes(too_long, keys)[slurm.APART]

    wait_long(lambda: state()["state"] == "open", "Slurm ends the job")
    found = state()
    assert (found["attempts"], found["failed"]) == (1, 1)
    assert " ended as TIMEOUT" in str(found["sentence"])
    assert "stopped by SIGTERM in the pause before session 2" in str(found["sentence"])
    (run,) = (too_long / "nodes" / slurm.APART / "runs").glob("2*")
    assert (run / "journal.jsonl").exists(), "what was recorded stays"
    assert answer("submit", too_long, keys)["submitted"].keys() == {slurm.APART}
    assert answer("cancel", too_long, keys)["cancelled"].keys() == {slurm.APART}


def test_a_run_is_interrupted_in_order_before_its_time_limit_and_the_next_job_goes_on_with_it(
    keys: Path, limited: Limited
) -> None:
    """By pyxis' script and Slurm's own timer, which signals the step and not its srun."""

    def state() -> dict[str, object]:
        return nodes(limited.campaign, keys)[slurm.LIMITED]

    limited.shortens.join(SLOW_RUN)
    assert "gres:gpu:2" in limited.step[0], "a step of an exclusive job has no other accelerators"
    assert "--container-image=registry/bench:1" in limited.words.read_text().splitlines()
    wait_long(lambda: state()["state"] == "open", "Slurm interrupts the run")
    found = state()
    assert (found["attempts"], found["failed"]) == (1, 1)
    assert "TIMEOUT" not in str(found["sentence"]), "it ended before its limit"
    assert "SIGINT" in str(found["sentence"])
    place = limited.campaign / "nodes" / slurm.LIMITED
    (run,) = (place / "runs").glob("2*")
    assert '"crashed"' not in (run / "journal.jsonl").read_text()
    assert limited.submit(keys).keys() == {slurm.LIMITED}
    mark = place / "jobs" / f"{run.name}.resumed"
    wait_long(mark.exists, "the next job goes on with the run")
    assert answer("cancel", limited.campaign, keys)["cancelled"].keys() == {slurm.LIMITED}
