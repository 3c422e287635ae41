"""Makes a synthetic fleet of signed bundles, collects and shows it, and counts what was found.

    scripts/fleet_trial.py RUN FOLDER [--nodes 1000] [--seeds 20]

RUN is the folder of a finished run of tests/suites/tiny.toml on processors. It prints the planted
and the found as a table, the seconds of each part, and over further seeds (numbers alone, without
bundles) the rates of slow nodes found and of false discoveries.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support import fleet_tables, synthetic_fleet  # noqa: E402 - the script runs uninstalled
from support.synthetic_fleet import Base, Planted, node_name  # noqa: E402 - the same

from appliance.challenge.campaign import Campaign  # noqa: E402 - the same
from appliance.collection import collect, queries, tables  # noqa: E402 - the same
from appliance.collection.outliers import analyse  # noqa: E402 - the same
from appliance.signing import keys  # noqa: E402 - the same
from appliance.signing.keys import Key  # noqa: E402 - the same
from reports.fleet import site as sites  # noqa: E402 - the same

SUITE = ROOT / "tests" / "suites" / "tiny.toml"


@dataclass(frozen=True, kw_only=True)
class Maker:
    """What every bundle is made of, and where they go; a folder is moved there once it is whole."""

    base: Base
    campaign: Campaign
    faults: Planted
    key: Key
    nodes: Path
    unfinished: Path

    def missing(self) -> list[int]:
        """Numbers of the nodes that have handed in nothing yet."""
        numbers = range(self.faults.num_nodes)
        return [number for number in numbers if not (self.nodes / node_name(number)).exists()]

    def write(self, number: int) -> None:
        """Write what one node hands in."""
        place, own = self.unfinished / str(number), node_name(number)
        shutil.rmtree(place, ignore_errors=True)
        synthetic_fleet.write_node(
            self.base, self.campaign, self.faults, number, key=self.key, folder=place
        )
        for made in sorted(place.iterdir(), key=lambda one: one.name == own):
            shutil.rmtree(self.nodes / made.name, ignore_errors=True)
            made.rename(self.nodes / made.name)
        place.rmdir()


_makers: list[Maker] = []
"""In a process of the pool the one maker: a private key cannot be sent to it with each number."""


def make(run: Path, folder: Path, faults: Planted) -> Key:
    """Write the campaign and the bundles that are not there yet; the key that signed them."""
    campaign = folder / "campaign"
    maker = Maker(
        base=Base.read(run),
        campaign=synthetic_fleet.campaign_of(run, faults),
        faults=faults,
        key=_key(folder / "keys"),
        nodes=campaign / "nodes",
        unfinished=folder / "unfinished",
    )
    synthetic_fleet.write_campaign(campaign, maker.campaign, maker.key, SUITE, maker.base)
    maker.nodes.mkdir(exist_ok=True)
    _makers[:] = [maker]
    with multiprocessing.get_context("fork").Pool() as pool:
        for _ in pool.imap_unordered(_write, maker.missing(), chunksize=20):
            pass
    return maker.key


def _key(folder: Path) -> Key:
    """The maker's key: the one of the call before, or a new one."""
    if not folder.exists():
        keys.create_key("Maker of a synthetic fleet", folder)
    return keys.load_key(folder / "key.pem", folder / "certificate.pem")


def _write(number: int) -> None:
    _makers[0].write(number)


@dataclass(frozen=True, kw_only=True)
class Moment:
    """Seconds of the clock, and of processors by this process and all that it has waited for."""

    wall: float
    processor: float

    @classmethod
    def now(cls) -> Moment:
        """This moment."""
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        processor = sum(one.ru_utime + one.ru_stime for one in used)
        return cls(wall=time.perf_counter(), processor=processor)


def timed(what: str, begin: Moment) -> Moment:
    """Print the seconds since `begin`; now. Those of processors say more on a busy machine."""
    now = Moment.now()
    wall, processor = now.wall - begin.wall, now.processor - begin.processor
    print(f"{what}: {wall:.1f} s, {processor:.1f} s of processors", flush=True)
    return now


def count(folder: Path, faults: Planted) -> None:
    """Print what was planted beside what was found."""
    with queries.opened(folder) as asked:
        beyond = {one["node"] for one in asked.ask("beyond").records}
        refused = {one["node"] for one in asked.ask("refusals").records}
        levels = {(one["covariate"], one["level"]) for one in asked.ask("levels").records}
    sound = set(range(faults.num_nodes)) - set(faults.forged)
    planted = {
        "slow by 5 %": {node_name(n) for n in faults.slow if n in sound},
        "slow by 3 %": {node_name(n) for n in faults.slightly_slow if n in sound},
    }
    for name, nodes in planted.items():
        print(f"{name}: {len(nodes & beyond)} of {len(nodes)} found")
    print(f"other nodes beyond a fence: {len(beyond - set.union(*planted.values()))}")
    racks = {("rack", f"rack-{number:03d}") for number in faults.hot}
    print(f"hot racks: {len(racks & levels)} of {len(racks)} found; all groups: {sorted(levels)}")
    forged = {node_name(number) for number in faults.forged}
    print(f"forged or doubled: {len(forged & refused)} of {len(forged)} refused")


def rates(num_nodes: int, num_seeds: int) -> None:
    """Print the rates over seeds, of numbers alone."""
    slow = slight = false = total = num_slow = num_slight = 0
    for seed in range(num_seeds):
        faults = synthetic_fleet.planted(num_nodes, seed)
        made = analyse(tables.series_of(fleet_tables.planted_fleet(faults, seed)))
        nodes = {
            unit.partition("@")[0]
            for one in made.distributions
            for unit, is_beyond in zip(one.series.units, one.is_beyond, strict=True)
            if is_beyond
        }
        own = {node_name(n) for n in faults.slow if n not in faults.forged}
        lightly = {node_name(n) for n in faults.slightly_slow if n not in faults.forged}
        slow, num_slow = slow + len(nodes & own), num_slow + len(own)
        slight, num_slight = slight + len(nodes & lightly), num_slight + len(lightly)
        false, total = false + len(nodes - own - lightly), total + len(nodes)
    print(
        f"over {num_seeds} seeds of {num_nodes:,} nodes: 5 % slow {slow / num_slow:.2%}, 3 % slow "
        f"{slight / num_slight:.2%} found; false discoveries {false / max(1, total):.2%}"
    )


def main() -> None:
    """Read the words of the command line and do it."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("run", type=Path)
    words.add_argument("folder", type=Path)
    words.add_argument("--nodes", type=int, default=1000)
    words.add_argument("--seeds", type=int, default=20)
    given = words.parse_args()
    faults = synthetic_fleet.planted(given.nodes)
    begin = Moment.now()
    key = make(given.run, given.folder, faults)
    begin = timed(f"{given.nodes:,} bundles made", begin)
    campaign = given.folder / "campaign"
    request = collect.Request(
        campaign=campaign,
        places=(str(campaign / "nodes"),),
        out=given.folder / "out",
        trusted=((given.folder / "keys" / "certificate.pem").read_bytes(),),
        allow_development=False,
        key=key,
    )
    collected = collect.collect(request)
    print(collected)
    begin = timed(f"{collected.num_new:,} bundles collected", begin)
    print(sites.write(given.folder / "out", given.folder / "site", key))
    timed("site written", begin)
    own, other = (
        resource.getrusage(who).ru_maxrss / 1024
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    print(f"most memory: {own:.0f} MiB of this process, {other:.0f} MiB of one that it started")
    count(given.folder / "out", faults)
    if given.seeds:
        rates(given.nodes, given.seeds)


if __name__ == "__main__":
    main()
