"""The pages of a fleet as names and the values that their templates show; no file is touched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.collection.outliers import FEWEST
from appliance.collection.tables import RACK
from reports.fleet import drawings
from reports.fleet.answers import Answers, Record, Records
from reports.fleet.drawings import Fences
from reports.fleet.figures import NONE, SHAPES, STATES, duration, percent, place, shade, slug, word

LIST = 400
"""Rows of one list of nodes; further ones have pages of their own."""
MOST_ROWS = 1000
"""Rows of any other table on a page; the downloads have all."""
MOST_TILES = 2000
FEW_TILES = 80
"""Racks whose tiles have room for all numbers; of more, a tile has those that are not as usual."""
FEW = 25


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page: its path in the site, its template, and what that shows."""

    path: str
    template: str
    values: dict[str, Any]


def pages(answers: Answers, site: Path) -> Iterator[Page]:
    """Every page of the site."""
    yield _overview(answers)
    yield from _racks(answers)
    yield from _nodes(answers, site)
    yield from _metrics(answers)
    yield _inventory(answers)
    yield _refused(answers)


def _page(path: str, template: str, title: str, **values: Any) -> Page:
    up = "../" * path.count("/")
    return Page(path=path, template=template, values={"title": title, "up": up, **values})


# ------------------------------------------------------------------ overview


def _overview(answers: Answers) -> Page:
    return _page(
        "index.html",
        "overview.html",
        "Overview",
        states=[(state, SHAPES[state], answers.count(state)) for state in STATES],
        num_nodes=len(answers.of("nodes")),
        tiles=_tiles(answers),
        few_tiles=FEW_TILES,
        num_racks=len(answers.of("racks")),
        levels=levels(answers),
        metrics=metrics(answers),
        beyond=beyond(answers, FEW),
        num_beyond=num_beyond(answers),
        **tests(answers),
        num_refused=len(answers.of("refusals")),
        num_attempts=len(answers.of("attempts")),
        terms=terms(answers),
        not_accepted=not_accepted(answers, FEW),
    )


def terms(answers: Answers) -> str:
    """By what and when nodes were accepted; empty for a collection of bench 0.9 and before."""
    stated = answers.stated
    if "suite" not in stated:
        return ""
    return (
        f"Suite {word(stated['suite'])}, criteria {word(stated['criteria'])}; planned "
        f"{stated['planned_utc']}, open until {stated['not_after_utc']}."
    )


def tests(answers: Answers) -> dict[str, Any]:
    """Metrics whose devices are not tested for outliers, how many are, and the fewest devices."""
    lines = answers.of("distributions")
    untested = [word(one["name"]) for one in lines if one["low"] is None]
    return {
        "untested": listed(untested),
        "num_tested": len(lines) - len(untested),
        "fewest": FEWEST,
    }


def listed(names: Sequence[str]) -> list[str]:
    """The first of many names, and how many more there are."""
    more = len(names) - FEW
    return [*names[:FEW], *([f"{more} more"] if more > 0 else [])]


def num_beyond(answers: Answers) -> int:
    """Nodes with a device beyond a fence."""
    return len({one["node"] for one in answers.of("beyond")})


def not_accepted(answers: Answers, most: int) -> Records:
    """The first nodes that are rejected, then those that are open."""
    rest = [one for one in answers.of("nodes") if one["state"] != "accepted"]
    ordered = sorted(rest, key=lambda one: one["state"] != "rejected")
    refused = answers.grouped("refusals", "node")
    return [
        {
            **one,
            "shape": SHAPES[one["state"]],
            "reason": _why(one["reason"], len(refused.get(one["node"], []))),
        }
        for one in ordered[:most]
    ]


def _why(reason: str, num_refused: int) -> str:
    """Why a node is not accepted, and how many bundles of it did not count."""
    noun = "bundle does" if num_refused == 1 else "bundles do"
    return f"{reason}; {num_refused} {noun} not count" if num_refused else reason


