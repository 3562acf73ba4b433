// Fields of a form.
import { h, style, text } from "./dom.js";

await style(import.meta.url);

// its name is set beside the words it stands under, so that a chosen value is no part of it
export function field(label, input, note) {
  input.setAttribute("aria-label", label);
  return h("label.field", label, input, note && text("small.dim", note));
}
