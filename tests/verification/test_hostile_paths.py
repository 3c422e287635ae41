"""What exhausts or hangs an auditor's machine is refused in one sentence, and soon.

Each input here is one that an earlier version hung on, or needed gigabytes for.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from support.bundles import healthy, sealed
from support.program import program

from appliance.errors import EvidenceError, GivenUpError, UsageError
from appliance.ipc import confined_child
from appliance.records.suite import Suite
from appliance.signing.keys import development_key
from appliance.storage import bundle, limits, toml_file
from appliance.verification import verify as verify_module
from appliance.verification.terms import Terms
from appliance.verification.verify import Verification, verify, verify_confined

DOTTED = ".".join(["a"] * 30_000) + " = 1"
GIBIBYTE = 2**30


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sealed(tmp_path_factory.mktemp("sound"), healthy(), development_key())


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "copy"))


def checked(path: Path) -> Verification:
    return verify_confined(path, Terms(allow_development=True))


def test_a_child_gives_the_same_answer(sound: Path) -> None:
    for path in (sound, sound / bundle.PDF):
        assert checked(path) == verify(path, Terms(allow_development=True))
        assert checked(path).exit_code == 0


# ------------------------------------------------------------------ pages


def stream(entries: str, content: bytes = b"") -> bytes:
    """A PDF that is one cross-reference stream."""
    head = f"1 0 obj\n<</Type/XRef/Root 2 0 R/Length {len(content)}{entries}>>stream\n"
    return b"%PDF-1.7\n" + head.encode() + content + b"\nendstream endobj\nstartxref\n9\n%%EOF"


@pytest.mark.parametrize(
    "content",
    [
        stream("/Size 2000000000/W[0 0 0]"),
        stream("/Size 200000000/W[1 2 2]/Filter/FlateDecode", zlib.compress(bytes(2 * 10**8), 9)),
        b"%PDF-1.7\n" + b"[" * 3_000_000,
        b"%PDF-1.7\nxref\n0 0\ntrailer<</Size 2/Root 1 0 R/Prev 9>>\nstartxref\n9\n%%EOF",
        b"<" + b'<a class="bench-data" download="a" href="data:' * 300_000,
        b'<a class="bench-data" download="a" href="data:a;base64,' + b"A" * 9_000_000 + b'">',
    ],
    ids=["no entries", "inflated", "nested", "in a circle", "links", "long link"],
)
def test_page_that_exhausts_its_reader_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "page"
    path.write_bytes(content)
    assert refusal(path)


MEASURE = """
import resource, sys
from pathlib import Path
from appliance.verification.verify import verify_confined
try:
    print(verify_confined(Path(sys.argv[1])).faults[0])
except Exception as error:
    print(error)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


UNREADABLE = (
    "report.pdf is not the PDF that was written: it is cut short, was changed, or takes more time "
    "or memory to read than any report; ask for the original"
)


def out_of_memory(_: Verification) -> bytes:
    raise MemoryError


def out_of_time(_: Verification) -> bytes:
    while True:
        pass


