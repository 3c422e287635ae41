"""A fleet of signed bundles made of one real run: re-seeded, jittered, and with faults planted.

Every node gets a run of its own that verifies: the challenge of its node, the order and the inputs
that its seed draws, serials and versions of its own, and times that are the real run's by a factor
of the node. What is planted is known, so that what is found can be counted. Nothing is claimed of
the speed of anything.

    python tests/support/synthetic_fleet.py BASE OUT --nodes 1000

BASE is the folder of a finished run of tests/suites/tiny.toml on processors. scripts/fleet_trial.py
makes a fleet, collects it and counts.
"""

from __future__ import annotations

import base64
import json
import random
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.serialization import Encoding
from support.bundles import pdf
from support.forger import Data, Forgery, forged

from appliance.challenge import campaign as campaigns
from appliance.challenge.campaign import Campaign, CampaignNode, FleetRisk, Launcher, RetestRule
from appliance.generator import drawing, maps
from appliance.generator.drawing import Drawn
from appliance.judging.verdict import interim_analysis
from appliance.planning import challenge_window
from appliance.planning.plan import case_seed, checked_launch, launch_groups
from appliance.records.journal import InterimAnalysis
from appliance.records.json import from_json, sha256, to_json
from appliance.records.plan import Plan
from appliance.signing import html_attachments, keys
from appliance.signing.keys import Key
from appliance.storage import bundle
from appliance.version import VERSION

WRONG = "sampled rows against float64"
NODE_SD = 0.005
SAMPLE_SD = 0.001
RACK_SIZE = 40
FLEET = 1.04
"""Of all times: a block of the real run may be just as long as its protocol asks, not shorter."""
SLOW, SLIGHTLY_SLOW, HOT, OTHER_DRIVER = 1.05, 1.03, 1.04, 1.02
DRIVER, OTHER = "570.86.15", "565.57.01"
NONCE = "5f" * 32
WINDOW = timedelta(days=2)
HASHED = "libraries_hashed"


@dataclass(frozen=True, kw_only=True)
class Planted:
    """What was planted, by the numbers of nodes; `hot` are racks."""

    num_nodes: int
    slow: tuple[int, ...]
    slightly_slow: tuple[int, ...]
    hot: tuple[int, ...]
    other_driver: tuple[int, ...]
    forged: tuple[int, ...]
    rack_size: int = RACK_SIZE

    def rack(self, number: int) -> int:
        return number // self.rack_size

    def factor(self, number: int) -> float:
        """By how much the node's times are longer than those of a healthy one."""
        planted = (
            (number in self.slow, SLOW),
            (number in self.slightly_slow, SLIGHTLY_SLOW),
            (self.rack(number) in self.hot, HOT),
            (number in self.other_driver, OTHER_DRIVER),
        )
        return float(np.prod([factor for is_so, factor in planted if is_so]))


