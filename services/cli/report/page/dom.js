// Elements from data. Text from trajectories reaches the page through text nodes alone: there is no
// innerHTML in these scripts.

// What would move, hide or reorder the text around it is written out, as on the terminal.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu;
const KEPT = new Set(["\n", "\t", "\u200c", "\u200d"]);
const SHOWN_AT_ONCE = 4000;

function visible(text) {
  return String(text).replace(UNSEEN, (char) =>
    KEPT.has(char)
      ? char
      : `⟨U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`,
  );
}

// el("a", {class: "x", href: "#/", on: {click: f}}, "text", child, null)
function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    } else node.setAttribute(name, value === true ? "" : value);
  }
  add(node, ...children);
  return node;
}

function add(node, ...children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : visible(child));
  }
  return node;
}

function show(node, ...children) {
  node.replaceChildren();
  return add(node, ...children);
}

// Text of any length and direction; what is long is shown when it is asked for.
function prose(text, className) {
  const value = String(text);
  const node = el("div", { class: `prose ${className || ""}`, dir: "auto" });
  return withRest(node, value);
}

function code(text) {
  return withRest(el("pre", { dir: "ltr", tabindex: "0" }), String(text));
}

function withRest(node, value) {
  if (value.length <= SHOWN_AT_ONCE) return add(node, value);
  const rest = el(
    "button",
    { type: "button", class: "rest", on: { click: () => show(node, value) } },
    `… show all ${number(value.length)} characters`,
  );
  return add(node, value.slice(0, SHOWN_AT_ONCE), rest);
}

// A section whose content is made when it is first opened.
function lazy(title, make, open) {
  const body = el("div", { class: "lazy" });
  const node = el("details", {}, el("summary", {}, title), body);
  let made = false;
  const fill = () => {
    if (made || !node.open) return;
    made = true;
    add(body, make());
  };
  node.addEventListener("toggle", fill);
  if (open) {
    node.open = true;
    fill();
  }
  return node;
}

function table(caption, heads, rows) {
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el(
      "table",
      {},
      el("caption", { class: "quiet" }, caption),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          heads.map((head) => el("th", { scope: "col" }, head)),
        ),
      ),
      el("tbody", {}, rows),
    ),
  );
}

function row(cells, className) {
  return el(
    "tr",
    { class: className },
    cells.map((cell) =>
      cell && cell.cell ? el("td", { class: cell.cell }, cell.of) : el("td", {}, cell),
    ),
  );
}

// Rows that are many: so many at first, and more on demand.
function rowsOnDemand(items, make, step) {
  const body = [];
  const more = (from) => {
    const made = items.slice(from, from + step).map(make);
    const left = items.length - from - step;
    if (left > 0) {
      const button = el(
        "button",
        { type: "button" },
        `Show ${Math.min(step, left)} more of ${left}`,
      );
      const line = el("tr", { class: "more" }, el("td", { colspan: "99" }, button));
      button.addEventListener("click", () => line.replaceWith(...more(from + step)));
      made.push(line);
    }
    return made;
  };
  body.push(...more(0));
  return body;
}
