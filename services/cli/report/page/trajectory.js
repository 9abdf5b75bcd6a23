// One session: its events, and beside them what the judge makes of them.

const CHUNK = 120;
const KINDS = {
  everything: () => true,
  turns: (event) => event.kind === "user_turn" || event.kind === "agent_turn",
  "tool calls": (event) => event.kind === "tool_called",
  "injected failures": (event) => Boolean(injectionOf(event)),
  "hand-offs and traces": (event) => event.kind === "trace",
  "cited by the judge": (event, cited) => cited.has(event.step),
};

async function sessionPage(run, id, step) {
  const session = run.byId.get(id);
  const detail = session && (await run.detail(id));
  if (!detail)
    return [
      el("h1", {}, "This session is not here"),
      el("p", {}, `${id}: this page does not hold it.`),
    ];
  const cited = new Map();
  for (const score of detail.scores)
    for (const one of score.citations) cited.set(one, [...(cited.get(one) || []), score]);
  const context = {
    id,
    cited,
    start: detail.events.length ? detail.events[0].at_ms : 0,
    mostLatency: most(detail.events, latencyOf),
    mostTokens: most(detail.events, tokensOf),
  };
  const list = eventList(detail.events, context, step);
  const search = el("input", {
    type: "search",
    placeholder: "Search this trajectory",
    "aria-label": "Search this trajectory",
  });
  const kind = el(
    "select",
    { "aria-label": "Which events" },
    Object.keys(KINDS).map((name) => el("option", {}, name)),
  );
  const filter = () => {
    const wanted = search.value.toLowerCase();
    list.filter(
      (event) => KINDS[kind.value](event, cited) && (!wanted || eventText(event).includes(wanted)),
    );
  };
  search.addEventListener("input", filter);
  kind.addEventListener("change", filter);
  return [
    el(
      "nav",
      { "aria-label": "Where this is" },
      el("a", { href: "#/" }, run.run.run_id),
      " › ",
      scenarioLink(session.scenario_id),
      " › ",
      `${session.baseline ? "baseline " : ""}trial ${session.trial}`,
      neighbours(run, session),
    ),
    el(
      "h1",
      {},
      chip(outcome(session)),
      " ",
      session.scenario_id,
      el("span", { class: "quiet" }, ` session ${short(id)}`),
    ),
    el(
      "p",
      { class: "chips" },
      `${session.end_reason}${session.end_detail ? `: ${session.end_detail}` : ""}. ${number(session.turns)} turns, ${number(session.tool_calls)} tool calls, ${number(session.injected_failures)} injected, agent ${milliseconds(session.agent_latency_ms_total)}, ${number(session.input_tokens + session.output_tokens)} tokens. Persona ${session.persona || "none"}.`,
    ),
    el(
      "div",
      { class: "trajectory" },
      scoresAside(id, detail.scores),
      el(
        "section",
        { "aria-label": "Events" },
        el("p", { class: "controls" }, search, kind, compareWith(run, session), list.count),
        list.node,
      ),
    ),
  ];
}

const most = (events, of) => events.reduce((found, event) => Math.max(found, of(event)), 0);

function neighbours(run, session) {
  const same = run.sessions.filter((one) => one.baseline === session.baseline);
  const at = same.indexOf(session);
  const to = (one, text, key) =>
    one && el("a", { href: address("session", one.session_id), class: key, rel: key }, text);
  return el(
    "span",
    { class: "neighbours" },
    to(same[at - 1], "‹ previous", "prev"),
    " ",
    to(same[at + 1], "next ›", "next"),
  );
}

function compareWith(run, session) {
  const others = (run.sessionsOf.get(session.scenario_id) || [])
    .filter((one) => one !== session)
    .slice(0, 200);
  if (!others.length) return null;
  const node = el(
    "select",
    { "aria-label": "Compare with another session of this scenario" },
    el("option", { value: "" }, "compare with …"),
    others.map((one) =>
      el(
        "option",
        { value: one.session_id },
        `${one.baseline ? "baseline" : "this run"}, trial ${one.trial}: ${outcome(one)}`,
      ),
    ),
  );
  node.addEventListener("change", () => {
    const other = run.byId.get(node.value);
    if (!other) return;
    const [before, now] = other.baseline || !session.baseline ? [other, session] : [session, other];
    location.hash = address("diff", before.session_id, now.session_id);
  });
  return node;
}

