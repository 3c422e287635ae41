"""A buyer's challenge: drawn once; all seeds of a run derive from it, and verify holds it so."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.builders import a_plan, bare_lines, healthy_events
from support.program import ROOT, answered

from appliance.errors import EvidenceError, OutputError, UsageError
from appliance.planning import challenge_window
from appliance.records.json import sha256, to_json
from appliance.records.order import Challenge
from appliance.verbs import challenge as challenges

NOW = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)
CHALLENGE = Challenge(
    nonce="5a" * 32,
    issued_utc="2026-11-20T00:00:00Z",
    not_after_utc="2026-12-20T00:00:00Z",
    criteria="",
    suite="",
    note="order 4711",
    buyer="",
)


def under(challenge: Challenge, **changes: Any) -> Any:
    """A plan whose seed derives from the challenge, made within its time."""
    plan = a_plan()
    digests = {**plan.digests, "criteria": "a" * 64, "suite": "b" * 64}
    plan = replace(plan, seed=challenge_window.run_seed(challenge), digests=digests)
    return replace(plan, created_utc="2026-11-21T12:00:00Z", **changes)


# ------------------------------------------------------------------ the record


def test_seed_is_of_the_nonce_alone_and_of_every_bit_of_it() -> None:
    seed = challenge_window.run_seed(CHALLENGE)
    assert len(bytes.fromhex(seed)) == 32
    assert seed == challenge_window.run_seed(replace(CHALLENGE, note="another", criteria="c" * 64))
    for place in range(0, 64, 7):
        nonce = CHALLENGE.nonce[:place] + "0" + CHALLENGE.nonce[place + 1 :]
        assert challenge_window.run_seed(replace(CHALLENGE, nonce=nonce)) != seed


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"nonce": "5a" * 31}, "32 bytes in hexadecimal"),
        ({"nonce": "5A" * 32}, "32 bytes in hexadecimal"),
        ({"criteria": "functional"}, "criteria must be a sha256"),
        ({"not_after_utc": "2026-11-20T00:00:00Z"}, "ends before it was issued"),
        ({"not_after_utc": "soon"}, "no time in ISO 8601"),
        ({"issued_utc": "2026-11-20T00:00:00"}, "does not say its time zone"),
    ],
)
def test_what_is_no_challenge_is_refused(changes: dict[str, str], reason: str) -> None:
    with pytest.raises(EvidenceError, match=reason):
        challenge_window.parse(to_json(replace(CHALLENGE, **changes)))


def test_run_begins_only_in_its_time_and_for_what_was_request() -> None:
    assert challenge_window.refusal(CHALLENGE, NOW, "a" * 64, "b" * 64) == ""
    day = timedelta(days=1)
    assert "later than this node's clock" in challenge_window.refusal(
        CHALLENGE, NOW - 2 * day, "", ""
    )
    assert "ended at 2026-12-20" in challenge_window.refusal(CHALLENGE, NOW + 30 * day, "", "")
    asking = replace(CHALLENGE, suite="c" * 64)
    assert "suite file with sha256 cccc" in challenge_window.refusal(
        asking, NOW, "a" * 64, "b" * 64
    )


# ------------------------------------------------------------------ a run that claims one


def test_run_under_its_challenge_is_found_sound() -> None:
    plan = under(CHALLENGE)
    challenge_window.check(plan, bare_lines(healthy_events(plan)), CHALLENGE)


def test_run_with_another_seed_or_another_time_is_refused() -> None:
    plan = under(CHALLENGE)
    lines = bare_lines(healthy_events(plan))
    with pytest.raises(EvidenceError, match="does not derive"):
        challenge_window.check(replace(plan, seed="00" * 32), lines, CHALLENGE)
    with pytest.raises(EvidenceError, match="does not derive"):
        challenge_window.check(plan, lines, replace(CHALLENGE, nonce="5b" * 32))
    late = replace(plan, created_utc="2026-12-21T00:00:00Z")
    with pytest.raises(EvidenceError, match="not under its challenge"):
        challenge_window.check(late, lines, CHALLENGE)
    over = [*lines[:-1], replace(lines[-1], utc="2026-12-20T00:00:01Z")]
    with pytest.raises(EvidenceError, match="not under its challenge"):
        challenge_window.check(plan, over, CHALLENGE)


# ------------------------------------------------------------------ the verb


def test_challenge_is_drawn_anew_each_time_and_never_written_over(tmp_path: Path) -> None:
    request = challenges.Request(out=tmp_path / "one.json", criteria="functional", suite="smoke")
    one = challenges.issue(request)
    two = challenges.issue(replace(request, out=tmp_path / "two.json"))
    assert one.nonce != two.nonce
    assert challenge_window.parse((tmp_path / "one.json").read_bytes()) == one
    functional = (ROOT / "appliance" / "criteria" / "functional.toml").read_bytes()
    assert one.criteria == sha256(functional)
    with pytest.raises(OutputError, match="a nonce is used once"):
        challenges.issue(request)
    with pytest.raises(UsageError, match="--days is 0"):
        challenges.issue(replace(request, out=tmp_path / "three.json", days=0))


@pytest.mark.slow
def test_bundle_is_held_to_the_buyer_s_own_file(tmp_path: Path) -> None:
    mine, other = tmp_path / "challenge.json", tmp_path / "other.json"
    suite = str(ROOT / "tests" / "suites" / "tiny.toml")
    assert (
        answered("challenge", "create", "--uncounted", "--out", str(mine), "--suite", suite)[0] == 0
    )
    assert answered("challenge", "create", "--uncounted", "--out", str(other))[0] == 0
    words = ("accept", "--suite", suite, "--challenge", str(mine), "--out", str(tmp_path / "out"))
    code, stdout, stderr = answered(*words, "--json")
    assert code == 0, stderr
    folder = json.loads(stdout)["folder"]
    plan = json.loads((Path(folder) / "plan.json").read_text())
    assert plan["seed"] == challenge_window.run_seed(challenge_window.parse(mine.read_bytes()))

    code, _, stderr = answered("verify", folder, "--allow-dev", "--challenge", str(mine))
    assert code == 0, stderr
    assert "seeds derive from the challenge" in stderr
    assert "the number of attempts is unknown" in stderr
    page = (Path(folder) / "report.html").read_text()
    assert "the number of attempts is unknown" in page
    code, _, stderr = answered("verify", folder, "--allow-dev", "--challenge", str(other))
    assert code == 4
    assert "not made for the challenge.json that you expect" in stderr

    code, _, stderr = answered("run", "--suite", "smoke", "--challenge", str(mine))
    assert code == 2
    assert "asks for the suite file with sha256" in stderr
    mine.write_bytes(mine.read_bytes() + b" ")
    code, _, stderr = answered(*words)
    assert code == 2
    assert "as it was sent" in stderr
