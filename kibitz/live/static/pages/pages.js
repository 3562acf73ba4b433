// Shared by the pages other than the match.
import { h, many, style, text } from "../dom.js";

await style(import.meta.url);

export const tidy = (value) => (typeof value === "number" && !Number.isInteger(value) ? value.toFixed(3) : value ?? "–");
export const empty = (head, text, ...more) => h("div.empty", null, h("h2", null, head), h("p.dim", null, text), ...more);

export function ago(ts) {
  const past = Math.max(0, Date.now() / 1000 - ts);
  if (past < 60) return "just now";
  if (past < 3600) return `${many(Math.floor(past / 60), "minute")} ago`;
  if (past < 86400) return `${many(Math.floor(past / 3600), "hour")} ago`;
  return new Date(ts * 1000).toLocaleDateString();
}

export const noPage = (path) =>
  h("div.empty", null, h("h1", null, "Page not found"), text("p", `There is no page at ${path}.`), h("a.primary", { href: "/" }, "Go to the home page"));
export const noEpisode = (id) =>
  h("div.empty", null, h("h1", null, "Episode not found"), h("p", null, `No episode is stored under ${id}.`), h("a.primary", { href: "/lobby" }, "See recent episodes"));
