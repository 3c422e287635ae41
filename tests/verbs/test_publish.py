"""Reports and signatures: what is refused before anything is rendered or signed."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.bundles import Draft, files_of, healthy, of_vendor

from appliance.errors import UsageError
from appliance.signing import keys
from appliance.signing.keys import Key
from appliance.storage import bundle
from appliance.verbs import publish


@pytest.fixture(scope="module")
def key() -> Key:
    return keys.development_key()


def unsigned(folder: Path, draft: Draft, key: Key) -> Path:
    for name, data in files_of(draft, key).items():
        bundle.write(folder / name, data)
    return folder


def test_run_of_devices_of_no_known_vendor_is_not_signed(key: Key, tmp_path: Path) -> None:
    folder = unsigned(tmp_path, of_vendor(healthy(), "faulty.simulated"), key)
    before = set(folder.iterdir())
    with pytest.raises(UsageError, match='cannot be signed: cpu:0 is of the vendor "f'):
        publish.sign(folder, key, "tester")
    assert set(folder.iterdir()) == before