function scoresAside(id, scores) {
  const rank = (score) =>
    score.status !== "scored" ? (score.status === "unscored" ? 1 : 3) : score.passed === 0 ? 0 : 2;
  const part = (title, kinds) => {
    const own = scores
      .filter((score) => kinds.includes(score.kind))
      .sort((a, b) => rank(a) - rank(b));
    return own.length ? [el("h3", {}, title), own.map((score) => scoreItem(id, score))] : null;
  };
  return el(
    "aside",
    { class: "scores", "aria-label": "Scores" },
    el("h2", {}, "What the judge says"),
    scores.length ? null : el("p", {}, "This session is not scored yet."),
    part("Gates", ["gate"]),
    part("Quality", ["quality"]),
    part("Measures", ["measure"]),
  );
}

function scoreItem(id, score) {
  const word =
    score.status !== "scored"
      ? score.status.replace("_", " ")
      : score.kind === "gate"
        ? score.passed
          ? "passed"
          : "failed"
        : Number(score.value.toPrecision(4)).toString();
  return el(
    "div",
    { class: `score ${word.replace(" ", "-")}` },
    chip(
      word,
      score.kind === "gate" || score.status !== "scored" ? word.replace(" ", "-") : "quietly",
    ),
    " ",
    el("strong", {}, score.dimension),
    score.reason ? prose(score.reason, "why") : null,
    score.citations.length
      ? el(
          "p",
          { class: "citations" },
          "at ",
          score.citations
            .slice(0, 40)
            .flatMap((step, at) => [at ? ", " : "", sessionLink(id, step, step)]),
        )
      : null,
  );
}

// A window over the events: what is scrolled to is made, and earlier ones on demand.
function eventList(events, context, step) {
  const node = el("div", { class: "events" });
  const count = el("span", { class: "quiet", role: "status" });
  let shown = events,
    from = 0,
    to = 0,
    watcher = null;

  function draw(start) {
    if (watcher) watcher.disconnect();
    from = Math.max(0, start);
    to = from;
    const end = el("div", { class: "sentinel" });
    show(node, from ? earlier() : null, end);
    more(end);
    watcher = new IntersectionObserver(
      (seen) => {
        if (seen.some((one) => one.isIntersecting)) more(end);
      },
      { rootMargin: "600px" },
    );
    watcher.observe(end);
    count.textContent =
      shown.length === events.length
        ? `${number(events.length)} events`
        : `${number(shown.length)} of ${number(events.length)} events`;
  }

  function more(end) {
    const chunk = shown.slice(to, to + CHUNK);
    end.before(
      ...chunk.flatMap((event, at) =>
        [divider(event, shown[to + at - 1]), eventItem(event, context)].filter(Boolean),
      ),
    );
    to += chunk.length;
    if (to >= shown.length) end.remove();
  }

  function earlier() {
    return el(
      "button",
      {
        type: "button",
        class: "earlier",
        on: {
          click: () => {
            const first = node.querySelector("article");
            const top = first ? first.getBoundingClientRect().top : 0;
            const start = Math.max(0, from - CHUNK);
            const made = shown
              .slice(start, from)
              .flatMap((event, at) =>
                [divider(event, shown[start + at - 1]), eventItem(event, context)].filter(Boolean),
              );
            from = start;
            node.firstChild.replaceWith(...(from ? [earlier()] : []), ...made);
            if (first) scrollBy(0, first.getBoundingClientRect().top - top);
          },
        },
      },
      `Show earlier events (${number(from)})`,
    );
  }

  const at = step ? events.findIndex((event) => event.step === step) : 0;
  draw(at > CHUNK / 2 ? at - 10 : 0);
  return {
    node,
    count,
    filter(wanted) {
      shown = events.filter(wanted);
      draw(0);
    },
  };
}

function divider(event, before) {
  if (!before || before.conversation === event.conversation) return null;
  return el("h3", { class: "divider" }, `Conversation ${event.conversation}`);
}

function reveal(step) {
  const node = document.getElementById(`step-${step}`);
  if (!node) return false;
  for (const old of document.querySelectorAll(".event.here")) old.classList.remove("here");
  node.classList.add("here");
  node.scrollIntoView({ block: "center" });
  node.focus({ preventScroll: true });
  return true;
}
