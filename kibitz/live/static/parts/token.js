// Asks for the token that a server reachable by others requires for every change.
import { h } from "../dom.js";
import { openDialog } from "./dialog.js";

let open = null; // several requests may need the token at once: one dialog serves them all

// `why` is the server's sentence about a known token whose role does not suffice
export function askToken(known, why) {
  open ||= show(known, why).finally(() => { open = null; });
  return open;
}

function show(known, why) {
  const input = h("input", { type: "password", autocomplete: "off", "aria-label": "Token" });
  const dialog = openDialog("Token", "small", () => h("form", { method: "dialog" }, h("h2", null, "This server requires a token"),
    h("p.dim", null, why || (known ? "The server did not accept that token." : "Ask the person who runs the server. This tab keeps the token until you close it.")), input, h("button.primary", { type: "submit", value: "ok" }, "Continue")));
  return new Promise((done) => dialog.addEventListener("close", () => {
    const given = dialog.returnValue === "ok" && input.value !== "";
    if (given) sessionStorage.setItem("token", input.value);
    done(given);
  }));
}
