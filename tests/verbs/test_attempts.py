"""Attempts from both sides: the buyer counts and answers, the node waits, nothing is used twice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.attempts import a_request
from support.program import TINY, answered, called

from appliance.challenge import ledger
from appliance.challenge.entries import Opened
from appliance.errors import EvidenceError, OutputError, UsageError
from appliance.planning import challenge_window
from appliance.planning.challenge_window import utc_words
from appliance.records.json import sha256, to_json
from appliance.signing import keys
from appliance.verbs import challenge

HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def key() -> keys.Key:
    return keys.development_key()


@dataclass(frozen=True, kw_only=True)
class Buyer:
    """A buyer with a challenge, in a folder."""

    folder: Path
    key: keys.Key

    @property
    def path(self) -> Path:
        return self.folder / "challenge.json"

    @property
    def book(self) -> Path:
        return self.folder / "challenge.ledger.jsonl"

    def requested(self, number: int, *, ago: timedelta = timedelta(0)) -> Path:
        utc = utc_words(datetime.now(UTC) - ago)
        return a_request(self.folder, sha256(self.path.read_bytes()), utc, number)

    def begin(self, number: int, *, key: keys.Key | None = None, hours: float = 1) -> int:
        request = self.requested(number)
        begun = challenge.begin(self.path, request, key or self.key, hours=hours, out=None)
        return begun.receipt.attempt

    def opened_at(self, utc: str) -> None:
        """Write challenge and ledger anew, as if they had been made then."""
        issued = challenge_window.parse(self.path.read_bytes())
        issued = replace(issued, issued_utc="2020-01-01T00:00:00Z")
        self.path.write_bytes(to_json(issued))
        first = Opened(challenge=sha256(to_json(issued)), utc=utc)
        self.book.write_bytes(ledger.write(first, self.key) + b"\n")


@pytest.fixture
def buyer(tmp_path: Path, key: keys.Key) -> Buyer:
    challenge.issue(challenge.Request(out=tmp_path / "challenge.json", key=key))
    return Buyer(folder=tmp_path, key=key)


# ------------------------------------------------------------------ the buyer


def test_each_plan_gets_the_next_number_a_nonce_of_its_own_and_a_window(buyer: Buyer) -> None:
    assert [buyer.begin(number) for number in (1, 2, 3)] == [1, 2, 3]
    book = ledger.read_ledger(
        buyer.book.read_bytes(), buyer.key.certificate, sha256(buyer.path.read_bytes())
    )
    receipts = list(book.receipts.values())
    assert len({one.nonce for one in receipts}) == 3
    for one in receipts:
        begin, end = map(datetime.fromisoformat, (one.utc, one.not_after_utc))
        assert end - begin == HOUR
        stored = (buyer.folder / f"challenge.receipt-{one.attempt}.json").read_bytes()
        assert ledger.read_receipt(stored, buyer.key.certificate, "it") == one


def test_window_ends_with_the_challenge(buyer: Buyer) -> None:
    buyer.begin(1, hours=24 * 300)
    row = challenge.table(buyer.path).attempts[0]
    assert row.not_after_utc == challenge_window.parse(buyer.path.read_bytes()).not_after_utc


def refused(buyer: Buyer, error: type[Exception], sentence: str, **options: object) -> None:
    """Beginning is refused, and neither the ledger nor any receipt is written."""
    before = {path: path.read_bytes() for path in buyer.folder.iterdir()}
    given = {"request": buyer.requested(9), "key": buyer.key, "hours": 1.0, "out": None, **options}
    with pytest.raises(error, match=sentence):
        challenge.begin(buyer.path, **given)  # type: ignore[arg-type]
    before[buyer.folder / "9.request.json"] = (buyer.folder / "9.request.json").read_bytes()
    assert before == {path: path.read_bytes() for path in buyer.folder.iterdir()}


def test_a_plan_is_begun_once(buyer: Buyer) -> None:
    buyer.begin(1)
    request = buyer.requested(1)
    refused(
        buyer, EvidenceError, "has its receipt, as attempt 1: a plan is begun once", request=request
    )


def test_what_was_not_asked_for_is_not_answered(buyer: Buyer) -> None:
    now = utc_words(datetime.now(UTC))
    other = a_request(buyer.folder, "e" * 64, now, 7)
    refused(buyer, EvidenceError, "of a run under another challenge", request=other)
    early = buyer.requested(8, ago=24 * HOUR)
    refused(buyer, UsageError, "before the challenge was issued", request=early)
    ahead = buyer.requested(6, ago=-HOUR)
    refused(buyer, UsageError, "later than this machine's clock", request=ahead)
    refused(buyer, UsageError, "was drawn with another key", key=keys.development_key())
    refused(buyer, UsageError, "--hours is 0", hours=0.0)
    refused(buyer, OutputError, "is there already", out=buyer.path)
    refused(buyer, UsageError, "expected to take 0.17 h with its pauses", hours=0.1)


def test_what_is_no_request_is_refused_with_what_to_name(buyer: Buyer) -> None:
    noise = buyer.folder / "noise"
    for data in (b"", b"\x00\xff", b"[]", b"{}"):
        noise.write_bytes(data)
        refused(buyer, EvidenceError, "noise: .*; name the RUN.request.json", request=noise)


def test_eleventh_attempt_is_refused(buyer: Buyer) -> None:
    for number in range(1, 11):
        buyer.begin(20 + number)
    refused(buyer, UsageError, "all 10 attempts of .* are begun: draw a new challenge")


def test_ledger_with_a_gap_begins_and_shows_nothing(buyer: Buyer) -> None:
    for number in (1, 2, 3):
        buyer.begin(number)
    lines = buyer.book.read_bytes().splitlines(keepends=True)
    buyer.book.write_bytes(b"".join([*lines[:2], *lines[3:]]))
    refused(buyer, EvidenceError, "entry 3 does not follow the one before it")
    done = called("challenge", "ledger", "--challenge", str(buyer.path))
    assert done.returncode == 4
    assert len(done.stderr.splitlines()) == 1
    assert "restore it from the copy that was kept of it" in done.stderr
    buyer.book.unlink()
    refused(buyer, EvidenceError, "is missing: without its ledger no attempt can be counted")


def test_clock_that_was_set_back_counts_nothing(buyer: Buyer) -> None:
    later = utc_words(datetime.now(UTC) + HOUR)
    buyer.opened_at(later)
    refused(buyer, UsageError, f"earlier than the ledger's last entry .{later}.: set the clock")


def test_who_names_no_key_must_say_that_he_counts_nothing(tmp_path: Path) -> None:
    out = tmp_path / "challenge.json"
    done = called("challenge", "create", "--out", str(out))
    assert done.returncode == 2
    assert "or say --uncounted" in done.stderr
    assert not out.exists()
    assert called("challenge", "create", "--uncounted", "--out", str(out)).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["challenge.json"]
    done = called("challenge", "ledger", "--challenge", str(out))
    assert done.returncode == 2
    assert "it has no attempts and no ledger" in done.stderr


# ------------------------------------------------------------------ both sides


@dataclass(frozen=True, kw_only=True)
class Parties:
    """Buyer and vendor, each with a key, around one node.

    A verb is a process of its own at first and wherever it makes launches, later in this one.
    """

    folder: Path
    heard: set[tuple[str, ...]] = field(default_factory=set)

    def say(self, *words: str, code: int) -> str:
        """What a verb prints when it ends with this code, on stdout if it has a document."""
        verb = words[: 2 if words[0] in {"challenge", "keys"} else 1]
        if verb in self.heard and not ("--receipt" in words and code == 0):
            done = called(*words)
            status, stdout, stderr = done.returncode, done.stdout, done.stderr
        else:
            status, stdout, stderr = answered(*words)
        self.heard.add(verb)
        assert status == code, stderr
        return stdout or stderr

    def signed_by(self, who: str) -> tuple[str, ...]:
        folder = self.folder / who
        return ("--key", str(folder / "key.pem"), "--certificate", str(folder / "certificate.pem"))

    @property
    def challenge(self) -> tuple[str, str]:
        return ("--challenge", str(self.folder / "challenge.json"))

    @property
    def trust(self) -> tuple[str, str]:
        return ("--trust", str(self.folder / "vendor" / "certificate.pem"))

    def plan(self) -> Path:
        """A run that is planned and waits: its folder."""
        words = ("accept", "--suite", TINY, *self.challenge, "--out", str(self.folder / "out"))
        document = self.say(*words, *self.signed_by("vendor"), "--json", code=3)
        folder = Path(json.loads(document)["folder"])
        assert not (folder / "journal.jsonl").exists()
        return folder

    def begin(self, run: Path, *words: str, code: int = 0) -> str:
        request = f"{run}.request.json"
        return self.say(
            "challenge",
            "begin",
            "--request",
            request,
            *self.challenge,
            *self.signed_by("buyer"),
            *words,
            code=code,
        )

    def go_on(self, run: Path, receipt: Path, *, code: int) -> str:
        words = ("accept", "--resume", str(run), "--receipt", str(receipt), "--quiet")
        return self.say(*words, *self.signed_by("vendor"), code=code)

    def close(self, path: Path, *, code: int = 0) -> str:
        return self.say(
            "challenge",
            "close",
            str(path),
            *self.challenge,
            *self.trust,
            *self.signed_by("buyer"),
            code=code,
        )

    def table(self) -> list[Sequence[object]]:
        document = self.say("challenge", "ledger", *self.challenge, "--json", code=0)
        return [
            (row["attempt"], row["run_id"], row["state"], row["verdict"])
            for row in json.loads(document)["attempts"]
        ]


@pytest.mark.slow
def test_three_attempts_of_which_one_never_comes_back(tmp_path: Path) -> None:
    node = Parties(folder=tmp_path)
    for who in ("buyer", "vendor"):
        node.say("keys", "create", who, "--out", str(tmp_path / who), code=0)
    node.say(
        "challenge", "create", "--out", node.challenge[1], "--suite", TINY,
        *node.signed_by("buyer"), code=0,
    )  # fmt: skip
    receipt = tmp_path / "challenge.receipt-1.json"

    first = node.plan()
    node.begin(first)
    assert "a plan is begun once" in node.begin(first, code=4)
    receipt.with_name("noise").write_bytes(b"\x00\xff")
    assert "name the file that" in node.go_on(first, receipt.with_name("noise"), code=4)
    assert "ACCEPTED" in node.go_on(first, receipt, code=0)
    assert "attempt 1 came back: ACCEPTED" in node.close(first)
    assert "attempt 1 is back already" in node.close(first, code=4)
    output = node.say("verify", str(first), *node.trust, *node.challenge, code=0)
    assert "attempt 1 of its challenge" in output
    assert "1 begun, 1 returned" in output

    second = node.plan()
    assert "a receipt is for one plan and used once" in node.go_on(second, receipt, code=4)
    node.begin(second)  # and nobody goes on with it

    third = node.plan()
    typed = tmp_path / "typed.txt"
    typed.write_text(json.loads(node.begin(third, "--json"))["text"].lower())
    assert "ACCEPTED" in node.go_on(third, typed, code=0)
    node.close(third / "report.pdf")
    back = [(1, first.name, "returned", "ACCEPTED"), (3, third.name, "returned", "ACCEPTED")]
    assert node.table() == [back[0], (2, second.name, "under way", None), back[1]]
    tomorrow = challenge.table(Path(node.challenge[1]), datetime.now(UTC) + 25 * HOUR)
    assert [row.state for row in tomorrow.attempts] == ["returned", "failed", "returned"]
    output = node.say("verify", str(third / "report.pdf"), *node.trust, *node.challenge, code=0)
    assert "attempt 3 of its challenge" in output
    assert "3 begun, 2 returned" in output
    page = (third / "report.html").read_text()
    assert "attempt 3 of at most 10" in page
    digests = [line for run in (first, third) for line in digests_of(run)]
    assert digests
    assert len(set(digests)) == len(digests), "an attempt repeats inputs of another"


def digests_of(run: Path) -> list[str]:
    """First outputs, by the seed of their inputs."""
    lines = map(json.loads, (run / "journal.jsonl").read_text().splitlines())
    events = [line["event"] for line in lines]
    return sorted({one["digest"] for one in events if one["kind"] == "digested"})
