"""Every error that a person may meet, drawn once.

    BenchError                 one sentence that names the thing and the fix
    ├── UsageError             exit 2: an option, a file or a name that the user can put right
    │   └── OutputError        exit 2: the output folder cannot take the evidence
    ├── EvidenceError          exit 4: evidence that is not whole, or not by a trusted signer
    │   └── GivenUpError       exit 4: evidence that takes too much time or memory to read
    ├── ApplianceError         exit 5: the appliance itself failed; never the device's fault
    ├── SessionsLeft           exit 3: a session has ended, and nothing is decided before the last
    ├── ReceiptAwaited         exit 3: a run is planned, and begins by the buyer's receipt
    ├── NodeBusy               exit 3: others use the node, and the time to wait for that is over
    ├── SchedulerError          exit 3: the cluster's scheduler did not do as asked; ask it again
    └── RunInterrupted         exit 130: stopped by a person; the run can be resumed

They are raised where the fault is seen and caught once, in cli.py. What a workload does
(crash, hang, refuse) is a result and never one of these.
"""

from __future__ import annotations

from typing import ClassVar


class BenchError(Exception):
    """Base of all errors; the text is one sentence with the fix in it."""

    exit_code: ClassVar[int] = 5


class UsageError(BenchError):
    """Something that the user named is missing, unknown or contradictory."""

    exit_code = 2


class OutputError(UsageError):
    """The output folder exists already, is not writable, or is full."""


class EvidenceError(BenchError):
    """A bundle, journal or signature does not verify."""

    exit_code = 4


class GivenUpError(EvidenceError):
    """Evidence takes more time or memory to read than evidence of its size needs."""


class RecordFormError(EvidenceError):
    """A record is not in the form that this version of bench writes."""


class ApplianceError(BenchError):
    """A part of the appliance did not do its work."""

    exit_code = 5


class SessionsLeft(BenchError):
    """A session but the last has ended as planned; the next one is begun by a person."""

    exit_code = 3


class ReceiptAwaited(BenchError):
    """A run is planned and waits for the buyer's receipt, which a person gives it."""

    exit_code = 3


class NodeBusy(BenchError):
    """The node did not become idle in the time that a person gave it; nothing was begun."""

    exit_code = 3


class SchedulerError(BenchError):
    """The scheduler of a cluster did not answer, or not as it should; what was done is kept."""

    exit_code = 3


class RunInterrupted(BenchError):
    """A person stopped the run; everything recorded so far is kept."""

    exit_code = 130
