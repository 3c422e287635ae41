"""Whole runs of the appliance, as a person starts them, on a suite of two small products."""

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from support.program import TINY, called, events, only_run, start

from appliance.readiness import disk_space
from appliance.records.json import from_json
from appliance.records.plan import Plan

pytestmark = pytest.mark.slow


def bench(*words: str) -> tuple[int, str, str]:
    process = start(*words)
    out, err = process.communicate(timeout=1500)
    assert "Traceback" not in err, err
    return process.returncode, out, err


def requested(*words: str) -> tuple[int, str, str]:
    """The same of a verb that makes no launch, in this process."""
    done = called(*words)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("accepted")
    code, stdout, stderr = bench("accept", "--suite", TINY, "--out", str(out), "--json")
    assert code == 0, stderr
    document = json.loads(stdout)
    assert document["verdict"]["verdict"] == "ACCEPTED"
    assert Path(document["folder"]) == only_run(out)
    assert not (out / ".work").exists()
    return only_run(out)


@pytest.fixture
def copy(accepted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(accepted, tmp_path / accepted.name))


def test_folder_and_pdf_verify_with_a_development_key_allowed(accepted: Path) -> None:
    assert bench("verify", str(accepted), "--allow-dev")[0] == 0
    assert bench("verify", str(accepted / "report.pdf"), "--allow-dev")[0] == 0


def test_run_takes_no_more_room_than_was_estimated_before_it(accepted: Path) -> None:
    data = (accepted / "plan.json").read_bytes()
    room = disk_space.needed(from_json(Plan, data, name="plan.json"))
    sizes = {path.name: path.stat().st_size for path in accepted.iterdir() if path.is_file()}
    assert sizes.pop("report.html") + sizes.pop("report.pdf") <= room.pages
    assert sum(sizes.values()) <= room.journal


def test_counters_are_read_around_every_launch_and_the_log_between_them(accepted: Path) -> None:
    around: dict[object, list[object]] = {}
    for event in events(accepted, "counted"):
        around.setdefault(event["launch"], []).append(event["moment"])
    launches = {event["launch"] for event in events(accepted, "launch_started")}
    assert around == {name: ["before", "after"] for name in ("", *launches)}
    assert len(events(accepted, "kernel_log_read")) == 2 or events(accepted, "not_observed")


def test_untrusted_signer_is_exit_4(accepted: Path) -> None:
    for path in (accepted, accepted / "report.pdf"):
        code, _, stderr = requested("verify", str(path))
        assert code == 4
        assert "--allow-dev" in stderr or "--trust" in stderr


def test_one_changed_byte_in_any_file_is_exit_4(copy: Path) -> None:
    for path in sorted(item for item in copy.rglob("*") if item.is_file()):
        whole = path.read_bytes()
        middle = len(whole) // 2
        path.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
        assert requested("verify", str(copy), "--allow-dev")[0] == 4, path.name
        path.write_bytes(whole)
    assert requested("verify", str(copy), "--allow-dev")[0] == 0


def test_a_file_too_many_or_too_few_is_exit_4(copy: Path) -> None:
    (copy / "notes.txt").write_text("harmless")
    code, _, stderr = requested("verify", str(copy), "--allow-dev")
    assert (code, "notes.txt" in stderr) == (4, True)
    (copy / "notes.txt").unlink()
    (copy / "peaks.json").unlink()
    code, _, stderr = requested("verify", str(copy), "--allow-dev")
    assert (code, "peaks.json" in stderr) == (4, True)


def test_other_criteria_or_suite_than_expected_is_exit_4(accepted: Path) -> None:
    code, *_ = requested("verify", str(accepted), "--allow-dev", "--expect-criteria", "0" * 64)
    assert code == 4
    assert requested("verify", str(accepted), "--allow-dev", "--expect-suite", "intake")[0] == 4
    assert requested("verify", str(accepted), "--allow-dev", "--expect-suite", TINY)[0] == 0


def test_signed_run_is_never_written_over(copy: Path) -> None:
    for words in (("sign", str(copy)), ("report", str(copy)), ("accept", "--resume", str(copy))):
        before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
        code, _, stderr = requested(*words)
        assert (code, "signed" in stderr) == (2, True)
        assert before == {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}


def test_run_report_and_sign_apart_make_what_verify_trusts(tmp_path: Path) -> None:
    assert requested("keys", "create", "Example Laboratory", "--out", str(tmp_path))[0] == 0
    key, certificate = str(tmp_path / "key.pem"), str(tmp_path / "certificate.pem")
    out = tmp_path / "out"
    assert bench("run", "--suite", TINY, "--out", str(out), "--quiet")[0] == 0
    run = only_run(out)
    assert requested("report", str(run), "--signer", certificate)[0] == 0
    code, _, stderr = requested("sign", str(run))
    assert (code, "bench report --signer" in stderr) == (2, True)
    assert requested("sign", str(run), "--key", key, "--certificate", certificate)[0] == 0
    for path in (run, run / "report.pdf"):
        assert requested("verify", str(path), "--trust", certificate)[0] == 0
        assert requested("verify", str(path), "--allow-dev")[0] == 4


