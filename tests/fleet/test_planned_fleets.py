"""What a campaign is planned from: files that are hostile or wrong, risks, and the folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.full_disk import full_disk
from support.program import ROOT, TINY, called
from support.slurm import wait_for

from appliance.challenge.campaign import RetestRule, challenge_of
from appliance.collection import campaigns as wanted_campaign
from appliance.errors import EvidenceError, SchedulerError, UsageError
from appliance.fleet import (
    campaign_toml,
    folder,
    gate,
    inventory,
    job_script,
    on_node,
    risk,
    slurm,
    states,
    submissions,
    submitting,
)
from appliance.fleet.submissions import Submission
from appliance.storage.criteria_file import load_criteria

FILE = f"""
name = "test"
suite = "{TINY}"
criteria = "functional"
"""


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("keys")
    assert called("keys", "create", "Buyer", "--out", str(made)).returncode == 0
    return made


def plan(
    tmp_path: Path, keys: Path, *words: str, text: str = FILE, nodes: str = "name\nn1\nn2\n"
) -> subprocess.CompletedProcess[str]:
    (tmp_path / "campaign.toml").write_text(text)
    (tmp_path / "nodes.csv").write_text(nodes)
    signing = ("--key", f"{keys}/key.pem", "--certificate", f"{keys}/certificate.pem")
    return called(
        *("fleet", "plan", str(tmp_path / "campaign.toml"), "--out", str(tmp_path / "c")),
        *("--inventory", str(tmp_path / "nodes.csv"), *signing, *words),
    )


# ------------------------------------------------------------------ inventories


@pytest.mark.parametrize(
    "name",
    ["n1;reboot", "-n1", "n1 n2", "n[1-4]", "../n1", "n1,n2", "", "$(id)", "n" * 64, "nä", "."],
)
def test_a_name_that_is_no_nodes_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text(f'name,rack\n"{name}",r1\n')
    with pytest.raises(UsageError, match="is no node's name"):
        inventory.read(path)


def test_no_more_of_a_list_is_read_than_a_campaign_has_nodes(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text("name\n" + "a\n" * (inventory.MOST_NODES + 5) + "a,b\n")
    with pytest.raises(UsageError, match=f"has {inventory.MOST_NODES + 1} nodes"):
        inventory.read(path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("name\nn1\nn1\n", "n1 stands there twice; remove one"),
        ("name\nN1\nn1\n", "n1 stands there twice, as N1 too: names of hosts have no case"),
        ('name\n"n[1-4]"\n', "each node of a list apart .`scontrol show hostnames`"),
        ("rack\nr1\n", "begins with the columns"),
        ("name,name\nn1,n2\n", "begins with the columns"),
        ("name,colour\nn1,red\n", "begins with the columns"),
        ("name,rack\nn1\n", "line 2: it has more or fewer cells"),
        ("name\nn1,r1\n", "line 2: it has more or fewer cells"),
        ("name\n", "has 0 nodes"),
        ("", "begins with the columns"),
        ("name,rack\nn1,a\x1b[2J\n", "the rack of n1 must be printable"),
        ("name,devices\nn1,a b\nn2,b\n", 'the device "b" is in n1 and in n2'),
        ("name,devices\nn1,a a\n", 'the device "a" is in n1 and in n1'),
    ],
)
def test_an_inventory_that_is_wrong_is_one_sentence(
    text: str, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=sentence):
        inventory.read(path)


def test_csv_and_toml_say_the_same_nodes(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("name,rack,serial,devices\nn2,r1,S2,a b\nn1,,,\n")
    (tmp_path / "a.toml").write_text(
        '[[node]]\nname = "n1"\n[[node]]\nname = "n2"\nrack = "r1"\nserial = "S2"\n'
        'devices = ["a", "b"]\n'
    )
    nodes = inventory.read(tmp_path / "a.csv")
    assert nodes == inventory.read(tmp_path / "a.toml")
    assert [node.name for node in nodes] == ["n1", "n2"]
    assert nodes[0].devices is None


# ------------------------------------------------------------------ risks


def test_a_fleets_risk_follows_from_the_judges_own_and_the_retests() -> None:
    criteria = load_criteria("functional")[0]
    found = risk.fleet_risk(criteria, 10_000, RetestRule(retests=1, sessions=2), 1)
    assert found.rejection == criteria.alpha_fail == 0.008
    assert found.expected == pytest.approx(80)
    assert found.expected_after == pytest.approx(0.64)
    assert found.acceptance == pytest.approx(3 * criteria.alpha_pass)
    at_one_percent = risk.fleet_risk(
        criteria, 10_000, RetestRule(retests=0, sessions=1), 0, rejection=0.01
    )
    assert at_one_percent.expected == at_one_percent.expected_after == pytest.approx(100)


def test_more_wrong_rejections_than_are_allowed_name_the_retests_that_are_enough() -> None:
    criteria = load_criteria("functional")[0]
    none = RetestRule(retests=0, sessions=1)
    with pytest.raises(UsageError, match=r"80 would be .* at most 1 may be: 1 retests are enough"):
        risk.fleet_risk(criteria, 10_000, none, 0, most_expected=1.0)
    enough = RetestRule(retests=1, sessions=1)
    assert risk.fleet_risk(criteria, 10_000, enough, 0, most_expected=1.0).expected_after < 1


# ------------------------------------------------------------------ the campaign's file


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ('sweet = "x"', 'unknown key "sweet"'),
        ("concurrency = 0", "concurrency is 0; it must be 1 to"),
        ('reservation = "a b"', "no name that Slurm takes"),
        ('partition = "--uid=0"', "no name that Slurm takes"),
        ('pause = "soon"', "must be a time as in 90s"),
        ("days = 0", "days is 0"),
        ('[launcher]\nprogram = "bench;id"', "characters that no shell may see"),
        ('[launcher]\nprogram = "-x"', "characters that no shell may see"),
        ('[launcher]\nkind = "docker"', 'key "image" of launcher goes with'),
        ('[launcher]\nimage = "x"', 'key "image" of launcher goes with'),
        ('[launcher]\nkey = "k.pem"', "go together"),
        ("[risk]\nrejection = 1.0", "give more than 0, less than 1"),
        ("[risk]\nmost_expected = 1e-5", "after 1 retests, .*: 2 retests are enough"),
    ],
)
def test_a_campaigns_file_that_is_wrong_is_one_sentence(
    more: str, sentence: str, tmp_path: Path, keys: Path
) -> None:
    refused = plan(tmp_path, keys, text=f"{FILE}{more}\n")
    assert refused.returncode == 2
    assert not (tmp_path / "c").exists()
    assert re.search(sentence, refused.stderr), refused.stderr


# ------------------------------------------------------------------ the folder


def test_a_planned_folder_has_a_challenge_a_node_and_is_planned_once(
    tmp_path: Path, keys: Path
) -> None:
    done = plan(tmp_path, keys)
    assert done.returncode == 0, done.stderr
    assert "2 healthy nodes: at most 0.016 rejected wrongly" in done.stderr
    made = folder.opened_on_node(tmp_path / "c")
    for node in made.campaign.nodes:
        written = (tmp_path / "c" / "nodes" / node.name / "challenge.json").read_bytes()
        assert written == challenge_of(made.campaign, node)
    again = plan(tmp_path, keys)
    assert again.returncode == 2
    assert "is there already: a campaign is planned once" in again.stderr


def test_nodes_of_orders_alone_each_have_their_own(tmp_path: Path, keys: Path) -> None:
    orders = tmp_path / "orders"
    orders.mkdir()
    text = 'name = "o"\nsummary = "s"\n[[line]]\ntitle = "Devices"\nfield = "devices.count"\n'
    (orders / "n7.toml").write_text(f'{text}op = "=="\nvalue = 1\n')
    (tmp_path / "campaign.toml").write_text(FILE)
    signing = ("--key", f"{keys}/key.pem", "--certificate", f"{keys}/certificate.pem")
    words = ("fleet", "plan", str(tmp_path / "campaign.toml"), "--out", str(tmp_path / "c"))
    assert called(*words, *signing).returncode == 2, "no nodes are named"
    assert called(*words, *signing, "--orders", str(orders)).returncode == 0
    campaign = folder.opened_on_node(tmp_path / "c")
    (node,) = campaign.campaign.nodes
    assert campaign.order_of(node) == (orders / "n7.toml").read_bytes()
    (tmp_path / "c" / "nodes" / "n7" / "order.toml").write_text(text)
    with pytest.raises(EvidenceError, match="is not the file that the campaign was signed with"):
        campaign.order_of(node)
    strangers = plan(tmp_path, keys, "--orders", str(orders))
    assert strangers.returncode == 2
    assert "an order for n7, which the inventory does not have" in strangers.stderr


@pytest.mark.parametrize("name", ["suite.toml", "criteria.toml"])
def test_a_file_that_is_not_the_signed_one_is_exit_4(name: str, tmp_path: Path, keys: Path) -> None:
    plan(tmp_path, keys)
    path = tmp_path / "c" / name
    path.write_bytes(path.read_bytes() + b"\n")
    trust = ("--trust", f"{keys}/certificate.pem")
    done = called("fleet", "status", str(tmp_path / "c"), *trust, "--once")
    assert done.returncode == 4
    assert "is not the file that the campaign was signed with" in done.stderr


def test_a_campaign_by_nobody_who_is_trusted_is_exit_4(tmp_path: Path, keys: Path) -> None:
    plan(tmp_path, keys)
    done = called("fleet", "status", str(tmp_path / "c"), "--once")
    assert done.returncode == 4
    assert "is not a trusted signer" in done.stderr


def test_kill_9_of_plan_leaves_no_campaign_and_the_next_plan_is_whole(
    tmp_path: Path, keys: Path
) -> None:
    names = "\n".join(f"n{number}" for number in range(5_000))
    (tmp_path / "campaign.toml").write_text(FILE)
    (tmp_path / "nodes.csv").write_text(f"name\n{names}\n")
    signing = ("--key", f"{keys}/key.pem", "--certificate", f"{keys}/certificate.pem")
    words = ("fleet", "plan", str(tmp_path / "campaign.toml"), "--out", str(tmp_path / "c"))
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "appliance", *words, *signing),
            *("--inventory", str(tmp_path / "nodes.csv")),
        ],
        cwd=ROOT,
    )
    wait_for(lambda: any(tmp_path.glob(".unfinished-*")), "it writes", every=0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "c").exists()
    assert plan(tmp_path, keys).returncode == 0
    assert not any(tmp_path.glob(".unfinished-*"))


# ------------------------------------------------------------------ jobs


def made(tmp_path: Path, keys: Path, launcher: str = "") -> folder.CampaignFolder:
    done = plan(tmp_path, keys, text=f"{FILE}{launcher}")
    assert done.returncode == 0, done.stderr
    return folder.opened_on_node(tmp_path / "c")


def test_a_job_by_pyxis_mounts_the_campaign_and_starts_the_image(
    tmp_path: Path, keys: Path
) -> None:
    launcher = '[launcher]\nkind = "pyxis"\nimage = "registry/bench:1"\n'
    campaign = made(tmp_path, keys, launcher)
    text = job_script.script(campaign, campaign.node("n1"), 2, 3)
    where = str(campaign.path)
    assert text == (
        "#!/bin/sh\nexec srun --ntasks=1 --cpu-bind=none "
        '${SLURM_GPUS_ON_NODE:+"--gres=gpu:$SLURM_GPUS_ON_NODE"} '
        f"--container-image=registry/bench:1 --container-mounts={where}:{where} "
        "--no-container-mount-home --no-container-entrypoint "
        f"bench fleet run {where} --node n1 --attempt 2 --sessions 3\n"
    )
    for checker in (["sh", "-n"], ["shellcheck", "--severity=style"]):
        if shutil.which(checker[0]):
            (tmp_path / "job").write_text(text)
            subprocess.run([*checker, str(tmp_path / "job")], check=True)


@pytest.mark.parametrize(
    ("launcher", "minutes", "signalled"),
    [
        ("", 10, "--signal=B:INT@120"),
        ('kind = "docker"\nimage = "bench-cpu"', 10, "--signal=B:INT@120"),
        ('kind = "pyxis"\nimage = "bench-cpu"', 10, "--signal=INT@120"),
        ("", 9, ""),
    ],
)
def test_every_job_of_ten_minutes_is_interrupted_before_its_limit_where_bench_gets_it(
    launcher: str, minutes: int, signalled: str, tmp_path: Path, keys: Path
) -> None:
    campaign = made(tmp_path, keys, f"[launcher]\n{launcher}\n")
    limited = replace(campaign, campaign=replace(campaign.campaign, minutes=minutes))
    options = job_script.options(limited, campaign.campaign.nodes[0], 1, after=0)
    found = [option for option in options if option.startswith("--signal")]
    assert found == [signalled] * bool(signalled)


def test_a_run_by_docker_is_a_line_that_start_takes(
    tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = made(tmp_path, keys, '[launcher]\nkind = "docker"\nimage = "bench-cpu"\n')
    monkeypatch.delenv(on_node.HERE, raising=False)
    command = on_node.command(campaign, campaign.node("n1"), 1, 2)
    program, *words = command.words
    assert program == "bench"
    done = called(*words, "--dry-run", "--json")
    assert done.returncode in {0, 2}
    document = json.loads(done.stdout)
    assert "line" in document or "engine" in document["error"], document


def test_an_attempt_is_begun_once_and_on_its_own_node(
    tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = made(tmp_path, keys)
    node = campaign.node("n1")
    monkeypatch.setenv(on_node.HERE, "n2")
    with pytest.raises(UsageError, match="this job is on n2, and its run is of n1"):
        on_node.command(campaign, node, 1, 1)
    monkeypatch.setenv(on_node.HERE, "n1")
    monkeypatch.setenv(on_node.JOB, "7")
    first = on_node.command(campaign, node, 1, 1)
    assert on_node.command(campaign, node, 1, 1) == first, "Slurm may requeue a job"
    monkeypatch.setenv(on_node.JOB, "8")
    with pytest.raises(UsageError, match="attempt 1 of n1 has begun in another job"):
        on_node.command(campaign, node, 1, 1)
    assert states.begun_attempts(campaign.jobs("n1")) == (1,)


def test_a_full_disk_leaves_no_campaign_and_no_attempt_that_began(
    tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = made(tmp_path, keys)
    words = ("fleet", "plan", str(tmp_path / "campaign.toml"), "--out", str(tmp_path / "other"))
    signing = ("--key", f"{keys}/key.pem", "--certificate", f"{keys}/certificate.pem")
    with full_disk():
        done = called(*words, "--inventory", str(tmp_path / "nodes.csv"), *signing)
        begun = called("fleet", "run", str(campaign.path), "--node", "n1", "--attempt", "1")
    assert (done.returncode, begun.returncode) == (2, 2)
    assert "other cannot be written (File too large)" in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"c", "campaign.toml", "nodes.csv"}
    assert "attempt-1.begun cannot be written (File too large)" in begun.stderr
    assert states.begun_attempts(campaign.jobs("n1")) == ()
    monkeypatch.delenv(on_node.JOB, raising=False)
    assert "--suite" in on_node.command(campaign, campaign.node("n1"), 1, 1).words


def test_an_unfinished_run_is_gone_on_with_once(
    tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    campaign = made(tmp_path, keys)
    monkeypatch.setenv(on_node.JOB, "7")
    run = campaign.runs("n1") / "20260101T000000Z-000000"
    run.mkdir()
    node = campaign.node("n1")
    for data in (b"", b'{"cut short'):
        (run / "journal.jsonl").write_bytes(data)
        assert "--suite" in on_node.command(campaign, node, 1, 1).words, "nothing was recorded"
    (run / "journal.jsonl").write_bytes(b"{}\n")
    assert on_node.command(campaign, node, 1, 1).words == ("bench", "accept", "--resume", str(run))
    assert "--suite" in on_node.command(campaign, node, 2, 1).words


# ------------------------------------------------------------------ what Slurm says


@pytest.mark.parametrize(
    ("program", "text", "asked"),
    [
        ("squeue", "12_3|PENDING|None|bench node=n1 attempt=1", lambda: slurm.jobs("x")),
        ("squeue", "nonsense", lambda: slurm.jobs("x")),
        ("sinfo", "n1;id|idle", slurm.nodes),
        ("sinfo", "n1|IDLE now", slurm.nodes),
        ("sbatch", "Submitted batch job", lambda: slurm.submit((), "")),
    ],
)
def test_an_answer_of_another_form_is_refused(
    program: str, text: str, asked: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / program
    path.write_text(f"#!/bin/sh\necho '{text}'\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(SchedulerError, match=f"{program} answers"):
        asked()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        ("echo 'sbatch: error: Invalid account' >&2; exit 1", "sbatch: Invalid account"),
        ("exit 3", r"sbatch: it failed \(3\), and it does not say why"),
        ("kill -9 $$", r"sbatch: a signal ended it \(9\), and it does not say why"),
        ("echo 12345678901234", "which is no number of a job"),
        ("exit 0", 'sbatch answers "", which is no number of a job'),
    ],
)
def test_an_sbatch_that_fails_is_one_sentence_with_what_it_says(
    script: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sbatch"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(SchedulerError, match=f"^{sentence}" if "answers" in sentence else sentence):
        slurm.submit((), "")


def test_a_node_takes_jobs_in_the_states_in_which_some_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes = ("idle", "mixed-", "planned", "reserved", "idle~", "maint", "reboot^")
    takes_none = ("idle*", "drained*", "down$", "inval", "future", "no_respond", "unk*")
    path = tmp_path / "sinfo"
    lines = "\n".join(f"n{number}|{word}" for number, word in enumerate((*takes, *takes_none)))
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{lines}\nEND\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    found = {node.state: node.is_available for node in slurm.nodes().values()}
    assert found == dict.fromkeys(takes, True) | dict.fromkeys(takes_none, False)


def test_a_command_that_never_answers_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "squeue"
    path.write_text("#!/bin/sh\nexec sleep 60\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(slurm, "SECONDS", 0.2)
    with pytest.raises(SchedulerError, match="squeue has not answered for 0 s"):
        slurm.jobs("x")


# ------------------------------------------------------------------ what was noted


def note(job: int) -> Submission:
    return Submission(
        step="given",
        node="n1",
        attempt=1,
        job=job,
        lane=0,
        sessions=1,
        utc="2026-01-01T00:00:00Z",
    )


def test_a_line_that_was_cut_short_is_passed_over_and_cut_off(tmp_path: Path) -> None:
    submissions.append(tmp_path, [note(1), note(2)])
    path = tmp_path / submissions.FILE
    path.write_bytes(path.read_bytes()[:-5])
    assert submissions.read(tmp_path) == (note(1),)
    submissions.append(tmp_path, [note(3)])
    assert submissions.read(tmp_path) == (note(1), note(3))
    path.write_bytes(b"{}\n" + path.read_bytes())
    with pytest.raises(EvidenceError, match=r"line 1.*move submissions.jsonl away"):
        submissions.read(tmp_path)


@pytest.mark.parametrize("age", ["", "30", "1w", "-1d", "0d", "1.5h"])
def test_an_age_that_is_none_is_refused(age: str) -> None:
    with pytest.raises(UsageError, match="as in 12h or 30d"):
        gate.seconds_of(age)


def clock(moment: datetime) -> type[datetime]:
    """A clock that stands at this moment."""

    class Standing(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # noqa: ARG003 - always UTC
            return moment

    return Standing


def test_a_clock_behind_the_campaign_is_named_by_every_verb_that_verifies(
    tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bundle would be refused for it, and one that was collected so is not read again."""
    plan(tmp_path, keys)
    behind = clock(datetime.now(UTC) - timedelta(minutes=2))  # and past the certificate's begin
    for module in (folder, wanted_campaign):
        monkeypatch.setattr(module, "datetime", behind)
    out = ("--out", str(tmp_path / "out"))
    words = {"status": ("--once",), "gate": ("--node", "n1"), "collect": out}
    for verb in ("submit", "resume", "cancel", *words):
        trust = ("--trust", f"{keys}/certificate.pem")
        done = called("fleet", verb, str(tmp_path / "c"), *trust, *words.get(verb, ()))
        assert done.returncode == 2, verb
        assert "later than this machine's clock" in done.stderr, verb
        assert "set the clock right" in done.stderr, verb
    assert not (tmp_path / "out").exists()


def test_a_campaign_that_has_ended_is_not_submitted(
    tmp_path: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan(tmp_path, keys)
    monkeypatch.setattr(submitting, "datetime", clock(datetime(2100, 1, 1, tzinfo=UTC)))
    late = called("fleet", "submit", str(tmp_path / "c"), "--trust", f"{keys}/certificate.pem")
    assert late.returncode == 2
    assert re.search("the campaign ended at .* here it is 2100-01-01T00:00:00Z", late.stderr)


def test_a_campaigns_file_is_read_with_its_defaults(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(FILE)
    file = campaign_toml.read(tmp_path / "c.toml")
    assert (file.retest_rule.retests, file.retries, file.launch.kind) == (1, 1, "bench")
