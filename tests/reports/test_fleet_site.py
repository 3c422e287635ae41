"""The site of a fleet: the same bytes every time, nothing fetched, small pages, whole links."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote

import duckdb
import pytest
from pyhanko.pdf_utils.reader import PdfFileReader
from support.fleet_tables import campaign, collection, entry, planted_fleet, run
from support.program import ROOT, called
from support.synthetic_fleet import node_name, planted

from appliance.collection import queries, standing
from appliance.errors import OutputError
from appliance.signing import keys, pades
from reports.fleet import site as sites
from reports.fleet import summary
from reports.fleet.site import SUMMARY

NODES = 300
FAULTS = planted(NODES, 1, rack_size=10)
LARGEST_PAGE = 2_000_000
VOID = {"meta", "link", "input", "br"}
OUTER = re.compile(r'(?:src|href)="(?:[a-z]+:)?//|url\(|@import', re.IGNORECASE)


class Checked(HTMLParser):
    """What a page links to, its headings, and tables without a caption or a head."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.levels: list[int] = []
        self.faults: list[str] = []
        self.open: list[str] = []
        self.classes: list[str] = []
        self.parts: list[set[str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.links += [str(values[name]) for name in ("href", "src") if values.get(name)]
        if re.fullmatch("h[1-6]", tag):
            self.levels.append(int(tag[1]))
        if tag == "table":
            self.parts.append(set())
        elif self.parts:
            self.parts[-1].add(tag)
        if "wide" in str(values.get("class")).split() and not (
            values.get("tabindex") == "0" and values.get("aria-label")
        ):
            self.faults.append("what scrolls sideways and no keyboard reaches")
        if tag == "table" and "wide" not in self.classes[-1:]:
            self.faults.append("a table that cannot scroll")
        if tag == "th" and values.get("scope") not in {"row", "col"}:
            self.faults.append("a head of a table without its scope")
        if tag not in VOID:
            self.open.append(tag)
            self.classes.append(str(values.get("class")))

    def handle_endtag(self, tag: str) -> None:
        if tag == "table" and not {"caption", "thead"} <= self.parts.pop():
            self.faults.append("a table without a caption or a head")
        self.classes.pop()
        if self.open.pop() != tag:
            self.faults.append(f"{tag} is closed where another is open")


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planted")
    collection(folder, planted_fleet(FAULTS, 1))
    return folder


@pytest.fixture(scope="module")
def site(collected: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site") / "site"
    sites.write(collected, place, keys.development_key())
    return place


def files(site: Path) -> dict[str, bytes]:
    paths = sorted(path for path in site.rglob("*") if path.is_file())
    return {str(path.relative_to(site)): path.read_bytes() for path in paths}


def test_same_tables_give_the_same_bytes(collected: Path, site: Path) -> None:
    again = site.with_name("again")
    sites.write(collected, again, keys.development_key())
    first, second = files(site), files(again)
    differing = {name for name in first | second if first.get(name) != second.get(name)}
    assert differing == {SUMMARY}  # signed anew, with the time


def test_pages_are_small_and_fetch_nothing(site: Path) -> None:
    for name, data in files(site).items():
        if name.endswith((".html", ".css", ".js")):
            assert len(data) < LARGEST_PAGE, name
            assert not OUTER.search(data.decode()), name


def test_every_link_leads_to_a_file_and_every_page_is_accessible(site: Path) -> None:
    there = files(site)
    pages = [name for name in there if name.endswith(".html")]
    assert len(pages) > NODES
    for name in pages:
        checked = Checked(there[name].decode())
        assert not checked.faults, (name, checked.faults)
        assert checked.levels[0] == 1, name
        assert checked.levels.count(1) == 1, name
        steps = zip(checked.levels, checked.levels[1:], strict=False)
        assert all(after <= before + 1 for before, after in steps), name
        for link in checked.links:
            target = (site / name).parent / unquote(link)
            if link.startswith("#") or "/bundles/" in f"/{link}":
                continue
            assert target.is_file(), (name, link)


def test_overview_names_what_was_planted(site: Path) -> None:
    text = (site / "index.html").read_text()
    for rack in FAULTS.hot:
        assert re.search(rf'found" href="racks/rack-{rack:03d}\.html"', text)
    (slow, *_) = [number for number in FAULTS.slow if number not in FAULTS.forged]
    page = (site / "nodes" / f"{node_name(slow)}.html").read_text()
    assert re.search(r"<strong>beyond \+\d\.\d\u00a0%: slower</strong>", page)
    assert '<a href="../metrics/gemm.html">gemm</a>' in page
    metric = (site / "metrics" / "gemm.html").read_text()
    assert node_name(slow) in metric
    assert "<svg" in metric


def test_node_links_to_its_bundle(collected: Path, site: Path) -> None:
    text = (site / "nodes" / f"{node_name(0)}.html").read_text()
    with queries.opened(collected) as tables:
        (one,) = [row for row in tables.ask("attempts").records if row["node"] == node_name(0)]
    (link,) = re.findall(r'<a href="([^"]+)/report\.html">report</a>', text)
    assert (site / "nodes" / unquote(link)).resolve() == Path(one["source"])


def test_summary_has_at_most_ten_pages_and_is_signed(collected: Path, tmp_path: Path) -> None:
    key = keys.development_key()
    sites.write(collected, tmp_path / "site", key)
    data = (tmp_path / "site" / SUMMARY).read_bytes()
    pades.check_pdf(data, key.certificate)
    assert int(PdfFileReader(BytesIO(data)).root["/Pages"]["/Count"]) <= summary.MOST_PAGES


def test_summary_of_the_longest_lists_has_at_most_ten_pages(tmp_path: Path) -> None:
    """All lists full of the longest words: every node rejected, each with names of 63 letters."""
    names = [f"n{number:03d}{'x' * 59}" for number in range(100)]
    cases = range(summary.MOST_LINES + 1)
    spread = {f"{'case' * 12}-{number:02d}": 0.01 * (number + 1) for number in cases}
    entries = []
    for number, name in enumerate(names):
        times = {case: value * (1.5 if number % 2 else 1.0) for case, value in spread.items()}
        made = run(name, verdict="REJECTED", seconds=times, driver=f"{number % 40}" * 40)
        entries += [entry(name, made), entry(name, made, source=f"/bundles/{'y' * 200}/{name}")]
    fleet = standing.fleet(campaign(names, ["r" * 60] * 100, retests=0), entries)
    collection(tmp_path / "out", fleet)
    sites.write(tmp_path / "out", tmp_path / "site", keys.development_key())
    data = (tmp_path / "site" / SUMMARY).read_bytes()
    assert int(PdfFileReader(BytesIO(data)).root["/Pages"]["/Count"]) <= summary.MOST_PAGES


def test_queries_of_the_site_give_the_same_in_a_plain_duckdb(collected: Path, site: Path) -> None:
    """Whoever has the downloads alone can ask what the site shows."""
    with duckdb.connect() as base:
        for path in sorted((site / "downloads").glob("*.parquet")):
            base.execute(f"CREATE VIEW {path.stem} AS SELECT * FROM '{path}'")  # noqa: S608
        with queries.opened(collected) as tables:
            for name in queries.names():
                text = (site / "downloads" / f"{name}.sql").read_text()
                assert text.startswith("-- ")
                assert base.execute(text).fetchall() == list(tables.ask(name).rows), name


def test_racks_whose_names_are_alike_have_pages_of_their_own(tmp_path: Path) -> None:
    """Some file systems know no case, no rack is called by the page of those without one."""
    racks = ["a", "A", "none", "", "_none", "a--2"]
    names = [f"n{number}" for number in range(len(racks))]
    entries = [entry(name, run(name)) for name in names]
    collection(tmp_path / "out", standing.fleet(campaign(names, racks), entries))
    sites.write(tmp_path / "out", tmp_path / "site", keys.development_key())
    pages = [path.name for path in (tmp_path / "site" / "racks").iterdir()]
    assert len({name.lower() for name in pages}) == len(racks), pages
    for name, rack in zip(names, racks, strict=True):
        page = (tmp_path / "site" / "nodes" / f"{name}.html").read_text()
        (link,) = re.findall(r'href="\.\./(racks/[^"]+)"', page)
        own = (tmp_path / "site" / link).read_text()
        assert f"../nodes/{name}.html" in own, rack


def test_foreign_text_is_shown_and_never_run(tmp_path: Path) -> None:
    driver = '<script>alert(1)</script>\x1b[2J\u202e"'
    entries = [
        entry(name, run(name, driver=driver if name == "a" else "1.0"), source=f"/b/<i>{name}")
        for name in "abcdef"
    ]
    collection(tmp_path / "out", standing.fleet(campaign(list("abcdef"), [""] * 6), entries))
    sites.write(tmp_path / "out", tmp_path / "site", keys.development_key())
    for name, data in files(tmp_path / "site").items():
        if name.endswith(".html"):
            text = data.decode()
            for hostile in ("<script>alert", "<i>a", "\x1b", "\u202e"):
                assert hostile not in text, name
    assert "&lt;script&gt;alert(1)" in (tmp_path / "site" / "inventory.html").read_text()


def test_fleet_without_a_bundle_has_a_site(tmp_path: Path) -> None:
    collection(tmp_path / "out", standing.fleet(campaign(["a"], [""]), []))
    made = sites.write(tmp_path / "out", tmp_path / "site", keys.development_key())
    assert made.num_pages == 6
    assert "no verified bundle" in (tmp_path / "site" / "nodes" / "a.html").read_text()


@pytest.mark.parametrize(
    ("num_nodes", "fences"),
    [(4, "none: no device is tested here, since fewer than 5 have a time"), (5, "and +")],
)
def test_few_nodes_of_very_different_times_have_a_site(
    num_nodes: int, fences: str, tmp_path: Path
) -> None:
    names = "abcdef"[:num_nodes]
    entries = [
        entry(name, run(name, seconds={"gemm": 0.01 * 10.0**number}))
        for number, name in enumerate(names)
    ]
    fleet = standing.fleet(campaign(list(names), [""] * num_nodes), entries)
    collection(tmp_path / "out", fleet)
    sites.write(tmp_path / "out", tmp_path / "site", keys.development_key())
    page = (tmp_path / "site" / "metrics" / "gemm.html").read_text()
    assert fences in page
    assert f"Histogram of {num_nodes} devices" in page
    assert "<rect" in page
    drawn = re.findall(r' [xy]1?="([^"]+)"', page)
    assert all(0 <= float(value) <= 700 for value in drawn)


def test_folder_that_is_no_site_is_not_replaced(collected: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("mine")
    with pytest.raises(OutputError, match="holds something that is no site"):
        sites.write(collected, tmp_path / "mine", keys.development_key())
    assert (tmp_path / "mine" / "letter.txt").read_text() == "mine"


def test_site_without_a_collection_names_the_verb(tmp_path: Path) -> None:
    done = called("fleet", "site", str(tmp_path), "--out", str(tmp_path / "site"))
    assert done.returncode == 2
    assert "make them by `bench fleet collect CAMPAIGN FROM --out" in done.stderr


WRITE = """
import sys
from pathlib import Path
from appliance.signing import keys
from reports.fleet import site
site.write(Path(sys.argv[1]), Path(sys.argv[2]), keys.development_key())
"""


def writing(collected: Path, place: Path, before: str = "") -> subprocess.Popen[str]:
    """A process that writes the site."""
    words = [sys.executable, "-c", f"{before}{WRITE}", str(collected), str(place)]
    return subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE, text=True)


def test_kill_9_while_a_site_is_written_leaves_the_old_one_and_no_rest_after_the_next(
    collected: Path, site: Path, tmp_path: Path
) -> None:
    place, mine = tmp_path / "site", tmp_path / "site.old"
    mine.mkdir()
    shutil.copytree(site, place)
    before = files(place)
    process = writing(collected, place)
    while not any(tmp_path.glob(".unfinished-*-site/nodes/*")):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.kill()
    process.communicate()
    assert files(place) == before
    assert any(tmp_path.glob(".unfinished-*"))
    sites.write(collected, place, keys.development_key())
    assert sorted(tmp_path.iterdir()) == [place, mine], "and nothing of somebody else's is gone"
    assert files(place).keys() == before.keys()


def test_full_disk_leaves_the_old_site(collected: Path, site: Path, tmp_path: Path) -> None:
    place = tmp_path / "site"
    shutil.copytree(site, place)
    before = files(place)
    limit = (
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, 12_000))\n"
    )
    process = writing(collected, place, limit)
    _, words = process.communicate()
    assert process.returncode == 1
    assert f"OutputError: {place} cannot be written" in words.splitlines()[-1]
    assert files(place) == before
    assert [*tmp_path.iterdir()] == [place]


def test_half_of_the_nodes_with_another_driver_are_listed_and_none_is_marked(
    tmp_path: Path,
) -> None:
    names = [f"n{one}" for one in range(12)]
    entries = [
        entry(
            name,
            run(
                name,
                driver="550.1" if one % 2 else "570.2",
                seconds={"case": (0.0102 if one % 2 else 0.01) + one / 1e6},
            ),
        )
        for one, name in enumerate(names)
    ]
    (tmp_path / "c").mkdir()
    collection(tmp_path / "c", standing.fleet(campaign(names, [""] * 12), entries))
    sites.write(tmp_path / "c", tmp_path / "site", keys.development_key())
    page = (tmp_path / "site" / "inventory.html").read_text()
    assert "of equally common ones the first by name: 6 of 6" in page
    assert "550.1: 6<br>570.2: 6" in page
    assert page.count("<td>570.2</td><td>550.1</td>") == 6
    overview = (tmp_path / "site" / "index.html").read_text()
    assert re.search(r'inventory.html">5[57]0.[12]</a></th><td class="number">6<', overview)
    assert "<h2>Nodes beyond the fences</h2>\n<p>None.</p>" in overview


@pytest.mark.parametrize("number", [3, 6])
def test_pages_say_where_too_few_devices_are_tested(tmp_path: Path, number: int) -> None:
    """`odd` has a time on three nodes alone; with three nodes there is no other."""
    names = [f"n{one}" for one in range(number)]
    entries = []
    for one, name in enumerate(names):
        times = {"case": 0.01 + one / 1e5} | ({"odd": 0.02 + one / 1e5} if one < 3 else {})
        entries.append(entry(name, run(name, seconds=times)))
    (tmp_path / "c").mkdir()
    collection(tmp_path / "c", standing.fleet(campaign(names, [""] * number), entries))
    sites.write(tmp_path / "c", tmp_path / "site", keys.development_key())
    overview = (tmp_path / "site" / "index.html").read_text()
    untested = "odd" if number > 3 else "case, odd"
    assert f"Not tested for outliers: {untested}. Fewer than 5 devices" in overview
    assert ("No device was tested" in overview) == (number == 3)
    node = (tmp_path / "site" / "nodes" / "n0.html").read_text()
    assert f"Not tested for outliers: {untested}." in node
    assert node.count(">not tested<") == untested.count(",") + 1
    assert (">within -" in node) == (number > 3)
    metric = (tmp_path / "site" / "metrics" / "odd.html").read_text()
    assert "No device was tested" in metric
    assert "Dashed" not in metric


SCHEMES = re.compile(r":root \{ color-scheme: light dark;(.*?)\}.*?:root \{(.*?)\}", re.DOTALL)


@pytest.mark.parametrize("scheme", [1, 2], ids=["light", "dark"])
def test_text_stands_out_from_what_is_behind_it_in_both_schemes(site: Path, scheme: int) -> None:
    """By the contrast of WCAG 2.2 (1.4.3): 4.5 to 1 for text."""
    found = SCHEMES.search((site / "style.css").read_text())
    assert found
    colours = dict(re.findall(r"--([a-z0-9-]+): #([0-9a-f]{6});", found[scheme]))
    texts = ("ink", "muted", "link", "accepted", "rejected", "open", "control")
    pairs = [(text, behind) for text in texts for behind in ("paper", "marked")]
    tiles = ("slow-1", "slow-2", "slow-3", "fast-1", "fast-2", "fast-3", "paper", "code", "stripe")
    pairs += [("ink", tile) for tile in tiles]
    pairs += [("far", "slow-4"), ("far", "fast-4")]
    weak = {pair: ratio for pair in pairs if (ratio := contrast(*map(colours.get, pair))) < 4.5}
    assert not weak


def contrast(first: str, second: str) -> float:
    """Of two colours in hexadecimal, by their relative luminance (WCAG 2.2)."""
    brighter, darker = sorted((luminance(first), luminance(second)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no browser here")
def test_browser_finds_nodes_and_sorts_tables_from_a_file(site: Path, tmp_path: Path) -> None:
    """In a headless browser without a network: search and sort work by their own scripts."""
    probe = (
        (site / "index.html")
        .read_text()
        .replace(
            "</body>",
            "<script>var b=document.getElementById('search');b.value='00042';"
            "b.dispatchEvent(new Event('input'));"
            "document.querySelectorAll('thead button').forEach(function (one) {"
            "if (one.textContent === 'From what is expected') { one.click(); }});"
            "</script></body>",
        )
    )
    page = site / "probe.html"
    page.write_text(probe)
    words = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
    done = subprocess.run(
        ["chromium", *words, "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    page.unlink()
    assert f'href="nodes/{node_name(42)}.html"' in done.stdout
    assert 'class="search" role="search"><' in done.stdout  # shown, as the script runs
    table = done.stdout.partition('aria-sort="ascending"')[2].partition("</table>")[0]
    effects = [float(one) for one in re.findall("[▲▼] ([+-][0-9.]+)", table)]
    assert len(effects) > 5
    assert effects == sorted(effects), "the page has them the other way round"
