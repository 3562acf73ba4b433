// Manhattan and partnerships, loaded on demand.
import { h, heads, rows, s, scroll, seatClass } from "../../dom.js";
import { chart, ticks } from "../../chart.js";
import { legend, mark, name, perOver, plain } from "./charts.js";
import { nameOf, sideOf } from "./names.js";

// Fills two places and returns a function that updates them.
export function more([first, second]) {
  const manhattan = chart("Manhattan: runs in each over", 210, legend());
  const stands = h("tbody");
  first.append(manhattan.node);
  second.append(h("figure.chart", null, h("figcaption", null, "Partnerships"), scroll("Partnerships", h("table.data", null, heads(["#", "Pair", "Runs", "Balls"], [1]), stands), "stands")));
  return (state) => {
    name(manhattan.node, state);
    manhattan.draw(manhattanSpec(state));
    drawStands(stands, state);
  };
}

function manhattanSpec(state) {
  const innings = plain(state);
  const overs = Math.max(state.frame.overs || 1, ...innings.flatMap((inn) => inn.overs.map((over) => over.number + 1)));
  const top = Math.max(12, ...innings.flatMap((inn) => inn.overs.map((over) => over.runs))) * 1.15;
  return {
    x: [0, overs], y: [0, top], xt: perOver(overs * 6).slice(1).map(([balls, text]) => [balls / 6 - 0.5, text]), yt: ticks(top, 3).map((v) => [v, String(v)]),
    label: innings.map((inn) => `${sideOf(state, inn.seat)}: ${inn.overs.map((over) => `${over.runs}${over.wickets ? ` and ${over.wickets} out` : ""}`).join(", ")}`).join("; ") || "No overs yet.",
    head: ["Over", ...innings.flatMap((inn) => [`${sideOf(state, inn.seat)} runs`, "wickets"])],
    rows: () => [...Array(overs).keys()].map((n) => [n + 1, ...innings.flatMap((inn) => { const over = inn.overs.find((o) => o.number === n); return over ? [over.runs, over.wickets] : ["", ""]; })]),
    draw: (px, py, size) => {
      const wide = Math.min(26, ((size.right - size.left) / overs) * 0.36);
      return innings.flatMap((inn, i) => inn.overs.flatMap((over) => {
        const x = px(over.number + 0.5) + (i - innings.length / 2) * wide + (innings.length - 1 ? i * 2 - 1 : 0);
        const dots = [...Array(over.wickets).keys()].map((n) => mark(x + wide / 2, py(over.runs) - 8 - n * 11, inn.seat));
        return [s("rect", { class: `bar ${seatClass(inn.seat)}`, x, y: py(over.runs), width: wide, height: Math.max(0, size.bottom - py(over.runs)), rx: 2 }), ...dots];
      }));
    },
  };
}

function drawStands(body, state) {
  const all = plain(state).flatMap((inn) => [...inn.stands, inn.stand].filter(Boolean).map((stand, i) => ({ ...stand, seat: inn.seat, number: i + 1 })));
  const most = Math.max(1, ...all.map((stand) => stand.runs));
  const line = (stand) => {
    const names = nameOf(state, stand.seat);
    const text = `${names(stand.pair[0])} ${stand.parts[stand.pair[0]] || 0}, ${names(stand.pair[1])} ${stand.parts[stand.pair[1]] || 0}`;
    return h("tr", null, h("th", { scope: "row" }, `${stand.number}`), h("td.left", null, text, h("span", { class: `meter ${seatClass(stand.seat)}`, vars: { "--part": stand.runs / most } })), h("td.strong", null, String(stand.runs)), h("td", null, String(stand.balls)));
  };
  rows(body, all, (stand) => `${stand.seat}.${stand.number}.${stand.pair}`, (stand) => [stand, most], line);
}
