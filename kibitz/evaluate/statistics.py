"""Means with intervals."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Z95 = 1.959963984540054  # the normal quantile of 0.975; samples here are never small


def mean_ci95(values: NDArray[np.floating]) -> tuple[float, tuple[float, float]]:
    """The mean and its 95 % interval; omits NaN."""
    known = values[~np.isnan(values)]
    if not len(known):
        return math.nan, (math.nan, math.nan)
    mean = float(known.mean())
    half = Z95 * float(known.std(ddof=1)) / math.sqrt(len(known)) if len(known) > 1 else math.nan
    return mean, (mean - half, mean + half)
