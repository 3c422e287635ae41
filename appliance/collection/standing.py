"""Which runs count and where each node stands, from all lines of the ledger together; pure.

A run counts once, for the node whose challenge it was made under, unless its hardware is that of
another node. A node may have several runs: every one is kept and counted. Which of them decides is
the campaign's rule, in fleet/decision.py; a node with a retest due is open here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from appliance.challenge.campaign import Campaign, CampaignNode, other_parts
from appliance.collection.rows import Entry, Finding, RefusalReason, RunRow
from appliance.fleet import decision

State = Literal["accepted", "rejected", "open"]


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A run that counts: `number` is its place among the node's own, from 1.

    `is_decisive` says that it may decide: it has a verdict of its own, as many sessions as the
    campaign asks, and comes after neither more retests nor more runs than that allows.
    """

    entry: Entry
    run: RunRow
    number: int
    is_decisive: bool


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where one node stands, by which attempt (`decided_by`, its number), and what comes next.

    `num_lost` are attempts that began on the node and gave no bundle.
    """

    node: CampaignNode
    state: State
    reason: str
    attempts: tuple[Attempt, ...]
    decided_by: int | None
    num_lost: int

    @property
    def shown(self) -> Attempt | None:
        """The attempt whose figures stand for the node: the decisive one, else the last."""
        for attempt in self.attempts:
            if attempt.number == self.decided_by:
                return attempt
        return self.attempts[-1] if self.attempts else None


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """All nodes of a campaign in the order of their names, and all bundles that do not count."""

    campaign: Campaign
    standings: tuple[Standing, ...]
    refused: tuple[Entry, ...]


def fleet(
    campaign: Campaign,
    entries: Sequence[Entry],
    *,
    begun: Mapping[str, int] | None = None,
    unfinished: Sequence[Entry] = (),
) -> Fleet:
    """Where a campaign stands; `begun` are attempts that began on each node, as far as is known."""
    kept: dict[str, list[Entry]] = {}
    refused: list[Entry] = [*unfinished]
    for entry in _judged(campaign, entries):
        if entry.finding.run is None:
            refused.append(entry)
        else:
            kept.setdefault(entry.finding.node, []).append(entry)
    attempts = begun or {}
    standings = (
        _standing(campaign, node, kept.get(node.name, []), attempts.get(node.name, 0))
        for node in campaign.nodes
    )
    return Fleet(
        campaign=campaign,
        standings=tuple(standings),
        refused=tuple(sorted(refused, key=lambda one: (one.finding.node, one.source, one.digest))),
    )


# ------------------------------------------------------------------ which runs count


def _judged(campaign: Campaign, entries: Sequence[Entry]) -> Iterator[Entry]:
    """Every entry, those that do not count beside the others refused.

    Which of two equal runs counts does not hang on the order in which they were read, but on
    where they lie.
    """
    expected = {node.name: node for node in campaign.nodes}
    owners = {serial: node.name for node in campaign.nodes for serial in _named(node)}
    ordered = sorted(entries, key=lambda one: (one.source, one.digest))
    claims = _claims(ordered)
    seen: dict[str, str] = {}
    for entry in ordered:
        run, name = entry.finding.run, entry.finding.node
        if run is None:
            yield entry
        elif run.journal in seen:
            yield _refused(entry, "double", f"the same run lies at {seen[run.journal]}")
        elif sentence := _other_hardware(expected[name], run, owners, claims):
            yield _refused(entry, "other_node", sentence)
        else:
            seen[run.journal] = entry.source
            yield entry


def _claims(entries: Sequence[Entry]) -> Mapping[str, set[str]]:
    """Nodes whose runs report a serial, by serial."""
    claims: dict[str, set[str]] = {}
    for entry in entries:
        for serial in _serials(entry.finding.run) if entry.finding.run else ():
            claims.setdefault(serial, set()).add(entry.finding.node)
    return claims


def _other_hardware(
    node: CampaignNode,
    run: RunRow,
    owners: Mapping[str, str],
    claims: Mapping[str, set[str]],
) -> str:
    """Why this run is of other hardware than the node's, or nothing.

    Serials say it: those that the inventory gives a node, and, where it gives none, those that two
    nodes report: one of them is not what it says, and nothing tells which. A part without a serial
    is believed where the inventory names none.
    """
    for serial in _serials(run):
        owner = owners.get(serial)
        if owner is not None and owner != node.name:
            return f"it was made under the challenge of {node.name} with {serial} of {owner}"
        others = sorted(claims[serial] - {node.name})
        if owner is None and others:
            return (
                f"{serial} is reported by {node.name} and by {others[0]}: neither counts until the "
                "campaign's inventory says whose it is"
            )
    return other_parts(node, [device.serial for device in run.devices], run.system_serial)


def _named(node: CampaignNode) -> list[str]:
    return [*([node.serial] if node.serial else []), *(node.devices or ())]


def _refused(entry: Entry, reason: RefusalReason, sentence: str) -> Entry:
    finding = Finding(node=entry.finding.node, reason=reason, sentence=sentence, run=None)
    return replace(entry, finding=finding)


def _serials(run: RunRow) -> list[str]:
    own = [run.system_serial] if run.system_serial else []
    return [*own, *(device.serial for device in run.devices if device.serial)]


# ------------------------------------------------------------------ where a node stands


def _standing(
    campaign: Campaign, node: CampaignNode, entries: Sequence[Entry], num_begun: int
) -> Standing:
    by_run = {id(run): one for one in entries if (run := one.finding.run) is not None}
    runs = decision.in_order([one.finding.run for one in entries if one.finding.run is not None])
    decided = decision.decide(campaign, runs)
    num_lost = max(0, num_begun - len(runs))
    is_of_attempts = num_lost and not runs
    return Standing(
        node=node,
        state="open" if decided.state == "retest" else decided.state,
        reason=decided.reason + (f" of {num_lost} attempts" if is_of_attempts else ""),
        attempts=tuple(
            Attempt(
                entry=by_run[id(run)],
                run=run,
                number=number,
                is_decisive=number in decided.decisive,
            )
            for number, run in enumerate(runs, 1)
        ),
        decided_by=decided.decided_by,
        num_lost=num_lost,
    )
