// Sends requests as told: reads a JSON array of {method, url, headers, body} (body in base64) and
// prints an array of {status, headers, body}.
import { request, type IncomingHttpHeaders } from "node:http";

interface Told {
  method: string;
  url: string;
  headers: Record<string, string>;
  body: string;
}

interface Reply {
  status: number | undefined;
  headers: IncomingHttpHeaders;
  body: string;
}

function send({ method, url, headers, body }: Told): Promise<Reply> {
  const data = Buffer.from(body, "base64");
  return new Promise((resolve, reject) => {
    const sent = request(url, { method, headers: { ...headers, "content-length": data.length } });
    sent.on("error", reject);
    sent.on("response", async (reply) => {
      const parts: Buffer[] = [];
      for await (const part of reply) parts.push(part as Buffer);
      const received = Buffer.concat(parts).toString("base64");
      resolve({ status: reply.statusCode, headers: reply.headers, body: received });
    });
    sent.end(data);
  });
}

const chunks: Buffer[] = [];
for await (const chunk of process.stdin) chunks.push(chunk as Buffer);
const replies: Reply[] = [];
for (const told of JSON.parse(Buffer.concat(chunks).toString("utf8")) as Told[]) {
  replies.push(await send(told));
}
console.log(JSON.stringify(replies));
