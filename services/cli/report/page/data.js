// Where the page's data comes from: from inside the document, or from the server that served it.

const HELD = 12; // details that stay unpacked
const held = new Map();

async function unpack(id) {
  const node = document.getElementById(id);
  if (!node) return null;
  const bytes = Uint8Array.from(atob(node.textContent), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

class Run {
  constructor(index) {
    Object.assign(this, index);
    this.byId = new Map(this.sessions.map((one) => [one.session_id, one]));
    this.diff = (this.verdict && this.verdict.diff) || [];
    this.diffOf = groups(this.diff, (entry) => entry.scenario_id);
    this.sessionsOf = groups(this.sessions, (one) => one.scenario_id);
  }

  async detail(id) {
    if (held.has(id)) {
      const found = held.get(id);
      held.delete(id);
      held.set(id, found); // the most recently used is the last
      return found;
    }
    const detail = (await unpack(`detail-${id}`)) || (await this.fetched(id));
    if (detail) held.set(id, detail);
    if (held.size > HELD) held.delete(held.keys().next().value);
    return detail;
  }

  async fetched(id) {
    if (!this.live) return null;
    const session = this.byId.get(id);
    const run = session && session.baseline ? this.baseline.run_id : this.run.run_id;
    const answer = await fetch(`/api/session?${new URLSearchParams({ run, session: id })}`);
    if (answer.status === 404) return null;
    if (!answer.ok) throw new Error(`the server answered ${answer.status}: ${await answer.text()}`);
    return answer.json();
  }
}

function groups(items, key) {
  const found = new Map();
  for (const item of items) {
    const name = key(item);
    if (!found.has(name)) found.set(name, []);
    found.get(name).push(item);
  }
  return found;
}

function outcome(session) {
  if (!session.valid) return "invalid";
  if (session.passed === null) return "unscored";
  return session.passed ? "passed" : "failed";
}
