"""What a workload raises where parameters or devices do not fit."""

from __future__ import annotations

from appliance.errors import ApplianceError


class ParameterError(ValueError):
    """A parameter has a value that the workload cannot run with; one sentence with the fix."""


class Unsupported(ApplianceError):
    """This machine lacks what the workload needs, found out at its start; one sentence with why."""
