// The list of key moments, newest first.
import { h, list, style, text } from "./dom.js";

await style(import.meta.url);

export function fill(place, moments, go) {
  list(place, [...moments].reverse(), (m) => m.seq, (m) => h("li", null, h("button", { onclick: () => go(m.seq) }, text("span.num.dim", m.at), ` ${m.label}`)));
  if (!moments.length) place.replaceChildren(h("li.dim", null, "None yet"));
}
