"""Limits per client address."""

from __future__ import annotations

import time
from collections import OrderedDict

MAX_ADDRESSES = 4096  # remembered by a rate limit


class RateLimit:
    """A token bucket per address: `rate` tokens a second, at most `burst` at once."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, address: str) -> bool:
        left = self._refilled(address)
        allowed = left >= 1
        self._left.pop(address, None)  # the address used last stays longest
        self._left[address] = (left - 1 if allowed else left, time.monotonic())
        if len(self._left) > MAX_ADDRESSES:
            self._left.popitem(last=False)
        return allowed

    def is_empty(self, address: str) -> bool:
        """Whether `take` would refuse; takes nothing."""
        return self._refilled(address) < 1

    def _refilled(self, address: str) -> float:
        now = time.monotonic()
        left, since = self._left.get(address, (self._burst, now))
        return min(self._burst, left + (now - since) * self._rate)
