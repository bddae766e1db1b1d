// --- one step: candidates, scores, choice, cost, verdicts -------------------------------------------------

const termColor = (names, name) => `var(--term-${names.indexOf(name) % 6})`;

// Bars share one scale within a step, so that lengths can be compared between candidates.
function barScale(candidates) {
  let low = 0,
    high = 0;
  for (const item of candidates) {
    const parts = item.kind === "sum" ? Object.values(item.terms) : [item.score];
    high = Math.max(high, sum(parts.filter((value) => value > 0)), item.score);
    low = Math.min(low, sum(parts.filter((value) => value < 0)), item.score);
  }
  const span = high - low || 1;
  return (value) => ((value - low) / span) * 100;
}

function scoreBar(candidate, names, scale) {
  const piece = (from, to, color) =>
    el("i", {
      style: {
        left: `${scale(Math.min(from, to))}%`,
        width: `${Math.abs(scale(to) - scale(from))}%`,
        background: color,
      },
    });
  const parts = [];
  if (candidate.kind === "sum") {
    let [up, down] = [0, 0];
    for (const [name, value] of Object.entries(candidate.terms)) {
      if (value >= 0) parts.push(piece(up, (up += value), termColor(names, name)));
      else parts.push(piece(down, (down += value), termColor(names, name)));
    }
  } else parts.push(piece(0, candidate.score, "var(--muted)"));
  return el(
    "span",
    { class: "score-bar", "aria-hidden": "true" },
    parts,
    el("b", { class: "zero", style: { left: `${scale(0)}%` } }),
    el("b", { class: "net", style: { left: `${scale(candidate.score)}%` } }),
  );
}

function formula(candidate, names, idle) {
  const kind = candidate.kind;
  const total = el("strong", null, `score ${plain(candidate.score)}`);
  const entries = Object.entries(candidate.terms).filter(([name]) => !idle.includes(name));
  if (kind === "bare") return el("p", { class: "formula" }, total, ", with no further breakdown");
  const part = ([name, value], sign) =>
    el(
      "span",
      { class: "term" },
      sign,
      el("span", {
        class: "chip",
        "aria-hidden": "true",
        style: { background: kind === "sum" ? termColor(names, name) : "var(--muted)" },
      }),
      `${plain(sign ? Math.abs(value) : value)} `,
      el("span", { class: "muted" }, termInfo(name).name),
    );
  if (kind === "ratio")
    return el(
      "p",
      { class: "formula" },
      total,
      " = ",
      part(["gain", candidate.terms.gain]),
      " ÷ ",
      part(["cost", candidate.terms.cost]),
    );
  if (kind === "sum")
    return el(
      "p",
      { class: "formula" },
      total,
      " = ",
      entries.map((entry, i) => [i ? " " : "", part(entry, i || entry[1] < 0 ? (entry[1] < 0 ? "− " : "+ ") : null)]),
    );
  return el(
    "p",
    { class: "formula" },
    total,
    " made from ",
    entries.map((entry, i) => [i ? ", " : "", part(entry, null)]),
  );
}

function candidateFacts(candidate, step) {
  const facts = [];
  if (isNumber(candidate.gain))
    facts.push(
      `predicted gain ${plain(candidate.gain)}`.concat(
        isNumber(candidate.gain_sd) ? ` ± ${plain(candidate.gain_sd, 2)}` : "",
      ),
    );
  const costs = Object.entries(candidate.cost)
    .filter(([, value]) => isNumber(value))
    .map(([name, value]) => amount(name, value));
  if (costs.length) facts.push(`expected ${costs.join(", ")}`);
  if (isNumber(candidate.propensity)) facts.push(`probability ${percent(candidate.propensity)}`);
  const q = step.q && candidate.model !== null ? step.q[candidate.model] : null;
  if (isNumber(q)) facts.push(`true value ${plain(q)}`);
  return facts.join(" · ");
}

function candidateRow(candidate, step, names, idle, scale) {
  const taken = !step.stop && candidate.model === step.picked;
  if (!isNumber(candidate.score))
    return el(
      "li",
      { class: "candidate out" },
      el("p", { class: "name" }, modelTag(candidate.model)),
      el("p", { class: "small" }, `Left out: ${candidate.cause || "no score recorded"}.`.replace(/\.\.$/, ".")),
    );
  return el(
    "li",
    { class: taken ? "candidate taken" : "candidate" },
    el("p", { class: "name" }, modelTag(candidate.model), taken && el("span", { class: "tag accent" }, "chosen")),
    scoreBar(candidate, names, scale),
    formula(candidate, names, idle),
    el("p", { class: "small" }, candidateFacts(candidate, step)),
  );
}

