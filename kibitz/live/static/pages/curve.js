// A learning curve as a chart.
import { many, s, words } from "../dom.js";
import { line, ticks } from "../chart.js";
import { tidy } from "./pages.js";

const MEASURES = ["share_of_ceiling", "win_share", "return_mean"];

export function curveSpec(name, points) {
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
    x: [0, end], y: [low, top], xt: ticks(end).map((v, i, all) => [v, `${short(v)}${i + 1 === all.length ? " steps" : ""}`]), yt: ticks(top, 5, low).map((v) => [v, String(v)]),
    label: xy.length ? `${words(measure)} of ${name}: ${tidy(xy[0][1])} at the start, ${tidy(xy[xy.length - 1][1])} after ${many(end, "step")}.` : "No points yet.",
    head: ["Step", words(measure)], rows: () => xy.map(([x, y]) => [x.toLocaleString(), tidy(y)]),
    draw: (px, py, size) => (xy.length ? [seeds.length > 1 ? each.map((one) => line(one, px, py, "line thin")) : [], line(xy, px, py, "line seat0"), label(px(end), py(xy[xy.length - 1][1]), tidy(xy[xy.length - 1][1]), size, words(measure))].flat() : []),
  };
}

const label = (x, y, text, size, measure) => [
  s("text.value", { x: x - 4, y: y > 30 ? y - 8 : y + 18, "text-anchor": "end" }, text),
  s("text.axis", { x: size.left + 6, y: size.top + 16 }, `↑ ${measure}`),
];