def _found_racks(answers: Answers) -> set[str]:
    return {one["level"] for one in answers.of("levels") if one["covariate"] == RACK}


def _tiles(answers: Answers) -> Records:
    found = _found_racks(answers)
    return [
        {
            "name": word(one["rack"] or "no rack"),
            "path": _rack_path(one["rack"]),
            "shade": shade(one["difference"]),
            "difference": percent(one["difference"]) if one["difference"] is not None else "",
            "accepted": one["accepted"],
            "num_nodes": one["num_nodes"],
            "rejected": one["rejected"],
            "is_found": one["rack"] in found,
        }
        for one in answers.of("racks")[:MOST_TILES]
    ]


def levels(answers: Answers) -> Records:
    """Racks and versions that differ as groups, one line each with its metrics together."""
    groups: dict[tuple[str, str], Records] = {}
    for one in answers.of("levels"):
        groups.setdefault((one["covariate"], one["level"]), []).append(one)
    return [
        {
            "covariate": word(covariate),
            "level": word(level),
            "path": _level_path(covariate, level),
            "count": max(one["count"] for one in group),
            "effects": ", ".join(
                f"{word(one['name'])} {percent(one['effect'])}"
                for one in sorted(group, key=lambda one: str(one["name"]))
            ),
            "same": word("; ".join(sorted({one["same_devices"] for one in group} - {""}))),
        }
        for (covariate, level), group in groups.items()
    ]


def _level_path(covariate: str, level: str) -> str:
    """The page that says more of a rack or a version."""
    return _rack_path(level) if covariate == RACK else "inventory.html"


def metrics(answers: Answers) -> Records:
    """Every metric, as a line of a table."""
    return [
        {
            "name": word(one["name"]),
            "path": f"metrics/{slug(one['name'])}.html",
            "count": one["count"],
            "median": duration(one["median"]),
            "median_seconds": one["median"],
            "spread": f"{one['spread'] * 100:.2f} %",
            "low": _fence(one["low"]),
            "high": _fence(one["high"]),
            "num_beyond": one["num_beyond"],
            "risk": f"{one['false_discoveries'] * 100:g} %",
        }
        for one in answers.of("distributions")
    ]


def _fence(value: float | None) -> str:
    return "none" if value is None else percent(value)


def beyond(answers: Answers, most: int) -> Records:
    """The first devices beyond a fence, the farthest first."""
    return [_beyond(one) for one in answers.of("beyond")[:most]]


def _beyond(one: Record) -> Record:
    return {
        "node": one["node"],
        "rack": word(one["rack"]),
        "device": word(one["device"]),
        "name": word(one["name"]),
        "path": f"metrics/{slug(one['name'])}.html",
        "seconds": duration(one["seconds"]),
        "value": one["seconds"],
        "effect": percent(one["effect"]),
        "is_slow": one["effect"] > 0,
        "q": f"{one['adjusted_p']:.2g}",
        "state": one["state"],
        "shape": SHAPES[one["state"]],
    }


# ------------------------------------------------------------------ racks


def _racks(answers: Answers) -> Iterator[Page]:
    found = answers.grouped("levels", "level")
    for rack, nodes in answers.grouped("nodes", "rack").items():
        parts = [nodes[begin : begin + LIST] for begin in range(0, len(nodes), LIST)]
        paths = [_rack_path(rack, number) for number in range(len(parts))]
        own = [one for one in found.get(rack, []) if one["covariate"] == RACK]
        for path, part in zip(paths, parts, strict=True):
            yield _page(
                path,
                "rack.html",
                f"Rack {word(rack)}" if rack else "Nodes without a rack",
                nodes=[_node_line(one) for one in part],
                others=[(number, other) for number, other in enumerate(paths, 1) if other != path],
                count=len(nodes),
                findings=[f"{word(one['name'])} {percent(one['effect'])}" for one in own],
            )


def _rack_path(rack: str, number: int = 0) -> str:
    """The page of a rack, or that part of it; nodes without a rack have one that no name has."""
    return f"racks/{slug(rack) if rack else '_none'}{f'--{number + 1}' if number else ''}.html"


