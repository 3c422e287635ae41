"""What the launcher reports of the container: what cannot be seen from the inside.

`bench start` puts one variable with a JSON object into the container, and the probe makes facts
of it, each marked as reported: image, engine and options are stated by the host and are not
measured. Both sides use the names below; another name is left out. What an image is belongs to
the node's identity, since a run is only resumed in the same image; the engine and the options
are conditions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from appliance.records.system import Fact, Facts

VARIABLE = "BENCH_LAUNCHER"
SOURCE = f"reported by the launcher ({VARIABLE})"
IDENTITY = ("image_layers", "image_references")
CONDITIONS = (
    "container_name",
    "container_engine",
    "container_storage",
    "container_options",
    "container_locked_memory",
    "launcher",
)
NOT_STARTED_BY_US = "only `bench start` reports how a container was started"


def encode(statements: Mapping[str, str]) -> str:
    """The variable's value; KeyError for a name that the probe would leave out."""
    unknown = statements.keys() - {*IDENTITY, *CONDITIONS}
    if unknown:
        raise KeyError(*sorted(unknown))
    return json.dumps(statements, sort_keys=True, separators=(",", ":"))


def identity_facts(environment: Mapping[str, str]) -> Facts:
    """Of the image: sha256 over its layers, and its names with digests in registries."""
    return _facts(IDENTITY, environment)


def condition_facts(environment: Mapping[str, str]) -> Facts:
    """Of engine and options; one fact without a value where no launcher reported anything."""
    facts = _facts(CONDITIONS, environment)
    return facts or {"launcher": Fact(value=None, source=SOURCE, hint=NOT_STARTED_BY_US)}


def _facts(names: tuple[str, ...], environment: Mapping[str, str]) -> Facts:
    statements = _statements(environment)
    return {
        name: Fact(value=statements[name], source=SOURCE)
        for name in names
        if isinstance(statements.get(name), str) and statements[name]
    }


def _statements(environment: Mapping[str, str]) -> Mapping[str, str]:
    """What the variable holds; nothing if it is missing or no JSON object."""
    try:
        statements = json.loads(environment.get(VARIABLE, "{}"))
    except (ValueError, RecursionError):  # which nests without end
        return {}
    return statements if isinstance(statements, dict) else {}
