// --- the quality-cost plane -------------------------------------------------------------------------------

const METRICS = [
  { key: "seconds", label: "Seconds", axis: "seconds per task" },
  { key: "usd", label: "Money", axis: "USD per task" },
  { key: "tokens", label: "Tokens", axis: "tokens per task" },
  { key: "energy_j", label: "Energy", axis: "joules per task" },
].filter((metric) =>
  SUMMARY.some((row) => isNumber(row[metric.key]) && row[metric.key] > 0 && isNumber(row.pass_rate)),
);

// Policies that none other beats in both; the oracle knows the answers, so it is a bound and no competitor.
function paretoFront(rows, cost) {
  const front = [];
  for (const row of [...rows].sort((a, b) => a[cost] - b[cost] || b.pass_rate - a.pass_rate)) {
    const last = front[front.length - 1];
    const even = last && row.pass_rate === last.pass_rate && row[cost] === last[cost];
    if (!isOracle(row.policy) && (!last || even || row.pass_rate > last.pass_rate)) front.push(row);
  }
  return front;
}

function ticks(low, high, wanted) {
  const rough = (high - low) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-6; i += 1)
    found.push(Number((i * step).toPrecision(12)));
  return found;
}

function costScale(values, left, right, many) {
  const low = Math.min(...values),
    high = Math.max(...values);
  if (low > 0 && high / low > 40) {
    const from = Math.log10(low / 1.4),
      to = Math.log10(high * 1.4);
    const marks = [];
    for (let power = Math.floor(from); power <= Math.ceil(to); power += 1) marks.push(10 ** power);
    const at = (value) => left + ((Math.log10(value) - from) / (to - from)) * (right - left);
    return { at, marks: marks.filter((mark) => at(mark) >= left && at(mark) <= right), log: true };
  }
  const end = (high || 1) * 1.12;
  return { at: (value) => left + (value / end) * (right - left), marks: ticks(0, end, many ? 7 : 4), log: false, end };
}

function marker(row, x, y) {
  if (isOracle(row.policy))
    return svg("path", { class: "dot oracle", d: `M${x} ${y - 8}L${x + 8} ${y}L${x} ${y + 8}L${x - 8} ${y}Z` });
  if (isFixed(row.policy)) return svg("rect", { class: "dot fixed", x: x - 7, y: y - 7, width: 14, height: 14, rx: 2 });
  return svg("circle", { class: "dot", cx: x, cy: y, r: 6.5 });
}

// Puts each label where it covers no marker and no earlier label; a leader line joins one that had to move away.
function placeLabels(layer, spots, box, lines) {
  const taken = spots.map(({ x, y }) => [x - 9, y - 9, x + 9, y + 9]);
  const thin = lines.concat(spots.filter((spot) => spot.ends).map(({ x, ends }) => [x - 2, ends[0], x + 2, ends[1]]));
  const overlap = (a, b) =>
    Math.max(0, Math.min(a[2], b[2]) - Math.max(a[0], b[0])) * Math.max(0, Math.min(a[3], b[3]) - Math.max(a[1], b[1]));
  for (const { x, y, row } of [...spots].sort((a, b) => a.y - b.y)) {
    const crowd = spots.filter((other) => Math.hypot(other.x - x, other.y - y) < 3);
    if (crowd.length > 3 && crowd[0].row !== row) continue;
    const name = row.policy.length > 32 ? `${row.policy.slice(0, 31)}…` : row.policy;
    const shown = crowd.length > 3 ? `${name} and ${crowd.length - 1} others` : name;
    const text = svg("text", { class: "point-label" }, shown);
    layer.append(text);
    const width = text.getComputedTextLength(),
      height = 14;
    let best = null;
    for (const [reach, toll] of [
      [12, 0],
      [26, 30],
      [42, 60],
      [60, 90],
    ]) {
      for (const [dx, dy] of [
        [1, 0],
        [-1, 0],
        [0.8, -0.9],
        [0.8, 0.9],
        [-0.8, -0.9],
        [-0.8, 0.9],
        [0, -1.2],
        [0, 1.2],
      ]) {
        const left = x + dx * reach - (dx < 0 ? width : dx === 0 ? width / 2 : 0),
          top = y + dy * reach - height / 2;
        const area = [left, top, left + width, top + height];
        const outside =
          Math.max(0, box[0] - area[0]) +
          Math.max(0, area[2] - box[2]) +
          Math.max(0, box[1] - area[1]) +
          Math.max(0, area[3] - box[3]);
        const cost =
          toll +
          outside * 1000 +
          8 * sum(taken.map((other) => overlap(area, other))) +
          2 * sum(thin.map((other) => overlap(area, other)));
        if (best === null || cost < best.cost - 1e-9) best = { cost, area, reach, dx };
      }
    }
    const [left, top, right, bottom] = best.area;
    text.setAttribute("x", left);
    text.setAttribute("y", bottom - 3);
    taken.push(best.area);
    if (best.reach > 12)
      layer.prepend(
        svg("line", {
          class: "leader",
          x1: x,
          y1: y,
          x2: best.dx < 0 ? right : best.dx === 0 ? (left + right) / 2 : left,
          y2: (top + bottom) / 2,
        }),
      );
  }
}

