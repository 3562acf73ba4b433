// Win probability, worm, Manhattan, partnerships.
import { h, moment, put, rows, s, when } from "../../dom.js";
import { chart, key, line, ticks } from "../../chart.js";
import { nameOf, sideOf } from "../cricket.js";

const perOver = (balls) => {
  const overs = Math.max(1, Math.ceil(balls / 6));
  const step = overs <= 6 ? 1 : overs <= 12 ? 2 : 5;
  const found = [];
  for (let over = 0; over <= overs; over += step) found.push([over * 6, String(over)]);
  return found;
};

export function charts(kit) {
  const keys = [0, 1].map((seat) => key(seat, ""));
  const legend = () => h("span", { class: "keys" }, [0, 1].map((seat) => h("span", { class: `key seat${seat}` })));
  const win = chart("Win probability", 170, h("span", { class: "keys" }, keys));
  const worm = chart("Worm: runs by over", 210, legend());
  const manhattan = chart("Manhattan: runs in each over", 210, legend());
  const stands = h("tbody");
  const pairs = h("div", { class: "scroll stands", tabindex: 0, role: "group", "aria-label": "Partnerships" }, h("table", { class: "data" },
    h("thead", {}, h("tr", {}, ["#", "Pair", "Runs", "Balls"].map((x, i) => h("th", { scope: "col", class: i === 1 ? "left" : "" }, x)))), stands));
  const views = [["Worm", worm.node], ["Manhattan", manhattan.node], ["Partnerships", h("figure", { class: "chart" }, h("figcaption", {}, "Partnerships"), pairs)]];
  const tabs = kit.tabs("Innings charts", views);
  const nodes = [h("section", { class: "card", "aria-label": "Win probability" }, win.node), h("section", { class: "card", "aria-label": "Innings charts" }, tabs)];

  const draw = when((state) => {
    for (const seat of [0, 1]) for (const spot of nodes.flatMap((node) => [...node.querySelectorAll(`.key.seat${seat}`)])) put(spot, sideOf(state, seat));
    const [p] = state.frame.win_probability || [0.5];
    keys.forEach((node, seat) => put(node, `${sideOf(state, seat)} ${Math.round(100 * (seat ? 1 - p : p))}%`));
    win.draw(winSpec(state));
    worm.draw(wormSpec(state));
    manhattan.draw(manhattanSpec(state));
    drawStands(stands, state);
  });
  return { nodes, draw: (state) => draw(moment(state), state) };
}

function winSpec(state) {
  const points = [[-1, 0.5], ...state.memory.win];
  const end = Math.max(points[points.length - 1][0], 5);
  const [last] = state.frame.win_probability || [0.5];
  const sides = [0, 1].map((seat) => sideOf(state, seat));
  const breaks = state.turns.filter((entry) => entry.moment === "End of innings").map((entry) => entry.turn);
  return {
    x: [-1, end], y: [0, 1], yt: [[0, "0%"], [0.5, "50%"], [1, "100%"]], xt: [[-1, "start"], [end, `ball ${end + 1}`]],
    label: `${sides[0]} ${Math.round(last * 100)}%, ${sides[1]} ${Math.round((1 - last) * 100)}% after ${state.turn + 1} balls.`,
    head: ["Ball", sides[0], sides[1]],
    rows: () => state.memory.win.map(([turn, p]) => [turn + 1, `${Math.round(p * 100)}%`, `${Math.round((1 - p) * 100)}%`]),
    draw: (px, py, size) => {
      const top = points.map(([x, y]) => `L${px(x)} ${py(y)}`).join("");
      const [x, y] = points[points.length - 1];
      return [
        s("path", { class: "area seat0", d: `M${px(-1)} ${py(0)}${top}L${px(x)} ${py(0)}Z` }), s("path", { class: "area seat1", d: `M${px(-1)} ${py(1)}${top}L${px(x)} ${py(1)}Z` }),
        s("path", { class: "middle", d: `M${size.left} ${py(0.5)}H${size.right}` }), breaks.map((turn) => s("path", { class: "break", d: `M${px(turn)} ${size.top}V${size.bottom}` })),
        line(points, px, py, "line ink"), s("circle", { class: "now", cx: px(x), cy: py(y), r: 4 }),
      ];
    },
  };
}

