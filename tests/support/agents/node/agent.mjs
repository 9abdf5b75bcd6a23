// An agent on Node's standard library alone, with a rich answer and a trace event.
// Plain JavaScript typed by JSDoc: Node 20 does not run TypeScript without a compiler.
import { timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

const ATTEMPTS = 4;
const RETRYABLE = new Set([408, 429, 503]);

/**
 * @typedef {{ proxyUrl: string, runToken: string }} Proxy
 * @typedef {{ role: string, content?: string, tool_call_id?: string,
 *   tool_calls?: { id: string, name: string, arguments: object }[] }} Message
 */

/** @param {Proxy} proxy @param {string} path @param {object} body */
function post(proxy, path, body) {
  return fetch(`${proxy.proxyUrl.replace(/\/+$/, "")}${path}`, {
    method: "POST",
    headers: { authorization: `Bearer ${proxy.runToken}`, "content-type": "application/json" },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(120_000),
  });
}

/**
 * One tool call: the unwrapped response, or what went wrong as a result for the model.
 * @param {Proxy} proxy @param {string} name @param {object} args @returns {Promise<unknown>}
 */
async function callTool(proxy, name, args) {
  for (let attempt = 1; ; attempt++) {
    const reply = await post(proxy, `/tools/${name}`, args);
    if (reply.ok) return /** @type {any} */ (await reply.json()).response;
    if (!RETRYABLE.has(reply.status) || attempt === ATTEMPTS) return { error: await reply.text() };
    await reply.body?.cancel();
    const backoff = Math.min(4000, 500 * 2 ** (attempt - 1)) * (1 + Math.random() / 4);
    await sleep(Math.max(backoff, 1000 * Number(reply.headers.get("retry-after") ?? 0)));
  }
}

/** @param {Proxy} proxy @param {string} instruction @param {Record<string, unknown>} state */
async function answer(proxy, instruction, state) {
  /** @type {Message[]} */
  const messages = [{ role: "user", content: instruction }];
  const orderId = String(state.order_id ?? instruction.match(/(?:[A-Z]+-)?\d{3,}/)?.[0] ?? "");
  let final_response = "Which order is it?";
  if (orderId) {
    await post(proxy, "/trace", { type: "plan", payload: { steps: ["look the order up"] } });
    const args = { order_id: orderId };
    messages.push({
      role: "assistant",
      tool_calls: [{ id: "call-1", name: "get_order", arguments: args }],
    });
    const found = await callTool(proxy, "get_order", args);
    const told = typeof found === "string" ? found : JSON.stringify(found);
    messages.push({ role: "tool", tool_call_id: "call-1", content: told });
    final_response = `Order ${orderId}: ${told}`;
  }
  messages.push({ role: "assistant", content: final_response });
  return { final_response, messages };
}

/** @param {string} given */
function authorised(given) {
  const [a, b] = [given, `Bearer ${process.env.AGENT_TOKEN}`].map((text) => Buffer.from(text));
  return a.length === b.length && timingSafeEqual(a, b);
}

/** @param {import("node:http").IncomingMessage} request @returns {Promise<[number, object]>} */
async function dispatch(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  if (!authorised(request.headers.authorization ?? "")) {
    return [401, { error: "missing or invalid bearer token" }];
  }
  const body = JSON.parse(Buffer.concat(chunks).toString("utf8"));
  if (Object.keys(body).length === 1 && body.ping === true) return [200, { ok: true }];
  const proxyUrl = body.odyssey_proxy_url ?? request.headers["x-pipelines-odyssey-proxy-url"];
  const runToken = request.headers["x-pipelines-run-token"];
  if (!proxyUrl || !runToken) return [400, { error: "no proxy URL or no run token" }];
  const { user_instruction = "", input = {} } = body.input ?? {};
  return [200, await answer({ proxyUrl, runToken: String(runToken) }, user_instruction, input)];
}

const server = createServer((request, response) => {
  dispatch(request)
    .catch((error) => /** @type {[number, object]} */ ([500, { error: String(error) }]))
    .then(([status, value]) => {
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify(value));
    });
});
server.listen(Number(process.env.PORT ?? 0), "127.0.0.1", () => {
  const address = /** @type {import("node:net").AddressInfo} */ (server.address());
  console.log(`http://127.0.0.1:${address.port}/dispatch`);
});