function describePoint(row, metric, front) {
  const interval = row.ci ? ` (95 % interval ${percent(row.ci[0])} to ${percent(row.ci[1])})` : "";
  const parts = [
    `passes ${rate(row.pass_rate)} of tasks${interval} at ${amount(metric.key, row[metric.key])} per task`,
  ];
  if (isOracle(row.policy)) parts.push("it knows the recorded answers: a bound, not a competitor");
  else if (front.includes(row)) parts.push("on the Pareto front");
  else {
    const better = front.find((other) => other[metric.key] <= row[metric.key] && other.pass_rate >= row.pass_rate);
    if (better) parts.push(`${better.policy} is at least as good and no dearer`);
  }
  return `${row.policy}: ${parts.join("; ")}.`;
}

function drawPlane(host, width, metric, detail) {
  const rows = SUMMARY.filter((row) => isNumber(row.pass_rate) && isNumber(row[metric.key]));
  const wide = width > 560;
  const height = wide ? Math.min(460, Math.round(width * 0.44)) : 380;
  const [left, right, top, bottom] = [46, width - 12, 34, height - 46];
  const x = costScale(
    rows.map((row) => row[metric.key]),
    left,
    right,
    wide,
  );
  const bounds = rows.flatMap((row) => row.ci || [row.pass_rate]);
  const low = Math.max(0, Math.floor(Math.min(...bounds) * 10) / 10),
    high = Math.min(1, Math.ceil(Math.max(...bounds) * 10 + 0.01) / 10);
  const y = (rate) => bottom - ((rate - low) / (high - low || 1)) * (bottom - top);
  const front = paretoFront(rows, metric.key);
  const view = svg("svg", {
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    role: "group",
    "aria-label": `Pass rate against ${metric.axis}, one mark per policy`,
  });
  host.replaceChildren(view);

  for (const rate of ticks(low, high, wide ? 6 : 5)) {
    view.append(
      svg("line", { class: "grid", x1: left, x2: right, y1: y(rate), y2: y(rate) }),
      svg("text", { class: "tick", x: left - 8, y: y(rate) + 4, "text-anchor": "end" }, percent(rate)),
    );
  }
  for (const mark of x.marks)
    view.append(
      svg("text", { class: "tick", x: x.at(mark), y: bottom + 18, "text-anchor": "middle" }, plain(mark)),
      svg("line", { class: "axis", x1: x.at(mark), x2: x.at(mark), y1: bottom, y2: bottom + 4 }),
    );
  view.append(svg("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
  view.append(
    svg(
      "text",
      { class: "axis-name", x: right, y: height - 6, "text-anchor": "end" },
      `${metric.axis}${x.log ? ", logarithmic" : ""} → dearer`,
    ),
  );
  view.append(svg("text", { class: "axis-name", x: 8, y: 12 }, "↑ better: pass rate on the hidden tests"));

  if (front.length) {
    const corner =
      front
        .map(
          (row, i) =>
            `${i ? `H${x.at(row[metric.key])}V${y(row.pass_rate)}` : `M${x.at(row[metric.key])} ${bottom}V${y(row.pass_rate)}`}`,
        )
        .join("") + `H${right}`;
    view.append(
      svg("path", { class: "front-area", d: `${corner}V${bottom}Z` }),
      svg("path", { class: "front", d: corner }),
    );
  }
  const spots = rows.map((row) => ({
    row,
    x: x.at(row[metric.key]),
    y: y(row.pass_rate),
    ends: row.ci && [y(row.ci[1]), y(row.ci[0])],
  }));
  for (const { x: cx, ends, row } of spots) {
    if (!ends) continue;
    const kind = front.includes(row) ? "whisker on" : "whisker";
    view.append(
      svg("path", { class: kind, d: `M${cx} ${ends[0]}V${ends[1]}M${cx - 4} ${ends[0]}h8M${cx - 4} ${ends[1]}h8` }),
    );
  }
  const labels = svg("g", { "aria-hidden": "true" });
  view.append(labels);
  const edges = front.flatMap((row, i) => {
    const [fx, fy] = [x.at(row[metric.key]), y(row.pass_rate)];
    const [end, before] = [
      front[i + 1] ? x.at(front[i + 1][metric.key]) : right,
      front[i - 1] ? y(front[i - 1].pass_rate) : bottom,
    ];
    return [
      [fx, fy - 2, end, fy + 2],
      [fx - 2, fy, fx + 2, before],
    ];
  });
  placeLabels(labels, spots, [left + 2, top, right, bottom], edges);
  for (const { row, x: cx, y: cy } of [...spots].sort(
    (a, b) => a.x - b.x || isFixed(b.row.policy) - isFixed(a.row.policy),
  )) {
    const words = describePoint(row, metric, front);
    const say = () => detail.replaceChildren(words);
    view.append(
      svg(
        "g",
        {
          class: front.includes(row) ? "point on" : "point",
          tabindex: 0,
          role: "img",
          "aria-label": words,
          onmouseenter: say,
          onfocus: say,
          onclick: say,
        },
        svg("circle", { class: "halo", cx, cy, r: 13 }),
        marker(row, cx, cy),
      ),
    );
  }
}

function planeLegend() {
  const icon = (shape) => svg("svg", { width: 18, height: 18, viewBox: "-9 -9 18 18", "aria-hidden": "true" }, shape);
  const kinds = [
    ["chooses per step", SUMMARY.some((row) => !isOracle(row.policy) && !isFixed(row.policy)), { policy: "" }],
    ["always one model", SUMMARY.some((row) => isFixed(row.policy)), { policy: "fixed" }],
    ["oracle: knows the answers, a bound", SUMMARY.some((row) => isOracle(row.policy)), { policy: "oracle" }],
  ];
  return [
    ...kinds
      .filter(([, present]) => present)
      .map(([words, , row]) => el("span", null, icon(svg("g", { class: "point" }, marker(row, 0, 0))), words)),
    el("span", null, icon(svg("path", { class: "front", d: "M-9 5H0V-5H9" })), "Pareto front"),
    SUMMARY.some((row) => row.ci) &&
      el("span", null, icon(svg("path", { class: "whisker", d: "M0 -8V8M-4 -8h8M-4 8h8" })), "95 % interval"),
  ];
}

function showPlane() {
  const host = byId("plane-chart"),
    detail = byId("plane-detail");
  if (!METRICS.length) {
    host.replaceChildren(
      el(
        "p",
        { class: "empty" },
        "This run recorded no pass rate together with a cost, so there is nothing to draw here.",
      ),
    );
    return;
  }
  let metric = METRICS[0];
  const hint = () => {
    const absent = SUMMARY.filter((row) => !isNumber(row.pass_rate) || !isNumber(row[metric.key])).map(
      (row) => row.policy,
    );
    const without = absent.length ? ` Not drawn, as a number is missing: ${absent.join(", ")}.` : "";
    return `Press a mark, or walk through them with the Tab key, to read its numbers.${without}`;
  };
  const redraw = onWidth(host, (width) => drawPlane(host, width, metric, detail));
  detail.replaceChildren(hint());
  byId("plane-lead").replaceChildren(
    "Up is better, left is cheaper. A policy below or right of the line is beaten by one on it.",
  );
  byId("plane-legend").replaceChildren(...planeLegend().filter(Boolean));
  if (METRICS.length > 1) {
    byId("plane-controls").replaceChildren(
      toggle(
        "Cost",
        METRICS.map((item) => [item.key, item.label]),
        metric.key,
        (value) => {
          metric = METRICS.find((item) => item.key === value);
          detail.replaceChildren(hint());
          redraw();
        },
      ),
    );
  }
}
