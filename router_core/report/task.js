// --- one task: pickers, the same task under every policy, the steps ---------------------------------------

const chosen = { policy: null, task: null };

const rowOf = (policy, task) => TASK_ROWS.get(key(policy, task));
const hasSteps = (policy, task) => STEP_ROWS.has(key(policy, task));
const resultOf = (row) => (row && row.passed !== null ? row.passed === 1 : null);

// Opens on a policy that really chooses, at a task where it used several models.
function defaultChoice() {
  const withSteps = POLICIES.filter((policy) => TASKS.some((task) => hasSteps(policy, task)));
  const policy = withSteps.find((name) => !isFixed(name) && !isOracle(name)) || withSteps[0];
  const variety = (task) => {
    const row = rowOf(policy, task);
    const models =
      row && row.models.length
        ? row.models
        : (STEP_ROWS.get(key(policy, task)) || []).map((step) => record("step", step).model);
    return new Set(models).size * 2 + (resultOf(row) ? 1 : 0);
  };
  const tasks = TASKS.filter((task) => hasSteps(policy, task));
  return { policy, task: tasks.reduce((a, b) => (variety(b) > variety(a) ? b : a), tasks[0]) };
}

function readAddress() {
  const found = new URLSearchParams(location.hash.replace(/^#task\?/, ""));
  const policy = found.get("policy"),
    task = found.get("task");
  if (location.hash.startsWith("#task?") && hasSteps(policy, task)) Object.assign(chosen, { policy, task });
}

function overview(show) {
  const cell = 15,
    gap = 2;
  const known = (policy) => TASKS.map((task) => rowOf(policy, task));
  const marks = (policy) =>
    known(policy).map((row, i) => {
      const last = row && row.models.length ? row.models[row.models.length - 1] : null;
      const passed = resultOf(row);
      if (!row) return null;
      const verdict = passed === null ? "result unknown" : passed ? "passed" : "failed";
      const words = `${TASKS[i]}: ${verdict}${last === null ? "" : `, last call by ${modelName(last)}`}`;
      const shape =
        passed === false
          ? svg("rect", {
              x: i * cell + 1,
              y: 1,
              width: cell - gap - 2,
              height: cell - gap - 2,
              rx: 3,
              class: "miss",
              style: { stroke: modelColor(last) },
            })
          : svg("rect", {
              x: i * cell,
              y: 0,
              width: cell - gap,
              height: cell - gap,
              rx: 3,
              style: { fill: modelColor(last) },
            });
      const here = policy === chosen.policy && TASKS[i] === chosen.task;
      return svg(
        "g",
        { class: here ? "cell here" : "cell", onclick: () => hasSteps(policy, TASKS[i]) && show(policy, TASKS[i]) },
        svg("title", null, words),
        shape,
        here &&
          svg("rect", {
            class: "ring",
            x: i * cell - 1.5,
            y: -1.5,
            width: cell - gap + 3,
            height: cell - gap + 3,
            rx: 4,
          }),
      );
    });
  return POLICIES.filter((policy) => known(policy).some(Boolean)).map((policy) => {
    const passed = known(policy).filter((row) => resultOf(row)).length;
    return el(
      "div",
      { class: "lane" },
      el("span", { class: "bar-name" }, policy),
      svg(
        "svg",
        {
          viewBox: `-2 -2 ${TASKS.length * cell + 2} ${cell + 2}`,
          width: TASKS.length * cell + 2,
          height: cell + 2,
          role: "img",
          "aria-label": `${policy} passed ${passed} of ${TASKS.length} tasks`,
        },
        marks(policy),
      ),
    );
  });
}

function sameTask(task, show) {
  const rows = POLICIES.map((policy) => [policy, rowOf(policy, task)]).filter(([, row]) => row);
  if (rows.length < 2) return null;
  const has = (name) => rows.some(([, row]) => isNumber(row[name]));
  const resource = ["seconds", "usd", "tokens"].find(has);
  return el(
    "details",
    { class: "card flush rivals" },
    el("summary", null, `The same task under all ${rows.length} policies`),
    el(
      "div",
      { class: "scroll", role: "region", "aria-label": "The same task under every policy", tabindex: 0 },
      el(
        "table",
        null,
        el(
          "thead",
          null,
          el(
            "tr",
            null,
            ["Policy", "Result", "Models called", resource && METRIC_NAMES[resource], has("regret") && "Regret"]
              .filter(Boolean)
              .map((name, i) => el("th", { scope: "col", class: i === 0 || i === 2 ? "text" : null }, name)),
          ),
        ),
        el(
          "tbody",
          null,
          rows.map(([policy, row]) =>
            el(
              "tr",
              { class: policy === chosen.policy ? "current" : null },
              el(
                "th",
                { scope: "row" },
                hasSteps(policy, task)
                  ? el("button", { type: "button", class: "link", onclick: () => show(policy, task) }, policy)
                  : policy,
              ),
              el("td", null, resultTag(resultOf(row))),
              el("td", { class: "text" }, el("span", { class: "route" }, route(row.models))),
              resource && el("td", null, amount(resource, row[resource])),
              has("regret") && el("td", null, plain(row.regret)),
            ),
          ),
        ),
      ),
    ),
  );
}

const METRIC_NAMES = { seconds: "Seconds", usd: "USD", tokens: "Tokens" };
const resultTag = (passed) =>
  passed === null
    ? el("span", { class: "tag" }, "not graded")
    : el("span", { class: passed ? "tag ok" : "tag bad" }, passed ? "✓ passed" : "✗ failed");

function taskWords(steps, row) {
  const calls = steps.filter((step) => !step.stop);
  const spent = row
    ? ["seconds", "usd", "energy_j"].filter((name) => isNumber(row[name])).map((name) => amount(name, row[name]))
    : [];
  const verdict =
    resultOf(row) === null
      ? "The result was not graded."
      : row.passed
        ? "The result passes the hidden test."
        : row.visible_ok
          ? "The result passes every visible check and fails the hidden test."
          : "The result fails the hidden test.";
  const did = `${chosen.policy} made ${count(calls.length, "call")} for ${chosen.task}`;
  const words = `${did}${spent.length ? `, spending ${spent.join(", ")}` : ""}. ${verdict}`;
  return el(
    "div",
    { class: "outcome" },
    resultTag(resultOf(row)),
    el("p", null, words),
    el("p", { class: "route" }, route(calls.map((step) => step.model))),
  );
}

function showTask() {
  const host = byId("task-body");
  if (!STEP_ROWS.size) {
    host.replaceChildren(
      el("p", { class: "card empty" }, "This run recorded no steps, so no single task can be shown."),
    );
    return;
  }
  Object.assign(chosen, defaultChoice());
  readAddress();
  const pickers = el("div", { class: "controls" }),
    map = el("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": "Every task under every policy" }),
    body = el("div", { id: "task-detail" });
  const show = (policy, task, keep) => {
    Object.assign(chosen, { policy, task });
    if (!keep) history.replaceState(null, "", `#task?${new URLSearchParams({ policy, task })}`);
    draw();
  };
  const draw = () => {
    const { policy, task } = chosen;
    const tasks = TASKS.filter((name) => hasSteps(policy, name));
    const at = tasks.indexOf(task);
    const mark = (name) => ({ true: "✓ ", false: "✗ ", null: "" })[String(resultOf(rowOf(policy, name)))];
    const move = (way, label, text) =>
      el(
        "button",
        {
          type: "button",
          class: "move",
          id: `task-${label}`,
          "aria-label": `${label} task`,
          disabled: !tasks[at + way],
          onclick: () => {
            show(policy, tasks[at + way]);
            refocus(`task-${label}`);
          },
        },
        text,
      );
    const policyChoice = choice(
      "Policy",
      POLICIES.filter((name) => TASKS.some((item) => hasSteps(name, item))).map((name) => [name, name]),
      policy,
      (value) => {
        show(value, hasSteps(value, task) ? task : TASKS.find((item) => hasSteps(value, item)));
        refocus("pick-policy");
      },
    );
    const taskChoice = choice(
      "Task",
      tasks.map((name) => [name, mark(name) + name]),
      task,
      (value) => {
        show(policy, value);
        refocus("pick-task");
      },
    );
    policyChoice.querySelector("select").id = "pick-policy";
    taskChoice.querySelector("select").id = "pick-task";
    pickers.replaceChildren(
      policyChoice,
      taskChoice,
      el("span", { class: "moves" }, move(-1, "previous", "‹"), move(1, "next", "›")),
    );
    map.replaceChildren(...overview(show));
    const steps = stepsOf(policy, task),
      row = rowOf(policy, task);
    const chart = el("div");
    body.replaceChildren(
      ...[
        el("div", { class: "card" }, taskWords(steps, row), chart),
        sameTask(task, show),
        termsNote(steps),
        el(
          "ol",
          { class: "steps" },
          steps.map((step, i) => stepCard(step, i, steps.length)),
        ),
      ].filter(Boolean),
    );
    onWidth(chart, (width) => drawPath(chart, width, steps, resultOf(row)));
  };
  const refocus = (id) => {
    const node = byId(id);
    if (node && !node.disabled) node.focus();
  };
  const grid =
    TASK_ROWS.size > 0 &&
    el(
      "div",
      { class: "card overview" },
      el(
        "p",
        { class: "small" },
        "One square per task, filled if it passed, hollow if it failed; the colour is the model of the last call. " +
          "Press one to open it.",
      ),
      map,
    );
  host.replaceChildren(...[grid, pickers, body].filter(Boolean));
  draw();
  window.addEventListener("hashchange", () => {
    readAddress();
    draw();
  });
}
