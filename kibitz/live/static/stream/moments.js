// Key moments: the list, newest first, and the preview of the one under the pointer.
import { h, icon, list, style, text } from "../dom.js";

await style(import.meta.url);

// the game's icon, or the sign that the commentary shows for the turn
const mark = (m) => (!m.icon && m.sign && m.sign.length <= 3 ? text("span", m.sign, { class: `chip ${m.kind}` }) : h("span.chip", null, icon(m.icon || "star")));
const said = (m) => (m.text.startsWith(`${m.at} `) ? m.text.slice(m.at.length + 1) : m.text); // a line may open with its label
export const preview = (m) => [mark(m), h("span.moment-text", null, h("b", null, text("span.num.dim", m.at), ` ${m.label}`), text("span.small", said(m)))];

export function fill(place, moments, go) {
  list(place, [...moments].reverse(), (m) => `${m.seq} ${m.text}`, (m) => h("li", null, h("button", { onclick: () => go(m.seq) }, preview(m))));
  if (!moments.length) place.replaceChildren(h("li.dim", null, "None yet"));
}
