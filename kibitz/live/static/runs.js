// Training runs with their learning curves, and reports of studies and tournaments.
import { ask, h, many, put, s, signed, style, styled, text, words } from "./dom.js";
import { ago, empty, tidy } from "./pages.js";
import { chart, line, ticks } from "./chart.js";

style(import.meta.url);
await styled();

class Runs extends HTMLElement {
  async connectedCallback() {
    const place = h("div.page", null, h("h1", null, "Training runs"), h("p.dim", null, "Loading…"));
    this.append(place);
    const [{ ok, data, error }, answer] = await Promise.all([ask("/runs.json"), ask("/reports.json")]);
    const runs = data.runs || [], reports = answer.data.reports || [];
    if (reports.length) this.append(h("div.page", null, h("h2", null, "Reports"), reports.map(reportCard)));
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

function reportCard(report) {
  const shown = report.verdicts.filter((verdict) => verdict.shown), rest = report.verdicts.length - shown.length;
  return h("section.card.report", { "aria-label": report.title },
    h("h3", null, h("a", { href: signed(`/reports/${encodeURIComponent(report.name)}.html`) }, report.title)),
    text("p.dim.small", `${report.name} · ${ago(report.changed)}`), text("p", report.summary),
    shown.length ? h("ul.small", null, shown.map((verdict) => text("li", verdict.text))) : null,
    rest ? text("p.dim.small", `Nothing was shown in ${rest} of ${many(report.verdicts.length, "verdict")}.`) : null);
}

const MEASURES = ["share_of_ceiling", "win_share", "return_mean"];

function curveSpec(name, points) {
  const measure = MEASURES.find((key) => points.some((p) => typeof p[key] === "number")) || "return_mean";
  const kept = points.filter((p) => typeof p[measure] === "number");
  const seeds = [...new Set(kept.map((p) => p.seed))];
  const each = seeds.map((seed) => kept.filter((p) => p.seed === seed).map((p) => [p.step, p[measure]]));
  // the mean over seeds; each seed is drawn behind it
  const xy = [...new Set(kept.map((p) => p.step))].map((step) => {
    const there = kept.filter((p) => p.step === step);
    return [step, there.reduce((sum, p) => sum + p[measure], 0) / there.length];
  });
  const end = xy.length ? xy[xy.length - 1][0] : 1;
  const lowest = Math.min(...kept.map((p) => p[measure]), 1);
  const top = Math.max(measure === "share_of_ceiling" ? 1 : 0.01, ...kept.map((p) => p[measure]));
  const low = lowest < 0 ? lowest : Math.max(0, Math.floor((lowest - 0.05) * 10) / 10);
  const short = (v) => (v >= 1e6 ? `${v / 1e6}M` : v >= 1e3 ? `${v / 1e3}k` : String(v));
  return {
    x: [0, end], y: [low, top], xt: ticks(end).map((v) => [v, short(v)]), yt: ticks(top, 5, low).map((v) => [v, String(v)]),
    label: xy.length ? `${words(measure)} of ${name}: ${tidy(xy[0][1])} at the start, ${tidy(xy[xy.length - 1][1])} after ${many(end, "step")}.` : "No points yet.",
    head: ["Step", words(measure)], rows: () => xy.map(([x, y]) => [x.toLocaleString(), tidy(y)]),
    draw: (px, py, size) => (xy.length ? [seeds.length > 1 ? each.map((one) => line(one, px, py, "line thin")) : [], line(xy, px, py, "line seat0"), label(px(end), py(xy[xy.length - 1][1]), tidy(xy[xy.length - 1][1]), size, words(measure))].flat() : []),
  };
}

const label = (x, y, text, size, measure) => [
  s("text.value", { x: x - 4, y: y > 30 ? y - 8 : y + 18, "text-anchor": "end" }, text),
  s("text.axis", { x: size.left + 6, y: size.top + 8 }, `↑ ${measure}`),
];

customElements.define("kibitz-runs", Runs);
