"use strict";
// Errors are shown on the page: a report that failed halfway must not look like a finished one.
const root = document.documentElement;
root.dataset.errors = "0";
window.addEventListener("error", (event) => {
  root.dataset.errors = String(Number(root.dataset.errors) + 1);
  const alerts = document.getElementById("alerts");
  if (alerts)
    alerts.append(
      el("p", { class: "note bad", role: "alert" }, `Part of this page could not be drawn: ${event.message}`),
    );
});

function el(tag, attributes, ...children) {
  return build(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return build(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "style") Object.assign(node.style, value);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(9))
    if (child !== null && child !== undefined && child !== false) node.append(child);
  return node;
}

const byId = (id) => document.getElementById(id);
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const sum = (values) => values.reduce((total, value) => total + (value || 0), 0);

// --- the data ---------------------------------------------------------------------------------------------

const DATA = JSON.parse(byId("run-data").textContent);
const { run: RUN, models: MODELS, policies: POLICIES, summary: SUMMARY } = DATA;

const record = (kind, row) => row && Object.fromEntries(DATA.fields[kind].map((name, i) => [name, row[i]]));
const word = (index) => DATA.words[index] || "";
const named = (list, values) =>
  Object.fromEntries(DATA.lists[list].map((name, i) => [name, values[i]]).filter(([, value]) => value !== null));

function unpackStep(row) {
  const step = record("step", row);
  for (const name of ["policy", "task", "step", "role", "regime", "reason"]) step[name] = word(step[name]);
  step.candidates = step.candidates.map((packed) => {
    const candidate = record("candidate", packed);
    candidate.terms = named(step.terms, candidate.terms);
    candidate.cost = named(step.costs, candidate.cost);
    candidate.cause = word(candidate.cause);
    return candidate;
  });
  settleKinds(step.candidates);
  for (const kind of ["outcome", "visible"]) {
    step[kind] = record(kind, step[kind]);
    if (step[kind]) step[kind].error = word(step[kind].error);
  }
  step.picked = step.picked ?? step.model;
  step.after = step.after && { g: step.after[0], regime: word(step.after[1]) };
  return step;
}

const key = (policy, task) => JSON.stringify([policy, task]);
const TASK_ROWS = new Map();
for (const row of DATA.tasks) {
  const task = record("task", row);
  task.policy = word(task.policy);
  task.task = word(task.task);
  TASK_ROWS.set(key(task.policy, task.task), task);
}
const STEP_ROWS = new Map();
for (const row of DATA.steps) {
  const at = key(word(row[0]), word(row[1]));
  if (!STEP_ROWS.has(at)) STEP_ROWS.set(at, []);
  STEP_ROWS.get(at).push(row);
}
const stepsOf = (policy, task) => (STEP_ROWS.get(key(policy, task)) || []).map(unpackStep);
const TASKS = [...new Set([...DATA.tasks, ...DATA.steps].map((row) => word(row[1])))];

const isOracle = (policy) => /^oracle\b/.test(policy);
const isFixed = (policy) => /^fixed\b/.test(policy);

// --- numbers and names for people -------------------------------------------------------------------------

function plain(value, digits = 3) {
  if (!isNumber(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en-US").replace("-", "−");
  const shown =
    size < 0.001
      ? value.toLocaleString("en-US", { maximumSignificantDigits: 2 })
      : String(Number(value.toPrecision(digits)));
  return shown.replace("-", "−");
}
const signed = (value) => (value > 0 ? "+" : "") + plain(value);
const rate = (value) => (isNumber(value) ? `${plain(value * 100)} %` : "–");
const percent = (value) => (isNumber(value) ? `${Math.round(value * 100)} %` : "–");
const UNITS = {
  seconds: (value) => `${plain(value)} s`,
  usd: (value) => `$${plain(value)}`,
  tokens: (value) => `${plain(Math.round(value), 4)} tokens`,
  energy_j: (value) => (value >= 10000 ? `${plain(value / 1000)} kJ` : `${plain(value)} J`),
};
const amount = (resource, value) =>
  !isNumber(value) ? "–" : UNITS[resource] ? UNITS[resource](value) : `${plain(value)} ${resource}`;
const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

const modelName = (index) => (index === null || index === undefined ? "unknown model" : MODELS[index].name);
const sizeName = (size) =>
  !isNumber(size) ? "size unknown" : size < 1 ? `${plain(size * 1000)} M parameters` : `${plain(size)} B parameters`;

// Models are ordered by size, so their colours are a ramp: the larger, the stronger.
function modelColor(index) {
  if (index === null || index === undefined) return "var(--muted)";
  return rampColor(MODELS.length > 1 ? index / (MODELS.length - 1) : 0.5);
}
function rampColor(at) {
  const [from, to, part] = at <= 0.5 ? ["small", "middle", at * 2] : ["middle", "large", at * 2 - 1];
  return `color-mix(in oklab, var(--model-${to}) ${Math.round(part * 100)}%, var(--model-${from}))`;
}
const onRamp = (at) => (at < 0.3 ? "var(--on-small)" : "var(--on-large)");
const swatch = (index) =>
  el("span", { class: "swatch", "aria-hidden": "true", style: { background: modelColor(index) } });
const modelTag = (index) => el("span", { class: "model" }, swatch(index), modelName(index));

// Models in the order of their calls; of a long task only how often each was called.
function route(models) {
  if (models.length <= 8)
    return models.map((model, i) => [i ? el("span", { class: "muted" }, "→") : null, modelTag(model)]);
  const often = [...new Set(models)].map((model) => [model, models.filter((other) => other === model).length]);
  return often
    .sort((a, b) => b[1] - a[1])
    .map(([model, times]) => [modelTag(model), el("span", { class: "muted" }, `×${times}`)]);
}

function choice(label, options, current, onchange) {
  const select = el(
    "select",
    { onchange: () => onchange(select.value) },
    options.map(([value, text]) => el("option", { value, selected: value === current }, text)),
  );
  return el("label", { class: "choice" }, el("span", null, label), select);
}

// A set of radio buttons that looks like one switch.
let switches = 0;
function toggle(label, options, current, onchange) {
  const name = `switch-${(switches += 1)}`;
  return el(
    "fieldset",
    { class: "toggle" },
    el("legend", null, label),
    options.map(([value, text]) =>
      el(
        "label",
        null,
        el("input", { type: "radio", name, value, checked: value === current, onchange: () => onchange(value) }),
        el("span", null, text),
      ),
    ),
  );
}

// Calls `draw(width)` now and whenever the width of the host changes.
function onWidth(host, draw) {
  let last = 0;
  const update = () => {
    const width = Math.floor(host.clientWidth);
    if (width > 0 && width !== last) draw((last = width));
  };
  new ResizeObserver(() => requestAnimationFrame(update)).observe(host);
  update();
  return () => draw((last = Math.floor(host.clientWidth)));
}