function verdictTags(step) {
  const tags = [];
  const { visible, outcome } = step;
  if (outcome && outcome.error) tags.push(el("span", { class: "tag bad" }, "✗ call failed"));
  if (visible) {
    const counted =
      isNumber(visible.total) && visible.total > 0 ? ` ${plain(visible.passed || 0)} of ${plain(visible.total)}` : "";
    const words = visible.error
      ? "error"
      : counted
        ? `examples${counted}`
        : visible.ok
          ? "runs, no example to test"
          : "check failed";
    tags.push(el("span", { class: visible.ok ? "tag ok" : "tag bad" }, `${visible.ok ? "✓" : "✗"} visible: ${words}`));
  }
  if (step.hidden !== null)
    tags.push(
      el(
        "span",
        { class: step.hidden ? "tag ok" : "tag bad" },
        step.hidden ? "✓ hidden: would pass" : "✗ hidden: would fail",
      ),
    );
  return tags;
}

function outcomeWords(outcome) {
  if (!outcome) return "";
  const parts = ["seconds", "usd", "energy_j"]
    .filter((name) => isNumber(outcome[name]))
    .map((name) => amount(name, outcome[name]));
  if (isNumber(outcome.prompt_tokens) || isNumber(outcome.completion_tokens))
    parts.push(
      `${plain(outcome.prompt_tokens, 4)} prompt and ${plain(outcome.completion_tokens, 4)} completion tokens`,
    );
  return parts.join(", ");
}

// What the terms of these steps stand for, said once for all of them.
function termsNote(steps) {
  const names = [...new Set(steps.flatMap((step) => step.candidates.flatMap((item) => Object.keys(item.terms))))];
  const known = names.map(termInfo).filter((info) => info.how);
  const summed = steps.some((step) => step.candidates.some((item) => item.kind === "sum"));
  return (
    known.length > 0 &&
    el(
      "p",
      { class: "small steps-note" },
      "What the scores are made of. ",
      summed &&
        "A bar adds up the terms of a score, those that count against the model to the left of the line; " +
          "the upright mark is the score. ",
      known.map((info) => `${info.name.charAt(0).toUpperCase()}${info.name.slice(1)}: ${info.how}. `),
    )
  );
}

function stepCard(step, index, total) {
  const scored = step.candidates.filter((item) => isNumber(item.score));
  const names = [...new Set(step.candidates.flatMap((item) => Object.keys(item.terms)))];
  const scale = barScale(scored);
  const [head, ...rest] = explain(step);
  const rows = [...scored]
    .sort((a, b) => b.score - a.score)
    .concat(step.candidates.filter((item) => !isNumber(item.score)));
  const still = names.filter((name) => scored.every((item) => !item.terms[name] && item.kind === "sum"));
  const idle = still.length < names.length ? still : [];
  const retry = isNumber(step.attempt) && step.attempt > 1 ? `, attempt ${step.attempt}` : "";
  const spent = outcomeWords(step.outcome);
  const line = (label, ...content) => el("div", null, el("dt", null, label), el("dd", null, ...content));
  return el(
    "li",
    { class: "step card" },
    el(
      "details",
      { open: index === 0 || (total <= 6 && window.innerWidth > 640) },
      el(
        "summary",
        null,
        el("span", { class: "number" }, String(index + 1)),
        el(
          "span",
          { class: "who" },
          el("span", null, `${step.role || "step"}${retry}`),
          " → ",
          step.stop ? el("span", { class: "model" }, "task ended") : modelTag(step.model),
        ),
        el("span", { class: "tags" }, step.stop ? null : verdictTags(step)),
      ),
      el(
        "div",
        { class: "inside" },
        el(
          "div",
          { class: "why" },
          el("h4", null, "Why"),
          el("p", { class: "because" }, head),
          rest.map((words) => el("p", null, words)),
          step.reason && el("p", { class: "small" }, `The policy's own words: “${step.reason}”.`),
        ),
        el(
          "dl",
          { class: "lines" },
          stateWords(step, index === 0) && line("Before", stateWords(step, index === 0)),
          spent && line("Spent", spent),
          step.outcome && step.outcome.error && line("Call failed", step.outcome.error),
          step.visible && step.visible.error && line("Visible error", step.visible.error),
          hindsight(step) && line("Hindsight", hindsight(step)),
        ),
        rows.length > 0 &&
          el(
            "h4",
            null,
            `Every candidate${idle.length ? ` (${idle.map((name) => `${termInfo(name).name} is 0 for all`).join(", ")})` : ""}`,
          ),
        el(
          "ul",
          { class: "candidates" },
          rows.map((item) => candidateRow(item, step, names, idle, scale)),
        ),
      ),
    ),
  );
}
