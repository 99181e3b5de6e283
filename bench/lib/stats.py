"""Medians, ratios of pairs, and how sure they are."""

import random
import statistics

RESAMPLES = 4000


def median(values):
    return statistics.median(values) if values else None


def interval(values):
    """The bootstrap 95 % interval of the median. Drawn alike each time: the same rounds give the same interval.

    With fewer than six values this is hardly more than their range, which is the honest thing to show then."""
    if not values:
        return None, None
    rng = random.Random(1)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return medians[int(RESAMPLES * 0.025)], medians[int(RESAMPLES * 0.975) - 1]


def spread(values):
    """(largest - smallest) / median, the roughest measure of noise."""
    middle = median(values)
    return (max(values) - min(values)) / middle if middle else None


def verdict(values, target):
    """Of ratios where more is better: is the target met? Within the interval it is undecided, and said so."""
    if not values:
        return "not measured"
    low, high = interval(values)
    if low >= target:
        return "met"
    if high < target:
        return "missed"
    return "undecided"


def near(values, target, margin=0.10):
    """Is the median so near the target that three rounds cannot tell?"""
    middle = median(values)
    return middle is not None and abs(middle / target - 1) <= margin