const plain = (state) => state.memory.innings.filter((inn) => !inn.superOver).slice(-2);

function wormSpec(state) {
  const innings = plain(state);
  const balls = Math.max(6 * (state.frame.overs || 1), ...innings.map((inn) => inn.legal));
  const top = Math.max(20, ...innings.map((inn) => inn.total), state.frame.target || 0) * 1.08;
  return {
    x: [0, balls], y: [0, top], xt: perOver(balls), yt: ticks(top).map((v) => [v, String(v)]),
    label: innings.map((inn) => `${sideOf(state, inn.seat)} ${inn.total} for ${inn.wickets} after ${Math.floor(inn.legal / 6)}.${inn.legal % 6} overs`).join("; ") || "Nothing bowled yet.",
    head: ["Over", ...innings.map((inn) => sideOf(state, inn.seat))],
    rows: () => [...Array(Math.ceil(balls / 6)).keys()].map((n) => [n + 1, ...innings.map((inn) => { const over = inn.overs.find((o) => o.number === n); return over ? `${over.total}/${over.lost}` : ""; })]),
    draw: (px, py, size) => [
      state.frame.target && s("path", { class: "break", d: `M${size.left} ${py(state.frame.target)}H${size.right}` }),
      state.frame.target && s("text", { class: "value", x: size.right, y: py(state.frame.target) - 5, "text-anchor": "end" }, `target ${state.frame.target}`),
      innings.map((inn) => [line(inn.worm, px, py, `line seat${inn.seat}${inn.seat ? " dashed" : ""}`), inn.falls.map((fall) => { const [o, b] = fall.over.split("."); return mark(px(o * 6 + +b), py(fall.score), inn.seat); })]),
    ].flat(3).filter(Boolean),
  };
}

const mark = (x, y, seat) => (seat === 0 ? s("circle", { class: "fall seat0", cx: x, cy: y, r: 4 }) : s("path", { class: "fall seat1", d: `M${x} ${y - 5}l5 5-5 5-5-5z` }));

function manhattanSpec(state) {
  const innings = plain(state);
  const overs = Math.max(state.frame.overs || 1, ...innings.flatMap((inn) => inn.overs.map((over) => over.number + 1)));
  const top = Math.max(12, ...innings.flatMap((inn) => inn.overs.map((over) => over.runs))) * 1.15;
  return {
    x: [0, overs], y: [0, top], xt: perOver(overs * 6).slice(1).map(([balls, text]) => [balls / 6 - 0.5, text]), yt: ticks(top, 3).map((v) => [v, String(v)]),
    label: innings.map((inn) => `${sideOf(state, inn.seat)}: ${inn.overs.map((over) => `${over.runs}${over.wickets ? ` and ${over.wickets} out` : ""}`).join(", ")}`).join("; ") || "No over yet.",
    head: ["Over", ...innings.flatMap((inn) => [`${sideOf(state, inn.seat)} runs`, "wickets"])],
    rows: () => [...Array(overs).keys()].map((n) => [n + 1, ...innings.flatMap((inn) => { const over = inn.overs.find((o) => o.number === n); return over ? [over.runs, over.wickets] : ["", ""]; })]),
    draw: (px, py, size) => {
      const wide = Math.min(26, ((size.right - size.left) / overs) * 0.36);
      return innings.flatMap((inn, i) => inn.overs.flatMap((over) => {
        const x = px(over.number + 0.5) + (i - innings.length / 2) * wide + (innings.length - 1 ? i * 2 - 1 : 0);
        const dots = [...Array(over.wickets).keys()].map((n) => mark(x + wide / 2, py(over.runs) - 8 - n * 11, inn.seat));
        return [s("rect", { class: `bar seat${inn.seat}`, x, y: py(over.runs), width: wide, height: Math.max(0, size.bottom - py(over.runs)), rx: 2 }), ...dots];
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
    return h("tr", {}, h("th", { scope: "row" }, `${stand.number}`), h("td", { class: "left" }, text, h("span", { class: `meter seat${stand.seat}`, vars: { "--part": stand.runs / most } })), h("td", { class: "strong" }, String(stand.runs)), h("td", {}, String(stand.balls)));
  };
  rows(body, all, (stand) => `${stand.seat}.${stand.number}.${stand.pair}`, (stand) => [stand, most], line);
}
