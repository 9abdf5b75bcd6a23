// The first page of a run: the verdict and why, the categories, the scenarios.

const SHOWN_REASONS = 12;
const SESSION_IN_TEXT =
  /session ([0-9a-f]{32})(?: \(trial \d+\))?(?: at ([a-z]\w*(?:, [a-z]\w*)*))?/g;

function overviewPage(run) {
  return [
    verdictBlock(run),
    run.left_out
      ? el(
          "p",
          { class: "note" },
          `${number(run.left_out)} sessions are not in this page: the worst are. \`windtunnel view\` shows all.`,
        )
      : null,
    reasonsBlock(run),
    el("h2", {}, "Categories"),
    categoriesTable(run),
    el("h2", {}, "Scenarios"),
    scenariosBlock(run),
    el("h2", {}, "The run"),
    factsBlock(run),
  ];
}

function verdictBlock(run) {
  const word = run.verdict ? run.verdict.verdict : "NO VERDICT YET";
  const own = run.sessions.filter((one) => !one.baseline);
  const passed = sum(run.scenarios, (one) => (one.run ? one.run.passed : 0));
  const all = sum(run.scenarios, (one) => (one.run ? one.run.sessions : 0));
  const links = ["failed", "invalid", "unscored"].map((kind) => {
    const count = own.filter((one) => outcome(one) === kind).length;
    return count
      ? el(
          "a",
          { class: `chip ${kind}`, href: `#/sessions?outcome=${kind}` },
          `${number(count)} ${kind}`,
        )
      : null;
  });
  return el(
    "section",
    { class: `verdict ${word.toLowerCase().replaceAll(" ", "-")}` },
    el("h1", {}, el("span", { class: "word" }, word), " ", run.run.run_id),
    el(
      "p",
      {},
      `${number(passed)} of ${number(all)} sessions passed. Suite ${run.run.suite} ${run.run.suite_version}, agent ${run.run.agent_id}, compared with ${run.baseline ? run.baseline.run_id : "nothing"}.`,
    ),
    el(
      "p",
      { class: "chips" },
      el("a", { class: "chip", href: "#/sessions" }, "all sessions"),
      " ",
      links,
    ),
  );
}

const sum = (items, of) => items.reduce((total, item) => total + of(item), 0);

function reasonsBlock(run) {
  const reasons = (run.verdict && run.verdict.reasons) || [];
  if (!reasons.length) return null;
  const list = el(
    "ol",
    { class: "reasons" },
    reasons.slice(0, SHOWN_REASONS).map((one) => reason(run, one)),
  );
  const rest = reasons.length - SHOWN_REASONS;
  const all =
    rest > 0 &&
    el(
      "button",
      {
        type: "button",
        on: {
          click: () => {
            add(
              list,
              reasons.slice(SHOWN_REASONS).map((one) => reason(run, one)),
            );
            all.remove();
          },
        },
      },
      `Show ${rest} more reasons`,
    );
  return el("section", {}, el("h2", {}, "Why"), list, all);
}

function reason(run, text) {
  const [, effect, codeWord, message] = /^(\w+): ([\w-]+): ([^]*)$/.exec(text) || [
    null,
    "note",
    "",
    text,
  ];
  const parts = [];
  let from = 0;
  for (const match of message.matchAll(SESSION_IN_TEXT)) {
    if (!run.byId.has(match[1])) continue;
    parts.push(message.slice(from, match.index));
    parts.push(sessionLink(match[1], `session ${short(match[1])}`));
    if (match[2]) parts.push(" at ", stepLinks(match[1], match[2].split(", ")));
    from = match.index + match[0].length;
  }
  parts.push(message.slice(from));
  return el(
    "li",
    { class: effect },
    chip(effect),
    " ",
    codeWord ? [el("code", {}, codeWord), " "] : null,
    el("span", { dir: "auto" }, parts),
  );
}

function stepLinks(session, steps) {
  return steps.flatMap((step, at) => [at ? ", " : "", sessionLink(session, step, step)]);
}

function categoriesTable(run) {
  const rows = [...groups(run.scenarios, (one) => one.category)].map(([category, scenarios]) => {
    const side = (name) =>
      scenarios.some((one) => one[name]) && {
        passed: sum(scenarios, (one) => (one[name] ? one[name].passed : 0)),
        sessions: sum(scenarios, (one) => (one[name] ? one[name].sessions : 0)),
      };
    return row([
      category || "none",
      number(scenarios.length),
      passBar(side("run")),
      passBar(side("before")),
    ]);
  });
  return table(
    "Sessions that passed, by category",
    ["Category", "Scenarios", "This run", "Baseline"],
    rows,
  );
}

function scenariosBlock(run) {
  const changes = new Map(
    [...run.diffOf].map(([name, entries]) => [
      name,
      entries.filter((one) => one.change !== "unchanged"),
    ]),
  );
  const worst = (one) => {
    const changed = changes.get(one.scenario_id) || [];
    if (changed.some((entry) => entry.change === "regressed" && entry.hard)) return 0;
    if (changed.some((entry) => entry.change === "regressed" && entry.kind === "gate")) return 1;
    if (!one.run || one.run.passed < one.run.sessions) return 2;
    return changed.length ? 3 : 4;
  };
  const sorted = [...run.scenarios].sort(
    (a, b) => worst(a) - worst(b) || a.scenario_id.localeCompare(b.scenario_id),
  );
  const holder = el("div", {});
  const search = el("input", {
    type: "search",
    placeholder: "Filter scenarios",
    "aria-label": "Filter scenarios",
  });
  const changed = el("input", { type: "checkbox" });
  const draw = () => {
    const wanted = search.value.toLowerCase();
    const shown = sorted.filter(
      (one) =>
        `${one.scenario_id} ${one.category}`.toLowerCase().includes(wanted) &&
        (!changed.checked || worst(one) < 4),
    );
    show(
      holder,
      table(
        `${shown.length} of ${sorted.length} scenarios`,
        ["Scenario", "Category", "This run", "Baseline", "What changed", "Injected"],
        rowsOnDemand(shown, (one) => scenarioRow(one, changes.get(one.scenario_id) || []), 200),
      ),
    );
  };
  search.addEventListener("input", draw);
  changed.addEventListener("change", draw);
  draw();
  return el(
    "section",
    {},
    el(
      "p",
      { class: "controls" },
      search,
      el("label", {}, changed, " only what failed or changed"),
    ),
    holder,
  );
}

