// Two sessions of one scenario, from where they first differ.

const MOST_COMPARED = 600; // steps a side that are aligned; what comes after is paired by place
const COMPARED = new Set(["user_turn", "agent_turn", "tool_called", "trace", "session_ended"]);

// What a step is, and what it says; times, ids and places in the log are left out.
function facts(event) {
  const body = event.body || {};
  switch (event.kind) {
    case "user_turn":
      return { key: "user", text: body.text + (body.ending ? ` [${body.ending}]` : "") };
    case "agent_turn":
      return {
        key: "agent",
        text:
          body.outcome === "ok"
            ? body.final_response
            : `[${body.outcome} ${body.error_code || ""}] ${body.error_detail || ""}`,
      };
    case "tool_called":
      return {
        key: `tool ${body.tool}`,
        text: `${canonical(body.arguments)}\n→ ${body.injection ? `[injected ${body.injection.kind}] ` : ""}${body.status === 200 ? "" : `[HTTP ${body.status}] `}${canonical(body.response)}`,
      };
    case "trace":
      return { key: `trace ${body.type}`, text: canonical(body.payload) };
    default:
      return { key: event.kind, text: body.reason || "" };
  }
}

function canonical(text) {
  const sorted = (value) =>
    Array.isArray(value)
      ? value.map(sorted)
      : value && typeof value === "object"
        ? Object.fromEntries(
            Object.keys(value)
              .sort()
              .map((name) => [name, sorted(value[name])]),
          )
        : value;
  const value = parsed(text);
  return typeof value === "string" ? value : JSON.stringify(sorted(value));
}

const steps = (detail) =>
  detail.events
    .filter((event) => COMPARED.has(event.kind))
    .map((event) => ({ event, ...facts(event) }));
const same = (a, b) => a && b && a.key === b.key && a.text === b.text;

// Pairs of steps: equal in kind by the longest common subsequence, the rest alone.
function aligned(left, right) {
  const a = left.slice(0, MOST_COMPARED),
    b = right.slice(0, MOST_COMPARED);
  const length = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      length[i][j] =
        a[i].key === b[j].key
          ? length[i + 1][j + 1] + 1
          : Math.max(length[i + 1][j], length[i][j + 1]);
  const pairs = [];
  let i = 0,
    j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i].key === b[j].key) pairs.push([a[i++], b[j++]]);
    else if (j >= b.length || (i < a.length && length[i + 1][j] >= length[i][j + 1]))
      pairs.push([a[i++], null]);
    else pairs.push([null, b[j++]]);
  }
  for (let k = MOST_COMPARED; k < Math.max(left.length, right.length); k++)
    pairs.push([left[k] || null, right[k] || null]);
  return pairs;
}

async function diffPage(run, before, now) {
  const sessions = [run.byId.get(before), run.byId.get(now)];
  const details = sessions.every(Boolean) ? [await run.detail(before), await run.detail(now)] : [];
  if (details.length < 2 || !details.every(Boolean))
    return [el("h1", {}, "One of these sessions is not here"), el("p", {}, `${before}, ${now}`)];
  const [left, right] = details.map(steps);
  let first = 0;
  while (first < left.length && first < right.length && same(left[first], right[first])) first++;
  const name = (one) => [
    chip(outcome(one)),
    " ",
    sessionLink(one.session_id, `${one.baseline ? "baseline" : "this run"}, trial ${one.trial}`),
  ];
  const pairs = aligned(left.slice(first), right.slice(first));
  const equal = first === left.length && first === right.length;
  const list = el("div", { class: "pairs" });
  add(list, pairsOnDemand(pairs, before, now, 100));
  return [
    el(
      "nav",
      { "aria-label": "Where this is" },
      el("a", { href: "#/" }, run.run.run_id),
      " › ",
      scenarioLink(sessions[1].scenario_id),
      " › compare",
    ),
    el(
      "h1",
      {},
      sessions[0].scenario_id === sessions[1].scenario_id
        ? sessions[1].scenario_id
        : "Two sessions",
      ", from the first divergence",
    ),
    el(
      "div",
      { class: "pair heads" },
      el("div", {}, name(sessions[0])),
      el("div", {}, name(sessions[1])),
    ),
    first
      ? lazy(`${number(first)} steps are the same`, () =>
          el(
            "div",
            { class: "pairs" },
            pairsOnDemand(
              left.slice(0, first).map((one, at) => [one, right[at]]),
              before,
              now,
              100,
            ),
          ),
        )
      : null,
    equal
      ? el("p", { class: "note" }, "The two do not differ.")
      : el("h2", { id: "divergence" }, "First divergence"),
    list,
  ];
}

function pairsOnDemand(pairs, before, now, step) {
  const made = pairs
    .slice(0, step)
    .map(([a, b]) =>
      el(
        "div",
        { class: `pair ${same(a, b) ? "same" : "differs"}` },
        side(a, before),
        side(b, now),
      ),
    );
  const rest = pairs.slice(step);
  if (rest.length) {
    const button = el("button", { type: "button" }, `Show ${number(rest.length)} more`);
    button.addEventListener("click", () =>
      button.replaceWith(...pairsOnDemand(rest, before, now, step)),
    );
    made.push(button);
  }
  return made;
}

function side(step, session) {
  if (!step) return el("div", { class: "none" }, el("span", { class: "quiet" }, "nothing here"));
  return el(
    "div",
    { class: `event ${step.event.kind} ${injectionOf(step.event) ? "injected" : ""}` },
    el(
      "header",
      {},
      sessionLink(session, step.event.step, step.event.step),
      " ",
      el("strong", {}, eventTitle(step.event)),
      eventChips(step.event),
    ),
    prose(
      step.text,
      step.event.kind === "tool_called" || step.event.kind === "trace" ? "mono" : "said",
    ),
  );
}
