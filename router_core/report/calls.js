// --- who was called ---------------------------------------------------------------------------------------

const ORDINALS = ["First", "Second", "Third", "Fourth", "Fifth", "Sixth"];

// Groups of models the bars are split by: every model alone, or models of one size together.
function callGroups(bySize) {
  if (!bySize)
    return MODELS.map((model, i) => ({
      name: model.name,
      note: isNumber(model.size) ? sizeName(model.size) : "",
      members: [i],
    }));
  const sizes = [...new Set(MODELS.map((model) => model.size))];
  return sizes.map((size) => ({
    name: sizeName(size),
    note: "",
    members: MODELS.map((_, i) => i).filter((i) => MODELS[i].size === size),
  }));
}

// Calls per model for one policy: at one position in the task, or over all (position null).
function callCounts(policy, position) {
  const table = DATA.calls[POLICIES.indexOf(policy)] || [];
  const rows = position === null ? table : table.slice(position, position + 1);
  return MODELS.map((_, i) => sum(rows.map((row) => row[i])));
}

function shareOnly(policy) {
  const row = SUMMARY.find((item) => item.policy === policy);
  return MODELS.map((model) => (row && row.share[model.name]) || 0);
}

function showCalls() {
  const host = byId("calls-chart"),
    legend = byId("calls-legend");
  const counted = DATA.calls.some((table) => table.length);
  const depth = Math.max(0, ...DATA.calls.map((table) => table.length));
  const sized = MODELS.some((model) => isNumber(model.size));
  let bySize = false,
    position = null;
  if (!MODELS.length || !(counted || SUMMARY.some((row) => Object.keys(row.share).length))) {
    host.replaceChildren(el("p", { class: "empty" }, "This run recorded no calls."));
    return;
  }
  const draw = () => {
    const groups = callGroups(bySize);
    const at = (group) => (MODELS.length > 1 ? sum(group.members) / group.members.length / (MODELS.length - 1) : 0.5);
    legend.replaceChildren(
      ...groups.map((group) =>
        el(
          "span",
          null,
          el("span", { class: "swatch", "aria-hidden": "true", style: { background: rampColor(at(group)) } }),
          group.name,
          group.note && el("span", { class: "muted" }, group.note),
        ),
      ),
    );
    host.replaceChildren(
      el(
        "ul",
        { class: "bars" },
        POLICIES.map((policy) => {
          const counts = counted ? callCounts(policy, position) : shareOnly(policy);
          const total = sum(counts);
          const parts = groups
            .map((group) => ({ group, calls: sum(group.members.map((i) => counts[i])) }))
            .filter((part) => part.calls > 0);
          const words = parts
            .map(
              ({ group, calls }) =>
                `${group.name} ${counted ? `${count(calls, "call")}, ` : ""}${percent(calls / total)}`,
            )
            .join("; ");
          return el(
            "li",
            null,
            el("span", { class: "bar-name" }, policy),
            el(
              "span",
              { class: "bar", role: "img", "aria-label": `${policy}: ${words || "no call"}`, title: words },
              parts.map(({ group, calls }) =>
                el(
                  "i",
                  {
                    style: {
                      flexGrow: String(calls / total),
                      background: rampColor(at(group)),
                      color: onRamp(at(group)),
                    },
                  },
                  calls / total >= 0.09 ? percent(calls / total) : "",
                ),
              ),
            ),
            el("span", { class: "bar-total" }, counted ? (total ? count(total, "call") : "no call") : ""),
          );
        }),
      ),
    );
  };
  const controls = [];
  if (sized)
    controls.push(
      toggle(
        "Split by",
        [
          ["model", "Model"],
          ["size", "Size"],
        ],
        "model",
        (value) => {
          bySize = value === "size";
          draw();
        },
      ),
    );
  if (counted && depth > 1) {
    const shown = ORDINALS.slice(0, Math.min(depth, ORDINALS.length)).map((name, i) => [
      String(i),
      `${name} call of a task`,
    ]);
    controls.push(
      choice("Calls", [["all", "All calls"], ...shown], "all", (value) => {
        position = value === "all" ? null : Number(value);
        draw();
      }),
    );
  }
  byId("calls-controls").replaceChildren(...controls);
  draw();
}