def _node_line(one: Record) -> Record:
    return {
        **one,
        "shape": SHAPES[one["state"]],
        "effect": "" if one["effect"] is None else percent(one["effect"]),
    }


# ------------------------------------------------------------------ nodes


def _nodes(answers: Answers, site: Path) -> Iterator[Page]:
    attempts = answers.grouped("attempts", "node")
    cases = answers.grouped("cases", "node")
    devices = answers.grouped("devices", "node")
    deviations = answers.grouped("deviations", "node")
    refused = answers.grouped("refusals", "node")
    differing = answers.grouped("differing", "node")
    versions = _differing_groups(answers)
    lines = {one["name"]: one for one in answers.of("distributions")}
    for one in answers.of("nodes"):
        name, path = one["node"], f"nodes/{one['node']}.html"
        yield _page(
            path,
            "node.html",
            name,
            node=_node_line(one),
            rack=word(one["rack"] or "none"),
            rack_path=_rack_path(one["rack"]),
            attempts=[_attempt(item, site / path) for item in attempts.get(name, [])],
            groups=[
                *versions.get((RACK, one["rack"]), []),
                *(
                    text
                    for item in differing.get(name, [])
                    for text in versions.get((item["component"], item["version"]), [])
                ),
            ],
            metrics=[_deviation(item, lines[item["name"]]) for item in deviations.get(name, [])],
            untested=listed(
                sorted(
                    {
                        word(item["name"])
                        for item in deviations.get(name, [])
                        if lines[item["name"]]["low"] is None
                    }
                )
            ),
            fewest=FEWEST,
            cases=[_case(item) for item in cases.get(name, [])],
            devices=[_device(item) for item in devices.get(name, [])],
            differing=[_differing(item) for item in differing.get(name, [])],
            refused=[refusal(item) for item in refused.get(name, [])],
        )


def _differing_groups(answers: Answers) -> dict[tuple[str, str], list[str]]:
    """Sentences on each level that differs as a group, by its covariate and name."""
    return {
        (one["covariate"], one["level"]): [
            f"{line['covariate']} {line['level']} ({line['effects']})"
        ]
        for line in levels(answers)
        for one in answers.of("levels")
        if (word(one["covariate"]), word(one["level"])) == (line["covariate"], line["level"])
    }


def _attempt(one: Record, page: Path) -> Record:
    link = place(one["source"], page)
    is_folder = link is not None and not link.endswith(".zip")
    return {
        "number": one["number"],
        "run_id": word(one["run_id"]),
        "created": word(one["created_utc"]),
        "verdict": one["verdict"],
        "is_decisive": one["is_decisive"],
        "signer": word(one["signer"]),
        "failures": [word(line) for line in one["failures"].splitlines()],
        "digest": one["digest"],
        "source": word(one["source"]),
        "report": f"{link}/report.html" if is_folder else None,
        "pdf": f"{link}/report.pdf" if is_folder else None,
        "bundle": link,
    }


def _deviation(one: Record, line: Record) -> Record:
    """One device by one case; `line` is of the case over the fleet."""
    low, high = _fence(line["low"]), _fence(line["high"])
    is_slow = one["effect"] > 0
    return {
        "name": word(one["name"]),
        "path": f"metrics/{slug(one['name'])}.html",
        "device": word(one["device"]),
        "seconds": duration(one["seconds"]),
        "effect": percent(one["effect"]),
        "q": f"{one['adjusted_p']:.2g}",
        "is_beyond": one["is_beyond"],
        "is_tested": line["low"] is not None,
        "low": low,
        "high": high,
        "fence": high if is_slow else low,
        "median": duration(line["median"]),
        "median_seconds": line["median"],
        "value": one["seconds"],
        "word": "slower" if is_slow else "faster",
    }


def _case(one: Record) -> Record:
    return {
        "case": word(one["case"]),
        "launches": f"{one['completed']} of {one['planned']}",
        "failed_checks": one["failed_checks"],
        "ruling": one["ruling"].replace("_", " ") or "not ruled",
        "withheld": word(one["withheld"]) if one["withheld"] else "",
    }


