"""The figures as SVG files: energy against quality with intervals, and who served the calls."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from steproute.benchmarks.coderouterbench.plot import COLOURS
from steproute.benchmarks.progrouter.methods import PROGROUTER
from steproute.benchmarks.progrouter.summary import Row, front

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 960, 540, 70, 250, 50, 60
_HEAD = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" font-family="sans-serif" font-size="13">'


def write_pareto(path: Path, rows: Sequence[Row], target_j: float, title: str) -> None:
    """Figure 3: joules per task across, quality up, 95 % intervals both ways, the budget, and the Pareto front."""
    energies = [row.values["energy_j"] for row in rows]
    right = max([value.mean + value.half for value in energies] + [target_j]) * 1.05
    left = min([value.mean - value.half for value in energies] + [target_j]) * 0.9

    def across(joules: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (joules - left) / (right - left)

    def up(quality: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * min(max(quality, 0.0), 1.0)

    floor, edge = up(0), across(target_j)
    parts = [
        _HEAD.format(w=WIDTH, h=HEIGHT),
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/><text x="{LEFT}" y="28" font-size="16">{escape(title)}</text>',
        f'<rect x="{LEFT}" y="{TOP}" width="{edge - LEFT:.1f}" height="{floor - TOP:.1f}" fill="#2b8a3e" opacity=".08"/>',
        f'<line x1="{edge:.1f}" x2="{edge:.1f}" y1="{TOP}" y2="{floor:.1f}" stroke="#c92a2a" stroke-dasharray="6 4"/>',
        f'<text x="{edge + 4:.1f}" y="{TOP + 12}" fill="#c92a2a">budget {target_j:.0f} J</text>',
        f'<text x="{LEFT}" y="{HEIGHT - 14}">joules per task</text><text x="12" y="{TOP - 8}">solved</text>',
    ]
    for tick in range(0, 101, 20):
        y = up(tick / 100)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e3e7ea"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.0f}" text-anchor="end">{tick} %</text>')
    for i in range(6):
        joules = left + (right - left) * i / 5
        parts.append(f'<text x="{across(joules):.0f}" y="{floor + 18:.0f}" text-anchor="middle">{joules:.0f}</text>')
    known = {row.method: row for row in rows}
    points = " ".join(
        f"{across(known[name].values['energy_j'].mean):.1f},{up(known[name].values['quality'].mean):.1f}"
        for name in front(rows)
    )
    parts.append(f'<polyline points="{points}" fill="none" stroke="#868e96" stroke-dasharray="2 3"/>')
    for number, row in enumerate(rows):
        colour = COLOURS[number % len(COLOURS)]
        energy, quality = row.values["energy_j"], row.values["quality"]
        x, y = across(energy.mean), up(quality.mean)
        wide = (WIDTH - LEFT - RIGHT) * energy.half / (right - left)
        low, high = up(quality.mean - quality.half), up(quality.mean + quality.half)
        parts.append(
            f'<path d="M{x - wide:.1f} {y:.1f}H{x + wide:.1f}M{x:.1f} {low:.1f}V{high:.1f}" stroke="{colour}" fill="none"/>'
        )
        radius = 8 if row.method == PROGROUTER else 5
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"/>')
        line = TOP + 22 * number
        parts.append(f'<circle cx="{WIDTH - RIGHT + 20}" cy="{line - 4}" r="5" fill="{colour}"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 32}" y="{line}">{escape(row.method)}</text>')
    path.write_text("\n".join([*parts, "</svg>\n"]), encoding="utf-8")


def write_shares(path: Path, rows: Sequence[Row], what: str, title: str) -> None:
    """Figures 4 and 5: share of calls per method as stacked bars.

    Args:
        path: file to write.
        rows: the methods.
        what: `family` or `size`.
        title: of the figure.
    """
    names = list(getattr(rows[0], what)) if rows else []
    height = TOP + 34 * len(rows) + 50
    whole = WIDTH - RIGHT - 20
    parts = [
        _HEAD.format(w=WIDTH, h=height),
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/><text x="20" y="28" font-size="16">{escape(title)}</text>',
    ]
    for number, row in enumerate(rows):
        x, y = float(RIGHT), TOP + 34 * number
        parts.append(f'<text x="{RIGHT - 10}" y="{y + 17}" text-anchor="end">{escape(row.method)}</text>')
        for index, name in enumerate(names):
            share = getattr(row, what)[name]
            wide = whole * share.mean
            parts.append(f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="24" fill="{COLOURS[index]}"/>')
            if wide > 60:
                label = f"{100 * share.mean:.0f} ±{100 * share.half:.0f} %"
                parts.append(f'<text x="{x + 6:.1f}" y="{y + 17}" fill="#fff">{label}</text>')
            x += wide
    for index, name in enumerate(names):
        x, y = RIGHT + 120 * index, height - 20
        parts.append(f'<rect x="{x}" y="{y - 11}" width="12" height="12" fill="{COLOURS[index]}"/>')
        parts.append(f'<text x="{x + 18}" y="{y}">{escape(name)}</text>')
    path.write_text("\n".join([*parts, "</svg>\n"]), encoding="utf-8")