# ------------------------------------------------------------------ interruption


@dataclass(frozen=True)
class Halted:
    """A run that stands still in the middle of a launch, so that it cannot run away from its test.

    `process` alone is stopped; `children`, which it has started, go on.
    """

    process: subprocess.Popen[str]
    folder: Path
    children: list[psutil.Process]

    def kill(self) -> None:
        """End it where it stands."""
        self.process.kill()
        self.process.communicate()

    def interrupt(self) -> str:
        """Press Ctrl-C and let it go on; what it says."""
        self.process.send_signal(signal.SIGINT)
        self.process.send_signal(signal.SIGCONT)
        return self.process.communicate(timeout=1500)[1]


def halted(out: Path, num_ended: int, *words: str) -> Halted:
    """A run, begun or resumed by these words, in the first launch after so many have ended.

    Of a launch too short to be met the next one is taken.
    """
    words = words or ("accept", "--suite", TINY, "--out", str(out))
    process = start(*words, "--quiet")
    while process.poll() is None:
        if _is_in_a_launch(out, num_ended, process.pid):
            process.send_signal(signal.SIGSTOP)
            while process.poll() is None and _state(process) != psutil.STATUS_STOPPED:
                time.sleep(0.001)
            if _is_in_a_launch(out, num_ended, process.pid):
                children = psutil.Process(process.pid).children(recursive=True)
                return Halted(process, only_run(out), children)
            process.send_signal(signal.SIGCONT)
        time.sleep(0.005)
    pytest.fail("the run did not come so far: " + process.communicate()[1])


def _state(process: subprocess.Popen[str]) -> str:
    return psutil.Process(process.pid).status()


