// Preloaded into the conformance suite, which has no option for a token: every request that carries none gets ours.
// The suite speaks HTTP in three ways (fetch, undici, node:http); Node's diagnostics channels see them all.
import { subscribe } from "node:diagnostics_channel";

const authorization = `Bearer ${process.env.CONFORMANCE_TOKEN}`;

subscribe("undici:request:create", ({ request }) => {
  const names = Array.isArray(request.headers)
    ? request.headers.filter((_, index) => index % 2 === 0)
    : String(request.headers).split("\r\n").map((line) => line.split(":")[0]);
  if (!names.some((name) => String(name).toLowerCase() === "authorization")) {
    request.addHeader("authorization", authorization);
  }
});

subscribe("http.client.request.created", ({ request }) => {
  if (!request.hasHeader("authorization")) request.setHeader("authorization", authorization);
});
