"""Records that were converted for tests are no evidence: no verb reads them, no ruling accepts."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from support.builders import FUNCTIONAL, bare_lines
from support.bundles import NOTHING_KNOWN, Draft, files_of, healthy, seal

from appliance.errors import EvidenceError
from appliance.judging.verdict import judge
from appliance.records.json import from_json
from appliance.records.plan import Plan
from appliance.signing.keys import Key, development_key, signer_record
from appliance.storage import bundle
from appliance.verbs import preparation, publish
from appliance.verification.terms import Terms
from appliance.verification.verify import verify

SENTENCE = (
    "plan.json: converted from a run of bench 0.4.0 for tests, so it is no evidence; "
    "ask for the bundle of a run"
)


@pytest.fixture(scope="module")
def key() -> Key:
    return development_key()


def strictly_read(files: Mapping[str, bytes]) -> Plan:
    return from_json(Plan, files[bundle.PLAN], name=bundle.PLAN)


def converted() -> Draft:
    draft = healthy()
    return replace(draft, plan=replace(draft.plan, converted_from="0.4.0"))


def test_healthy_records_that_were_converted_accept_nothing() -> None:
    draft = converted()
    events = bare_lines(draft.events)
    verdict = judge(plan=draft.plan, criteria=FUNCTIONAL, lines=events, **NOTHING_KNOWN)
    against = [one for one in verdict.rulings if one.ruling not in {"pass", "not_applicable"}]
    assert verdict.verdict == "INCONCLUSIVE"
    assert [(one.criterion, one.ruling, one.reason) for one in against] == [
        ("integrity", "inconclusive", "converted")
    ]


def test_signed_records_that_were_converted_do_not_verify(
    key: Key, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as forger:  # who signs it nevertheless
        forger.setattr(bundle, "plan_of", strictly_read)
        folder = seal(tmp_path / "run", files_of(converted(), key), key)
    verification = verify(folder, Terms(allow_development=True))
    assert (verification.exit_code, verification.verdict) == (4, None)
    assert verification.faults == (SENTENCE,)
    assert verify(folder / bundle.PDF, Terms(allow_development=True)).faults == (SENTENCE,)


@pytest.mark.parametrize(
    "verb",
    [
        lambda folder, key: publish.sign(folder, key, "tester"),
        lambda folder, key: publish.report(folder, signer_record(key, "tester")),
        lambda folder, _: preparation.prepare_again(folder, None),
    ],
    ids=["sign", "report", "resume"],
)
def test_no_verb_reads_records_that_were_converted(
    key: Key, tmp_path: Path, verb: Callable[[Path, Key], object]
) -> None:
    for name, data in files_of(converted(), key).items():
        if name != bundle.SIGNER:
            bundle.write(tmp_path / name, data)
    with pytest.raises(EvidenceError) as refusal:
        verb(tmp_path, key)
    assert str(refusal.value) == SENTENCE
