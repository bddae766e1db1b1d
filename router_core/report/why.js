// --- why this model: a decision in plain words ------------------------------------------------------------

const TERMS = {
  "V(1-g)y": {
    name: "worth of the predicted gain",
    how: "V × what is left to do (1 − g) × predicted gain",
    fact: (c) => isNumber(c.gain) && `a predicted gain of ${plain(c.gain)}`,
  },
  "-Q(E-target)": {
    name: "long-run energy pressure",
    how: "grows while tasks use more energy than their target on average",
    fact: (c) => costFact(c, "energy_j"),
  },
  "-time": {
    name: "time pressure",
    how: "expected seconds, weighing more the nearer the task is to its time limit",
    fact: (c) => costFact(c, "seconds"),
  },
  "-energy": {
    name: "energy pressure",
    how: "expected joules, weighing more the nearer the task is to its energy limit",
    fact: (c) => costFact(c, "energy_j"),
  },
  gain: {
    name: "predicted gain",
    how: "how much the model is expected to add to g",
    fact: (c) => isNumber(c.gain) && `a predicted gain of ${plain(c.gain)}`,
  },
  cost: { name: "expected cost", how: "in the first of money, energy, time and tokens in which the models differ" },
  rung: { name: "place on the ladder", how: "0 is the first model to try; the policy climbs when a task gets stuck" },
  policy: { name: "vote of the learnt policy", how: "what a model trained on past steps would choose" },
  dimension: { name: "vote of the record", how: "the model that did best on this kind of task" },
  memory: { name: "vote of similar steps", how: "the model that did best on the most similar past steps" },
  prior: { name: "prior quality", how: "the strength stated for the model before anything was seen" },
  "Q*": { name: "true value", how: "value still reachable after this choice, from the recording" },
};
const RESOURCES = { usd: "money", seconds: "time", tokens: "tokens", energy_j: "energy" };

function costFact(candidate, resource) {
  return isNumber(candidate.cost[resource]) && `${amount(resource, candidate.cost[resource])} expected`;
}

function termInfo(name) {
  if (TERMS[name]) return TERMS[name];
  const resource = name.replace(/^-/, "");
  if (RESOURCES[resource])
    return {
      name: `price of ${RESOURCES[resource]}`,
      how: `expected ${resource}, priced by the budget`,
      fact: (c) => costFact(c, resource),
    };
  return { name: name || "unnamed term", how: "" };
}

// How a score comes from its terms: their sum, gain over cost, nothing recorded, or a rule the page does not know.
function scoreKind(candidate) {
  const values = Object.values(candidate.terms);
  if (!values.length || !isNumber(candidate.score)) return "bare";
  const close = (value) =>
    Math.abs(value - candidate.score) <= 1e-3 * Math.max(1e-9, Math.abs(candidate.score), ...values.map(Math.abs));
  if (close(sum(values))) return "sum";
  const { gain, cost } = candidate.terms;
  if (
    values.length === 2 &&
    isNumber(gain) &&
    isNumber(cost) &&
    Math.abs(gain / Math.max(cost, 1e-9) / (candidate.score || 1e-9) - 1) < 5e-3
  )
    return "ratio";
  return "other";
}

const times = (ratio) => (ratio < 1.95 ? `${Math.round((ratio - 1) * 100)} %` : `${plain(ratio, 2)} times`);

// A decision has one rule: a candidate that fits another one only by chance is not explained by it.
function settleKinds(candidates) {
  const kinds = new Set();
  for (const item of candidates) {
    item.kind = scoreKind(item);
    if (item.kind !== "bare") kinds.add(item.kind);
  }
  if (kinds.size > 1) for (const item of candidates) if (item.kind !== "bare") item.kind = "other";
}

