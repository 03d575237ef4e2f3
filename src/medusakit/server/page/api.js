// The server's API. The key is kept in this module's memory and nowhere else.

let key = "";

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function setKey(value) {
  key = value.trim();
}

export async function getState() {
  return (await ask("v1/state")).json();
}

export async function cancelRequest(id) {
  await ask(`v1/requests/${encodeURIComponent(id)}`, { method: "DELETE" });
}

/** Yields { tokens: [...] } as they are decided, and last { result }. Aborting the signal ends the request. */
export async function* generate(body, requestId, signal) {
  const headers = { "content-type": "application/json", "x-request-id": requestId };
  const answer = await ask("medusa/generate", {
    method: "POST", headers, signal, body: JSON.stringify({ ...body, stream: true }),
  });
  for await (const document of documents(answer.body)) {
    if (document.error) throw new ApiError(answer.status, document.error.message);
    yield document;
  }
}

async function ask(path, options = {}) {
  const headers = { ...options.headers, ...(key ? { authorization: `Bearer ${key}` } : {}) };
  const answer = await fetch(path, { ...options, headers, cache: "no-store" });
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => ({}));
  throw new ApiError(answer.status, told.error?.message ?? `the server answered ${answer.status}`);
}

/** The JSON documents of a stream of server-sent events; comments (pings) and the final [DONE] carry none. */
async function* documents(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const data = block.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5)).join("\n").trim();
      if (data && data !== "[DONE]") yield JSON.parse(data);
    }
  }
}