def planted(num_nodes: int, seed: int = 0, *, rack_size: int = RACK_SIZE) -> Planted:
    """Of 10,000 nodes 50 slow by 5 %, 50 by 3 %, 20 of another driver, 30 forged; 3 hot racks.

    Of fewer nodes the same shares, but at least 5 of each. No node has two faults but for racks.
    """
    draw = random.Random(seed)  # noqa: S311 - a trial, not a secret
    numbers = draw.sample(range(num_nodes), num_nodes)

    def some(of_10000: int) -> tuple[int, ...]:
        count = min(of_10000, max(5, round(of_10000 * num_nodes / 10_000)))
        return tuple(sorted(numbers.pop() for _ in range(count)))

    return Planted(
        num_nodes=num_nodes,
        slow=some(50),
        slightly_slow=some(50),
        other_driver=some(20),
        forged=some(30),
        hot=tuple(sorted(draw.sample(range(-(-num_nodes // rack_size)), 3))),
        rack_size=rack_size,
    )


def node_name(number: int) -> str:
    return f"node-{number:05d}"


def campaign_of(base: Path, faults: Planted) -> Campaign:
    """A campaign of these nodes for the suite and criteria of the base run, with their serials."""
    plan = json.loads((base / bundle.PLAN).read_text())
    names = [node_name(number) for number in range(faults.num_nodes)]
    nodes = [
        CampaignNode(
            name=name,
            rack=f"rack-{faults.rack(number):03d}",
            serial=None,
            devices=(f"SN-{name}",),
            order=None,
            nonce=campaigns.node_nonce(NONCE, name),
        )
        for number, name in enumerate(names)
    ]
    return campaign_with(
        nodes,
        name="synthetic",
        created=datetime.fromisoformat(plan["created_utc"]) - WINDOW,
        suite=(plan["suite"], plan["digests"]["suite"]),
        criteria=(plan["criteria"], plan["digests"]["criteria"]),
    )


def campaign_with(
    nodes: Sequence[CampaignNode],
    *,
    name: str,
    created: datetime,
    suite: tuple[str, str],
    criteria: tuple[str, str],
    retests: int = 1,
) -> Campaign:
    """A campaign of these nodes; suite and criteria are names with their digests."""
    return Campaign(
        name=name,
        created_utc=f"{created:%Y-%m-%dT%H:%M:%SZ}",
        not_after_utc=f"{created + 2 * WINDOW:%Y-%m-%dT%H:%M:%SZ}",
        nonce=NONCE,
        bench_version=VERSION,
        suite=suite[0],
        suite_digest=suite[1],
        criteria=criteria[0],
        criteria_digest=criteria[1],
        order_digest=None,
        sessions=1,
        pause="",
        concurrency=100,
        minutes=60,
        reservation="",
        partition="",
        retries=1,
        retest=RetestRule(retests=retests, sessions=1),
        risk=FleetRisk(
            num_nodes=len(nodes),
            rejection=0.01,
            expected=0.01 * len(nodes),
            after_retests=0.0001,
            expected_after=0.0001 * len(nodes),
            acceptance=0.05,
            most_expected=None,
        ),
        launcher=Launcher(
            kind="bench", program="bench", image="", vendor="", data="", key="", certificate=""
        ),
        nodes=tuple(nodes),
    )


# ------------------------------------------------------------------ one node's run


@dataclass(frozen=True, kw_only=True)
class Base:
    """The real run, read once."""

    folder: Path
    plan: Plan
    lines: tuple[Data, ...]
    files: Mapping[str, bytes] = field(repr=False)

    @classmethod
    def read(cls, folder: Path) -> Base:
        forgery = forged(folder)
        plan = from_json(Plan, forgery.files[bundle.PLAN], name=bundle.PLAN)
        return cls(folder=folder, plan=plan, lines=tuple(forgery.lines), files=dict(forgery.files))


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What makes a node's run its own; `factor` is of its times."""

    factor: float = 1.0
    driver: str = DRIVER
    serial: str = ""
    failed_check: bool = False
    run: int = 0


def make(base: Base, campaign: Campaign, number: int, key: Key, changes: Changes) -> Forgery:
    """A run of the node that keeps every rule of `bench verify`, not yet sealed."""
    node = campaign.nodes[number]
    draw = np.random.default_rng([number, changes.run])
    challenge = campaigns.challenge_of(campaign, node)
    seed = challenge_window.run_seed(challenge_window.parse(challenge))
    plan, renamed = _seeded(base.plan, seed)
    suffix = f"{number:04x}{changes.run:02x}"[-6:]
    plan = replace(plan, run_id=f"{plan.run_id.rpartition('-')[0]}-{suffix}")
    files = {**base.files, bundle.PLAN: to_json(plan), bundle.CHALLENGE: challenge}
    forgery = Forgery(files=files, key=key, lines=_reordered(base, plan, renamed))
    with forgery.record(bundle.SYSTEM) as system:
        _own_hardware(system, node.name, changes)
    with forgery.plan() as values:
        values["digests"]["challenge"] = sha256(challenge)
    _redraw(forgery, plan, seed)
    _scale(forgery, changes.factor, draw)
    for event in forgery.events("run_started"):
        event["run_id"] = plan.run_id
    if changes.failed_check:
        _fail(forgery)
    return forgery


def _seeded(plan: Plan, seed: str) -> tuple[Plan, dict[str, str]]:
    """The plan with what its seed draws, and under which names its launches go on."""
    renamed: dict[str, str] = {}
    cases = []
    for case in plan.cases:
        name = case.id.partition("@")[0]
        checked = checked_launch(plan.protocol, name, case.launches, seed, plan.sessions)
        first, second = f"{case.id}/{case.checked_launch}", f"{case.id}/{checked}"
        renamed |= {first: second, second: first}
        cases.append(replace(case, checked_launch=checked))
    groups = launch_groups(cases, plan.launches, seed)
    return replace(plan, seed=seed, cases=tuple(cases), groups=groups), renamed


def _reordered(base: Base, plan: Plan, renamed: Mapping[str, str]) -> list[Data]:
    """The journal's lines in the plan's order of launches, as far apart as they were."""
    lines = [json.loads(json.dumps(line)) for line in base.lines]
    begin = int(lines[0]["monotonic_ns"])
    for line, before in reversed(list(zip(lines[1:], lines[:-1], strict=True))):
        line["after"] = int(line["monotonic_ns"]) - int(before["monotonic_ns"])
    parts = _parts(lines, renamed)
    order = [launch for group in plan.groups for launch in group]
    timed = next(n for n, name in enumerate(order) if re.search(r"/[1-9][0-9]*$", name))
    order.insert(timed, HASHED)  # due before anything is timed
    made = [*parts[""], *(line for launch in order for line in parts[launch]), *parts["end"]]
    utc, monotonic = datetime.fromisoformat(made[0]["utc"]), begin
    for line in made:
        gap = int(line.pop("after", 0))
        monotonic += gap
        utc += timedelta(microseconds=gap / 1000)
        line["monotonic_ns"] = str(monotonic)
        line["utc"] = f"{utc:%Y-%m-%dT%H:%M:%S}.{utc.microsecond // 1000:03d}Z"
    return made


def _parts(lines: Sequence[Data], renamed: Mapping[str, str]) -> dict[str, list[Data]]:
    """Lines by the launch that they are of, by its new name; "" before all, "end" after all.

    What was hashed of libraries stands apart.
    """
    parts: dict[str, list[Data]] = {"": [], "end": [], HASHED: []}
    last = max(index for index, line in enumerate(lines) if line["event"].get("launch"))
    for index, line in enumerate(lines):
        event = line["event"]
        launch = event.get("launch", "")
        if launch:
            event["launch"] = launch = renamed.get(launch, launch)
        where = launch or ("end" if index > last else "")
        where = HASHED if event["kind"] == HASHED else where
        parts.setdefault(where, []).append(line)
    return parts


def _own_hardware(system: Data, name: str, changes: Changes) -> None:
    def fact(value: str) -> Data:
        return {"value": value, "unit": "", "source": "synthetic", "hint": ""}

    for device in system["identity"]["devices"]:
        device["serial"] = changes.serial or f"SN-{name}"
        device["facts"]["driver"] = fact(changes.driver)
    system["conditions"]["facts"]["hostname"]["value"] = name


def _redraw(forgery: Forgery, plan: Plan, seed: str) -> None:
    """The sums of the inputs that the new seed draws."""
    cases = {one.id: next(c for c in plan.cases if c.id == one.case) for one in plan.launches}
    sums: dict[Drawn, str] = {}
    for event in forgery.events("inputs_drawn"):
        of_case = case_seed(seed, cases[event["launch"]])
        for one in event["inputs"]:
            values = maps.parse(one["values"])
            drawn = Drawn(of_case, one["name"], values, one["dtype"], tuple(one["shape"]))
            if drawn not in sums:
                sums[drawn] = str(drawing.checksum(drawn))
            one["checksum"] = sums[drawn]


def _scale(forgery: Forgery, factor: float, draw: np.random.Generator) -> None:
    """Every timed step by the node's factor, with noise of its own; the lines after it move on."""
    node = FLEET * factor * float(np.exp(NODE_SD * draw.standard_normal()))
    moved = 0
    for line in forgery.lines:
        event = line["event"]
        if event["kind"] == "block":
            steps = np.array([int(value) for value in event["wall_ns"]], dtype=np.float64)
            noise = np.exp(SAMPLE_SD * draw.standard_normal(len(steps)))
            scaled = [int(value) for value in steps * node * noise]
            more = sum(scaled) - int(steps.sum())
            event["wall_ns"] = [str(value) for value in scaled]
            for name in ("block_wall_ns", "block_raw_ns"):
                event[name] = str(int(event[name]) + more)
            moved += max(0, more)
        line["monotonic_ns"] = str(int(line["monotonic_ns"]) + moved)


def _fail(forgery: Forgery) -> None:
    """A product beyond its bound in the last launch, so that its analysis rejects the run."""
    wrong = [
        event
        for event in forgery.events("checked")
        if event["phase"] == "first" and event["check"]["name"] == WRONG
    ][-1]
    wrong["check"]["error"] = 2 * wrong["check"]["bound"]
    forgery.mend()
    read = bundle.read_files({**forgery.files}, complete=False)
    case = wrong["launch"].partition("/")[0]
    for number, line in enumerate(read.lines):
        if isinstance(line.event, InterimAnalysis) and line.event.case == case:
            is_decided, reason = interim_analysis(
                plan=read.plan,
                criteria=read.criteria,
                baselines=read.baselines,
                peaks=read.peaks,
                qualified=read.qualified,
                system=read.system,
                lines=read.lines[:number],
                case=case,
            )
            forgery.lines[number]["event"] |= {"is_decided": is_decided, "reason": reason}


# ------------------------------------------------------------------ sealing and writing


def sealed(forgery: Forgery, folder: Path) -> Path:
    """The whole bundle, its page with packed files as a report has them."""
    forgery.mend()
    files = forgery.files
    files[bundle.SIGNER] = to_json(keys.signer_record(forgery.key, "tester"))
    files[bundle.VERDICT] = _judged(files)
    read = bundle.read_files(files, complete=False)
    files[bundle.STATEMENT] = keys.sign_data(read, forgery.key)
    carried = dict(files)
    files[bundle.HTML] = _page(carried)
    files[bundle.PDF] = keys.sign_pdf(pdf(carried), forgery.key)
    pages = (bundle.STATEMENT, *bundle.RENDERINGS)
    digests = {name: sha256(files[name]) for name in pages}
    files[bundle.REPORT] = keys.sign_report(read, digests, forgery.key)
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def _judged(files: Mapping[str, bytes]) -> bytes:
    from support.forger import judged  # noqa: PLC0415 - beside its only other user

    return judged(files)


def _page(carried: Mapping[str, bytes]) -> bytes:
    links = []
    for name, data in sorted(carried.items()):
        is_it = name == bundle.STATEMENT
        mark = 'id="bench-proof"' if is_it else 'class="bench-data"'
        kind = "application/vnd.dsse.envelope.v1+json" if is_it else "application/octet-stream"
        shown, content = name, data
        if not is_it and len(data) >= html_attachments.LEAST_BYTES:
            shown, content = f"{name}{html_attachments.SUFFIX}", html_attachments.packed(data)
            kind = html_attachments.GZIP
        text = base64.b64encode(content).decode()
        links.append(f'<a {mark} download="{shown}" href="data:{kind};base64,{text}">{shown}</a>')
    title = "<title>Report</title>"
    return html_attachments.HEAD + "\n".join([title, *links]).encode()


def write_campaign(folder: Path, campaign: Campaign, key: Key, suite: Path, base: Base) -> Path:
    """The campaign's folder as `bench fleet plan` leaves it, but for the folders of nodes.

    One that is there stays: a collection goes on under its digest, which each signing changes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / campaigns.FILE
    if not file.exists() or campaigns.read(file.read_bytes(), key.certificate) != campaign:
        file.write_bytes(campaigns.write(campaign, key))
    pem = key.certificate.public_bytes(Encoding.PEM)
    (folder / "certificate.pem").write_bytes(pem)
    shutil.copyfile(suite, folder / "suite.toml")
    (folder / "criteria.toml").write_bytes(base.files["criteria.toml"])
    return folder


def write_node(
    base: Base, campaign: Campaign, faults: Planted, number: int, *, key: Key, folder: Path
) -> str:
    """Write what the node hands in, and say what it is: sound, forged or doubled.

    Of the forged numbers every third hands in a copy of its neighbour's bundle beside its own,
    every third one whose journal was changed after it was signed, every third one with the serial
    of its neighbour's device.
    """
    place = folder / node_name(number) / "runs"
    driver = OTHER if number in faults.other_driver else DRIVER
    changes = Changes(factor=faults.factor(number), driver=driver)
    if number not in faults.forged:
        sealed(make(base, campaign, number, key, changes), place / "run")
        return "sound"
    kind = ("doubled", "changed", "of another node")[faults.forged.index(number) % 3]
    if kind == "of another node":
        other = node_name((number + 1) % faults.num_nodes)
        changes = replace(changes, serial=f"SN-{other}")
    made = sealed(make(base, campaign, number, key, changes), place / "run")
    if kind == "doubled":
        shutil.copytree(made, folder / f"z-{node_name(number)}" / "runs" / "run")
    elif kind == "changed":
        journal = made / bundle.JOURNAL
        journal.write_bytes(journal.read_bytes().replace(b'"completed"', b'"Completed"', 1))
    return kind


def write_fleet(
    base: Base, campaign: Campaign, faults: Planted, key: Key, folder: Path
) -> Iterator[tuple[int, str]]:
    """Write every node's bundle; numbers with what each handed in, as they are done."""
    for number in range(faults.num_nodes):
        yield number, write_node(base, campaign, faults, number, key=key, folder=folder)
