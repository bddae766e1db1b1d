"""Regret over time as one SVG file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

import numpy as np

from steproute.benchmarks.coderouterbench.replay import Replay

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 960, 540, 70, 230, 50, 50
COLOURS = ("#0b6e75", "#b3541e", "#3b5bdb", "#7a3e9d", "#2b8a3e", "#c2255c", "#5c6770", "#946200")


def write_plot(path: Path, runs: Mapping[str, Sequence[Replay]], title: str) -> None:
    """Draw the mean cumulative regret per policy, with a band of one standard deviation over the orders."""
    curves = {name: np.stack([run.regret for run in own]) for name, own in runs.items() if own}
    if not curves:
        return
    top = max(float(curve.mean(axis=0).max()) for curve in curves.values()) * 1.05 or 1.0
    length = max(curve.shape[1] for curve in curves.values())

    def at(x: float, y: float) -> str:
        across = LEFT + (WIDTH - LEFT - RIGHT) * x / max(length - 1, 1)
        return f"{across:.1f},{HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * min(max(y, 0.0), top) / top:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/><text x="{LEFT}" y="28" font-size="16">{escape(title)}</text>',
        f'<text x="{LEFT}" y="{HEIGHT - 14}">tasks seen</text><text x="12" y="{TOP - 8}">cumulative regret (lower is better)</text>',
    ]
    for tick in np.linspace(0, top, 6):
        x, y = at(0, float(tick)).split(",")
        parts.append(f'<line x1="{x}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="#e3e7ea"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{float(y) + 4:.0f}" text-anchor="end">{tick:.0f}</text>')
    for tick in np.linspace(0, length - 1, 6):
        x, y = at(float(tick), 0).split(",")
        parts.append(f'<text x="{x}" y="{float(y) + 18:.0f}" text-anchor="middle">{tick + 1:.0f}</text>')
    ranked = sorted(curves.items(), key=lambda item: -float(item[1].mean(axis=0)[-1]))
    for number, (name, curve) in enumerate(ranked):
        colour = COLOURS[number % len(COLOURS)]
        mean, spread = curve.mean(axis=0), curve.std(axis=0)
        steps = range(0, len(mean), max(1, len(mean) // 200))
        band = [at(t, mean[t] + spread[t]) for t in steps] + [at(t, mean[t] - spread[t]) for t in reversed(steps)]
        parts.append(f'<polygon points="{" ".join(band)}" fill="{colour}" opacity=".12"/>')
        parts.append(
            f'<polyline points="{" ".join(at(t, mean[t]) for t in steps)}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        line = TOP + 20 * number
        parts.append(f'<rect x="{WIDTH - RIGHT + 14}" y="{line - 10}" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 32}" y="{line}">{escape(name)} {mean[-1]:.0f}</text>')
    path.write_text("\n".join([*parts, "</svg>\n"]), encoding="utf-8")
