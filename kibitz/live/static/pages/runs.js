// Training runs with their learning curves.
import { ask, h, many, put, style, styled, text, words } from "../dom.js";
import { ago, empty } from "./pages.js";
import { chart } from "../chart.js";
import { curveSpec } from "./curve.js";

style(import.meta.url);
await styled();

class Runs extends HTMLElement {
  async connectedCallback() {
    const place = h("div.page", null, h("h1", null, "Training runs"), h("p.dim", null, "Loading…"));
    this.append(place);
    const { ok, data, error } = await ask("/runs.json");
    const runs = data.runs || [];
    if (!ok || !runs.length) return place.replaceChildren(h("h1", null, "Training runs"), h("section.card", null, ok ? empty("No training runs yet", "Every run in the runs folder appears here with its learning curve, during training and afterwards.", h("code", null, "kibitz train --game GAME")) : text("p.error", error)));
    const curve = chart("Learning curve", 280);
    const about = h("p.dim.small");
    const show = async (name, pressed) => {
      for (const one of buttons) one.setAttribute("aria-pressed", String(one === pressed));
      const answer = await ask(`/runs/${encodeURIComponent(name)}.json`);
      if (pressed.getAttribute("aria-pressed") !== "true") return null; // another run has been chosen meanwhile
      if (!answer.ok) return put(about, answer.error);
      const run = answer.data;
      const points = run.curve || [];
      const sources = [...new Set(run.evaluation_hints_from || [])], heard = sources.filter((source) => source !== "none");
      const hints = !sources.length ? "" : heard.length ? `, with hints from ${heard.join(", ")}` : ", without hints";
      const advisers = (run.advisers || []).filter((one) => one !== "none");
      put(about, `${words(run.game)} · seed ${run.seed ?? 0}${advisers.length ? ` · advised by ${advisers.join(", ")}` : ""} · ${many(points.length, "evaluation")}${hints}`);
      return curve.draw(curveSpec(name, points));
    };
    const buttons = runs.map((run) => h("button", { "aria-pressed": "false", onclick: (event) => show(run.name, event.currentTarget) }, text("b", run.name), h("span.dim.small", null, [words(run.game), run.changed && ago(run.changed)].filter(Boolean).join(" · "))));
    place.replaceChildren(h("h1", null, "Training runs"), h("div.runs", null, h("div.card.runlist", { role: "group", "aria-label": "Runs" }, buttons), h("section.card", { "aria-label": "Curve" }, curve.node, about)));
    buttons[0].click();
  }
}

customElements.define("kibitz-runs", Runs);
