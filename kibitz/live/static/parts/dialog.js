// Dialogs.
import { h, style } from "../dom.js";

await style(import.meta.url);

// Stays above the page until it is closed; `fill(dialog)` returns its content.
export function openDialog(label, cls, fill) {
  const dialog = h("dialog", { class: cls, "aria-label": label });
  dialog.append(...[fill(dialog)].flat());
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}
