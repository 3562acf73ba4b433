// A server that others can reach wants its token for everything that changes something.
import { h } from "./dom.js";
import { openDialog } from "./dialog.js";

export function askToken(known) {
  const input = h("input", { type: "password", autocomplete: "off", "aria-label": "Token" });
  const dialog = openDialog("Token", "small", () => h("form", { method: "dialog" }, h("h2", "This server wants its token"),
    h("p.dim", known ? "The one given before was not right." : "Whoever started it knows it. It is kept until this tab is closed."), input, h("button.primary", { type: "submit", value: "ok" }, "Go on")));
  return new Promise((done) => dialog.addEventListener("close", () => {
    const given = dialog.returnValue === "ok" && input.value !== "";
    if (given) sessionStorage.setItem("token", input.value);
    done(given);
  }));
}
