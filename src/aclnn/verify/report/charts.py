"""SVG charts of the report, drawn from its JSON. Colours are classes, which the page styles for light and dark."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape
from typing import Any

from aclnn.verify.standards.picture import LEAST_HALF_OCTAVE

Json = dict[str, Any]

# 360 units wide: one unit is one pixel on a phone, where the text must be readable.
_WIDTH, _HEIGHT = 360, 200
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 8, 10, 34


def histogram(output: Json) -> str:
    """Draw the number of elements by error in ULP, on a logarithmic axis."""
    bins = output["histogram"]
    used = [k for k, item in enumerate(bins) if item["count"]]
    last = max([4, *(k for k in used if k < len(bins) - 1)])
    shown = [*range(last + 1), *([len(bins) - 1] if bins[-1]["count"] else [])]
    top = max(1.0, math.log10(max((item["count"] for item in bins), default=1) or 1) * 1.02)
    width = (_WIDTH - _LEFT - _RIGHT) / len(shown)
    parts = [_grid_line(_scale(k, 0, top), _power(k)) for k in range(int(top) + 1)]
    every = max(1, -(-len(shown) // 7))
    for place, k in enumerate(shown):
        count = bins[k]["count"]
        x = _LEFT + place * width
        if count:
            y = _scale(max(math.log10(count), 0.06), 0, top)
            kind = "good" if k == 0 else "bad" if k == len(bins) - 1 else "mark"
            title = f"{bins[k]['label']} ULP: {count:,} elements" if k else f"equal to the golden: {count:,} elements"
            parts.append(_bar(x + 1, y, width - 2, _HEIGHT - _BOTTOM - y, kind, title))
        if place % every == 0 or k == len(bins) - 1:
            parts.append(_text(x + width / 2, _HEIGHT - _BOTTOM + 13, _ulp_label(k, bins), "middle"))
    parts.append(_text((_LEFT + _WIDTH) / 2, _HEIGHT - 4, "error in ULP (upper ends); elements, logarithmic", "middle"))
    return _svg(parts, "Histogram of errors in units of the last place")


def _ulp_label(k: int, bins: list[Json]) -> str:
    if k == 0:
        return "equal"
    if k == len(bins) - 1:
        return "∞"
    exponent = k - 2
    return {-1: "½", 0: "1", 1: "2", 2: "4", 3: "8"}.get(exponent) or _power(exponent, 2)


def _power(exponent: int, base: int = 10) -> str:
    digits = str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return "1" if exponent == 0 else str(base) if exponent == 1 else f"{base}{digits}"


def by_x(output: Json) -> str:
    """Draw the largest and the mean error against x, on an axis that is logarithmic on both sides of zero."""
    bins = output["by_x"]
    if not bins:
        return _svg([_text(_WIDTH / 2, _HEIGHT / 2, "no elements", "middle")], "Error against x")
    places = [_place(item) for item in bins]
    low, high = min(place for place, _ in places), max(place + width for place, width in places)
    top = max(2.0, max(math.log2(max(item["max_ulp"], 0.25)) for item in bins) + 0.5)
    bottom = -2.0
    scale = (_WIDTH - _LEFT - _RIGHT) / (high - low)
    step = max(1, round((top - bottom) / 6))
    parts = [_grid_line(_scale(k, bottom, top), _power(k, 2)) for k in range(int(bottom), int(top) + 1, step)]
    runs: list[list[tuple[float, float]]] = []  # of adjacent bins
    reached = -math.inf
    for item, (place, width) in zip(bins, places, strict=True):
        x, span = _LEFT + (place - low) * scale, width * scale
        y = _scale(math.log2(max(item["max_ulp"], 2.0**bottom * 1.1)), bottom, top)
        if place > reached + 0.5:
            runs.append([])
        reached = place + width
        runs[-1].append((x + span / 2, _scale(math.log2(max(item["mean_ulp"], 2.0**bottom)), bottom, top)))
        title = (
            f"{output['axis']} in [{item['low']:.4g}, {item['high']:.4g}]: {item['elements']:,} elements, "
            f"{item['failing']:,} do not match; at most {item['max_ulp']:.4g} ULP, mean {item['mean_ulp']:.3g}"
        )
        kind = "bad" if item["failing"] else "mark"
        parts.append(_bar(x + 0.4, y, max(span - 0.8, 0.8), _HEIGHT - _BOTTOM - y, kind, title))
    for run in runs:
        points = run if len(run) > 1 else [(run[0][0] - 1.5, run[0][1]), (run[0][0] + 1.5, run[0][1])]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline class="halo" points="{line}"/><polyline class="line" points="{line}"/>')
    parts += _axis_labels(low, high, scale)
    caption = f"{output['axis']}, logarithmic; bars: largest ULP, line: mean"
    parts.append(_text((_LEFT + _WIDTH) / 2, _HEIGHT - 4, caption, "middle"))
    return _svg(parts, f"Error in ULP against {output['axis']}")


# In half octaves: zero spans two, from -1 to 1, and 2**-14 is at 1.
def _position(value: float) -> float:
    return 0.0 if value == 0 else math.copysign(2.0 * math.log2(abs(value)) - LEAST_HALF_OCTAVE + 1.0, value)


def _place(item: Json) -> tuple[float, float]:
    if item["low"] == item["high"] == 0.0:
        return -1.0, 2.0
    return _position(item["low"]), 1.0


def _axis_labels(low: float, high: float, scale: float) -> Iterable[str]:
    taken = -math.inf
    for value in (-1000, -100, -10, -1, -0.1, -0.01, 0, 0.01, 0.1, 1, 10, 100, 1000):
        place = _position(value)
        x = _LEFT + (place - low) * scale
        if low <= place <= high and _LEFT + 10 < x < _WIDTH - 14 and x - taken > 38:
            taken = x
            yield _text(x, _HEIGHT - _BOTTOM + 13, f"{value:g}".replace("-", "−"), "middle")


def match_map(output: Json) -> str:
    """Draw a map of the elements that exceed the mixed standard's tolerance."""
    cells, failing = output["map"]["elements"], output["map"]["failing"]
    rows, columns = len(cells), len(cells[0]) if cells else 0
    if rows == 0 or columns == 0:
        return _svg([_text(_WIDTH / 2, _HEIGHT / 2, "no elements", "middle")], "Map of elements")
    left = 8
    width, height = (_WIDTH - 2 * left) / columns, (_HEIGHT - _TOP - _BOTTOM) / rows
    parts = ['<g class="cells">']
    for row in range(rows):
        for column in range(columns):
            if not cells[row][column]:
                continue
            x, y = left + column * width, _TOP + row * height
            share = failing[row][column] / cells[row][column]
            box = f'x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"'
            if share:
                title = f"{failing[row][column]:,} of {cells[row][column]:,} elements beyond {output['map']['beyond']}"
                # Logarithmic from one in a thousand, so that 2 % of scattered errors are as visible as a band.
                opacity = 0.3 + 0.7 * (1.0 + math.log10(max(share, 1e-3)) / 3.0)
                parts.append(f'<rect class="bad" {box} opacity="{opacity:.2f}"><title>{escape(title)}</title></rect>')
            else:
                parts.append(f'<rect class="calm" {box}/>')
    parts.append("</g>")
    total = sum(map(sum, failing))
    of = " × ".join(f"{extent:,}" for extent in output["map"]["of"])
    beyond = f"beyond {output['map']['beyond']}"
    found = f"{total:,} elements {beyond} (darker: more of a cell's)" if total else f"no element {beyond}"
    parts += [
        _text(_WIDTH / 2, _HEIGHT - 20, found, "middle"),
        _text(_WIDTH / 2, _HEIGHT - 7, f"{of}, row by row", "middle"),
    ]
    return _svg(parts, "Map of elements that match and do not")


def _scale(value: float, low: float, high: float) -> float:
    return _TOP + (high - value) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)


def _grid_line(y: float, label: str) -> str:
    return f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>' + _text(_LEFT - 6, y + 3.5, label, "end")


def _bar(x: float, y: float, width: float, height: float, kind: str, title: str) -> str:
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{max(height, 0):.1f}">'
        f"<title>{escape(title)}</title></rect>"
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(parts: Iterable[str], label: str) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label, quote=True)}">'
        f"{''.join(parts)}</svg>"
    )
