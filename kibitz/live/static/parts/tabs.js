// A card with tabs. The row of tabs is one tab stop; the arrow keys move inside it.
import { h, put, set } from "../dom.js";

export function tabCard(label) {
  const row = h("div.tabs", { role: "tablist", "aria-label": label });
  const panel = h("div.panel", { role: "tabpanel" });
  const all = []; // { button, node, shown }; two tabs may share a node
  const pick = (one) => {
    for (const { button, node } of all) {
      const on = button === one.button;
      set(button, "aria-selected", String(on));
      set(button, "tabindex", on ? 0 : -1);
      node.hidden = node !== one.node;
    }
    set(panel, "aria-label", one.button.textContent);
    one.shown?.();
  };
  row.addEventListener("keydown", (event) => {
    const at = all.findIndex(({ button }) => button === document.activeElement);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: all.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const next = all[(to + all.length) % all.length];
    next.button.focus();
    pick(next);
  });
  return {
    node: h("section.card.tabcard", { "aria-label": label }, row, panel),
    // `shown()` is called when the tab is opened
    add(name, node, shown) {
      const one = { node, shown, button: put(h("button", { role: "tab", onclick: () => pick(one) }), name) };
      all.push(one);
      row.append(one.button);
      if (!node.parentNode) panel.append(node);
      if (all.length === 1) pick(one);
      else pick(all.find(({ button }) => button.getAttribute("aria-selected") === "true"));
      return one.button;
    },
  };
}
