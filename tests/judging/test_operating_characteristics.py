"""The promised error rates, simulated in small, and the document that states them in large.

Seeds are fixed. A bound on a rate is broken by chance less than once in a million.
"""

import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import operating_characteristics as document
import simulated_nodes as simulated

ROOT = Path(__file__).parents[2]
NODES = 1500
REALISED = 0.0115  # of a nominal 1 %: the bounds are turned into Student's t by tail probability


def is_at_most(count: int, total: int, rate: float) -> bool:
    return bool(stats.binomtest(count, total, rate, "greater").pvalue > 1e-6)


def is_at_least(count: int, total: int, rate: float) -> bool:
    return bool(stats.binomtest(count, total, rate, "less").pvalue > 1e-6)


# ------------------------------------------------------------------ rates


def test_exactly_at_the_limit_few_pass_and_few_fail() -> None:
    for row in simulated.at_the_limit(NODES):
        assert is_at_most(row.alone.num_pass, NODES, REALISED)
        assert is_at_most(row.without_floor.num_pass, NODES, REALISED)
        assert is_at_most(row.node.num_fail, NODES, REALISED)
        assert row.node.num_pass == 0
        assert is_at_least(row.without_floor.num_pass, NODES, 0.008)  # the risk is spent, not saved


def test_nodes_get_what_they_deserve() -> None:
    result = simulated.node_level(NODES)
    healthy, five = result[document.HEALTHY], result[document.FIVE]
    assert is_at_least(healthy.num_pass, NODES, 0.99)
    assert healthy.num_fail == 0
    for name in document.ONE_AT_LIMIT:
        assert is_at_most(result[name].num_pass, NODES, REALISED)
    assert is_at_most(result[document.ALL_AT_LIMIT].num_fail, NODES, 0.0092)
    assert (five.num_pass, result[document.EIGHT].num_pass) == (0, 0)
    assert is_at_least(five.num_fail, NODES, 0.999)


@pytest.mark.parametrize(("slowdown", "most"), [(0.05, 17.0), (0.08, 10.0)])
def test_a_slow_workload_is_decided_early(slowdown: float, most: float) -> None:
    result = simulated.power(NODES, (slowdown,), (0.01,))[slowdown, 0.01]
    assert result.num_pass == 0
    assert is_at_least(result.num_fail, NODES, 0.999)
    assert result.launches < most


def test_a_healthy_workload_is_done_at_its_first_interim_analyses() -> None:
    result = simulated.power(NODES, (0.0,), (0.005, 0.01, 0.02))
    assert all(is_at_least(rates.num_pass, NODES, 0.999) for rates in result.values())
    assert [round(rates.launches) for rates in result.values()] == [5, 7, 12]


def test_the_floor_and_the_pooled_limit_hold_back_two_modes() -> None:
    _, row, _ = simulated.two_modes(NODES)
    assert is_at_least(row.without_floor.num_pass, NODES, 0.4)  # what is guarded against
    assert is_at_most(row.with_floor.num_pass, NODES, 0.16)
    assert row.every.num_pass == 0
    assert is_at_least(row.every.num_fail, NODES, 0.98)


def test_a_slow_mode_at_the_pooled_limit_is_rarely_passed() -> None:
    limit = simulated.SLOW_LIMITS[-1]
    clean, at_limit = simulated.slow_launches(
        NODES,
        (simulated.Mode(part=0.0, shift=0.0), simulated.Mode(part=limit, shift=0.2)),
    )
    assert is_at_least(clean.pooled[-1].num_pass, NODES, 0.999)
    assert is_at_most(at_limit.pooled[-1].num_pass, NODES, 0.01)


def test_the_stall_rate_at_its_limit_is_rarely_ruled() -> None:
    limit = simulated.STALL_LIMIT
    result = simulated.stalls(NODES, (0.0, limit, 0.02), (120,))
    assert result[0.0, 120].num_pass == NODES
    assert is_at_most(result[limit, 120].num_pass, NODES, 0.01)
    assert is_at_most(result[limit, 120].num_fail, NODES, 0.0002)
    assert is_at_least(result[0.02, 120].num_fail, NODES, 0.999)


def test_medians_withstand_the_stalls_that_spoil_means() -> None:
    (row,) = simulated.stepped(NODES, ("autocorrelation 0.5, 2 % of steps stalled",))
    assert is_at_most(row.by_median.num_pass, NODES, 0.001)
    assert is_at_least(row.by_mean_without_floor.num_pass, NODES, 0.03)


# ------------------------------------------------------------------ the document


def test_the_document_states_what_the_simulation_gave() -> None:
    """The table of limits exactly met is made again, all of it; `make oc` writes it again."""
    made_again = document.limit_table(simulated.at_the_limit(simulated.NODES))
    assert made_again in document.DOCUMENT.read_text()


def test_the_document_says_how_it_was_made() -> None:
    text = " ".join(document.DOCUMENT.read_text().split())
    assert f"{simulated.NODES:,} simulated nodes" in text
    assert f"seed {simulated.SEED}" in text
    assert "make oc" in text
    assert "\noc:" in (ROOT / "Makefile").read_text()


def test_the_document_hides_no_missed_aim() -> None:
    rows = [line.split("|") for line in document.DOCUMENT.read_text().splitlines()]
    healthy = [row for row in rows if len(row) > 3 and "a healthy node is passed" in row[1]]
    assert len(healthy) == 3
    for row in healthy:
        is_met = float(row[2].split()[0]) >= 99
        assert row[3].strip() == ("yes" if is_met else "**no**")


def test_the_figures_of_the_document_are_drawings() -> None:
    names = re.findall(r"\]\(figures/([a-z]+\.svg)\)", document.DOCUMENT.read_text())
    assert sorted(names) == sorted(path.name for path in document.FIGURES.iterdir())
    for name in names:
        assert ET.fromstring((document.FIGURES / name).read_text()).tag.endswith("svg")  # noqa: S314


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0"), (1, "0.01 %"), (105, "1.05 %"), (9999, "99.99 %"), (10000, "100 %")],
)
def test_only_none_and_all_are_shown_as_such(count: int, words: str) -> None:
    assert document.share(count, 10_000) == words