def _device(one: Record) -> Record:
    memory = one["memory_bytes"]
    return {
        "device": word(one["device"]),
        "model": word(one["model"]),
        "serial": word(one["serial"]),
        "memory": NONE if memory is None else f"{memory / 2**30:.1f} GiB",
    }


def _differing(one: Record) -> Record:
    return {name: word(one[name]) for name in ("node", "component", "version", "most_have")}


def refusal(one: Record) -> Record:
    """A bundle that does not count, as a line of a table."""
    return {
        "node": one["node"],
        "reason": one["reason"].replace("_", " "),
        "sentence": word(one["sentence"]),
        "source": word(one["source"]),
    }


# ------------------------------------------------------------------ metrics


def _metrics(answers: Answers) -> Iterator[Page]:
    deviations = answers.grouped("deviations", "name")
    found = answers.grouped("levels", "name")
    beyond_by_name = answers.grouped("beyond", "name")
    lines = metrics(answers)
    for one, line in zip(answers.of("distributions"), lines, strict=True):
        own = deviations.get(one["name"], [])
        marked = beyond_by_name.get(one["name"], [])
        findings = found.get(one["name"], [])
        yield _page(
            f"metrics/{slug(one['name'])}.html",
            "metric.html",
            f"Step time of {word(one['name'])}",
            metric=line,
            fewest=FEWEST,
            histogram=drawings.histogram(
                [item["effect"] for item in own],
                [item["is_beyond"] for item in own],
                None if one["low"] is None else Fences(low=one["low"], high=one["high"]),
            ),
            racks=drawings.racks(_rack_middles(own, findings)),
            levels=[
                {
                    "covariate": word(item["covariate"]),
                    "level": word(item["level"]),
                    "path": _level_path(item["covariate"], item["level"]),
                    "count": item["count"],
                    "effect": percent(item["effect"]),
                    "q": f"{item['adjusted_p']:.2g}",
                    "same": word(item["same_devices"]) if item["same_devices"] else "",
                }
                for item in findings
            ],
            beyond=[_beyond(item) for item in marked[:MOST_ROWS]],
            num_beyond=len(marked),
        )


def _rack_middles(own: Records, findings: Records) -> list[tuple[str, float, bool]]:
    """Each rack with the difference of its median from the fleet's."""
    import numpy as np  # noqa: PLC0415 - the pages of lists do without

    hot = {item["level"] for item in findings if item["covariate"] == RACK}
    values: dict[str, list[float]] = {}
    for item in own:
        values.setdefault(item["rack"], []).append(item["seconds"])
    middle = float(np.median([item["seconds"] for item in own])) if own else 1.0
    return [
        (word(rack or "no rack"), float(np.median(values[rack])) / middle - 1, rack in hot)
        for rack in sorted(values)
    ]


# ------------------------------------------------------------------ inventory, refusals


def _inventory(answers: Answers) -> Page:
    components: dict[str, Records] = {}
    for one in answers.of("inventory"):
        components.setdefault(one["component"], []).append(one)
    differing = answers.of("differing")
    return _page(
        "inventory.html",
        "inventory.html",
        "Software and firmware",
        components=[
            {
                "component": word(name),
                "versions": [
                    {"version": word(one["version"]), "num_nodes": one["num_nodes"]}
                    for one in versions[:FEW]
                ],
                "more": max(0, len(versions) - FEW),
            }
            for name, versions in sorted(components.items(), key=lambda item: -len(item[1]))
        ],
        differing=[_differing(one) for one in differing[:MOST_ROWS]],
        num_differing=len(differing),
    )


def _refused(answers: Answers) -> Page:
    refusals = answers.of("refusals")
    return _page(
        "refused.html",
        "refused.html",
        "Bundles that do not count",
        refusals=[refusal(one) for one in refusals[:MOST_ROWS]],
        num_refused=len(refusals),
    )
