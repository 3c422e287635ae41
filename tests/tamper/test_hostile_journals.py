"""A journal that no run writes is neither gone on with, rendered, signed nor repeated.

Whoever hands such a folder over gets one sentence, with the code of evidence that does not verify,
and nothing in the folder is another.
"""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from support.forger import Forgery, forged, judged
from support.launching import Seen
from support.program import called
from tamper.journals import hostile

from appliance.errors import EvidenceError, RunInterrupted
from appliance.records.plan import Plan
from appliance.signing import keys
from appliance.storage import bundle
from appliance.verbs import accept, publish, rerun
from appliance.verbs.run_options import RunOptions

PAGES = (bundle.SIGNER, bundle.STATEMENT, *bundle.RENDERINGS, bundle.REPORT)
KEY = keys.development_key()
PUBLISHING: tuple[Callable[[Path], object], ...] = (
    lambda folder: publish.report(folder, keys.signer_record(KEY, "tester")),
    lambda folder: publish.sign(folder, KEY, "tester"),
)
CASE, OTHER = "gemm@cpu:0", "gemm_exact@cpu:0"


class Stopped(Seen):
    """Stops a run that would begin to make launches."""

    def run_begins(self, plan: Plan, num_done: int, session: int) -> None:
        raise RunInterrupted(f"{num_done} of {len(plan.launches)} in session {session}")


# ------------------------------------------------------------------ folders


def contents(folder: Path) -> Mapping[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def ended(forgery: Forgery, folder: Path) -> Path:
    """The run as its last launch left it, judged from what stands there, and not signed."""
    forgery.mend()
    forgery.files[bundle.VERDICT] = judged(forgery.files)
    return _written(forgery, folder, *PAGES)


def cut(forgery: Forgery, folder: Path, num_lines: int) -> Path:
    """The run as it is when its process was killed after so many lines."""
    del forgery.lines[max(1, num_lines) :]
    forgery.mend()
    return _written(forgery, folder, *PAGES, bundle.VERDICT)


def _written(forgery: Forgery, folder: Path, *without: str) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    for name, data in forgery.files.items():
        if name not in without:
            bundle.write(folder / name, data)
    return folder


# ------------------------------------------------------------------ what is named


def begin_of_an_unknown_case(forgery: Forgery) -> None:
    _first(forgery, "launch_started")["launch"] = "nothing@cpu:0/0"


def launch_beyond_the_plan(forgery: Forgery) -> None:
    _first(forgery, "launch_started")["launch"] = f"{CASE}/99"


def launch_of_another_device(forgery: Forgery) -> None:
    _first(forgery, "launch_started")["launch"] = "gemm@cpu:1/0"


def begin_twice(forgery: Forgery) -> None:
    place = next(
        number
        for number, line in enumerate(forgery.lines)
        if line["event"]["kind"] == "launch_started"
    )
    forgery.lines.insert(place, forgery.lines[place])


def analysis_of_an_unknown_case(forgery: Forgery) -> None:
    _first(forgery, "interim_analysis")["case"] = "nothing@cpu:0"


def rank_that_does_not_exist(forgery: Forgery) -> None:
    _first(forgery, "checked")["rank"] = 7


def digest_of_an_unknown_launch(forgery: Forgery) -> None:
    _first(forgery, "digested")["launch"] = f"{OTHER}/98"


def _first(forgery: Forgery, kind: str) -> dict[str, object]:
    return forgery.events(kind)[0]


NAMED: dict[Callable[[Forgery], None], str] = {
    begin_of_an_unknown_case: "launch nothing@cpu:0/0 is not in the plan",
    launch_beyond_the_plan: f"launch {CASE}/99 is not in the plan",
    launch_of_another_device: "launch gemm@cpu:1/0 is not in the plan",
    begin_twice: "is started while it runs",
    analysis_of_an_unknown_case: "the plan has no case nothing@cpu:0",
    rank_that_does_not_exist: "has no rank 7",
    digest_of_an_unknown_launch: f"launch {OTHER}/98 is not in the plan",
}
VERBS: dict[str, tuple[str, ...]] = {
    "run --resume": ("run", "--resume"),
    "accept --resume": ("accept", "--resume"),
    "run --from": ("run", "--case", "gemm", "--launch", "1", "--from"),
    "report": ("report",),
    "sign": ("sign",),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_begin_of_what_was_not_planned_is_one_sentence_before_anything_is_written(
    verb: str, genuine: Path, tmp_path: Path
) -> None:
    forgery, folder = forged(genuine), tmp_path / "runs" / genuine.name
    begin_of_an_unknown_case(forgery)
    if "--resume" in verb:
        cut(forgery, folder, len(forgery.lines) // 2)
    else:
        ended(forgery, folder)
    before = contents(folder.parent)
    done = called(*VERBS[verb], str(folder))
    assert (done.returncode, done.stdout) == (4, "")
    assert NAMED[begin_of_an_unknown_case] in done.stderr.strip().splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert contents(folder.parent) == before


def gone_on_with(folder: Path) -> object:
    return accept.resume(RunOptions(resume=folder), Stopped())


def repeated(folder: Path) -> object:
    request = rerun.Request(source=folder, case=CASE, launch=1, out=folder.parent)
    return rerun._dispute(request)


@pytest.mark.parametrize("build", NAMED)
def test_an_entry_that_contradicts_the_plan_is_named(
    build: Callable[[Forgery], None], genuine: Path, tmp_path: Path
) -> None:
    forgery, folder = forged(genuine), tmp_path / "runs" / genuine.name
    build(forgery)
    ended(forgery, folder)
    before = contents(folder.parent)
    for verb in (gone_on_with, repeated, *PUBLISHING):
        with pytest.raises(EvidenceError, match=re.escape(NAMED[build])):
            verb(folder)
        assert contents(folder.parent) == before


# ------------------------------------------------------------------ what is drawn


def refusal(verb: Callable[[Path], object], folder: Path) -> str:
    """The sentence of evidence that does not verify; nothing where the plan allows what changed.

    Any other error is the test's.
    """
    with suppress(RunInterrupted):
        try:
            verb(folder)
        except EvidenceError as error:
            return str(error)
    return ""


def test_no_drawn_journal_ends_a_verb_in_an_error_of_its_own_or_alters_a_file(
    genuine: Path, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    seed, count = pytestconfig.getoption("fuzz_seed"), pytestconfig.getoption("fuzz_count") // 4
    verbs, refused = (gone_on_with, repeated, *PUBLISHING), 0
    for number in range(count):
        verb, folder = verbs[number % len(verbs)], tmp_path / "runs" / genuine.name
        forgery = hostile(forged(genuine), seed, number)
        if verb is gone_on_with:
            cut(forgery, folder, random.Random(number).randrange(len(forgery.lines)))  # noqa: S311 - to be drawn again
        else:
            ended(forgery, folder)
        before = contents(folder.parent)
        sentence = refusal(verb, folder)
        refused += bool(sentence)
        if sentence:  # shown on one line, whatever stands in it (test_foreign_text.py)
            assert contents(folder.parent) == before, f"input {number} of seed {seed}"
    assert refused > count // 2
