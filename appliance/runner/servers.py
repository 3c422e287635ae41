"""The fork servers of a run: which there are, which may be forked, and why others may not.

There is one for each device, framework and library mode that a launch asks for, and one more for
launches of several ranks, which have their own devices and threads. Each imports what the plan's
workloads of its framework need, in the environment of its mode, which is set before its first
import. It is started when the first launch needs it, and probed; one that is not healthy, or was
lost, is never used again. In the place of the first of a framework that was lost after it had been
healthy a new one is started, as a server that ends says nothing of the device; else launches that
would come of it are fresh processes. But where it is known which workloads' imports started what no
fork may be without, only their launches are fresh, and another server imports the others.
The server of the run's first launches imports what these need, and the rest, and is probed again,
before the next ones. While untimed launches run, the servers of those that follow may begin: they
import beside them, and no timed launch starts before all that have begun are probed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from appliance.records.journal import ServerProbed
from appliance.records.suite import Framework, LibraryMode
from appliance.runner.children import ForkServer, Health


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerKey:
    """Which server: the devices that it shows its forks (`Case.place`), what computes, and how.

    The ranks of a launch share the processors' threads, which a server fixes before it imports.
    """

    device: str
    ranks: int = 1
    framework: Framework
    library_mode: LibraryMode


class ForkServers:
    """Servers by their key; `start` begins one, which imports and probes by itself.

    It gets the workloads to import; `all_workloads` are those that a server is for in all.
    `interrupted` names the signal that a person sent meanwhile, or is empty.
    """

    def __init__(
        self,
        start: Callable[[ServerKey, Collection[str]], ForkServer],
        all_workloads: Callable[[ServerKey], Collection[str]],
        interrupted: Callable[[], str],
    ) -> None:
        self._start = start
        self._all_workloads = all_workloads
        self._interrupted = interrupted
        self._begun: dict[ServerKey, ForkServer] = {}
        self._healthy: dict[ServerKey, ForkServer] = {}
        self._reasons: dict[ServerKey, str] = {}
        self._left_out: dict[ServerKey, set[str]] = {}
        self._replaced: set[Framework] = set()

    @property
    def num_importing(self) -> int:
        """How many of those that have begun import still."""
        return sum(server.is_importing for server in self._begun.values())

    def begin(self, key: ServerKey) -> None:
        """Start the server of later launches, if there is none; `prepare` waits for it."""
        if not (key in self._healthy or key in self._reasons or key in self._begun):
            self._begun[key] = self._start(key, self._all_workloads(key))

    def prepare(
        self,
        wanted: Mapping[ServerKey, Collection[str]],
        *,
        is_first: bool = False,
        is_timed: bool = False,
    ) -> list[ServerProbed]:
        """Have a server for the workloads of each key, all at once; what each new probe showed.

        A new one imports all that it is for, or no more than is wanted if it `is_first` of the run.
        Before what `is_timed` all that have begun are waited for. What is reported of each is how
        long the run waited for it.
        """
        begin = time.monotonic()
        settled = [key for key in self._begun if is_timed or key in wanted]
        begun = [(key, self._begun.pop(key)) for key in settled]
        wanted = {key: names for key, names in wanted.items() if key not in settled}
        for key, workloads in wanted.items():
            server = self._healthy.get(key)
            if server is not None and not server.has_imported(workloads):
                server.import_more(self._all_workloads(key))
                begun.append((key, server))
            elif server is None and key not in self._reasons:
                imported = workloads if is_first else self._all_workloads(key)
                begun.append((key, self._start(key, imported)))
        return [probe for key, server in begun for probe in self._settled(key, server, begin)]

    def leaves_out(self, key: ServerKey, workload: str) -> bool:
        """Whether launches of a workload are fresh, as importing it keeps a server from forking."""
        return workload in self._left_out.get(key, ())

    def get(self, key: ServerKey) -> ForkServer | str:
        """The server to fork, or in one sentence why there is none."""
        return self._healthy.get(key) or self._reasons.get(key, "no launch has asked for it yet")

    def lose(self, key: ServerKey, reason: str) -> None:
        """Take note that a server was lost, if the one that is used is: see `ForkServer.is_lost`.

        Of the first that its framework lost the next `begin` or `prepare` starts another.
        """
        server = self._healthy.get(key)
        if server is None or not server.is_lost:
            return
        self._drop(key, reason)
        if key.framework not in self._replaced:
            self._replaced.add(key.framework)
            del self._reasons[key]

    def _drop(self, key: ServerKey, reason: str) -> None:
        """Never fork this server again; what it has forked ends with it."""
        self._reasons[key] = reason
        self._healthy.pop(key).close()

    def close(self) -> None:
        """Let all of them end."""
        for server in (*self._healthy.values(), *self._begun.values()):
            server.close()

    def _settled(self, key: ServerKey, server: ForkServer, begin: float) -> Iterator[ServerProbed]:
        """What the server's probe showed, and those of the ones that came after it."""
        health = server.health(self._interrupted)
        self._healthy[key] = server
        rest = self._rest(key, health)
        without = health.importers if rest else ()
        if health.fault:
            self._drop(key, health.fault)
        yield _probed(key, health, time.monotonic() - begin, without)
        if rest:
            del self._reasons[key]
            self._left_out.setdefault(key, set()).update(without)
            yield from self._settled(key, self._start(key, rest), begin)

    def _rest(self, key: ServerKey, health: Health) -> set[str]:
        """What another server may import where imports keep this one from forking, or nothing."""
        workloads, importers = set(self._all_workloads(key)), set(health.importers)
        is_known = bool(importers) and importers <= workloads
        return workloads - importers if is_known and not self._interrupted() else set()


def _probed(
    key: ServerKey, health: Health, seconds: float, without: tuple[str, ...]
) -> ServerProbed:
    return ServerProbed(
        device=key.device,
        ranks=key.ranks,
        framework=key.framework,
        library_mode=key.library_mode,
        is_healthy=not health.fault,
        seconds=seconds,
        reason=health.fault,
        last_words=health.last_words,
        without=without,
    )
