"""What the help of a verb ends with: command lines to copy, and its exit codes in words.

Keyed by the verb's full name. A test reads each line with the program's own parser, and holds the
codes to those of docs/reference/verbs.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

EXAMPLES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "accept": (
        ("bench accept", "the suite that suits this machine"),
        ("bench accept --quick", "look for a minute"),
        ("bench accept acceptance --order order.toml", "hold the node to what was bought"),
        (
            "bench accept smoke --key key.pem --certificate certificate.pem --role buyer",
            "sign with your own key",
        ),
        ("bench accept --resume out/RUN", "go on after an interruption"),
    ),
    "run": (
        ("bench run smoke --wait-idle 10", "first wait for an idle node"),
        (
            "bench run --from out/RUN --case bert@cpu:0 --launch 1",
            "make a disputed launch once more",
        ),
    ),
    "start": (
        ("bench start", "the image for the devices that are here"),
        ("bench start smoke --image bench-cpu --dry-run", "the line that would be run"),
    ),
    "probe": (
        ("bench probe", "devices, host and conditions"),
        ("bench probe --as-order order.toml", "an order that this node meets"),
    ),
    "plan": (
        ("bench plan", "what `bench accept` would run here"),
        ("bench plan acceptance --minutes 60", "what fits into an hour"),
        ("bench plan --order order.toml", "whether the node is as ordered"),
    ),
    "watch": (
        ("bench watch out", "the newest run"),
        ("bench watch out/RUN --once --json", "one document for a monitor"),
    ),
    "report": (
        ("bench report out/RUN --signer certificate.pem --role vendor", "pages for who will sign"),
    ),
    "sign": (
        ("bench sign out/RUN --key key.pem --certificate certificate.pem", "sign by name"),
        ("bench sign out/RUN", "sign with a development key, which nobody trusts"),
    ),
    "verify": (
        ("bench verify out/RUN --trust certificate.pem", "a folder, of a signer you trust"),
        ("bench verify report.pdf --allow-dev", "the PDF alone, of any signer"),
        (
            (
                "bench verify out/RUN --trust certificate.pem --expect-suite acceptance "
                "--order order.toml"
            ),
            "that it is what you asked for",
        ),
    ),
    "compare": (
        ("bench compare out/A out/B", "B against A"),
        ("bench compare a.pdf b.pdf --margin 0.05 --out comparison", "5 % is tolerated"),
    ),
    "qualify": (
        ("bench qualify --out qualified --minutes 60", "an hour of it; again goes on"),
        ("bench qualify --out qualified --workload idle_neighbour", "that alone"),
    ),
    "selftest": (("bench selftest", "every fault, in minutes"),),
    "doctor": (("bench doctor --out /srv/bench", "ask of the folder that will be written to"),),
    "keys create": (('bench keys create "Example Ltd" --out keys', "key.pem and certificate.pem"),),
    "keys show": (("bench keys show keys/certificate.pem", "whom it names, and its fingerprint"),),
    "challenge create": (
        (
            "bench challenge create --key key.pem --certificate certificate.pem --days 14",
            "a nonce whose attempts are counted",
        ),
    ),
    "challenge begin": (
        (
            (
                "bench challenge begin --request request.json --key key.pem --certificate "
                "certificate.pem"
            ),
            "answer a node's request",
        ),
    ),
    "challenge close": (
        (
            "bench challenge close report.pdf --key key.pem --certificate certificate.pem",
            "note that an attempt came back",
        ),
    ),
    "challenge ledger": (("bench challenge ledger", "the attempts at challenge.json"),),
    "data list": (("bench data list", "names, sizes and licences"),),
    "data fetch": (
        ("bench data fetch cifar-10 --to data", "one of them"),
        ("bench data fetch --to data --mirror /media/usb", "all, without a network"),
    ),
    "data verify": (("bench data verify data", "each file against its digest"),),
    "list suites": (("bench list suites", "with their planned times"),),
    "list workloads": (("bench list workloads --json", "for other tools"),),
    "list criteria": (("bench list criteria", "those that are shipped"),),
    "baseline create": (
        (
            "bench baseline create out/A out/B out/C --out baseline.json --trust certificate.pem",
            "of three signed runs",
        ),
    ),
    "baseline check": (
        ("bench baseline check baseline.json --criteria recheck", "whether it fits this node"),
    ),
    "baseline plan": (
        ("bench baseline plan baseline.json --margin 0.03", "how many runs it still lacks"),
    ),
    "fleet plan": (
        (
            (
                "bench fleet plan campaign.toml --inventory nodes.csv --key key.pem --certificate "
                "certificate.pem"
            ),
            "a campaign over the nodes of a list",
        ),
    ),
    "fleet submit": (
        ("bench fleet submit CAMPAIGN --trust certificate.pem", "a job for each node that is due"),
    ),
    "fleet status": (
        ("bench fleet status CAMPAIGN --trust certificate.pem", "a table until all are done"),
        ("bench fleet status CAMPAIGN --trust certificate.pem --once --json", "for a monitor"),
    ),
    "fleet resume": (
        (
            "bench fleet resume CAMPAIGN --trust certificate.pem --node n07",
            "one attempt more, as after a repair",
        ),
    ),
    "fleet cancel": (
        ("bench fleet cancel CAMPAIGN --trust certificate.pem", "all of its jobs"),
        ("bench fleet cancel CAMPAIGN --trust certificate.pem --node n07", "that of one node"),
    ),
    "fleet gate": (
        (
            "bench fleet gate CAMPAIGN --trust certificate.pem --max-age 30d",
            "whether this node may take jobs",
        ),
    ),
    "fleet run": (
        ("bench fleet run CAMPAIGN --node n07 --attempt 1", "what a job of the campaign calls"),
    ),
    "fleet collect": (
        (
            "bench fleet collect CAMPAIGN --trust certificate.pem --out collection",
            "the campaign's own nodes",
        ),
        (
            "bench fleet collect CAMPAIGN /srv/bundles --trust certificate.pem",
            "bundles from a folder",
        ),
    ),
    "fleet site": (("bench fleet site collection --out site", "pages to read without a server"),),
    "fleet report": (
        ("bench fleet report collection --csv", "a line for each node"),
        ("bench fleet report collection --json", "all of it for other tools"),
    ),
}
"""Command lines of each verb, with what each is for."""

_RUN = {
    0: "ACCEPTED",
    1: "REJECTED",
    2: "an option, a file or a name to correct",
    3: "INCONCLUSIVE, or nothing decided yet",
    4: "--resume: the evidence does not verify",
    5: "the appliance itself failed",
    130: "interrupted; --resume goes on",
}
_PLAIN = {0: "done", 2: _RUN[2], 5: _RUN[5]}
_FLEET = {**_PLAIN, 3: "the scheduler did not do as asked", 4: "the campaign does not verify"}
_EVIDENCE = {4: "the evidence does not verify"}

EXIT_CODES: Mapping[str, Mapping[int, str]] = {
    "accept": _RUN,
    "run": {**_RUN, 1: "REJECTED; of --from: another result", 4: "the evidence does not verify"},
    "start": {**_RUN, **_EVIDENCE},
    "plan": {**_PLAIN, 1: "--order: the node is not as ordered"},
    "watch": {**_PLAIN, 3: "the run stopped", **_EVIDENCE},
    "report": {**_PLAIN, **_EVIDENCE},
    "sign": {**_PLAIN, **_EVIDENCE},
    "verify": {
        0: "verified: ACCEPTED",
        1: "verified: REJECTED",
        2: _RUN[2],
        3: "verified: INCONCLUSIVE, or the verdict could not be derived again",
        4: "not whole, not as it was signed, or not by a trusted signer",
        5: _RUN[5],
    },
    "compare": {
        0: "no change",
        1: "a regression, or faster",
        2: _RUN[2],
        3: "undecided",
        **_EVIDENCE,
        5: _RUN[5],
    },
    "qualify": {
        **_PLAIN,
        1: "a row showed a fault",
        3: "small rows, or what was named, are left",
        130: "interrupted",
    },
    "selftest": {0: "every fault was found", 1: "a fault slipped through", 5: _RUN[5]},
    "doctor": {0: "a run can be made here", 2: "something required is missing", 5: _RUN[5]},
    "challenge close": {**_PLAIN, **_EVIDENCE},
    "challenge ledger": {**_PLAIN, 4: "the ledger does not verify"},
    "baseline create": {**_PLAIN, **_EVIDENCE},
    "baseline check": {0: "sound, and fits", 2: "not sound", 3: "of another node", 5: _RUN[5]},
    "baseline plan": {**_PLAIN, 0: "enough for the margin", 3: "more runs are needed"},
    "fleet run": _RUN,
    "fleet submit": _FLEET,
    "fleet resume": _FLEET,
    "fleet cancel": _FLEET,
    "fleet status": {
        **_FLEET,
        0: "all accepted",
        1: "any rejected",
        3: "open, or the scheduler did not do as asked",
    },
    "fleet gate": {**_FLEET, 0: "may take jobs", 1: "rejected", 3: "no valid verdict"},
    "fleet collect": {**_PLAIN, 4: "the campaign does not verify"},
    "fleet site": {**_PLAIN, 4: "the collection does not verify"},
    "fleet report": {**_PLAIN, 4: "the collection does not verify"},
}
"""What each exit code of a verb means; of one that is not here, `_PLAIN`."""


def exit_codes(verb: str) -> Iterator[tuple[str, str]]:
    """The exit codes of a verb by number, each with its meaning."""
    for code, meaning in sorted(EXIT_CODES.get(verb, _PLAIN).items()):
        yield str(code), meaning
