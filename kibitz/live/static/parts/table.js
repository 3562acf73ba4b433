// A table of figures.
import { h, heads } from "../dom.js";

// A cell is text, a figure or a node. Columns listed in `left` hold words; the others hold figures.
export function table(head, rows, caption, left = []) {
  const cell = (text, i) => h(i ? "td" : "th", { class: left.includes(i) && "left", scope: !i && "row" }, text instanceof Node ? text : String(text));
  return h("table.data", null, caption && h("caption", null, caption), heads(head, left), h("tbody", null, rows.map((row) => h("tr", null, row.map(cell)))));
}
