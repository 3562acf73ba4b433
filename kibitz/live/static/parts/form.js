// Fields of a form.
import { h, style, text } from "../dom.js";

await style(import.meta.url);

// The label is set explicitly, so that the accessible name does not include the chosen value.
export function field(label, input, note) {
  input.setAttribute("aria-label", label);
  return h("label.field", null, label, input, note && text("small.dim", note));
}
