"""Who may sign a bundle, in one word.

Records have the word and options list it, so that it stands below both: help is shown without a
record being loaded.
"""

from __future__ import annotations

from typing import Literal, get_args

Role = Literal["tester", "vendor", "buyer", "witness"]
ROLES: tuple[Role, ...] = get_args(Role)
