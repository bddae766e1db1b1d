// --- how far the task had come: g before every step -------------------------------------------------------

// Known values of g in order: before each step, and after the last one where it was recorded.
function progressPoints(steps) {
  const points = steps
    .map((step, i) => ({ at: i, g: step.g, regime: step.regime }))
    .filter((point) => isNumber(point.g));
  const last = steps[steps.length - 1];
  if (last && last.after && isNumber(last.after.g))
    points.push({ at: steps.length, g: last.after.g, regime: last.after.regime });
  return points;
}

function drawPath(host, width, steps, result) {
  const points = progressPoints(steps);
  const calls = steps.filter((step) => !step.stop).length;
  const slots = Math.max(1, steps.length);
  const height = 236,
    top = 14,
    bottom = height - 58;
  const left = width > 560 ? 116 : 34,
    right = Math.min(width - 60, left + slots * 300);
  const x = (at) => left + (at / slots) * (right - left),
    y = (g) => bottom - g * (bottom - top);
  const view = svg("svg", {
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    role: "img",
    "aria-label": pathWords(points, steps, result),
  });
  DATA.regimes.forEach((regime, i) => {
    const high = Math.max(regime.high, regime.low + 0.012);
    view.append(
      svg("rect", {
        class: `band band-${i}`,
        x: left,
        width: right - left,
        y: y(high),
        height: Math.max(2, y(regime.low) - y(high)),
      }),
    );
    if (width > 560)
      view.append(
        svg(
          "text",
          { class: "tick", x: left - 10, y: (y(high) + y(regime.low)) / 2 + 4, "text-anchor": "end" },
          regime.name,
        ),
      );
  });
  if (width <= 560)
    for (const g of [0, 0.5, 1])
      view.append(svg("text", { class: "tick", x: left - 6, y: y(g) + 4, "text-anchor": "end" }, plain(g)));
  const room = (right - left) / slots;
  steps.forEach((step, i) => {
    const [from, to] = [points.find((point) => point.at === i), points.find((point) => point.at === i + 1)];
    const middle = (x(i) + x(i + 1)) / 2;
    view.append(svg("line", { class: "slot", x1: x(i), x2: x(i), y1: top, y2: bottom + 6 }));
    if (!step.stop) {
      const end = to || (from && { g: from.g });
      if (from)
        view.append(
          svg("line", {
            class: to ? "leap" : "leap unknown",
            x1: x(i),
            y1: y(from.g),
            x2: x(i + 1),
            y2: y(end.g),
            style: { stroke: modelColor(step.model) },
          }),
        );
      view.append(
        svg("rect", {
          x: x(i) + 3,
          y: bottom + 10,
          width: Math.max(2, room - 6),
          height: 7,
          rx: 3,
          style: { fill: modelColor(step.model) },
        }),
      );
    }
    if (room > 74) {
      const fit = Math.floor((room - 14) / 8.6);
      // Models of one family differ at the end of their names.
      const tail = Math.max(4, Math.ceil((fit - 1) / 2));
      const cut = (text) => (text.length > fit ? `${text.slice(0, fit - 1 - tail)}…${text.slice(-tail)}` : text);
      view.append(
        svg(
          "text",
          { class: "who", x: middle, y: bottom + 34, "text-anchor": "middle" },
          cut(step.stop ? "task ended" : modelName(step.model)),
        ),
        svg(
          "text",
          { class: "tick", x: middle, y: bottom + 50, "text-anchor": "middle" },
          cut(step.role || `step ${i + 1}`),
        ),
      );
    } else if (slots <= 20 || i % Math.ceil(slots / 12) === 0)
      view.append(svg("text", { class: "tick", x: middle, y: bottom + 34, "text-anchor": "middle" }, String(i + 1)));
  });
  view.append(svg("line", { class: "slot", x1: x(slots), x2: x(slots), y1: top, y2: bottom + 6 }));
  if (room <= 74)
    view.append(svg("text", { class: "tick", x: left, y: bottom + 50 }, `${count(calls, "call")}, coloured by model`));
  points.forEach((point, i) => {
    view.append(svg("circle", { class: "g-dot", cx: x(point.at), cy: y(point.g), r: 5 }));
    if (room <= 44) return;
    // Each label keeps clear of the lines that arrive at its point and leave it.
    const [before, next] = [points[i - 1], points[i + 1]];
    let [dx, dy, anchor] = [9, -8, "start"];
    if (point.at === slots) [dx, dy] = [11, 4];
    else if (before && before.g <= point.g) [dx, dy, anchor] = [-9, -7, "end"];
    else if (!before && next && next.g > point.g) [dx, dy] = [9, 15];
    else if (before && next && next.g > point.g) [dx, dy, anchor] = [0, 18, "middle"];
    view.append(
      svg(
        "text",
        { class: "g-label", x: x(point.at) + dx, y: y(point.g) + dy, "text-anchor": anchor },
        `g ${plain(point.g, 2)}`,
      ),
    );
  });
  if (result !== null)
    view.append(
      svg(
        "text",
        { class: result ? "verdict ok" : "verdict bad", x: x(slots) + 8, y: (top + bottom) / 2 + 8 },
        result ? "✓" : "✗",
      ),
    );
  host.replaceChildren(view);
}

function pathWords(points, steps, result) {
  const walk = points.map((point) => `${plain(point.g, 2)} ${point.regime}`).join(", then ");
  const end = result === null ? "" : result ? " The hidden test passed." : " The hidden test failed.";
  return `Progress g before each of ${count(steps.length, "step")}: ${walk || "not recorded"}.${end}`;
}