// Which term put `winner` above `loser`, in words.
function decidingTerm(winner, loser) {
  if (winner.kind === "ratio" && loser.kind === "ratio") return decidingFactor(winner, loser);
  if (winner.kind !== "sum" || loser.kind !== "sum") return "";
  const names = [...new Set([...Object.keys(winner.terms), ...Object.keys(loser.terms)])];
  const gaps = names
    .map((name) => ({ name, gap: (winner.terms[name] || 0) - (loser.terms[name] || 0) }))
    .sort((a, b) => b.gap - a.gap);
  const [top, ...rest] = gaps;
  if (!top || top.gap <= 0) return "";
  const info = termInfo(top.name);
  const [mine, theirs] = info.fact ? [info.fact(winner), info.fact(loser)] : [null, null];
  const fact =
    mine && theirs && mine !== theirs
      ? ` (${mine} against ${theirs.replace(/^a predicted gain of | expected$/g, "")})`
      : "";
  const words = [
    `What decided it: the ${info.name}, which put it ${plain(top.gap)} ahead of ${modelName(loser.model)}${fact}.`,
  ];
  const margin = sum(gaps.map((item) => item.gap));
  const against = rest.filter((item) => item.gap < -1e-9 * Math.abs(top.gap)),
    along = rest.filter((item) => item.gap > 1e-9 * Math.abs(top.gap));
  if (along.length) words.push(`${listed(along)} helped too.`);
  if (against.length) words.push(`${listed(against)} spoke for ${modelName(loser.model)}, but not enough.`);
  if (rest.length && margin - top.gap < 0)
    words.push(`Without the ${info.name}, ${modelName(loser.model)} would have scored higher.`);
  return words.join(" ");
}

