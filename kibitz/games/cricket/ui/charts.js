// Win probability and worm; Manhattan and partnerships are loaded when they are opened.
import { eachMoment, h, put, s, seatClass, set } from "../../dom.js";
import { chart, key, line, ticks } from "../../chart.js";
import { sideOf } from "./names.js";

export const perOver = (balls) => {
  const overs = Math.max(1, Math.ceil(balls / 6));
  const step = overs <= 6 ? 1 : overs <= 12 ? 2 : 5;
  const found = [];
  for (let over = 0; over <= overs; over += step) found.push([over * 6, String(over)]);
  return found;
};

export function charts() {
  const keys = [0, 1].map((seat) => key(seat));
  const win = chart("Win probability", 170, h("span.keys", null, keys));
  const worm = chart("Worm: runs by over", 210, legend());
  const panels = [worm.node, h("div"), h("div")];
  const buttons = ["Worm", "Manhattan", "Partnerships"].map((text, n) => h("button", { onclick: () => pick(n) }, text));
  let more = null;
  let last = null;
  const pick = async (n) => {
    buttons.forEach((one, i) => set(one, "aria-pressed", String(i === n)));
    panels.forEach((one, i) => { one.hidden = i !== n; });
    if (!n) return;
    const part = await import("./more.js");
    more ??= part.more(panels.slice(1));
    if (last) more(last);
  };
  pick(0);
  const nodes = [h("section", { "aria-label": "Win probability" }, win.node),
    h("section", { "aria-label": "Innings charts" }, h("div.seg", { role: "group", "aria-label": "Which chart" }, buttons), panels)];

  const draw = eachMoment((state) => {
    last = state;
    const [p] = state.frame.win_probability || [0.5];
    keys.forEach((node, seat) => put(node, `${sideOf(state, seat)} ${Math.round(100 * (seat ? 1 - p : p))}%`));
    name(worm.node, state);
    win.draw(winSpec(state));
    worm.draw(wormSpec(state));
    if (more) more(state);
  });
  return { nodes, draw };
}

export const legend = () => h("span.keys", null, [0, 1].map((seat) => key(seat)));
export const name = (node, state) => node.querySelectorAll(".key").forEach((spot, seat) => put(spot, sideOf(state, seat)));

function winSpec(state) {
  const points = [[-1, state.memory.start], ...state.memory.win];
  // as wide as the longest possible match, so that only the line moves
  const played = points[points.length - 1][0];
  const legal = 12 * (state.frame.overs || 1) - 1;
  const end = state.frame.over ? played : legal + 6 * Math.ceil(Math.max(0, played - legal) / 6); // extras add balls
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
        s("path.area.seat0", { d: `M${px(-1)} ${py(0)}${top}L${px(x)} ${py(0)}Z` }), s("path.area.seat1", { d: `M${px(-1)} ${py(1)}${top}L${px(x)} ${py(1)}Z` }),
        s("path.middle", { d: `M${size.left} ${py(0.5)}H${size.right}` }), breaks.map((turn) => s("path.break", { d: `M${px(turn)} ${size.top}V${size.bottom}` })),
        line(points, px, py, "line ink"), s("circle.now", { cx: px(x), cy: py(y), r: 4 }),
      ];
    },
  };
}

// the innings of the match proper, without super overs
export const plain = (state) => state.memory.innings.filter((inn) => !inn.superOver).slice(-2);

function wormSpec(state) {
  const innings = plain(state);
  const balls = Math.max(6 * (state.frame.overs || 1), ...innings.map((inn) => inn.legal));
  const top = Math.max(20, ...innings.map((inn) => inn.total), state.frame.target || 0) * 1.08;
  return {
    x: [0, balls], y: [0, top], xt: perOver(balls), yt: ticks(top).map((v) => [v, String(v)]),
    label: innings.map((inn) => `${sideOf(state, inn.seat)} ${inn.total} for ${inn.wickets} after ${Math.floor(inn.legal / 6)}.${inn.legal % 6} overs`).join("; ") || "No balls bowled yet.",
    head: ["Over", ...innings.map((inn) => sideOf(state, inn.seat))],
    rows: () => [...Array(Math.ceil(balls / 6)).keys()].map((n) => [n + 1, ...innings.map((inn) => { const over = inn.overs.find((o) => o.number === n); return over ? `${over.total}/${over.lost}` : ""; })]),
    draw: (px, py, size) => [
      state.frame.target && s("path.break", { d: `M${size.left} ${py(state.frame.target)}H${size.right}` }),
      state.frame.target && s("text.value", { x: size.right, y: py(state.frame.target) - 5, "text-anchor": "end" }, `target ${state.frame.target}`),
      innings.map((inn) => [line(inn.worm, px, py, `line ${seatClass(inn.seat)}${inn.seat ? " dashed" : ""}`), inn.falls.map((fall) => { const [o, b] = fall.over.split("."); return mark(px(o * 6 + +b), py(fall.score), inn.seat); })]),
    ].flat(3).filter(Boolean),
  };
}

// the mark of a wicket
export const mark = (x, y, seat) => (seat === 0 ? s("circle.fall.seat0", { cx: x, cy: y, r: 4 }) : s("path.fall.seat1", { d: `M${x} ${y - 5}l5 5-5 5-5-5z` }));
