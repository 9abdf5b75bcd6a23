// All sessions, filtered; and a search through everything that was said and called.

function sessionsPage(run, query) {
  const state = {
    outcome: query.get("outcome") || "",
    category: query.get("category") || "",
    q: query.get("q") || "",
    side: query.get("side") || "run",
  };
  const holder = el("div", {});
  const found = { ids: null };
  const select = (name, label, values) => {
    const node = el(
      "select",
      { "aria-label": label },
      el("option", { value: "" }, label),
      values.map((one) => el("option", { value: one, selected: state[name] === one }, one)),
    );
    node.addEventListener("change", () => {
      state[name] = node.value;
      draw();
    });
    return node;
  };
  const search = el("input", {
    type: "search",
    placeholder: "Filter sessions",
    "aria-label": "Filter sessions",
    value: state.q,
  });
  search.addEventListener("input", () => {
    state.q = search.value;
    found.ids = null;
    draw();
  });
  const matching = () =>
    run.sessions.filter(
      (one) =>
        one.baseline === (state.side === "baseline") &&
        (!state.outcome || outcome(one) === state.outcome) &&
        (!state.category || one.category === state.category) &&
        (found.ids
          ? found.ids.has(one.session_id)
          : sessionText(one).includes(state.q.toLowerCase())),
    );
  const inside = searchInside(
    run,
    () => state,
    (ids) => {
      found.ids = ids;
      draw();
    },
  );
  function draw() {
    history.replaceState(
      null,
      "",
      `#/sessions?${new URLSearchParams(Object.entries(state).filter(([, value]) => value))}`,
    );
    const shown = matching();
    show(
      holder,
      table(
        `${number(shown.length)} sessions`,
        [
          "Session",
          "Scenario",
          "Outcome",
          "Ended",
          "Turns",
          "Calls",
          "Injected",
          "Agent's time",
          "Tokens",
        ],
        rowsOnDemand(shown, sessionRow, 200),
      ),
    );
  }
  draw();
  const categories = [...new Set(run.sessions.map((one) => one.category))].sort();
  return [
    el(
      "nav",
      { "aria-label": "Where this is" },
      el("a", { href: "#/" }, run.run.run_id),
      " › sessions",
    ),
    el("h1", {}, "Sessions"),
    el(
      "p",
      { class: "controls" },
      search,
      select("outcome", "any outcome", ["failed", "invalid", "unscored", "passed"]),
      select("category", "any category", categories),
      run.baseline ? select("side", "this run", ["baseline"]) : null,
      inside,
    ),
    holder,
  ];
}

const sessionText = (one) =>
  `${one.session_id} ${one.scenario_id} ${one.persona} ${one.end_reason} ${one.end_detail}`.toLowerCase();

function sessionRow(one) {
  return row([
    sessionLink(one.session_id, short(one.session_id)),
    [scenarioLink(one.scenario_id), el("span", { class: "quiet" }, ` trial ${one.trial}`)],
    chip(outcome(one)),
    one.end_reason,
    { cell: "figure", of: number(one.turns) },
    { cell: "figure", of: number(one.tool_calls) },
    { cell: "figure", of: one.injected_failures ? number(one.injected_failures) : DASH },
    { cell: "figure", of: milliseconds(one.agent_latency_ms_total) },
    { cell: "figure", of: number(one.input_tokens + one.output_tokens) },
  ]);
}

// Sessions are unpacked one after the other, so that the page stays usable meanwhile.
function searchInside(run, state, done) {
  let searching = 0;
  const button = el("button", { type: "button" }, "Search inside trajectories");
  button.addEventListener("click", async () => {
    const mine = ++searching;
    const { q, side } = state();
    const wanted = q.toLowerCase();
    if (!wanted) return done(null);
    const ids = new Set();
    const sessions = run.sessions.filter((one) => one.baseline === (side === "baseline"));
    for (const [at, session] of sessions.entries()) {
      const detail = await run.detail(session.session_id);
      if (mine !== searching || !button.isConnected) return;
      if (detail && detail.events.some((event) => eventText(event).includes(wanted)))
        ids.add(session.session_id);
      if (at % 10 === 0) {
        button.textContent = `Searching ${at + 1} of ${sessions.length}`;
        await new Promise((resume) => setTimeout(resume));
      }
    }
    button.textContent = "Search inside trajectories";
    done(ids);
  });
  return button;
}