function listed(items) {
  const text = items.map((item) => `the ${termInfo(item.name).name} (${signed(item.gap)})`).join(" and ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function decidingFactor(winner, loser) {
  const [gain, cost] = [winner.terms.gain / loser.terms.gain, loser.terms.cost / winner.terms.cost];
  if (!(gain > 0 && cost > 0 && Number.isFinite(gain) && Number.isFinite(cost)))
    return "The score is the predicted gain divided by the expected cost.";
  const gainWords =
    gain >= 1 ? `its predicted gain is ${times(gain)} higher` : `its predicted gain is ${times(1 / gain)} lower`;
  const costWords =
    cost >= 1 ? `its expected cost is ${times(cost)} lower` : `its expected cost is ${times(1 / cost)} higher`;
  const [first, second, other] = cost >= gain ? [costWords, gainWords, gain] : [gainWords, costWords, cost];
  const join = other < 1 ? "although" : "and";
  const rest = Math.abs(other - 1) < 0.005 ? "" : `, ${join} ${second}`;
  return `What decided it: ${first} than that of ${modelName(loser.model)}${rest}.`;
}

// The sentences of a decision; the first says what happened.
function explain(step) {
  const scored = step.candidates.filter((item) => isNumber(item.score)).sort((a, b) => b.score - a.score);
  if (step.stop) return explainStop(step, scored);
  const words = explainChoice(step, scored);
  if (isNumber(step.stop_score))
    words.push(`The policy could have ended the task instead; that scored ${plain(step.stop_score)}.`);
  if (step.picked !== step.model)
    words.push(
      `In the end ${modelName(step.model)} answered in its place; the cost is that of ${modelName(step.model)}.`,
    );
  return words;
}

function explainStop(step, scored) {
  const head = "The policy ended the task here: it held that no further call was worth its cost.";
  if (!scored.length) return [head];
  const call = `the best call, to ${modelName(scored[0].model)}, scored ${plain(scored[0].score)}`;
  return [
    head,
    isNumber(step.stop_score)
      ? `Ending scored ${plain(step.stop_score)}; ${call}.`
      : `${call.charAt(0).toUpperCase()}${call.slice(1)}.`,
  ];
}

function explainChoice(step, scored) {
  const name = modelName(step.picked);
  const chosen = scored.find((item) => item.model === step.picked);
  const rival = scored.find((item) => item.model !== step.picked);
  const drawn = isNumber(step.propensity) && step.propensity < 0.9995;
  if (step.fallback)
    return [`The router failed inside at this step, so the default model ${name} stood in; the host never noticed.`];
  if (!chosen) return [`${name} served this step; its score was not recorded.`];
  if (!rival) return [`${name} was the only model that could serve this step.`];
  if (isFixed(step.policy) && !Object.keys(chosen.terms).length) {
    if ([name, ""].includes(step.policy.replace(/^fixed:?/, "")))
      return [`This policy always takes ${name}; it weighs nothing.`];
    return [`The model this policy is fixed to could not serve the step, so ${name} stood in.`];
  }
  const level = scored.filter(
    (item) => Math.abs(item.score - chosen.score) <= 1e-9 * Math.max(1, Math.abs(chosen.score)),
  );
  if (level.length === scored.length) {
    const tie = scored.length === 2 ? "Both models scored the same" : `All ${scored.length} models scored the same`;
    return [
      drawn
        ? `${tie}, so the choice was a draw: ${name} came up, with a probability of ${percent(step.propensity)}.`
        : `${tie}, so the first of them, ${name}, got the call.`,
    ];
  }
  const other = modelName(rival.model);
  const odds = `with a probability of ${percent(step.propensity)}`;
  const [mine, theirs] = apart(chosen.score, rival.score);
  if (chosen.score < rival.score) {
    const how = drawn ? `was drawn at random, ${odds}, although` : "got the call by a rule of the policy, although";
    const head = `${name} ${how} ${other} was ahead by score: ${theirs} against ${mine}.`;
    return [head, decidingTerm(rival, chosen).replace("What decided it:", "What put it ahead:")].filter(Boolean);
  }
  if (level.length > 1)
    return [`${level.length} models shared the highest score, ${mine}; ${name} is the one that got the call.`];
  const head = `${name} got the call because it scored highest: ${mine}, ahead of ${other} with ${theirs}.`;
  const luck = drawn ? `The policy draws at times; this model came up ${odds}.` : "";
  return [head, decidingTerm(chosen, rival), luck].filter(Boolean);
}

// Two numbers with as many digits as it takes to tell them apart.
function apart(one, two) {
  const digits = [3, 4, 5].find((size) => plain(one, size) !== plain(two, size)) || 5;
  return [plain(one, digits), plain(two, digits)];
}

function stateWords(step, first) {
  const meaning = {
    invalid: "nothing usable yet",
    recoverable: "there is something, but it fails",
    partial: "part of it works",
    complete: "all that can be seen works",
  };
  if (!step.regime && !isNumber(step.g)) return "";
  const start = first && step.regime === "invalid" ? "nothing has been tried yet" : meaning[step.regime] || "";
  const parts = [
    ["r", step.r],
    ["d", step.d],
    ["e", step.e],
  ]
    .filter(([, value]) => isNumber(value))
    .map(([name, value]) => `${name} ${plain(value, 2)}`);
  const state = `${step.regime || "state not recorded"}${start ? ` (${start})` : ""}`;
  return `${state}, progress g ${plain(step.g)}${parts.length ? ` from ${parts.join(", ")}` : ""}`;
}

function hindsight(step) {
  if (!step.q) return "";
  const stop = step.q[MODELS.length];
  const options = MODELS.map((model, i) => ({ name: model.name, q: step.q[i], i }))
    .concat({ name: "ending the task here", q: stop, i: "stop" })
    .filter((item) => isNumber(item.q));
  const mine = options.find((item) => item.i === (step.stop ? "stop" : step.picked));
  if (!options.length || !mine) return "";
  const top = options.reduce((a, b) => (b.q > a.q ? b : a));
  if (mine.q >= top.q - 1e-4) return `the best choice there was, with a true value of ${plain(mine.q)}.`;
  const regret = plain(isNumber(step.regret) ? step.regret : top.q - mine.q);
  const [most, got] = apart(top.q, mine.q);
  return `${top.name} would have been best, with a true value of ${most}; this choice was worth ${got}, a regret of ${regret}.`;
}