def _is_in_a_launch(out: Path, num_ended: int, pid: int) -> bool:
    """Whether the journal says so of this process, the last that wrote into it."""
    writer, num, running = 0, 0, set()
    for journal in out.glob("*/journal.jsonl"):
        for line in journal.read_text().rpartition("\n")[0].splitlines():
            event = json.loads(line)["event"]
            if event["kind"] in ("run_started", "run_resumed"):
                writer, running = event["pid"], set()
            elif event["kind"] == "launch_started":
                running.add(event["launch"])
            elif event["kind"] == "launch_ended":
                running.discard(event["launch"])
                num += 1
    return writer == pid and num >= num_ended and len(running) == 1


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that live; one that nobody has buried yet does not."""
    return [one for one in processes if one.is_running() and not _is_dead(one)]


def _is_dead(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_killed_run_resumes_keeps_its_records_and_leaves_no_child(tmp_path: Path) -> None:
    halt = halted(tmp_path, 5)
    run = halt.folder
    assert halt.children
    halt.kill()
    psutil.wait_procs(halt.children, timeout=60)
    assert alive(halt.children) == []
    before = (run / "journal.jsonl").read_bytes()
    whole = before[: before.rfind(b"\n") + 1]

    code, _, stderr = bench("accept", "--resume", str(run))
    assert code == 0, stderr
    assert (run / "journal.jsonl").read_bytes().startswith(whole)
    assert len(events(run, "run_resumed")) == 1
    interrupted = [item for item in events(run, "launch_ended") if item["outcome"] == "interrupted"]
    assert len(interrupted) == 1
    started = [item["launch"] for item in events(run, "launch_started")]
    timed = [launch for launch in started if not str(launch).endswith("/0")]
    assert len(timed) == len(set(timed)), "a timed launch was made again"
    assert requested("verify", str(run), "--allow-dev")[0] == 0


def test_second_interruption_leaves_the_cases_touched_inconclusive(tmp_path: Path) -> None:
    first = halted(tmp_path, 4)
    first.kill()
    run = first.folder
    halted(tmp_path, 7, "accept", "--resume", str(run)).kill()
    code, stdout, stderr = bench("accept", "--resume", str(run), "--json")
    assert code == 3, stderr
    rulings = json.loads(stdout)["verdict"]["rulings"]
    assert "interrupted" in {ruling["reason"] for ruling in rulings}
    assert requested("verify", str(run), "--allow-dev")[0] == code


def test_ctrl_c_is_exit_130_and_names_how_to_go_on(tmp_path: Path) -> None:
    halt = halted(tmp_path, 3)
    run = halt.folder
    stderr = halt.interrupt()
    assert halt.process.returncode == 130
    assert f"bench accept --resume {run}" in stderr
    assert "Traceback" not in stderr
    assert alive(halt.children) == []
    assert bench("accept", "--resume", str(run), "--quiet")[0] == 0
    assert requested("verify", str(run), "--allow-dev")[0] == 0


def test_resume_refuses_another_plan_and_another_machine(tmp_path: Path) -> None:
    halt = halted(tmp_path, 3)
    run = halt.folder
    halt.kill()
    plan = (run / "plan.json").read_bytes()
    (run / "plan.json").write_bytes(plan.replace(b'"warmup_steps":1', b'"warmup_steps":2'))
    code, _, stderr = requested("accept", "--resume", str(run))
    assert (code, "plan.json" in stderr) == (4, True)
    (run / "plan.json").write_bytes(plan)

    system = json.loads((run / "system.json").read_bytes())
    model = system["identity"]["devices"][0]["model"]
    text = (run / "system.json").read_bytes()
    (run / "system.json").write_bytes(text.replace(json.dumps(model).encode(), b'"Another"'))
    code, _, stderr = requested("accept", "--resume", str(run))
    assert (code, "system.json" in stderr) == (4, True)
    (run / "system.json").write_bytes(text)

    peaks = (run / "peaks.json").read_bytes()
    (run / "peaks.json").write_bytes(peaks.replace(b'"peak":', b'"peak" :'))
    code, _, stderr = requested("accept", "--resume", str(run))
    assert (code, "peaks.json" in stderr) == (4, True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200m", "tmpfs", str(folder)], check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_full_disk_loses_nothing_and_the_run_goes_on(small_disk: Path) -> None:
    """Somebody else fills the disk while the run, which had room when it began, is in a launch."""
    halt = halted(small_disk, 2)
    filled = small_disk / ".filled"
    with suppress(OSError), filled.open("wb") as file:
        while True:
            file.write(bytes(4096))
            file.flush()
    halt.process.send_signal(signal.SIGCONT)
    _, stderr = halt.process.communicate(timeout=1500)
    assert halt.process.returncode == 2, stderr
    assert "--resume" in stderr
    before = (halt.folder / "journal.jsonl").read_bytes()
    assert before.endswith(b"\n")
    filled.unlink()
    code, _, stderr = bench("accept", "--resume", str(halt.folder), "--quiet")
    assert code in {0, 3}, stderr
    assert (halt.folder / "journal.jsonl").read_bytes().startswith(before)
    assert requested("verify", str(halt.folder), "--allow-dev")[0] == code


# ------------------------------------------------------------------ workloads that misbehave


FAULTS = {
    # outcome, reason, and the time limit, which only what hangs shall ever meet
    "abort": ("crashed", "SIGABRT", 300),
    "hang": ("timed_out", "", 20),
    "eat": ("crashed", "out_of_memory", 300),
}


MISBEHAVING = """
[[case]]
id = "{fault}"
workload = "faulty.misbehaving"
parameters = {{ fault = "{fault}", at = 3 }}
expected_seconds = 1
reference_seconds = 1
time_limit_seconds = {limit}
memory_limit_gib = 1
launches = 1
"""


@dataclass(frozen=True)
class Misbehaved:
    """A run of one healthy case and of those that misbehave: its exit code and its rulings."""

    folder: Path
    code: int
    rulings: list[dict[str, object]]

    def words(self, case: str) -> dict[str, object]:
        """By criterion."""
        of_case = [one for one in self.rulings if str(one["case"]).partition("@")[0] == case]
        return {str(one["criterion"]): one["ruling"] for one in of_case}


@pytest.fixture(scope="module")
def misbehaved(tmp_path_factory: pytest.TempPathFactory) -> Misbehaved:
    folder = tmp_path_factory.mktemp("misbehaved")
    suite, out = folder / "suite.toml", folder / "out"
    healthy = Path(TINY).read_text().rpartition("[[case]]")[0]
    faults = [MISBEHAVING.format(fault=name, limit=limit) for name, (_, _, limit) in FAULTS.items()]
    suite.write_text(healthy + "".join(faults))
    code, stdout, stderr = bench("accept", "--suite", str(suite), "--out", str(out), "--json")
    assert stdout, stderr
    return Misbehaved(only_run(out), code, json.loads(stdout)["verdict"]["rulings"])


@pytest.mark.parametrize("fault", FAULTS)
def test_misbehaving_workload_is_recorded_and_fails(misbehaved: Misbehaved, fault: str) -> None:
    outcome, reason, _ = FAULTS[fault]
    ended = events(misbehaved.folder, "launch_ended")
    ends = [item for item in ended if str(item["launch"]).startswith(fault)]
    assert [end["outcome"] for end in ends] == ["completed", outcome]
    assert reason in str(ends[1]["reason"])
    logs = [path.name for path in (misbehaved.folder / "logs").iterdir()]
    assert any(name.startswith(fault) for name in logs)
    assert misbehaved.words(fault)["completion"] == "fail"


def test_run_with_misbehaving_workloads_is_rejected_and_spares_the_healthy_one(
    misbehaved: Misbehaved,
) -> None:
    assert misbehaved.code == 1
    words = misbehaved.words("gemm")
    assert words.pop("repeatability") == "not_applicable"  # this suite has no such phase
    assert set(words.values()) == {"pass"}
    assert requested("verify", str(misbehaved.folder), "--allow-dev")[0] == 1


def test_verification_as_json_is_one_document(accepted: Path) -> None:
    code, stdout, stderr = bench("verify", str(accepted), "--allow-dev", "--json")
    assert (code, stderr) == (0, "")
    assert json.loads(stdout)["verdict"] == "ACCEPTED"