@pytest.mark.parametrize("end", [out_of_memory, out_of_time])
def test_a_pdf_is_refused_in_one_sentence_whatever_ends_its_reader(
    end: Callable[[Verification], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, folder = tmp_path / "page", tmp_path / "run"
    path.write_bytes(stream("/Size 2000000000/W[1 1 1]"))
    folder.mkdir()
    found_wrong = checked(path)
    assert (found_wrong.faults, found_wrong.exit_code) == ((UNREADABLE,), 4)
    monkeypatch.setattr(verify_module, "_answer", end)
    monkeypatch.setattr(verify_module, "_limits", lambda _: confined_child.Limits(seconds=1))
    assert checked(path) == found_wrong
    with pytest.raises(GivenUpError):
        checked(folder)


def test_a_small_pdf_takes_little_memory(tmp_path: Path) -> None:
    """Of 20 kB, with 7 million entries: its reader is stopped long before it has taken them all."""
    path = tmp_path / "page"
    content = zlib.compress(bytes(2 * 10**7), 9)
    path.write_bytes(stream("/Size 2000000000/W[1 1 1]/Filter/FlateDecode", content))
    done = program("-c", MEASURE, str(path))
    sentence, peak_bytes = done.stdout.splitlines()
    assert sentence == UNREADABLE
    assert int(peak_bytes) < 250 * 10**6


def refusal(path: Path) -> str:
    """Why it is not verified, by the first check or because its reader did not survive it."""
    try:
        result = checked(path)
    except EvidenceError as error:
        return str(error)
    return "" if result.checks[0].status != "fail" else result.faults[0]


# ------------------------------------------------------------------ folders


def sparse(folder: Path) -> None:
    for name in (bundle.JOURNAL, bundle.PDF, bundle.HTML, bundle.VERDICT, bundle.PLAN):
        os.truncate(folder / name, GIBIBYTE)


def sparse_within_caps(folder: Path) -> None:
    os.truncate(folder / bundle.JOURNAL, limits.TOTAL)


def many(folder: Path) -> None:
    for number in range(limits.MOST_FILES + 1):
        (folder / f"x{number}").touch()


def bound(folder: Path) -> None:
    (folder / bundle.PLAN).unlink()
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(folder / bundle.PLAN))


def piped(folder: Path) -> None:
    (folder / bundle.PLAN).unlink()
    os.mkfifo(folder / bundle.PLAN)


def logs_elsewhere(folder: Path) -> None:
    (folder / bundle.LOGS).symlink_to("/etc")


@pytest.mark.parametrize("change", [sparse, sparse_within_caps, many, bound, piped, logs_elsewhere])
def test_names_and_sizes_are_refused_before_anything_is_read(
    change: Callable[[Path], None], copy: Path
) -> None:
    change(copy)
    result = verify(copy, Terms(allow_development=True))
    assert [check.name for check in result.checks if check.status == "fail"] == ["files"]
    assert result.exit_code == 4


def long_journal(folder: Path) -> None:
    with (folder / bundle.JOURNAL).open("ab") as file:
        file.write(b'{"event":{}}\n' * 200_000)


def dotted(folder: Path) -> None:
    (folder / bundle.CRITERIA).write_text(DOTTED)


@pytest.mark.parametrize("change", [long_journal, dotted])
def test_what_was_not_signed_is_not_parsed(
    change: Callable[[Path], None], copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parse(*_: object) -> None:
        pytest.fail("it was parsed")

    monkeypatch.setattr(bundle, "records_of", parse)
    monkeypatch.setattr(bundle, "lines_of", parse)
    change(copy)
    result = verify(copy, Terms(allow_development=True))
    assert [check.name for check in result.checks if check.status == "fail"] == ["statement"]


def test_more_is_read_only_where_a_person_asks_for_it(sound: Path) -> None:
    most = sum(path.stat().st_size for path in sound.iterdir())
    assert verify(sound, Terms(allow_development=True, total=most)).exit_code == 0
    (fault,) = verify(sound, Terms(allow_development=True, total=most - 1)).faults
    assert "--largest" in fault


# ------------------------------------------------------------------ zips


def packed(path: Path, files: dict[str, bytes], mode: int = 0o100644) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            one = zipfile.ZipInfo(name)
            one.external_attr = mode << 16
            archive.writestr(one, data, zipfile.ZIP_DEFLATED)
    return path


def test_zip_that_is_no_folder_of_a_run_is_refused(sound: Path, tmp_path: Path) -> None:
    files = {path.name: path.read_bytes() for path in sound.iterdir()}
    path = tmp_path / "run.zip"
    wrong = [
        packed(tmp_path / "1.zip", {**files, "../../escaped": b""}),
        packed(tmp_path / "2.zip", {**files, bundle.JOURNAL: bytes(limits.TOTAL // 8) * 9}),
        packed(tmp_path / "3.zip", files, mode=0o120777),
    ]
    assert verify(packed(path, files), Terms(allow_development=True)).exit_code == 0
    for one in wrong:
        assert verify(one, Terms(allow_development=True)).checks[0].status == "fail"
    for change in (path.read_bytes() + b"x", path.read_bytes()[:-9]):
        path.write_bytes(change)
        assert verify(path, Terms(allow_development=True)).checks[0].status == "fail"


def in_front(data: bytes) -> bytes:
    return b"PK\3\4 which another program takes for a file" + data


def listed_twice(data: bytes) -> bytes:
    """The last file once more in the list, under another name for the same bytes."""
    begin = data.rindex(b"PK\1\2")
    entry, end = data[begin:-22], bytearray(data[-22:])
    other = entry.replace(b"signer.json", b"sigNer.json")
    for place in (8, 10):
        end[place] += 1
    end[12:16] = (int.from_bytes(end[12:16], "little") + len(other)).to_bytes(4, "little")
    return data[:begin] + entry + other + bytes(end)


def fewer_than_it_has(data: bytes) -> bytes:
    return data[:-14] + bytes([data[-14] - 1]) + data[-13:]


BESIDE = "beside the files in its list, or two that overlap"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (in_front, BESIDE),
        (listed_twice, "'sigNer.json' in the zip has another name"),
        (fewer_than_it_has, BESIDE),
    ],
    ids=["in_front", "listed_twice", "fewer_than_it_has"],
)
def test_zip_that_programs_unpack_differently_is_refused(
    change: Callable[[bytes], bytes], says: str, sound: Path, tmp_path: Path
) -> None:
    files = {one.name: one.read_bytes() for one in sound.iterdir() if one.name != "signer.json"}
    path = packed(
        tmp_path / "run.zip", {**files, "signer.json": (sound / "signer.json").read_bytes()}
    )
    path.write_bytes(change(path.read_bytes()))
    (fault, *_) = verify(path, Terms(allow_development=True)).faults
    assert says in fault


# ------------------------------------------------------------------ files of people


def test_facts_that_are_empty_are_not_those_of_this_release(sound: Path) -> None:
    with pytest.raises(EvidenceError):
        verify(sound, Terms(allow_development=True, facts=b""))


@pytest.mark.parametrize(
    "text",
    [
        DOTTED,
        "[" + DOTTED.removesuffix(" = 1") + "]",
        "x = {" + DOTTED + "}",
        '"""\n' + DOTTED,
        'x = """a"b""""\n' + " . ".join(["'q'"] * 8000) + " = 1",
        "# it's\n" + "\t.\t".join(['"\\""'] * 6000) + " = 1",
        "x = " + "[" * 30_000,
        "x = " + "[{a=" * 9000,
        "#" * (limits.TOML + 1),
    ],
    ids=["key", "table", "inline", "open", "text", "quoted", "lists", "tables", "size"],
)
def test_toml_that_takes_gigabytes_to_parse_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        toml_file.parse(Suite, text.encode(), "suite.toml")
    assert len(str(refused.value)) < 200


def test_toml_of_ours_is_not_too_deep() -> None:
    text = 'x = "' + "a." * 99 + '"  # ' + "b." * 99 + "\ny = [" + "[0.5, 1.25], " * 99 + "]"
    with pytest.raises(UsageError, match='"name" is missing'):
        toml_file.parse(Suite, text.encode(), "suite.toml")


def test_answer_of_a_hostile_name_is_shown(tmp_path: Path) -> None:
    """A name that is no text does not stop the answer."""
    (tmp_path / "run").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path / "run") + b"/\xff\n")).touch()
    result = checked(tmp_path / "run")
    assert result.exit_code == 4
    assert json.dumps(result.faults)
