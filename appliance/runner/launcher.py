"""How a launch gets its process: forked by a server, or fresh, in the environment that it needs.

A launch has a library mode. `default` is how its libraries run by themselves; `deterministic`
adds the vendor's variables by which they give the same bits each time. The variables are set
before the process imports anything: in the server's environment, or in that of a fresh process.

    launcher.prepare([(case, "deterministic")])       the servers that these launches will need
    spec = LaunchSpec(..., library_mode="deterministic")
    launcher.forked_by(spec)                          a framework, or None: the launch is fresh
    child = launcher.start(spec, stdout, stderr)

A fresh launch whose process has begun to import ahead of it (`import_ahead`) is made by that one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from appliance.ipc import probe_fork, processes
from appliance.ipc.messages import ServeRequest
from appliance.planning import workload_manifest
from appliance.records.journal import ServerProbed
from appliance.records.plan import Case, Launch, Plan
from appliance.records.request import LaunchSpec
from appliance.records.suite import Framework, LibraryMode
from appliance.records.system import Device
from appliance.runner.children import Child, ForkServer, FreshChild, ServerLost, ServerProcess
from appliance.runner.environment import child_environment
from appliance.runner.head_start import HeadStart
from appliance.runner.library_hashes import LibraryHashes
from appliance.runner.servers import ForkServers, ServerKey
from appliance.vendors.base import Vendor


@dataclass(kw_only=True)
class Launcher:
    """Starts launches in the way that the plan says and the device allows.

    `work` is an absolute folder; `interrupted` names the signal that a person sent, or is empty.
    `ahead` may have the process of the first server; `hashes` begins with what servers have mapped.
    """

    plan: Plan
    vendors: Mapping[str, Vendor]
    devices: Mapping[str, Device]
    work: Path
    num_threads: int
    token: str
    interrupted: Callable[[], str]
    ahead: HeadStart | None = None
    servers: ForkServers = field(init=False)
    frameworks: Mapping[str, Framework] = field(init=False)
    waiting: dict[str, FreshChild] = field(default_factory=dict, init=False)
    hashes: LibraryHashes = field(default_factory=LibraryHashes, init=False)

    def __post_init__(self) -> None:
        self.servers = ForkServers(self._start_server, self._workloads, self.interrupted)
        self.frameworks = workload_manifest.frameworks(self.plan.cases)

    def vendor(self, case: Case) -> Vendor:
        return self.vendors[self.devices[case.device].vendor]

    def environment(
        self,
        case: Case,
        tokens: Mapping[str, str] | None = None,
        library_mode: LibraryMode = "default",
    ) -> dict[str, str]:
        """Environment of a child that works on the case's devices."""
        vendor = self.vendor(case)
        is_default = library_mode == "default"
        return child_environment(
            inherited=os.environ,
            work=self.work,
            num_threads=self.threads(case),
            vendor=vendor.environment(*map(self.devices.__getitem__, case.all_devices)),
            tokens={processes.RUN_TOKEN: self.token, **(tokens or {})},
            library_mode={} if is_default else vendor.deterministic_environment(),
        )

    def threads(self, case: Case) -> int:
        """Threads of one process; the ranks of a launch share the cores."""
        return max(1, self.num_threads // case.ranks)

    def prepare(
        self,
        wanted: Iterable[tuple[Case, LibraryMode]],
        *,
        is_first: bool = False,
        is_timed: bool = False,
    ) -> list[ServerProbed]:
        """Have the servers that these launches need, all at once; see `ForkServers.prepare`.

        What each one's probe showed is returned, to be recorded. A launch whose server is not
        healthy is made all the same, by a fresh process.
        """
        workloads: dict[ServerKey, set[str]] = {}
        for case, mode in wanted:
            key = self._key(case, mode)
            if key is not None:
                workloads.setdefault(key, set()).add(case.workload)
        probes = self.servers.prepare(workloads, is_first=is_first, is_timed=is_timed)
        if not is_timed:
            self._hash_ahead(workloads)
        return probes

    def _hash_ahead(self, keys: Iterable[ServerKey]) -> None:
        """Hash the libraries of servers beside their first launches."""
        for key in keys:
            server = self.servers.get(key)
            if isinstance(server, ForkServer):
                self.hashes.ahead(server.pid)

    def begin_servers(self, coming: Iterable[tuple[Case, LibraryMode]], most: int) -> None:
        """Have servers of later launches import beside untimed ones, so many of them at a time."""
        for case, mode in coming:
            key = self._key(case, mode)
            if self.num_ahead >= most:
                return
            if key is not None:
                self.servers.begin(key)

    def forked_by(self, spec: LaunchSpec) -> Framework | None:
        """Framework of the server that the launch will be forked by; None if it will be fresh."""
        key = None if spec.is_fresh else self._key(spec.case, spec.library_mode)
        return key.framework if key and isinstance(self.servers.get(key), ForkServer) else None

    def can_fork(self, case: Case, library_mode: LibraryMode) -> bool:
        """Whether a server that has imported the case's workload can fork such a launch now."""
        key = self._key(case, library_mode)
        server = None if key is None else self.servers.get(key)
        return isinstance(server, ForkServer) and server.has_imported([case.workload])

    def start(self, spec: LaunchSpec, stdout: Path, stderr: Path) -> Child:
        """Start one launch; ServerLost, and that server is not used again, if it has ended."""
        key = None if spec.is_fresh else self._key(spec.case, spec.library_mode)
        server = None if key is None else self.servers.get(key)
        if isinstance(server, ForkServer):
            try:
                return server.fork(spec, stdout, stderr)
            except ServerLost as lost:
                self.lose_server(spec.case, spec.library_mode, str(lost))
                raise
        tokens = {processes.LAUNCH_TOKEN: spec.token}
        environment = self.environment(spec.case, tokens, spec.library_mode)
        child = self.waiting.pop(spec.launch, None)
        if child is not None and child.status() is not None:  # ended as it imported
            child.kill()
            child = None
        if child is None:
            child = FreshChild(environment, stdout, stderr)
        child.begin(spec)
        return child

    @property
    def num_ahead(self) -> int:
        """Processes that import ahead of their launches now."""
        waiting = sum(child.is_importing for child in self.waiting.values())
        return self.servers.num_importing + waiting

    def import_ahead(self, launch: Launch, case: Case, stdout: Path, stderr: Path) -> None:
        """Have the process of a coming fresh repeat import while another repeat runs.

        It has run nothing and has touched no device when the launch is given to it.
        """
        environment = self.environment(case, library_mode="deterministic")
        self.waiting[launch.id] = FreshChild(environment, stdout, stderr, case.workload)

    def end_waiting(self) -> None:
        """End the processes whose launches are not to be made now."""
        while self.waiting:
            self.waiting.popitem()[1].kill()

    def lose_server(self, case: Case, library_mode: LibraryMode, reason: str) -> None:
        """Make no more forks by the server that such launches of the case come from, if it is lost.

        Another may take its place: see `ForkServers.lose`.
        """
        key = self._key(case, library_mode)
        if key is not None:
            self.servers.lose(key, reason)

    def close(self) -> None:
        self.hashes.close()
        self.end_waiting()
        self.servers.close()

    def _key(self, case: Case, library_mode: LibraryMode) -> ServerKey | None:
        """The server that such launches are to be forked by; None where they are fresh by rule."""
        is_forked = self.plan.protocol.mode == "forked" and self.vendor(case).fork_safe
        if not is_forked or case.fresh_because or not _may_be_forked(case):
            return None
        framework = self.frameworks[case.id]
        if not self.vendor(case).deterministic_environment():
            library_mode = "default"  # its environment would be the same, so one server is enough
        key = ServerKey(
            device=case.place, ranks=case.ranks, framework=framework, library_mode=library_mode
        )
        return None if self.servers.leaves_out(key, case.workload) else key

    def _cases(self, key: ServerKey) -> list[Case]:
        """Those whose launches the server may fork."""
        return [
            case
            for case in self.plan.cases
            if not (case.unsupported or case.software) and self._key(case, key.library_mode) == key
        ]

    def _workloads(self, key: ServerKey) -> Collection[str]:
        return {case.workload for case in self._cases(key)}

    def _start_server(self, key: ServerKey, workloads: Collection[str]) -> ForkServer:
        """Start the server, with the process that has imported ahead if it is one for it."""
        case = self._cases(key)[0]
        environment = self.environment(case, library_mode=key.library_mode)
        process = self.ahead.take(environment) if self.ahead else None
        name = f"{key.device}-{key.ranks}-{key.framework}-{key.library_mode}"
        return ForkServer(
            ServeRequest(
                workloads=tuple(sorted(workloads)),
                vendor=self.vendor(case).name,
                framework=key.framework,
                ranks=key.ranks,
                probe_seconds=probe_fork.PROBE_SECONDS,
            ),
            process or ServerProcess(environment, self.work / f"{file_name(name)}.server.stderr"),
        )


def _may_be_forked(case: Case) -> bool:
    """One process on several devices is fresh: each pair of them would need its own server."""
    return case.ranks > 1 or len(case.all_devices) == 1


def file_name(name: str) -> str:
    """A launch, case or device id as part of a file's name."""
    return name.replace("/", ".").replace(":", "-").replace("@", "-")
