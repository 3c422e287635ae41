"""The verbs `baseline create`, `baseline check` and `baseline plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from appliance.cli.options import JsonOption, TrustOptions, grouped
from appliance.cli.output import print_json, say
from appliance.errors import UsageError
from appliance.verbs.run_options import VendorOption


@grouped
def create(
    *,
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Folders of signed runs, out/<run id>.")
    ],
    out: Annotated[Path, typer.Option(help="File to write, for --baseline of a run.")],
    kind: Annotated[
        str, typer.Option(help="same-device: each device for itself; population: one of all.")
    ] = "same-device",
    criteria: Annotated[
        Path | None, typer.Option(help="Also write criteria with the smallest margins here.")
    ] = None,
    trusted: TrustOptions,
    as_json: JsonOption = False,
) -> None:
    """Make baselines of signed runs that are comparable with one another."""
    from appliance.storage.toml_file import did_you_mean
    from appliance.verbs.baselines import create as baseline

    if kind not in baseline.KINDS:
        raise UsageError(f'there is no kind "{kind}"{did_you_mean(kind, baseline.KINDS)}')
    created = baseline.create(
        folders,
        kind=baseline.KINDS[kind],
        trusted=trusted.certificates(),
        allow_development=trusted.allow_dev,
    )
    baseline.write(created, out, criteria)
    if as_json:
        files = {"file": str(out), "criteria": None if criteria is None else str(criteria)}
        print_json(files | baseline.to_document(created))
        return
    for sentence in baseline.report(created, out, criteria):
        say(sentence)


def check(
    *,
    file: Annotated[Path, typer.Argument(help="File of `bench baseline create`.")],
    criteria: Annotated[
        str | None, typer.Option(help="Criteria whose margins it must carry.")
    ] = None,
    sessions: Annotated[
        int, typer.Option(help="Sessions of the runs that are judged by it.", min=1)
    ] = 1,
    vendor: VendorOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say whether a file of baselines is sound, and can be compared with on this node."""
    from appliance.probe import node
    from appliance.records.json import to_data
    from appliance.runner import describing
    from appliance.storage import criteria_file
    from appliance.verbs.baselines import check as baseline_check

    baselines = baseline_check.load(file)
    parsed = None if criteria is None else criteria_file.load_criteria(criteria)[0]
    answer = describing.describe(baseline_check.requests(baselines))
    result = baseline_check.check(
        file,
        baselines,
        system=node.probe((node.present(vendor),), software=describing.software()),
        answer=answer,
        criteria=parsed,
        sessions=sessions,
    )
    if as_json:
        print_json(to_data(result))
    for number, finding in enumerate(() if as_json else result.findings, 1):
        say(f"{number} {finding.status:8} {finding.name}: {finding.sentence}")
    raise typer.Exit(result.exit_code)


def plan(
    *,
    file: Annotated[Path, typer.Argument(help="File of `bench baseline create`.")],
    margin: Annotated[
        float, typer.Option(help="Margin that it is to carry, like 0.03.", min=0.0, max=1.0)
    ] = 0.03,
    sessions: Annotated[
        int, typer.Option(help="Sessions of the runs that are judged by it.", min=1)
    ] = 1,
    as_json: JsonOption = False,
) -> None:
    """Say what margin a baseline carries, and how many runs on how many days it lacks."""
    from appliance.records.json import to_data
    from appliance.verbs.baselines import check as baseline_check
    from appliance.verbs.baselines import plan as baseline_plan

    plans = baseline_plan.plan(baseline_check.load(file), margin=margin, sessions=sessions)
    if as_json:
        print_json([to_data(one) for one in plans])
    for sentence in () if as_json else baseline_plan.report(plans):
        say(sentence)
    raise typer.Exit(0 if all(one.is_enough for one in plans) else 3)
