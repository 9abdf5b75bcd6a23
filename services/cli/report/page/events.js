// One event of a trajectory as an element.

const texts = new WeakMap();

function eventText(event) {
  if (!texts.has(event))
    texts.set(event, `${event.step} ${event.kind} ${JSON.stringify(event.body)}`.toLowerCase());
  return texts.get(event);
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function pretty(text) {
  const value = typeof text === "string" ? parsed(text) : text;
  return code(typeof value === "string" ? value : JSON.stringify(value, null, 2));
}

function brief(text, most) {
  const line = String(text)
    .slice(0, most + 1)
    .replace(/\s+/g, " ");
  return line.length > most ? `${line.slice(0, most)}…` : line;
}

const latencyOf = (event) => (event.body && event.body.latency_ms) || 0;
const tokensOf = (event) => {
  const usage = event.body && event.body.usage;
  return usage ? usage.input_tokens + usage.output_tokens : 0;
};
const injectionOf = (event) => event.kind === "tool_called" && event.body.injection;
const isHandoff = (event) => event.kind === "trace" && event.body.type === "handoff";

function eventItem(event, context) {
  const cited = context.cited.get(event.step) || [];
  const kind = isHandoff(event) ? "handoff" : event.kind;
  const node = el("article", {
    class: `event ${kind} ${injectionOf(event) ? "injected" : ""} ${cited.length ? "cited" : ""}`,
    id: `step-${event.step}`,
    tabindex: "-1",
    "data-step": event.step,
  });
  const head = el(
    "header",
    {},
    el(
      "a",
      {
        class: "step",
        href: address("session", context.id, event.step),
        title: "Link to this event",
      },
      event.step,
    ),
    el("strong", {}, eventTitle(event)),
    eventChips(event),
    cited.map((score) =>
      el("span", { class: "chip by", title: score.reason }, `cited: ${score.dimension}`),
    ),
    el("span", { class: "quiet when" }, `+${milliseconds(event.at_ms - context.start)}`),
  );
  const body = (EVENT_BODIES[event.kind] || otherBody)(event.body || {}, event);
  return add(node, head, body, bars(event, context));
}

function eventTitle(event) {
  const body = event.body || {};
  switch (event.kind) {
    case "session_started":
      return "Session starts";
    case "user_turn":
      return "User";
    case "agent_turn":
      return "Agent";
    case "tool_called":
      return `${body.requestor === "user" ? "User's tool" : "Tool"} ${body.tool}`;
    case "trace":
      return isHandoff(event) ? "Hand-off" : `Trace: ${body.type}`;
    case "session_ended":
      return `Session ends: ${body.reason}`;
    default:
      return event.kind;
  }
}

function eventChips(event) {
  const body = event.body || {};
  const chips = [];
  if (body.injection)
    chips.push(chip(`injected: ${body.injection.kind} (${body.injection.rule_id})`, "injection"));
  if (body.error_code) chips.push(chip(body.error_code, "failed"));
  if (body.outcome && body.outcome !== "ok") chips.push(chip(body.outcome, "failed"));
  if (body.status && body.status !== 200) chips.push(chip(`HTTP ${body.status}`, "failed"));
  if (body.source && body.source !== "odyssey") chips.push(chip(body.source, "quietly"));
  if (body.actor) chips.push(chip(body.actor, "actor"));
  if (body.ending) chips.push(chip(body.ending, "quietly"));
  if (body.invalid) chips.push(chip(`invalid: ${brief(body.invalid, 80)}`, "invalid"));
  return chips;
}

function bars(event, context) {
  const latency = latencyOf(event),
    tokens = tokensOf(event);
  if (!latency && !tokens) return null;
  return el(
    "footer",
    {},
    latency
      ? [
          share(latency, context.mostLatency, "latency", `took ${milliseconds(latency)}`),
          el("span", {}, milliseconds(latency)),
        ]
      : null,
    tokens
      ? [
          share(tokens, context.mostTokens, "tokens", `${number(tokens)} tokens`),
          el("span", {}, `${number(tokens)} tokens`),
        ]
      : null,
  );
}

const EVENT_BODIES = {
  session_started: (body) => [
    el(
      "p",
      { class: "quiet" },
      `scenario ${body.scenario_id} (${body.category}), trial ${body.trial}, seed ${body.seed}${body.variation ? `, variation ${body.variation}` : ""}`,
    ),
    lazy("What the simulated user knows", () => pretty(body.user_brief)),
    lazy("What the simulated tools know", () => pretty(body.tool_brief)),
    body.injection_plan
      ? lazy("What was planned to go wrong", () => pretty(body.injection_plan))
      : null,
    body.task_input && body.task_input !== "{}"
      ? lazy("The task's input", () => pretty(body.task_input))
      : null,
  ],
  user_turn: (body) => (body.text ? prose(body.text, "said") : null),
  agent_turn: (body) => [
    body.final_response ? prose(body.final_response, "said") : null,
    body.error_detail ? prose(body.error_detail, "error") : null,
    (body.soft_warnings || []).map((one) => el("p", { class: "quiet" }, one)),
    body.messages ? lazy("Messages", () => pretty(body.messages)) : null,
    body.metadata ? lazy("Metadata", () => pretty(body.metadata)) : null,
  ],
  tool_called: (body) => [
    lazy(
      [el("span", { class: "quiet" }, "called with "), el("code", {}, brief(body.arguments, 160))],
      () => pretty(body.arguments),
    ),
    lazy(
      [el("span", { class: "quiet" }, "answered "), el("code", {}, brief(body.response, 160))],
      () => (body.response_is_text ? code(body.response) : pretty(body.response)),
    ),
    body.injection && body.injection.detail
      ? el("p", { class: "injection-detail" }, `Put in on purpose: ${body.injection.detail}`)
      : null,
    body.state_patch ? lazy("What it changed in the world", () => pretty(body.state_patch)) : null,
  ],
  trace: (body) => lazy(el("code", {}, brief(body.payload, 160)), () => pretty(body.payload)),
  session_ended: (body) => (body.detail ? prose(body.detail) : null),
};

const otherBody = (body) => lazy("Details", () => pretty(body));
