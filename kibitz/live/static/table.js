// A table of figures.
import { h, heads } from "./dom.js";

// Columns listed in `left` hold words; the others hold figures.
export function table(head, rows, caption, left = []) {
  const cell = (text, i) => h(i ? "td" : "th", i ? { class: left.includes(i) && "left" } : { scope: "row" }, String(text));
  return h("table.data", caption && h("caption", caption), heads(head, left), h("tbody", rows.map((row) => h("tr", row.map(cell)))));
}
