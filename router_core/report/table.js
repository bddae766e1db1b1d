// --- the table of all numbers -----------------------------------------------------------------------------

const COUNTED =
  SUMMARY.every((row) => !isNumber(row.visible_pass_hidden_fail) || Number.isInteger(row.visible_pass_hidden_fail)) &&
  SUMMARY.some((row) => row.visible_pass_hidden_fail > 1);
const COLUMNS = [
  { key: "policy", label: "Policy", text: true },
  { key: "pass_rate", label: "Pass rate", show: passCell, good: 1 },
  {
    key: "value",
    label: "Value",
    show: (row) => plain(row.value),
    good: 1,
    hint: "pass − price of a second × seconds",
  },
  { key: "step_regret", label: "Step regret", show: (row) => plain(row.step_regret), good: -1, hint: "0 is perfect" },
  { key: "calls_per_task", label: "Calls", show: (row) => plain(row.calls_per_task), hint: "model calls per task" },
  { key: "seconds", label: "Seconds", show: (row) => plain(row.seconds), good: -1, hint: "per task" },
  {
    key: "tokens",
    label: "Tokens",
    show: (row) => (isNumber(row.tokens) ? plain(Math.round(row.tokens), 4) : "–"),
    good: -1,
    hint: "per task, prompt and completion",
  },
  { key: "usd", label: "USD", show: (row) => plain(row.usd), good: -1, hint: "per task" },
  { key: "energy_j", label: "Joules", show: (row) => plain(row.energy_j), good: -1, hint: "per task" },
  {
    key: "visible_pass_hidden_fail",
    label: "Fooled",
    show: (row) => (COUNTED ? plain(row.visible_pass_hidden_fail) : percent(row.visible_pass_hidden_fail)),
    hint: "visible checks passed, hidden test failed",
  },
  { key: "share", label: "Share of calls", show: shareCell, fixed: true },
].filter(
  (column) =>
    column.text ||
    SUMMARY.some((row) => (column.key === "share" ? Object.keys(row.share).length : isNumber(row[column.key]))),
);

function passCell(row) {
  const bar =
    row.ci &&
    svg(
      "svg",
      {
        class: "interval",
        viewBox: "0 0 100 12",
        width: 84,
        height: 12,
        role: "img",
        "aria-label": `95 % interval ${percent(row.ci[0])} to ${percent(row.ci[1])}`,
        preserveAspectRatio: "none",
      },
      svg("rect", { class: "track", x: 0, y: 5, width: 100, height: 2 }),
      svg("rect", { class: "range", x: row.ci[0] * 100, y: 3.5, width: (row.ci[1] - row.ci[0]) * 100, height: 5 }),
      svg("rect", { class: "mean", x: row.pass_rate * 100 - 1.2, y: 0, width: 2.4, height: 12 }),
    );
  return el("span", { class: "pass" }, rate(row.pass_rate), bar);
}

function shareCell(row) {
  const shares = MODELS.map((model) => row.share[model.name] || 0);
  const words = MODELS.map((model, i) => `${model.name} ${percent(shares[i])}`)
    .filter((_, i) => shares[i] > 0)
    .join(", ");
  return el(
    "span",
    { class: "mini", role: "img", "aria-label": words, title: words },
    shares.map((share, i) => share > 0 && el("i", { style: { flexGrow: String(share), background: modelColor(i) } })),
  );
}

function sortedRows(column, down) {
  return [...SUMMARY].sort((a, b) => {
    const [one, two] = [a[column.key], b[column.key]];
    if (column.text) return (down ? -1 : 1) * String(one).localeCompare(String(two), "en", { numeric: true });
    if (!isNumber(one) || !isNumber(two)) return isNumber(two) - isNumber(one);
    return down ? two - one : one - two;
  });
}

function bestOf(column) {
  const seen = SUMMARY.filter((row) => !isOracle(row.policy) && isNumber(row[column.key])).map(
    (row) => row[column.key],
  );
  return column.good && new Set(seen).size > 1 ? (column.good > 0 ? Math.max(...seen) : Math.min(...seen)) : null;
}

function showTable() {
  const host = byId("table-body");
  if (!SUMMARY.length) {
    host.replaceChildren(el("p", { class: "empty" }, "This run wrote no summary and no tasks."));
    return;
  }
  const first =
    COLUMNS.find((column) => column.key === "value") ||
    COLUMNS.find((column) => column.key === "pass_rate") ||
    COLUMNS[0];
  let [by, down] = [first, !first.text];
  const body = el("tbody");
  const heads = COLUMNS.map((column) =>
    el(
      "th",
      { scope: "col", class: column.text ? "text" : null, title: column.hint },
      column.fixed
        ? column.label
        : el(
            "button",
            { type: "button", onclick: () => sort(column) },
            column.label,
            el("span", { class: "arrow", "aria-hidden": "true" }),
          ),
    ),
  );
  const best = new Map(COLUMNS.map((column) => [column.key, bestOf(column)]));

  function sort(column) {
    [by, down] = by === column ? [by, !down] : [column, column.good > 0 || (!column.good && !column.text)];
    fill();
  }
  function fill() {
    heads.forEach((head, i) =>
      COLUMNS[i] === by
        ? head.setAttribute("aria-sort", down ? "descending" : "ascending")
        : head.removeAttribute("aria-sort"),
    );
    body.replaceChildren(
      ...sortedRows(by, down).map((row) =>
        el(
          "tr",
          { class: isOracle(row.policy) ? "bound" : null, "data-policy": row.policy },
          COLUMNS.map((column) => {
            if (column.text) return el("th", { scope: "row" }, row.policy);
            const top =
              best.get(column.key) !== null && row[column.key] === best.get(column.key) && !isOracle(row.policy);
            return el("td", { class: [column.key, top ? "best" : ""].join(" ").trim() }, column.show(row));
          }),
        ),
      ),
    );
  }
  fill();
  host.replaceChildren(
    el(
      "table",
      null,
      el("caption", { class: "unseen" }, "Summary per policy"),
      el("thead", null, el("tr", null, heads)),
      body,
    ),
  );
  const sources = [...new Set(SUMMARY.map((row) => row.energy_source).filter(Boolean))];
  const notes = [
    "Bold: the best in its column, the oracle aside.",
    COLUMNS.some((column) => column.key === "visible_pass_hidden_fail") &&
      `Fooled: ${COUNTED ? "number" : "share"} of tasks that passed all visible checks and then failed the hidden test.`,
    COLUMNS.some((column) => column.key === "energy_j") && `Joules: ${sources.join("; ") || "source not recorded"}.`,
    !COLUMNS.some((column) => column.key === "energy_j") && "Energy was not measured in this run.",
  ];
  byId("table-notes").replaceChildren(notes.filter(Boolean).join(" "));
}
