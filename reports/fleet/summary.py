"""The fleet on at most ten pages of paper: every list is cut so that it cannot be more."""

from __future__ import annotations

from typing import Any

from appliance.collection import statement
from appliance.records.json import sha256
from appliance.signing import keys
from appliance.signing.keys import Key
from appliance.storage import input_file
from reports import render
from reports.fleet import pages
from reports.fleet.answers import Answers
from reports.fleet.figures import SHAPES, STATES, word

MOST_PAGES = 10
MOST_LINES = 40
"""Of each list; a line has three lines of text at most."""
LONGEST = 180  # characters of a cell
REASON = "Summary of a fleet's acceptance"


def signed(answers: Answers, key: Key) -> bytes:
    """The summary as a signed PDF."""
    return keys.sign_pdf(pdf(answers, key), key, reason=REASON)


def pdf(answers: Answers, key: Key) -> bytes:
    """The summary as it is signed: the same bytes for the same answers and signer."""
    template = render.environment().get_template("fleet/summary.html")
    return render.laid_out(template.render(**_values(answers, key)))


def _values(answers: Answers, key: Key) -> dict[str, Any]:
    levels, metrics = pages.levels(answers), pages.metrics(answers)
    campaign = answers.stated["campaign"]
    rates = {one["risk"] for one in metrics}
    return {
        "campaign": word(campaign),
        "campaign_css": campaign,  # a campaign's name has letters, digits and hyphens alone
        "version": answers.stated["bench_version"],
        "states": [(state, SHAPES[state], answers.count(state)) for state in STATES],
        "terms": pages.terms(answers),
        "num_nodes": len(answers.of("nodes")),
        "num_attempts": len(answers.of("attempts")),
        "num_refused": len(answers.of("refusals")),
        "signer": word(key.certificate.subject.rfc4514_string()),
        "is_development": keys.is_development(key.certificate),
        "levels": [_cut(one) for one in levels[:MOST_LINES]],
        "num_levels": len(levels),
        "metrics": [_cut(one) for one in metrics[:MOST_LINES]],
        "num_metrics": len(metrics),
        "beyond": [_cut(one) for one in pages.beyond(answers, MOST_LINES)],
        "num_beyond": pages.num_beyond(answers),
        **pages.tests(answers),
        "not_accepted": [_cut(one) for one in pages.not_accepted(answers, MOST_LINES)],
        "refusals": [
            _cut({name: pages.refusal(one)[name] for name in ("node", "reason", "sentence")})
            for one in answers.of("refusals")[:MOST_LINES]
        ],
        "statement": sha256(input_file.read(answers.folder / statement.FILE)),
        "risk": ", ".join(sorted(rates)) or "the stated rate",
    }


def _cut(line: dict[str, Any]) -> dict[str, Any]:
    """A line whose texts are no longer than a cell should be."""
    return {
        name: f"{value[:LONGEST]} ..." if isinstance(value, str) and len(value) > LONGEST else value
        for name, value in line.items()
    }
