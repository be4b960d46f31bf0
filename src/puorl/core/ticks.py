"""Round numbers on an axis, and where a value lies on it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Scale = Literal["linear", "sqrt", "log"]


@dataclass(frozen=True)
class Axis:
    """Values from ``low`` to ``high`` laid out from ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float
    scale: Scale = "linear"

    def at(self, value: float) -> float:
        """Where a value lies; what is beyond an end is drawn at that end."""
        low, high = self._bent(self.low), self._bent(self.high)
        share = (self._bent(min(max(value, self.low), self.high)) - low) / (high - low)
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int) -> tuple[float, ...]:
        """Round numbers, at most ``most``."""
        if self.scale == "linear":
            return nice_ticks(self.low, self.high, most)
        return self._bent_ticks(most)

    def _bent(self, value: float) -> float:
        if self.scale == "sqrt":
            return math.sqrt(value)
        return math.log10(value) if self.scale == "log" else value

    def _bent_ticks(self, most: int) -> tuple[float, ...]:
        # From the top down, whatever keeps its distance from the one above; decades alone on a
        # log axis, where 1, 2, 5 would come out at uneven steps.
        top = math.floor(math.log10(self.high)) if self.high > 0 else 0
        factors = (1,) if self.scale == "log" else (5, 2, 1)
        rungs = [m * 10.0**k for k in range(top, top - 13, -1) for m in factors]
        rungs = [rung for rung in rungs if self.low <= rung <= self.high * (1 + 1e-9)]
        chosen: list[float] = []
        gap = abs(self.end - self.start) / most
        floor = [self.low] if self.scale == "sqrt" else []
        for rung in rungs:
            if all(abs(self.at(rung) - self.at(other)) >= gap for other in chosen + floor):
                chosen.append(rung)
        return tuple(sorted(chosen + floor))


def nice_ticks(low: float, high: float, most: int) -> tuple[float, ...]:
    """Multiples of 1, 2 or 5 times a power of ten within [low, high], at most ``most``.

    >>> nice_ticks(0.5, 1.0, 6)
    (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    """
    span = high - low
    # Beyond what float64 can step through, the ends are all that can be said.
    if not math.isfinite(span) or span <= 1e-9 * max(abs(low), abs(high), 1e-290):
        return (low,) if low == high else (low, high)
    power = math.floor(math.log10(span / most))
    steps = (m * 10.0**k for k in (power, power + 1, power + 2) for m in (1, 2, 5))
    step = next(step for step in steps if _num_inside(low, high, step) <= most)
    first, last = _inside(low, high, step)
    digits = max(0, -math.floor(math.log10(step)))
    inside = (round(k * step, digits) if digits < 300 else k * step for k in range(first, last + 1))
    return tuple(min(max(value, low), high) + 0.0 for value in inside)


def _inside(low: float, high: float, step: float) -> tuple[int, int]:
    """The first and the last multiple of the step, a rounding error at the ends forgiven."""
    return math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)


def _num_inside(low: float, high: float, step: float) -> int:
    first, last = _inside(low, high, step)
    return last - first + 1


def tick_texts(ticks: Sequence[float], *, percent: bool = False) -> list[str]:
    """Ticks as text, with the digits that tell them apart.

    >>> tick_texts((0.0, 0.5, 1.0)), tick_texts((0.25, 0.3), percent=True)
    (['0.0', '0.5', '1.0'], ['25 %', '30 %'])
    """
    values = [100 * tick for tick in ticks] if percent else list(ticks)
    form = _form(values)
    return [form(value) + (" %" if percent else "") for value in values]


def _form(values: Sequence[float]) -> Callable[[float], str]:
    largest = max((abs(value) for value in values), default=0.0)
    gaps = [abs(b - a) for a, b in zip(values, values[1:], strict=False) if a != b]
    smallest = min(gaps, default=largest)
    if largest >= 1e7 or (0 < smallest < 1e-4):
        return lambda value: f"{value:.3g}"
    even = not gaps or max(gaps) - smallest <= 1e-6 * smallest
    if not even:  # a bent axis: each tick with its own digits
        return lambda value: f"{value:,.4f}".rstrip("0").rstrip(".")
    digits = max((_digits(value) for value in values), default=0)
    return lambda value: f"{value:,.{digits}f}"


def _digits(value: float) -> int:
    return next((d for d in range(6) if abs(round(value, d) - value) < 1e-7), 6)
