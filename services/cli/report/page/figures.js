// Figures as people read them.

const DASH = "–";
const whole = new Intl.NumberFormat("en");
const number = (value) => (value === null || value === undefined ? DASH : whole.format(value));

function milliseconds(value) {
  if (value === null || value === undefined) return DASH;
  if (value < 1000) return `${Math.round(value)} ms`;
  return value < 120000 ? `${(value / 1000).toFixed(1)} s` : `${(value / 60000).toFixed(1)} min`;
}

function moment(value) {
  return value
    ? new Date(value)
        .toISOString()
        .replace("T", " ")
        .replace(/\.\d+Z$/, " UTC")
    : DASH;
}

function figure(entry, stat) {
  if (!stat) return DASH;
  if (entry.kind !== "gate") return Number(stat.value.toPrecision(4)).toString();
  if (!entry.scenario_id) return `${(100 * stat.value).toFixed(1)} %`;
  return `${Math.round(stat.value * stat.sessions)}/${stat.sessions}`;
}

const chip = (text, kind) => el("span", { class: `chip ${kind || text}` }, text);

function passBar(side) {
  if (!side) return el("span", { class: "quiet" }, DASH);
  const bar = el("span", { class: "bar", "aria-hidden": "true" }, el("span", { class: "fill" }));
  bar.firstChild.style.width = `${side.sessions ? (100 * side.passed) / side.sessions : 0}%`;
  return el("span", { class: "passbar" }, bar, `${number(side.passed)}/${number(side.sessions)}`);
}

function share(value, most, kind, label) {
  const bar = el("span", {
    class: `share ${kind}`,
    role: "img",
    "aria-label": label,
    title: label,
  });
  const fill = el("span", { class: "fill" });
  fill.style.width = `${most ? Math.max(1, (100 * value) / most) : 0}%`;
  return add(bar, fill);
}

const short = (id) => (id.length > 16 && !id.includes("/") ? id.slice(0, 8) : id);
// An address cannot hold half of a surrogate pair.
const wellFormed = (text) => String(text).replace(/\p{Cs}/gu, "\ufffd");
const address = (...parts) =>
  `#/${parts.map((part) => encodeURIComponent(wellFormed(part))).join("/")}`;
const sessionLink = (id, text, step) =>
  el("a", { href: address("session", id, ...(step ? [step] : [])) }, text);
const scenarioLink = (id) => el("a", { href: address("scenario", id) }, id || "all scenarios");
