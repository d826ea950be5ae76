"""Line charts over rounds as inline SVG, drawn without scripts: colours come from the page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TypeAlias

from markupsafe import Markup

from skellam.report.markup import join, number, tag

_MAX_LOG_TICKS = 7


@dataclass(frozen=True, slots=True)
class Axis:
    """An interval with its ticks; ``log`` says that equal ratios are equally far apart."""

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    def at(self, x: float) -> float:
        """Return where ``x`` lies: 0 at the low end, 1 at the high end."""
        if self.log:
            return math.log(x / self.low) / math.log(self.high / self.low)
        return (x - self.low) / (self.high - self.low)


def linear(values: Iterable[float], *, count: int = 5) -> Axis:
    """Return an axis from 0 through all of ``values``, none negative, with about ``count`` steps.

    >>> linear([0.31, 0.868]).ticks
    (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    """
    high = max(values, default=0.0) or 1.0
    step = _round_up(high / count)
    steps = math.ceil(high / step * (1 - 1e-12))
    ticks = tuple(float(f"{i * step:.12g}") for i in range(steps + 1))
    return Axis(0.0, ticks[-1], ticks)


def logarithmic(values: Iterable[float]) -> Axis:
    """Return an axis whose ends are 1, 2 or 5 times a power of ten, around all of ``values``.

    >>> logarithmic([0.9, 11.5]).ticks
    (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)
    """
    found = [x for x in values if x > 0] or [1.0]
    first, last = math.floor(math.log10(min(found))), math.ceil(math.log10(max(found)))
    steps = [float(f"{m}e{k}") for k in range(first, last + 1) for m in (1, 2, 5)]
    low = max(x for x in steps if x <= min(found) * (1 + 1e-12))
    high = min(x for x in steps if x >= max(found) * (1 - 1e-12) and x > low)
    ticks = tuple(x for x in steps if low <= x <= high)
    if len(ticks) > _MAX_LOG_TICKS:
        ticks = tuple(x for x in ticks if math.log10(x).is_integer())
    return Axis(low, high, ticks, log=True)


def _round_up(x: float) -> float:
    """Return the least of 1, 2, 5 times a power of ten that is at least ``x``."""
    power = 10.0 ** math.floor(math.log10(x))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= x * (1 - 1e-12))


_WIDTH, _HEIGHT = 520.0, 260.0
_LEFT, _END, _TOP, _BASE = 52.0, 508.0, 12.0, 220.0
"""The edges of the plot itself."""
_MAX_HOVERS = 200
Text: TypeAlias = Callable[[float | None], str]


@dataclass(frozen=True, slots=True)
class Line:
    """A name and a value for each of the chart's rounds; ``None`` and infinity are left out."""

    name: str
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Frame:
    """Where rounds and values lie in a chart."""

    x: Axis
    y: Axis

    def point(self, count: float, value: float) -> tuple[float, float]:
        """Return the point of a value after so many rounds."""
        across, up = self.x.at(count), self.y.at(value)
        return _LEFT + across * (_END - _LEFT), _BASE - up * (_BASE - _TOP)

    def grid(self, tick: Text) -> Iterator[Markup]:
        """Yield a rule at every tick of the values, and the labels of both axes."""
        for value in self.y.ticks:
            _, y = self.point(0, value)
            yield tag("line", x1=_LEFT, x2=_END, y1=y, y2=y, class_="grid")
            yield tag("text", tick(value), x=_LEFT - 8, y=y + 4, text_anchor="end")
        for count in filter(float.is_integer, self.x.ticks):
            x, _ = self.point(count, self.y.low)
            yield tag("text", f"{count:g}", x=x, y=_BASE + 18, text_anchor="middle")
        yield tag("text", "round", x=_END, y=_BASE + 34, text_anchor="end")


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over rounds. ``level`` is a horizontal line: a budget, or what was planned."""

    key: str
    """Names the chart's elements; one of a kind in the page."""
    title: str
    rounds: tuple[int, ...]
    lines: tuple[Line, ...]
    text: Text
    tick: Text = number
    log: bool = False
    level: tuple[str, float] | None = None

    def draw(self) -> Markup:
        """Return the chart with its legend, or a sentence where there is nothing to draw."""
        values = [x for line in self.lines for x in line.values if x is not None and isfinite(x)]
        if not values:
            return tag("figure", tag("h3", self.title), tag("p", "Nothing to show.", class_="mute"))
        values += [self.level[1]] if self.level else []
        frame = Frame(linear(self.rounds), (logarithmic if self.log else linear)(values))
        return tag("figure", tag("h3", self.title), self._legend(), self._svg(frame))

    def _legend(self) -> Markup:
        names = [(f"line-{i}", line.name) for i, line in enumerate(self.lines)]
        if self.level:
            names.append(("level", f"{self.level[0]} {self.text(self.level[1])}"))
        return tag("p", *(_entry(*pair) for pair in names), class_="legend")

    def _svg(self, frame: Frame) -> Markup:
        return tag(
            "svg",
            tag("title", self.title, id=f"{self.key}-title"),
            tag("desc", self._description(), id=f"{self.key}-desc"),
            *frame.grid(self.tick),
            *self._lines(frame),
            *self._hovers(frame),
            viewBox=f"0 0 {_WIDTH:g} {_HEIGHT:g}",
            role="img",
            aria_labelledby=f"{self.key}-title {self.key}-desc",
        )

    def _description(self) -> str:
        last = [f"{line.name} {self.text(_last(line.values))}" for line in self.lines]
        return f"After round {self.rounds[-1]}: {', '.join(last)}. The table has every round."

    def _lines(self, frame: Frame) -> Iterator[Markup]:
        if self.level:
            _, y = frame.point(0, self.level[1])
            yield tag("line", x1=_LEFT, x2=_END, y1=y, y2=y, class_="level")
        for i, line in enumerate(self.lines):
            pairs = zip(self.rounds, line.values, strict=True)
            points = [frame.point(n, v) for n, v in pairs if v is not None and isfinite(v)]
            if points:
                path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
                yield tag("polyline", points=path, class_=f"line line-{i}")
                x, y = points[-1]
                yield tag("circle", cx=x, cy=y, r=3, class_=f"dot line-{i}")

    def _hovers(self, frame: Frame) -> Iterator[Markup]:
        """Yield invisible columns over the rounds that say their numbers under the pointer."""
        shown = range(0, len(self.rounds), -(-len(self.rounds) // _MAX_HOVERS))
        wide = (_END - _LEFT) / len(shown)
        for i in shown:
            x, _ = frame.point(self.rounds[i], frame.y.low)
            said = [f"{line.name} {self.text(line.values[i])}" for line in self.lines]
            yield tag(
                "g",
                tag("rect", x=x - wide / 2, y=_TOP, width=wide, height=_BASE - _TOP),
                tag("line", x1=x, x2=x, y1=_TOP, y2=_BASE),
                tag("title", "\n".join([f"round {self.rounds[i]}", *said])),
                class_="hover",
            )


def _entry(kind: str, name: str) -> Markup:
    stroke = tag("line", x1=1, x2=21, y1=5, y2=5, class_=f"line {kind}")
    swatch = tag("svg", stroke, viewBox="0 0 22 10", class_="swatch", aria_hidden="true")
    return tag("span", join((swatch, name)))


def _last(values: Sequence[float | None]) -> float | None:
    return next((x for x in reversed(values) if x is not None), None)
