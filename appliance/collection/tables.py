"""The tables of a collection as Parquet, made by DuckDB from the ledger: derived, never edited.

Each table has its columns here, with what they mean; docs/reference/fleet-tables.md is written from
them. Rows stand in the order of nodes, so that the same ledger gives the same bytes.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from appliance import extras
from appliance.collection import outliers
from appliance.collection.outliers import Analysis, Series
from appliance.collection.standing import Fleet, Standing
from appliance.errors import OutputError
from appliance.storage.plain_files import Folder

FOLDER = "tables"
TESTED = "step_seconds"
"""The estimate by which nodes are compared, for every case."""
RACK = "rack"
MOST_LEVELS = 50
"""Versions of a component above which it explains nothing: each node has its own."""
MEMORY_LIMIT = "1GB"

Columns = Mapping[str, tuple[str, str]]
Row = tuple[Any, ...]

TABLES: Mapping[str, tuple[str, Columns]] = {
    "nodes": (
        "Every node of the campaign, once.",
        {
            "node": ("VARCHAR", "its name"),
            "rack": ("VARCHAR", "its rack in the inventory, empty where there is none"),
            "state": ("VARCHAR", "accepted, rejected or open"),
            "reason": ("VARCHAR", "why, in a sentence"),
            "num_attempts": ("INTEGER", "verified bundles that count"),
            "num_lost": ("INTEGER", "attempts that began on the node and have no bundle"),
            "decided_by": ("INTEGER", "number of the attempt that decided, null while open"),
            "run_id": ("VARCHAR", "the run whose figures stand for the node, null without one"),
        },
    ),
    "attempts": (
        "Every verified bundle that counts, those of failed attempts too.",
        {
            "node": ("VARCHAR", "whose challenge it was made under"),
            "number": ("INTEGER", "its place among the runs of the node, from 1"),
            "run_id": ("VARCHAR", "the run"),
            "created_utc": ("VARCHAR", "when it was planned, by the node's clock"),
            "seconds": ("DOUBLE", "from the plan to the last line of the journal"),
            "sessions": ("INTEGER", "parts of the run"),
            "verdict": ("VARCHAR", "derived again from the raw samples"),
            "is_decisive": ("BOOLEAN", "whether it may decide by the campaign's rule"),
            "signer": ("VARCHAR", "subject of the signer's certificate"),
            "role": ("VARCHAR", "what the signer is: tester, vendor, buyer or witness"),
            "bench_version": ("VARCHAR", "the release that made it"),
            "num_launches": ("INTEGER", "launches that were made"),
            "num_failed": ("INTEGER", "launches that crashed, hung or failed a check"),
            "failures": ("VARCHAR", "what kept it from being accepted, a line each"),
            "source": ("VARCHAR", "where the bundle lies"),
            "digest": ("VARCHAR", "sha256 of its report.dsse.json, or of the zip"),
            "statement": ("VARCHAR", "sha256 of its statement.dsse.json"),
            "num_bytes": ("BIGINT", "its size"),
        },
    ),
    "cases": (
        "Every case of every attempt.",
        {
            "node": ("VARCHAR", "the node"),
            "run_id": ("VARCHAR", "the run"),
            "case": ("VARCHAR", "the case with its device"),
            "name": ("VARCHAR", "the case without its device, by which nodes are compared"),
            "workload": ("VARCHAR", "the workload"),
            "device": ("VARCHAR", "the device, or the devices of a job"),
            "planned": ("INTEGER", "launches that were planned"),
            "completed": ("INTEGER", "launches that completed"),
            "failed_checks": ("INTEGER", "checks outside their bound"),
            "ruling": ("VARCHAR", "the worst ruling on it"),
            "withheld": ("VARCHAR", "why no time is shown, or empty"),
        },
    ),
    "metrics": (
        "Every estimate of every case of every attempt.",
        {
            "node": ("VARCHAR", "the node"),
            "run_id": ("VARCHAR", "the run"),
            "is_shown": ("BOOLEAN", "whether the run stands for the node"),
            "case": ("VARCHAR", "the case with its device"),
            "name": ("VARCHAR", "the case without its device"),
            "device": ("VARCHAR", "the device"),
            "metric": ("VARCHAR", "the estimate, as step_seconds"),
            "value": ("DOUBLE", "its value, in the unit"),
            "unit": ("VARCHAR", "its unit"),
            "low": ("DOUBLE", "lower end of its interval, or null"),
            "high": ("DOUBLE", "upper end of its interval, or null"),
            "count": ("INTEGER", "launches or steps that it is of"),
        },
    ),
    "devices": (
        "Every device of every attempt.",
        {
            "node": ("VARCHAR", "the node"),
            "run_id": ("VARCHAR", "the run"),
            "device": ("VARCHAR", "its name in the run"),
            "vendor": ("VARCHAR", "its vendor"),
            "model": ("VARCHAR", "its model"),
            "serial": ("VARCHAR", "its serial or UUID, null where it reports none"),
            "memory_bytes": ("BIGINT", "its memory, null where it reports none"),
        },
    ),
    "software": (
        "Versions of software and firmware, of the run that stands for each node.",
        {
            "node": ("VARCHAR", "the node"),
            "component": ("VARCHAR", "what it is a version of"),
            "version": ("VARCHAR", "the version as it was reported"),
        },
    ),
    "refusals": (
        "Every bundle that does not count, and why.",
        {
            "node": ("VARCHAR", "whose challenge it was made under, empty where of none"),
            "reason": (
                "VARCHAR",
                "unreadable, not_verified, foreign, double, other_node or unfinished",
            ),
            "sentence": ("VARCHAR", "why, in a sentence"),
            "source": ("VARCHAR", "where it lies"),
            "digest": ("VARCHAR", "sha256 of its last file, empty where there is none"),
            "num_bytes": ("BIGINT", "its size"),
        },
    ),
    "distributions": (
        "Every metric that nodes are compared by, with its fences.",
        {
            "name": ("VARCHAR", "the case without its device"),
            "count": ("INTEGER", "devices that have it"),
            "median": ("DOUBLE", "middle of the seconds of a step, after racks and versions"),
            "spread": ("DOUBLE", "robust standard deviation of ln(seconds)"),
            "low": (
                "DOUBLE",
                "lower fence, as a relative difference: -0.02 is 2 % faster; null below 5 devices",
            ),
            "high": ("DOUBLE", "upper fence, likewise"),
            "num_beyond": ("INTEGER", "devices beyond a fence"),
            "false_discoveries": ("DOUBLE", "rate of false discoveries that the fences hold"),
        },
    ),
    "deviations": (
        "Every device by every metric: how far it is from what its rack and versions explain.",
        {
            "node": ("VARCHAR", "the node"),
            "device": ("VARCHAR", "the device"),
            "name": ("VARCHAR", "the case without its device"),
            "seconds": ("DOUBLE", "its seconds of a step"),
            "effect": ("DOUBLE", "relative difference: 0.05 is 5 % slower"),
            "p": ("DOUBLE", "p of no difference, two-sided"),
            "adjusted_p": ("DOUBLE", "the same over all devices and metrics together"),
            "is_beyond": ("BOOLEAN", "whether it lies beyond a fence"),
        },
    ),
    "levels": (
        "Racks and versions whose devices differ as a group.",
        {
            "name": ("VARCHAR", "the case without its device"),
            "covariate": ("VARCHAR", "rack, or the component of the version"),
            "level": ("VARCHAR", "which rack or version"),
            "count": ("INTEGER", "devices that have it"),
            "effect": ("DOUBLE", "relative difference from all others: 0.04 is 4 % slower"),
            "adjusted_p": ("DOUBLE", "p of no difference, over all levels and metrics"),
            "same_devices": ("VARCHAR", "what has just the same devices, so may be the cause"),
        },
    ),
}


def write(folder: Path, fleet: Fleet) -> Analysis:
    """Make all tables under `folder`; UsageError without DuckDB, OutputError on a full disk."""
    extras.require("fleet", "collecting")
    analysis = outliers.analyse(series_of(fleet))
    rows: dict[str, list[Row]] = {
        "nodes": list(_nodes(fleet)),
        "attempts": list(_attempts(fleet)),
        "cases": list(_cases(fleet)),
        "metrics": list(_metrics(fleet)),
        "devices": list(_devices(fleet)),
        "software": list(_software(fleet)),
        "refusals": list(_refusals(fleet)),
        **analysis_rows(analysis),
    }
    store(folder / FOLDER, rows)
    return analysis


def store(folder: Path, rows: Mapping[str, Sequence[Row]]) -> None:
    """Write tables as Parquet files, each in the place of the old one once it is whole."""
    import duckdb  # noqa: PLC0415 - 70 MB, and of a part that others do without

    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (
            Folder.at(folder.parent) as above,
            above.inner(folder.name, make=True) as own,
            tempfile.TemporaryDirectory(dir=folder.parent, prefix=".tables-") as scratch,
            duckdb.connect(config=_settings(scratch)) as base,
        ):
            for table, (_, columns) in TABLES.items():
                lines = Path(scratch) / f"{table}.json"
                _write_lines(lines, list(columns), rows[table])
                made = Path(scratch) / f"{table}.parquet"
                base.execute(_copy(table, lines, made))
                lines.unlink()
                os.replace(made, made.name, dst_dir_fd=own.descriptor)
    except NotADirectoryError:
        raise OutputError(
            f"{folder} is a link or a file, where the tables' folder goes: remove it"
        ) from None
    except (OSError, duckdb.IOException) as error:
        reason = getattr(error, "strerror", None) or error
        raise OutputError(
            f"{folder} cannot be written ({reason}): make room or give write permission, and "
            "collect again"
        ) from None


def _settings(scratch: str) -> dict[str, Any]:
    """One thread, so that the same rows give the same bytes; nothing is fetched."""
    return {
        "threads": 1,
        "memory_limit": MEMORY_LIMIT,
        "temp_directory": scratch,
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }


def _write_lines(path: Path, columns: Sequence[str], rows: Sequence[Row]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            named = dict(zip(columns, map(_plain, row), strict=True))
            file.write(json.dumps(named, allow_nan=False))
            file.write("\n")


def _plain(value: Any) -> Any:
    """JSON has no infinity and no NaN: DuckDB reads them from their words."""
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value


def _copy(table: str, lines: Path, made: Path) -> str:
    columns = TABLES[table][1]
    if not lines.stat().st_size:
        empty = ", ".join(f'NULL::{kind} AS "{name}"' for name, (kind, _) in columns.items())
        source = f"SELECT {empty} WHERE false"
    else:
        kinds = ", ".join(f"\"{name}\": '{kind}'" for name, (kind, _) in columns.items())
        source = (
            f"SELECT * FROM read_json('{_quoted(lines)}', format='newline_delimited', "  # noqa: S608
            f"columns={{{kinds}}}, maximum_object_size=4194304)"
        )
    return f"COPY ({source}) TO '{_quoted(made)}' (FORMAT parquet, COMPRESSION zstd)"


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")


# ------------------------------------------------------------------ rows of the ledger


def _nodes(fleet: Fleet) -> Iterator[Row]:
    for one in fleet.standings:
        shown = one.shown
        yield (
            one.node.name,
            one.node.rack,
            one.state,
            one.reason,
            len(one.attempts),
            one.num_lost,
            one.decided_by,
            None if shown is None else shown.run.run_id,
        )


def _attempts(fleet: Fleet) -> Iterator[Row]:
    for one in fleet.standings:
        for attempt in one.attempts:
            run, entry = attempt.run, attempt.entry
            yield (
                one.node.name,
                attempt.number,
                run.run_id,
                run.created_utc,
                run.seconds,
                run.sessions,
                run.verdict,
                attempt.is_decisive,
                run.signer,
                run.role,
                run.bench_version,
                run.num_launches,
                run.num_failed,
                "\n".join(run.failures),
                entry.source,
                entry.digest,
                run.statement,
                entry.num_bytes,
            )


def _cases(fleet: Fleet) -> Iterator[Row]:
    for one in fleet.standings:
        for attempt in one.attempts:
            for case in attempt.run.cases:
                yield (
                    one.node.name,
                    attempt.run.run_id,
                    case.case,
                    case.name,
                    case.workload,
                    case.device,
                    case.planned,
                    case.completed,
                    case.failed_checks,
                    case.ruling,
                    case.withheld,
                )


def _metrics(fleet: Fleet) -> Iterator[Row]:
    for one in fleet.standings:
        for attempt in one.attempts:
            for metric in attempt.run.metrics:
                yield (
                    one.node.name,
                    attempt.run.run_id,
                    attempt is one.shown,
                    metric.case,
                    metric.name,
                    metric.device,
                    metric.metric,
                    metric.value,
                    metric.unit,
                    metric.low,
                    metric.high,
                    metric.count,
                )


def _devices(fleet: Fleet) -> Iterator[Row]:
    for one in fleet.standings:
        for attempt in one.attempts:
            for device in attempt.run.devices:
                yield (
                    one.node.name,
                    attempt.run.run_id,
                    device.device,
                    device.vendor,
                    device.model,
                    device.serial,
                    device.memory_bytes,
                )


def _software(fleet: Fleet) -> Iterator[Row]:
    for one in fleet.standings:
        if one.shown is not None:
            for component, version in sorted(one.shown.run.components.items()):
                yield one.node.name, component, version


def _refusals(fleet: Fleet) -> Iterator[Row]:
    for entry in fleet.refused:
        found = entry.finding
        yield (
            found.node,
            found.reason,
            found.sentence,
            entry.source,
            entry.digest,
            entry.num_bytes,
        )


# ------------------------------------------------------------------ outliers


def series_of(fleet: Fleet) -> list[Series]:
    """The times of a step by case, of the run that stands for each node, with what may explain."""
    components = _explaining(fleet)
    values: dict[str, list[tuple[str, float, Standing]]] = {}
    for one in fleet.standings:
        for metric in one.shown.run.metrics if one.shown else ():
            if metric.metric == TESTED and metric.value > 0 and np.isfinite(metric.value):
                unit = f"{one.node.name}@{metric.device}"
                values.setdefault(metric.name, []).append((unit, metric.value, one))
    return [
        Series(
            metric=name,
            units=tuple(unit for unit, _, _ in found),
            values=np.log([value for _, value, _ in found]),
            levels={
                RACK: tuple(one.node.rack for _, _, one in found),
                **{
                    component: tuple(_version(one, component) for _, _, one in found)
                    for component in components
                },
            },
        )
        for name, found in sorted(values.items())
    ]


def _explaining(fleet: Fleet) -> list[str]:
    """Components whose versions differ between nodes, of which there are few."""
    versions: dict[str, set[str]] = {}
    for one in fleet.standings:
        for component, version in one.shown.run.components.items() if one.shown else ():
            versions.setdefault(component, set()).add(version)
    return sorted(name for name, known in versions.items() if 1 < len(known) <= MOST_LEVELS)


def _version(standing: Standing, component: str) -> str:
    return standing.shown.run.components.get(component, "") if standing.shown else ""


def analysis_rows(analysis: Analysis) -> dict[str, list[Row]]:
    """The three tables of an analysis."""
    return {
        "distributions": [
            (
                one.series.metric,
                len(one.series.units),
                float(np.exp(one.middle)),
                float(one.spread),
                one.low,
                one.high,
                int(one.is_beyond.sum()),
                analysis.fences.false_discoveries,
            )
            for one in analysis.distributions
        ],
        "deviations": list(_deviations(analysis)),
        "levels": [
            (
                one.metric,
                one.covariate,
                one.level,
                one.num_units,
                one.effect,
                one.adjusted_p,
                ", ".join(one.same_units),
            )
            for one in analysis.levels
        ],
    }


def _deviations(analysis: Analysis) -> Iterator[Row]:
    for one in analysis.distributions:
        seconds = np.exp(one.series.values).tolist()
        columns = (seconds, one.effects.tolist(), one.p.tolist(), one.adjusted_p.tolist())
        for unit, beyond, *figures in zip(
            one.series.units, one.is_beyond.tolist(), *columns, strict=True
        ):
            node, _, device = unit.partition("@")
            yield (node, device, one.series.metric, *figures, beyond)
