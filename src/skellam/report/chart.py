"""Line charts over rounds as inline SVG, drawn without scripts: colours come from the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite

from skellam.report.axis import Axis, linear, logarithmic
from skellam.report.figures import number
from skellam.report.markup import Markup, join, tag

_WIDTH, _HEIGHT = 520.0, 260.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 12.0, 12.0, 40.0
_MOST_HOVERS = 200


@dataclass(frozen=True, slots=True)
class Line:
    """A name and a value for each of the chart's rounds; ``None`` and infinity are left out."""

    name: str
    values: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over rounds. ``level`` is a horizontal line: a budget, or what was planned."""

    key: str
    """Names the chart's elements; one of a kind in the page."""
    title: str
    rounds: tuple[int, ...]
    lines: tuple[Line, ...]
    text: Callable[[float | None], str]
    tick: Callable[[float | None], str] = number
    log: bool = False
    level: tuple[str, float] | None = None

    def draw(self) -> Markup:
        """Return the chart with its legend, or a sentence where there is nothing to draw."""
        if not any(self._finite):
            return tag("figure", tag("h3", self.title), tag("p", "Nothing to show.", class_="mute"))
        return tag("figure", tag("h3", self.title), self._legend(), self._svg())

    @property
    def _finite(self) -> list[float]:
        values = [x for line in self.lines for x in line.values if x is not None and isfinite(x)]
        return values + ([self.level[1]] if values and self.level else [])

    @property
    def _y(self) -> Axis:
        return logarithmic(self._finite) if self.log else linear(self._finite)

    @property
    def _x(self) -> Axis:
        return linear(self.rounds)

    def _place(self, number: float, value: float) -> tuple[float, float]:
        return (
            _LEFT + self._x.at(number) * (_WIDTH - _LEFT - _RIGHT),
            _HEIGHT - _BOTTOM - self._y.at(value) * (_HEIGHT - _TOP - _BOTTOM),
        )

    def _legend(self) -> Markup:
        names = [(f"line-{i}", line.name) for i, line in enumerate(self.lines)]
        if self.level:
            names.append(("level", f"{self.level[0]} {self.text(self.level[1])}"))
        return tag("p", *(_entry(*pair) for pair in names), class_="legend")

    def _svg(self) -> Markup:
        return tag(
            "svg",
            tag("title", self.title, id=f"{self.key}-title"),
            tag("desc", self._description(), id=f"{self.key}-desc"),
            *self._grid(),
            *self._lines(),
            *self._hovers(),
            viewBox=f"0 0 {_WIDTH:g} {_HEIGHT:g}",
            role="img",
            aria_labelledby=f"{self.key}-title {self.key}-desc",
        )

    def _description(self) -> str:
        last = [f"{line.name} {self.text(_last(line.values))}" for line in self.lines]
        return f"After round {self.rounds[-1]}: {', '.join(last)}. The table has every round."

    def _grid(self) -> Iterator[Markup]:
        right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
        for value in self._y.ticks:
            _, y = self._place(0, value)
            yield tag("line", x1=_LEFT, x2=right, y1=y, y2=y, class_="grid")
            yield tag("text", self.tick(value), x=_LEFT - 8, y=y + 4, text_anchor="end")
        for count in self._x.ticks:
            if count.is_integer():
                x, _ = self._place(count, self._y.low)
                yield tag("text", f"{count:g}", x=x, y=bottom + 18, text_anchor="middle")
        yield tag("text", "round", x=right, y=bottom + 34, text_anchor="end", class_="mute")

    def _lines(self) -> Iterator[Markup]:
        if self.level:
            _, y = self._place(0, self.level[1])
            yield tag("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y, class_="level")
        for i, line in enumerate(self.lines):
            points = self._points(line.values)
            if points:
                path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
                yield tag("polyline", points=path, class_=f"line line-{i}")
                x, y = points[-1]
                yield tag("circle", cx=x, cy=y, r=3, class_=f"dot line-{i}")

    def _points(self, values: Sequence[float | None]) -> list[tuple[float, float]]:
        pairs = zip(self.rounds, values, strict=True)
        return [self._place(n, x) for n, x in pairs if x is not None and isfinite(x)]

    def _hovers(self) -> Iterator[Markup]:
        """Yield an invisible column over every round that says its numbers under the pointer."""
        step = -(-len(self.rounds) // _MOST_HOVERS)
        wide = (_WIDTH - _LEFT - _RIGHT) / self._x.high * step
        for i in range(0, len(self.rounds), step):
            x, _ = self._place(self.rounds[i], self._y.low)
            said = [f"{line.name} {self.text(line.values[i])}" for line in self.lines]
            column = {"x": x - wide / 2, "y": _TOP, "width": wide}
            yield tag(
                "g",
                tag("rect", **column, height=_HEIGHT - _TOP - _BOTTOM),
                tag("line", x1=x, x2=x, y1=_TOP, y2=_HEIGHT - _BOTTOM),
                tag("title", "\n".join([f"round {self.rounds[i]}", *said])),
                class_="hover",
            )


def _entry(kind: str, name: str) -> Markup:
    stroke = tag("line", x1=1, x2=21, y1=5, y2=5, class_=f"line {kind}")
    swatch = tag("svg", stroke, viewBox="0 0 22 10", class_="swatch", aria_hidden="true")
    return tag("span", join((swatch, name)))


def _last(values: Sequence[float | None]) -> float | None:
    return next((x for x in reversed(values) if x is not None), None)
