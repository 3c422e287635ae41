"""Signs what this release knows of workloads, checks, peaks and records: a file for `--facts`.

A release publishes the file beside its certificate. Who verifies a bundle that the release made,
with another version of bench, names both: `bench verify RUN --trust RELEASE.pem --facts FILE`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from appliance.signing import keys  # noqa: E402 - after the path
from appliance.verification import facts  # noqa: E402 - the same


def main() -> None:
    """Write the signed facts of this version."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--key", type=Path, required=True, help="private key (PEM)")
    parser.add_argument("--certificate", type=Path, required=True, help="its certificate (PEM)")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    asked = parser.parse_args()
    key = keys.load_key(asked.key, asked.certificate)
    asked.out.write_bytes(facts.sign(facts.shipped().file, key))


if __name__ == "__main__":
    main()