function scenarioRow(one, changed) {
  const gates = changed.filter((entry) => entry.kind === "gate" && entry.dimension !== "all_gates");
  const chips = (gates.length ? gates : changed.filter((entry) => entry.kind === "gate"))
    .slice(0, 6)
    .flatMap((entry) => [
      chip(
        `${entry.dimension || "scenario"} ${entry.change}`,
        entry.hard ? "regressed hard" : entry.change,
      ),
      " ",
    ]);
  const odd = one.run
    ? ["invalid", "unscored"]
        .filter((kind) => one.run[kind])
        .map((kind) => chip(`${one.run[kind]} ${kind}`, kind))
    : [];
  return row([
    scenarioLink(one.scenario_id),
    one.category || "none",
    passBar(one.run),
    passBar(one.before),
    [chips, odd],
    { cell: "figure", of: one.run && one.run.injected ? number(one.run.injected) : DASH },
  ]);
}

function factsBlock(run) {
  const facts = {
    Run: run.run.run_id,
    State: run.run.state,
    Suite: `${run.run.suite} ${run.run.suite_version} (${run.run.suite_hash})`,
    Agent: `${run.run.agent_id} (${run.run.agent_name}), fingerprint ${run.run.agent_fingerprint}`,
    Seed: run.run.seed,
    Trials: number(run.run.trials),
    Requested: `${moment(run.run.requested_at_ms)} by ${run.run.requested_by || "nobody named"}`,
    Completed: moment(run.run.completed_at_ms),
    Sessions: `${number(run.run.planned)} planned, ${number(run.run.ended)} ended, ${number(run.run.scored)} scored`,
    Versions: Object.entries(run.run.pins)
      .map(([name, pin]) => `${name} ${pin}`)
      .join(", "),
    Decided: run.verdict ? moment(run.verdict.decided_at_ms) : DASH,
  };
  return el(
    "dl",
    { class: "facts" },
    Object.entries(facts).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]),
  );
}

// One scenario: its dimensions against the baseline's, and the sessions of both side by side.
function scenarioPage(run, id) {
  const scenario = run.scenarios.find((one) => wellFormed(one.scenario_id) === id);
  if (!scenario) return [el("h1", {}, "There is no such scenario in this run"), el("p", {}, id)];
  const entries = run.diffOf.get(scenario.scenario_id) || [];
  const order = ["regressed", "missing", "incomparable", "improved", "new", "unchanged"];
  const rows = [...entries]
    .sort((a, b) => order.indexOf(a.change) - order.indexOf(b.change))
    .map((entry) =>
      row([
        entry.dimension || "scenario",
        entry.kind,
        { cell: "figure", of: figure(entry, entry.baseline) },
        { cell: "figure", of: figure(entry, entry.candidate) },
        chip(
          entry.change,
          entry.hard && entry.change === "regressed" ? "regressed hard" : entry.change,
        ),
        { cell: "figure", of: entry.p_value === null ? DASH : entry.p_value.toPrecision(2) },
        entry.method,
        entry.examples.flatMap((one) =>
          run.byId.has(one.session_id)
            ? [
                sessionLink(one.session_id, short(one.session_id)),
                " ",
                stepLinks(one.session_id, one.citations),
                " ",
              ]
            : [],
        ),
      ]),
    );
  return [
    el(
      "nav",
      { "aria-label": "Where this is" },
      el("a", { href: "#/" }, run.run.run_id),
      " › ",
      scenario.category || "none",
    ),
    el("h1", {}, id),
    el("h2", {}, "Dimensions"),
    entries.length
      ? table(
          "Each dimension, this run against the baseline",
          ["Dimension", "Kind", "Baseline", "This run", "Change", "p", "Method", "Evidence"],
          rows,
        )
      : el("p", {}, "Nothing is compared: the run has no verdict against a baseline."),
    el("h2", {}, "Sessions, baseline and this run side by side"),
    sideBySide(run.sessionsOf.get(scenario.scenario_id) || []),
  ];
}

function sideBySide(sessions) {
  const trials = [...groups(sessions, (one) => one.trial)].sort(([a], [b]) => a - b);
  const cell = (one) =>
    one
      ? [
          chip(outcome(one)),
          " ",
          sessionLink(one.session_id, short(one.session_id)),
          el(
            "span",
            { class: "quiet" },
            ` ${one.end_reason}, ${number(one.turns)} turns, ${number(one.tool_calls)} calls`,
          ),
        ]
      : el("span", { class: "quiet" }, DASH);
  const rows = (pair) => {
    const [trial, both] = pair;
    const before = both.find((one) => one.baseline),
      now = both.find((one) => !one.baseline);
    return row([
      number(trial),
      cell(before),
      cell(now),
      before && now
        ? el("a", { href: address("diff", before.session_id, now.session_id) }, "compare")
        : DASH,
    ]);
  };
  return table("Trials", ["Trial", "Baseline", "This run", ""], rowsOnDemand(trials, rows, 200));
}
