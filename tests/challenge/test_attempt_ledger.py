"""The buyer's ledger: signed, chained and numbered without a gap; and receipts in short form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import segno
from support.attempts import (
    OVER,
    a_receipt,
    a_return,
    buyer,
    chained,
    challenge,
    digest,
    opened,
)

from appliance.challenge import ledger, short_form
from appliance.challenge.entries import AttemptRequest, Entry
from appliance.errors import EvidenceError
from appliance.records.json import sha256
from appliance.signing import keys

WHOLE = (opened(), a_receipt(1), a_receipt(2), a_return(1), a_receipt(3))
REQUEST = AttemptRequest(
    challenge=digest(),
    plan="1" * 64,
    run_id="20261121T120000Z-0a1b2c",
    created_utc="2026-11-21T12:00:00Z",
    seconds=600,
    criteria="c" * 64,
    suite="d" * 64,
)


def read(data: bytes) -> ledger.Ledger:
    return ledger.read_ledger(data, buyer().certificate, digest())


def test_every_entry_is_read_back_by_its_number() -> None:
    data = chained(WHOLE)
    book, last = read(data), data.split(b"\n")[-2]
    assert [*book.receipts] == [1, 2, 3]
    assert {number: one.verdict for number, one in book.returned.items()} == {1: "ACCEPTED"}
    assert (book.envelopes[3], book.head) == (last, sha256(last))
    assert ledger.read_receipt(last, buyer().certificate, "it") == book.receipts[3]


def without(number: int) -> Callable[[list[bytes]], list[bytes]]:
    return lambda lines: [line for index, line in enumerate(lines) if index != number]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (without(0), "of another challenge"),
        (without(1), "entry 2 does not follow the one before it"),
        (without(3), "entry 4 does not follow the one before it"),
        (lambda lines: [*lines[:2], lines[3], lines[2], lines[4]], "entry 3 does not follow"),
        (lambda lines: [*lines, lines[-1]], "entry 6 does not follow"),
        (lambda lines: [*lines[:2], lines[2].replace(b"Z", b"z", 1), *lines[3:]], "entry 3"),
        (lambda lines: [*lines[:4], lines[4][:-9]], "entry 5 is not a signed envelope"),
    ],
)
def test_a_gap_or_a_changed_entry_is_one_sentence(
    change: Callable[[list[bytes]], list[bytes]], sentence: str
) -> None:
    lines = chained(WHOLE).split(b"\n")[:-1]
    with pytest.raises(EvidenceError, match=f"{sentence}.*; restore it from the copy"):
        read(b"".join(line + b"\n" for line in change(lines)))


@pytest.mark.parametrize("data", [b"", chained(WHOLE)[:-1]])
def test_a_ledger_that_was_cut_inside_its_last_line_is_refused(data: bytes) -> None:
    with pytest.raises(EvidenceError, match="cut short"):
        read(data)


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        ((opened(), a_receipt(2)), "begins attempt 2, and not 1"),
        ((opened(), a_receipt(1), a_receipt(3)), "begins attempt 3, and not 2"),
        (
            (opened(), a_receipt(1), a_receipt(2, plan=a_receipt(1).plan)),
            "uses the plan or the nonce of attempt 1",
        ),
        (
            (opened(), a_receipt(1), a_receipt(2, nonce=a_receipt(1).nonce)),
            "uses the plan or the nonce of attempt 1",
        ),
        ((opened(), a_receipt(1), a_receipt(2, utc="2026-11-21T11:59:59Z")), "earlier than"),
        ((opened(), a_return(1)), "returns attempt 1, which is not under way"),
        ((opened(), a_receipt(1), a_return(1), a_return(1)), "is not under way"),
        ((opened(), a_receipt(1), a_return(1, OVER.replace("00Z", "01Z"))), "after its window"),
        ((opened(), opened()), "entry 2 does not follow"),
        ((replace(opened(), challenge="9" * 64),), "of another challenge"),
    ],
)
def test_what_its_own_signer_may_not_write_is_refused(
    entries: tuple[Entry, ...], sentence: str
) -> None:
    with pytest.raises(EvidenceError, match=sentence):
        read(chained(entries))


def test_an_entry_of_another_key_is_nobody_s() -> None:
    with pytest.raises(EvidenceError, match=r"another key than the one of the buyer"):
        read(chained(WHOLE, keys.development_key()))


@pytest.mark.parametrize(
    "changes",
    [{"nonce": "short"}, {"utc": "today"}, {"run_id": "../x"}, {"prev": ""}],
)
def test_an_entry_has_one_form(changes: dict[str, str]) -> None:
    data = ledger.write(a_receipt(1, **changes), buyer())
    with pytest.raises(EvidenceError, match="no entry of a challenge's ledger"):
        ledger.read_receipt(data, buyer().certificate, "the receipt")


def test_who_counts_must_be_a_certificate() -> None:
    with pytest.raises(EvidenceError, match="no certificate"):
        ledger.buyer_of(replace(challenge(), buyer="me"))


# ------------------------------------------------------------------ short forms


def test_a_receipt_is_the_same_bytes_again_from_its_short_form() -> None:
    receipt = a_receipt(3, prev="9" * 64)
    envelope = ledger.write(receipt, buyer())
    text = short_form.write_receipt(receipt, envelope)
    typed = f"{text[:50].lower()} \n {text[50:]}\r\n".encode()
    known: dict[str, Any] = {
        "challenge": digest(),
        "run_id": receipt.run_id,
        "buyer": buyer().certificate,
    }
    assert short_form.is_short(typed, short_form.RECEIPT)
    assert short_form.read_receipt(typed, plan=receipt.plan, **known) == envelope
    with pytest.raises(EvidenceError, match="for another plan"):
        short_form.read_receipt(typed, plan="e" * 64, **known)


def test_a_request_is_the_same_again_from_its_short_form() -> None:
    text = short_form.write_request(REQUEST)
    assert short_form.read_request(text.encode()) == REQUEST


@pytest.mark.parametrize("begin", range(32))
def test_a_mistyped_letter_is_seen_wherever_it_stands(begin: int) -> None:
    run_id = f"20261121T120000Z-0a1b{begin:02x}"
    text = short_form.write_request(replace(REQUEST, run_id=run_id))
    for place in range(len(short_form.REQUEST), len(text)):
        letter = "A" if text[place] != "A" else "B"
        with pytest.raises(EvidenceError, match="mistyped"):
            short_form.read_request(f"{text[:place]}{letter}{text[place + 1 :]}".encode())


@pytest.mark.parametrize("text", [b"BENCHQ1:", b"BENCHQ1:!!", b"BENCHQ1:AAAAAAAA"])
def test_what_is_no_short_form_is_one_sentence(text: bytes) -> None:
    with pytest.raises(EvidenceError, match=r"mistyped|cut short"):
        short_form.read_request(text)


def test_both_fit_a_code_that_a_terminal_can_show() -> None:
    """In 80 columns, with a quiet zone of four modules on each side."""
    receipt = a_receipt(10)
    texts = (
        short_form.write_request(REQUEST),
        short_form.write_receipt(receipt, ledger.write(receipt, buyer())),
    )
    for text in texts:
        code = segno.make(text, micro=False)
        assert code.mode == "alphanumeric"
        assert code.symbol_size()[0] <= 80
