"""The chapter of a report on a device's health."""

from __future__ import annotations

from support.builders import Watching, bare_lines, watched_events
from support.watched_runs import ACCELERATOR, DEVICE, PLAN, system

from appliance.evidence.journal_index import index_of
from appliance.records.journal import Event
from reports import health
from reports.model import HealthChapter


def chapter(one: Watching, logged: tuple[Event, ...] | None = ()) -> HealthChapter:
    lines = bare_lines(watched_events(PLAN, {DEVICE: one}, logged))
    return health.chapter(ACCELERATOR, system().identity.devices, index_of(PLAN, lines))
