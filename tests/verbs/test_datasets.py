"""Data sets: fetched, resumed, refused when wrong, and found by a run. All servers are local."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from appliance.errors import OutputError, UsageError
from appliance.records.dataset import DataFile, DataSet, Datasets
from appliance.storage import dataset_file
from appliance.verbs import datasets

TEXT = b"".join(f"line {number}\n".encode() for number in range(5000))
MIRROR = Path(__file__).parents[3] / "shared" / "datasets"


class Server(ThreadingHTTPServer):
    """Serves `content`, and remembers the Range header of each request."""

    content = TEXT
    takes_ranges = True
    cut_first_at: int | None = None

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requested: list[str | None] = []


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.requested.append(wanted)
        begin = int(wanted[len("bytes=") : -1]) if wanted and self.server.takes_ranges else 0
        rest = self.server.content[begin:]
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        cut = self.server.cut_first_at if len(self.server.requested) == 1 else None
        self.wfile.write(rest[:cut])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def manifest(url: str = "http://127.0.0.1:1/nothing") -> Datasets:
    file = DataFile(
        name="lines.txt",
        urls=(url,),
        sha256=hashlib.sha256(TEXT).hexdigest(),
        size_bytes=len(TEXT),
    )
    lines = DataSet(
        name="lines", summary="lines", licence="ours", source="here", used_by=("w",), file=(file,)
    )
    inside = DataSet(
        name="inside", summary="i", licence="BSD", source="s", used_by=("w",), package="pytest"
    )
    return Datasets(dataset=(lines, inside))


def pinned_to(server: Server) -> Datasets:
    return manifest(f"http://127.0.0.1:{server.server_port}/lines.txt")


def test_fetched_file_is_whole_and_fetched_once(server: Server, tmp_path: Path) -> None:
    output: list[str] = []
    for _ in range(2):
        datasets.fetch([], tmp_path, manifest=pinned_to(server), progress=output.append)
    assert (tmp_path / "lines" / "lines.txt").read_bytes() == TEXT
    assert server.requested == [None]
    assert output[-2:] == [
        "lines/lines.txt: already there",
        "inside: inside the package pytest, nothing to fetch",
    ]
    assert [path.name for path in (tmp_path / "lines").iterdir()] == ["lines.txt"]


def test_download_that_was_cut_short_goes_on_where_it_stopped(
    server: Server, tmp_path: Path
) -> None:
    server.cut_first_at = 1000
    datasets.fetch(["lines"], tmp_path, manifest=pinned_to(server))
    assert server.requested == [None, "bytes=1000-"]
    assert (tmp_path / "lines" / "lines.txt").read_bytes() == TEXT


def test_part_left_by_an_earlier_run_is_used(server: Server, tmp_path: Path) -> None:
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "lines.txt.partial").write_bytes(TEXT[:7])
    datasets.fetch(["lines"], tmp_path, manifest=pinned_to(server))
    assert server.requested == ["bytes=7-"]
    assert (tmp_path / "lines" / "lines.txt").read_bytes() == TEXT


@pytest.mark.parametrize("takes_ranges", [True, False])
def test_wrong_part_is_thrown_away_and_fetched_anew(
    server: Server, tmp_path: Path, *, takes_ranges: bool
) -> None:
    server.takes_ranges = takes_ranges
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "lines.txt.partial").write_bytes(b"x" * 100)
    datasets.fetch(["lines"], tmp_path, manifest=pinned_to(server))
    assert (tmp_path / "lines" / "lines.txt").read_bytes() == TEXT


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (TEXT.replace(b"line 7\n", b"line 8\n"), "differs from its sha256"),
        (TEXT + b"more", "has 48,891 bytes instead of 48,890"),
        (TEXT[:-1], "has 48,889 bytes instead of 48,890"),
    ],
    ids=["changed", "longer", "shorter"],
)
def test_another_file_never_takes_the_place(
    server: Server, tmp_path: Path, content: bytes, fault: str
) -> None:
    server.content = content
    with pytest.raises(UsageError, match=f"could not be fetched .*{fault}.*--mirror"):
        datasets.fetch(["lines"], tmp_path, manifest=pinned_to(server))
    assert not (tmp_path / "lines" / "lines.txt").exists()


def test_without_a_network_the_mirror_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"Connection refused.*take it from a folder with --mirror"
    ):
        datasets.fetch(["lines"], tmp_path, manifest=manifest())


def test_mirror_is_checked_too(tmp_path: Path) -> None:
    mirror, to = tmp_path / "mirror", tmp_path / "to"
    (mirror / "lines").mkdir(parents=True)
    (mirror / "lines" / "lines.txt").write_bytes(TEXT[:-1] + b"!")
    with pytest.raises(UsageError, match="differs from its sha256: put the right file"):
        datasets.fetch(["lines"], to, mirror=mirror, manifest=manifest())
    (mirror / "lines" / "lines.txt").write_bytes(TEXT)
    datasets.fetch(["lines"], to, mirror=mirror, manifest=manifest())
    assert datasets.available_datasets(to, manifest()) == {"lines", "inside"}


def test_damaged_data_set_is_not_available_and_fetch_restores_it(
    server: Server, tmp_path: Path
) -> None:
    path = tmp_path / "lines" / "lines.txt"
    path.parent.mkdir()
    path.write_bytes(TEXT[:-1] + b"!")
    assert datasets.available_datasets(tmp_path, manifest()) == {"inside"}
    with pytest.raises(UsageError, match=r"lines\.txt differs from its sha256; .*fixes it"):
        datasets.verify(tmp_path, manifest=manifest())
    datasets.fetch(["lines"], tmp_path, manifest=pinned_to(server))
    datasets.verify(tmp_path, manifest=manifest())


def test_folder_without_data_sets_does_not_verify(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no data set"):
        datasets.verify(tmp_path, manifest=manifest())


def test_place_that_takes_no_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("a file where the folder would be")
    with pytest.raises(OutputError, match="cannot be written"):
        datasets.fetch(["lines"], tmp_path, manifest=manifest())


def test_unknown_data_set_gets_the_near_one() -> None:
    with pytest.raises(UsageError, match=r'called "cifar10" \(did you mean "cifar-10"\?\)'):
        datasets.fetch(["cifar10"], Path("unused"))


def test_run_looks_where_it_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image, other = tmp_path / "image", tmp_path / "other"
    image.mkdir()
    other.mkdir()
    monkeypatch.setattr(datasets, "IN_IMAGE", image)
    monkeypatch.delenv(datasets.VARIABLE, raising=False)
    assert datasets.folder(None) == image
    monkeypatch.setenv(datasets.VARIABLE, str(other))
    assert datasets.folder(None) == other
    assert datasets.folder(image) == image
    with pytest.raises(UsageError, match=r"--data names .*, which is no folder"):
        datasets.folder(tmp_path / "missing")


def test_shipped_manifest_is_pinned_and_every_row_has_a_licence() -> None:
    known = dataset_file.load_datasets().dataset
    assert [item.name for item in known] == [
        "tinyshakespeare",
        "planetoid-cora",
        "cifar-10",
        "digits",
    ]
    assert all(row["licence"] and row["source"] for row in datasets.rows())


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("sha256 = ", 'sha256 = "12" # ', "needs its https address, its size and its sha256"),
        ("https://raw", "ftp://raw", "needs its https address"),
        ('name = "input.txt"', 'name = "../input.txt"', "needs its https address"),
        ('package = "scikit-learn"', "", '"digits" needs files or else a package'),
        ('name = "digits"', 'name = "cifar-10"', "stands there twice"),
        ("licence = ", 'license = "MIT"\nlicence = ', 'did you mean "licence"'),
    ],
)
def test_manifest_that_pins_nothing_is_refused(
    tmp_path: Path, old: str, new: str, fault: str
) -> None:
    path = tmp_path / "datasets.toml"
    path.write_text(dataset_file.DATASETS.read_text().replace(old, new, 1))
    with pytest.raises(UsageError, match=fault):
        dataset_file.load_datasets(path)


@pytest.mark.skipif(not MIRROR.is_dir(), reason="no mirror beside this checkout")
def test_real_files_are_those_that_the_manifest_pins(tmp_path: Path) -> None:
    datasets.fetch(["tinyshakespeare", "planetoid-cora"], tmp_path, mirror=MIRROR)
    assert datasets.available_datasets(tmp_path) >= {"tinyshakespeare", "planetoid-cora"}
