// Routes, keys, and the start.

const KEYS = [
  ["/", "search or filter"],
  ["j, k", "next and previous event or row"],
  ["Enter", "open it"],
  ["[, ]", "previous and next session"],
  ["u", "up"],
  ["?", "these keys"],
];
const main = document.getElementById("main");
let drawn = 0;
let current = null; // the session that is shown, so that a citation need not draw it anew

function runsPage(index) {
  const rows = rowsOnDemand(
    index.runs,
    (one) =>
      row([
        el("a", { href: `/run?${new URLSearchParams({ run: one.run_id })}` }, one.run_id),
        one.verdict
          ? chip(one.verdict.verdict, one.verdict.verdict.toLowerCase())
          : chip(one.state, "quietly"),
        one.suite,
        one.agent_id,
        `${number(one.scored)}/${number(one.planned)}`,
        moment(one.requested_at_ms),
      ]),
    200,
  );
  return [
    el("h1", {}, "Runs"),
    index.runs.length
      ? table("The latest runs", ["Run", "Verdict", "Suite", "Agent", "Scored", "Requested"], rows)
      : el("p", {}, "The store has no runs yet."),
  ];
}

async function route(run) {
  const mine = ++drawn;
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  let parts;
  try {
    parts = path.split("/").map(decodeURIComponent);
  } catch {
    parts = [""];
  }
  const [name, first, second] = parts;
  if (name === "session" && first === current && second && reveal(second)) return;
  let page;
  try {
    if (name === "scenario") page = scenarioPage(run, first);
    else if (name === "sessions") page = sessionsPage(run, new URLSearchParams(query));
    else if (name === "session") page = await sessionPage(run, first, second);
    else if (name === "diff") page = await diffPage(run, first, second);
    else page = overviewPage(run);
  } catch (error) {
    console.error(error);
    page = [el("h1", {}, "This cannot be shown"), el("p", {}, error.message)];
  }
  if (mine !== drawn) return;
  current = name === "session" ? first : null;
  show(main, page);
  const heading = main.querySelector("h1");
  document.title = `${heading ? heading.textContent : run.run.run_id} · Windtunnel`;
  if (!(name === "session" && second && reveal(second))) {
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
}

function keys(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input, select, textarea");
  if (event.key === "Escape" && typing) return event.target.blur();
  if (typing) return;
  const follow = (selector) => {
    const link = main.querySelector(selector);
    if (link) link.click();
  };
  const actions = {
    "/": () => {
      const search = main.querySelector("input[type=search]");
      if (search) {
        search.focus();
        search.select();
      }
    },
    j: () => step(1),
    k: () => step(-1),
    u: () => follow("nav a:last-of-type"),
    "[": () => follow("a.prev"),
    "]": () => follow("a.next"),
    "?": () => help(),
  };
  if (!actions[event.key]) return;
  event.preventDefault();
  actions[event.key]();
}

function step(by) {
  const items = [...main.querySelectorAll(".event[data-step], tbody a, .pair.differs a")];
  const at = items.findIndex(
    (one) => one === document.activeElement || one.contains(document.activeElement),
  );
  const next = items[at < 0 ? (by > 0 ? 0 : items.length - 1) : at + by];
  if (!next) return;
  next.focus({ preventScroll: true });
  next.scrollIntoView({ block: "nearest" });
}

function help() {
  const dialog = el(
    "dialog",
    { "aria-label": "Keys", on: { close: () => dialog.remove() } },
    el("h2", {}, "Keys"),
    el(
      "dl",
      { class: "facts" },
      KEYS.map(([key, what]) => [el("dt", {}, el("kbd", {}, key)), el("dd", {}, what)]),
    ),
    el("form", { method: "dialog" }, el("button", {}, "Close")),
  );
  document.body.append(dialog);
  dialog.showModal();
}

async function start() {
  const index = await unpack("index");
  const top = document.getElementById("top");
  if (index.runs) {
    show(top, el("strong", {}, "Windtunnel"));
    show(main, runsPage(index));
    document.addEventListener("keydown", keys);
    return;
  }
  const run = new Run(index);
  show(
    top,
    el("strong", {}, run.live ? el("a", { href: "/" }, "Windtunnel") : "Windtunnel"),
    el("a", { href: "#/" }, run.run.run_id),
    run.verdict ? chip(run.verdict.verdict, run.verdict.verdict.toLowerCase()) : null,
    el("a", { href: "#/sessions" }, "Sessions"),
    el("button", { type: "button", class: "keys", "aria-label": "Keys", on: { click: help } }, "?"),
  );
  addEventListener("hashchange", () => route(run));
  document.addEventListener("keydown", keys);
  await route(run);
}

start().catch((error) => {
  console.error(error);
  show(main, el("h1", {}, "This page cannot be read"), el("p", {}, error.message));
});
