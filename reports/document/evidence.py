"""The list of evidence: what the verdict was made of, by digest."""

from __future__ import annotations

from collections.abc import Iterable

from appliance.records.json import sha256
from appliance.records.plan import Plan
from appliance.storage.bundle import CHALLENGE, JOURNAL, LOGS, ORDER, RECEIPT, Bundle, data_names
from reports import words
from reports.model import Grid, Row, labelled
from reports.words import NOT_REPORTED, count

MOST_LOGS = 24  # files that the list of evidence names; of more it has the number and one digest


def rows(bundle: Bundle) -> tuple[Row, ...]:
    plan, digests = bundle.plan, bundle.digests
    journal, num_lines = bundle.files[JOURNAL], bundle.num_lines
    head = journal[journal.rfind(b"\n", 0, -1) + 1 : -1]
    given = {"challenge": CHALLENGE, "receipt": RECEIPT, "order": ORDER}
    missing = [title for title, name in given.items() if name not in digests]
    buyer_rows = [
        labelled(f"Buyer's {title}", digests[name])
        for title, name in given.items()
        if name in digests
    ]
    if missing:
        buyer_rows.append(labelled(f"Buyer's {words.listed(missing)}", "none was given"))
    return (
        labelled("Journal", f"{count(num_lines, 'line')}, each with the digest of the one before"),
        labelled("Journal head", sha256(head) if num_lines else NOT_REPORTED),
        labelled("Plan", digests["plan.json"]),
        labelled("Seed of the run", plan.seed),
        labelled("Names and addresses of the host", _redaction(plan)),
        *buyer_rows,
        *_planned(bundle),
        labelled("Baselines", _baselines(bundle)),
    )


def _planned(bundle: Bundle) -> Iterable[Row]:
    """What the plan was made of: by name where the bundle has the very file, else by digest."""
    present = set(bundle.digests.values())
    alike = [name for name, digest in bundle.plan.digests.items() if digest in present]
    if alike:
        named = ", ".join(words.label(name).lower() for name in alike)
        yield labelled("As planned", f"{named}: the files below are those that were planned with")
    for name, digest in bundle.plan.digests.items():
        if name not in alike:
            yield labelled(f"{words.label(name)}, as planned", digest)


def _redaction(plan: Plan) -> str:
    if not plan.redacted:
        return "as they were read"
    return f"replaced by salted digests; sha256 of the salt {plan.redacted}"


def _baselines(bundle: Bundle) -> str:
    baselines = bundle.baselines.baseline
    if not baselines:
        return "none for this device: no speed is compared with one"
    return f"{count(len(baselines), 'case')} with a measured figure of ours"


def files(bundle: Bundle) -> Grid:
    names = data_names(bundle.files)
    logs = [name for name in names if name.startswith(f"{LOGS}/")]
    left = logs if len(logs) > MOST_LOGS else []
    rows = [
        (name, f"{len(bundle.files[name]):,}", bundle.digests[name])
        for name in names
        if name not in set(left)
    ]
    if left:
        listed = "".join(f"{bundle.digests[name]}  {name}\n" for name in left)
        size = sum(len(bundle.files[name]) for name in left)
        rows.append((f"logs/: {len(left)} files", f"{size:,}", sha256(listed.encode())))
    notes = ("The digest of the logs is over their list, as sha256sum writes it.",) if left else ()
    return Grid(columns=("File", "Bytes", "sha256"), rows=tuple(rows), notes=notes)
