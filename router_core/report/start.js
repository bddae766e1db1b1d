// --- heading, the gist, how to run it again ---------------------------------------------------------------

function showHeading() {
  const tasks = RUN.tasks || Math.max(0, ...SUMMARY.map((row) => row.tasks || 0));
  const who = POLICIES.length === 1 ? "one policy" : `${POLICIES.length} policies`;
  const what = POLICIES.length === 1 || tasks === 1 ? count(tasks, "task") : `the same ${tasks} tasks`;
  const title = `${RUN.benchmark || RUN.folder}: ${who} on ${what}`;
  byId("heading").replaceChildren(title);
  const facts = [
    ["agents", RUN.framework],
    ["models answered from", RUN.backend],
    ["seed", RUN.seed],
    ["run on", RUN.created && RUN.created.slice(0, 16).replace("T", " ")],
    ["commit", RUN.git_commit && RUN.git_commit.slice(0, 10)],
  ];
  byId("facts").replaceChildren(
    ...facts
      .filter(([, value]) => value !== null && value !== "")
      .map(([name, value]) => el("span", null, el("span", { class: "muted" }, `${name} `), String(value))),
  );
  byId("alerts").prepend(...DATA.notes.map((note) => el("p", { class: "note" }, note)));
  if (isNumber(RUN.price_of_second))
    byId("value-words").append(
      ` Here a second costs ${plain(RUN.price_of_second)}, so value = pass − ${plain(RUN.price_of_second)} × seconds.`,
    );
}

function tile(label, row, measure, note) {
  const cost = METRICS.length ? ` at ${amount(METRICS[0].key, row[METRICS[0].key])} per task` : "";
  return el(
    "div",
    { class: "tile" },
    el("p", { class: "tile-label" }, label),
    el("p", { class: "tile-name" }, row.policy),
    el("p", { class: "tile-number" }, `${rate(row.pass_rate)} pass${cost}`),
    el("p", { class: "small" }, [measure === "value" && `value ${plain(row.value)}`, note].filter(Boolean).join(" · ")),
  );
}

// The best chooser, the best single model and the bound, ranked by value where it is known.
function showGist() {
  const measure = SUMMARY.some((row) => isNumber(row.value)) ? "value" : "pass_rate";
  const top = (rows) =>
    rows
      .filter((row) => isNumber(row[measure]))
      .reduce((a, b) => (a === null || b[measure] > a[measure] ? b : a), null);
  const routed = top(SUMMARY.filter((row) => !isFixed(row.policy) && !isOracle(row.policy))),
    single = top(SUMMARY.filter((row) => isFixed(row.policy))),
    bound = top(SUMMARY.filter((row) => isOracle(row.policy)));
  const apart =
    routed && single && routed.ci && single.ci && (routed.ci[0] > single.ci[1] || single.ci[0] > routed.ci[1]);
  const settled =
    routed && single && routed.ci && single.ci
      ? apart
        ? "pass rates differ beyond their intervals"
        : "pass-rate intervals overlap with the best single model's"
      : "";
  const tiles = [
    routed && tile("Best of those that choose per step", routed, measure, settled),
    single && tile("Best single model", single, measure, ""),
    bound && tile("Bound, knowing the answers", bound, measure, ""),
  ].filter(Boolean);
  byId("gist").replaceChildren(...tiles);
  byId("gist").hidden = !tiles.length;
}

function showAgain() {
  const line = (label, text) => [el("dt", null, label), el("dd", null, text)];
  const versions = Object.entries(RUN.versions)
    .map(([name, version]) => `${name} ${version}`)
    .join(", ");
  const models = MODELS.map((model) => [
    model.name,
    [
      isNumber(model.size) ? sizeName(model.size) : "",
      model.family,
      RUN.prices[model.name] === "unknown" ? "price unknown" : RUN.prices[model.name],
    ]
      .filter(Boolean)
      .join(", "),
  ]);
  const facts = [
    ["Seed", RUN.seed],
    ["Commit", RUN.git_commit],
    ["Run on", RUN.created],
    ["Price of a second", isNumber(RUN.price_of_second) ? plain(RUN.price_of_second) : ""],
    ["Versions", versions],
  ];
  const commands = [RUN.command, `steproute report ${/^[\w./-]+$/.test(RUN.folder) ? RUN.folder : "RUN"}`].filter(
    Boolean,
  );
  byId("again-body").replaceChildren(
    el("pre", { tabindex: 0, "aria-label": "Command lines" }, el("code", null, commands.join("\n"))),
    el("p", { class: "small" }, "The first line repeats the run, the second writes this page from the run's folder."),
    el(
      "dl",
      { class: "lines" },
      facts
        .filter(([, value]) => value !== null && value !== undefined && value !== "")
        .map(([label, value]) => el("div", null, line(label, String(value)))),
      models.map(([name, words]) => el("div", null, line(name, words || "no further facts recorded"))),
    ),
  );
  if (!RUN.command)
    byId("again-body")
      .querySelector(".small")
      .replaceChildren("The run did not record its benchmark, so its command line is not known.");
}

// Marks how the page came out, for whoever checks it with a machine: width, and what sticks out sideways.
function selfCheck() {
  const over = root.scrollWidth - root.clientWidth;
  root.dataset.width = String(root.clientWidth);
  root.dataset.overflow = String(Math.max(0, over));
}

for (const show of [showHeading, showGist, showPlane, showTable, showCalls, showTask, showAgain]) {
  try {
    show();
  } catch (error) {
    window.dispatchEvent(new ErrorEvent("error", { message: `${show.name}: ${error.message}`, error }));
    console.error(error);
  }
}
window.addEventListener("resize", () => requestAnimationFrame(selfCheck));
requestAnimationFrame(() => {
  selfCheck();
  root.dataset.ready = "1";
});
