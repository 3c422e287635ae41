"""How often a healthy device may give other bits, and what that says of differences that were seen.

Of N repeats none of which differed, the rate of differences is below 3 / N with a confidence of
95 %: (1 - p)^N = 0.05 gives p = -ln(0.05) / N, a little below 3 / N (the "rule of three": J. A.
Hanley and A. Lippman-Hand, "If nothing goes wrong, is everything all right?", JAMA 249, 1983).
Differences that would come from that rate with a probability below `LEAST_PROBABILITY` do not
come from a healthy device.
"""

from __future__ import annotations

from scipy.special import bdtrc

LEAST_PROBABILITY = 1e-4
"""Below it a healthy device is not believed; the rate is an upper bound, so the true risk of
accusing one is smaller."""


def rate_bound(num_clean: int) -> float:
    """Largest rate, at 95 % confidence, at which none of `num_clean` repeats (1 or more) differ."""
    return min(1.0, 3 / num_clean)


def tail_probability(num_differing: int, num_repeats: int, rate: float) -> float:
    """Probability of so many differences or more in so many independent repeats at this rate."""
    if num_differing <= 0 or rate >= 1.0:
        return 1.0
    return float(bdtrc(num_differing - 1, num_repeats, rate))


def is_believable(num_differing: int, num_repeats: int, num_clean: int) -> bool:
    """Whether a device of which `num_clean` repeats are known may have given these differences."""
    rate = rate_bound(num_clean)
    return tail_probability(num_differing, num_repeats, rate) >= LEAST_PROBABILITY
