// An agent on Node's standard library alone, with a rich answer and a trace event.
import { timingSafeEqual } from "node:crypto";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

const ATTEMPTS = 4;
const RETRYABLE = new Set([408, 429, 503]);

interface Proxy {
  proxyUrl: string;
  runToken: string;
}

interface Message {
  role: "user" | "assistant" | "tool";
  content?: string;
  tool_call_id?: string;
  tool_calls?: { id: string; name: string; arguments: object }[];
}

interface Dispatch {
  ping?: boolean;
  odyssey_proxy_url?: string;
  input?: { user_instruction?: string; input?: Record<string, unknown> };
}

function post(proxy: Proxy, path: string, body: object): Promise<Response> {
  return fetch(`${proxy.proxyUrl.replace(/\/+$/, "")}${path}`, {
    method: "POST",
    headers: { authorization: `Bearer ${proxy.runToken}`, "content-type": "application/json" },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(120_000),
  });
}

/** One tool call: the unwrapped response, or what went wrong as a result for the model. */
async function callTool(proxy: Proxy, name: string, args: object): Promise<unknown> {
  for (let attempt = 1; ; attempt++) {
    const reply = await post(proxy, `/tools/${name}`, args);
    if (reply.ok) return ((await reply.json()) as { response: unknown }).response;
    if (!RETRYABLE.has(reply.status) || attempt === ATTEMPTS) return { error: await reply.text() };
    await reply.body?.cancel();
    const backoff = Math.min(4000, 500 * 2 ** (attempt - 1)) * (1 + Math.random() / 4);
    await sleep(Math.max(backoff, 1000 * Number(reply.headers.get("retry-after") ?? 0)));
  }
}

async function answer(proxy: Proxy, instruction: string, state: Record<string, unknown>) {
  const messages: Message[] = [{ role: "user", content: instruction }];
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

function authorised(given: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(`Bearer ${process.env.AGENT_TOKEN}`)];
  return a.length === b.length && timingSafeEqual(a, b);
}

async function dispatch(request: IncomingMessage): Promise<[number, object]> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  if (!authorised(request.headers.authorization ?? "")) {
    return [401, { error: "missing or invalid bearer token" }];
  }
  const body = JSON.parse(Buffer.concat(chunks).toString("utf8")) as Dispatch;
  if (Object.keys(body).length === 1 && body.ping === true) return [200, { ok: true }];
  const proxyUrl = body.odyssey_proxy_url ?? request.headers["x-pipelines-odyssey-proxy-url"];
  const runToken = request.headers["x-pipelines-run-token"];
  if (!proxyUrl || !runToken) return [400, { error: "no proxy URL or no run token" }];
  const { user_instruction = "", input = {} } = body.input ?? {};
  const proxy = { proxyUrl: String(proxyUrl), runToken: String(runToken) };
  return [200, await answer(proxy, user_instruction, input)];
}

const server = createServer((request, response) => {
  dispatch(request)
    .catch((error): [number, object] => [500, { error: String(error) }])
    .then(([status, value]) => {
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify(value));
    });
});
server.listen(Number(process.env.PORT ?? 0), "127.0.0.1", () => {
  const { port } = server.address() as AddressInfo;
  console.log(`http://127.0.0.1:${port}/dispatch`);
});
