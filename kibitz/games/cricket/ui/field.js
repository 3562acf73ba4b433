// The ground, seen from behind the bowler's arm: the fielders, the path of the last ball, who is likely to win.
//
// It is drawn in CSS pixels, so that names keep their size on every screen. A name that would touch another name, a
// fielder, the ball's path or the edge is tried in eight places and otherwise left out; the fielder's own title still has it.
import { badge, eachMoment, h, many, put, s, seatClass, set, text } from "../../dom.js";
import { chips, nameOf, overs, sideOf } from "./names.js";

const FONT_PX = 12;
const LINE_PX = 15;
const DOT_PX = 5;
const EDGE_PX = 6; // around the rope
const PATH_STEPS = 60; // a few pixels each, much less than a name is high
const PATH_PX = 4; // between the ball's path and a name
const BALL_MS = 900; // from bat to landing
const SAFE = 1.12; // how much wider a name may be than measured: fonts differ by a little

const still = matchMedia("(prefers-reduced-motion: reduce)");
const pen = document.createElement("canvas").getContext("2d");

export function fieldCard(caption, end) {
  const grass = [s("ellipse.grass"), s("ellipse.rope"), s("ellipse.ring")];
  const strip = s("rect.strip", { width: 12, height: 54, rx: 2 });
  const men = s("g");
  const path = s("path.flight");
  const land = s("circle.landing", { r: 4 });
  const ball = s("circle.flying", { r: 5 });
  const hit = s("g.hit", null, path, land, ball);
  const svg = s("svg.ground", { role: "img", "aria-label": "The field" }, ...grass, strip, hit, men);
  const win = winBar();
  const middle = middleStrip();
  const box = h("div.turf", null, svg, caption, end);
  const node = h("section.card.oval.first", { "aria-label": "Field" }, h("div.arena", null, win.node, box), middle.node);
  let size = null;
  let last = null;
  let shown = -1; // the ball whose path has been drawn

  const at = (angle, radius) => {
    const turn = (angle * Math.PI) / 180; // straight is down the page, a right-hander's off side to the left
    return [size.x - Math.sin(turn) * radius * size.rx, size.y + Math.cos(turn) * radius * size.ry];
  };

  const place = (f, path) => {
    const placed = (f.fielders || []).map(([angle, radius, name]) => [...at(angle, radius), String(name)]);
    const slips = placed.filter((man) => man[2].includes("slip"));
    const named = placed.filter((man) => !/^(bowler|keeper)$|slip/.test(man[2]));
    if (slips.length) named.push([...slips[slips.length - 1].slice(0, 2), many(slips.length, "slip")]);
    const [bx, by] = [size.x, size.y - 24];
    men.replaceChildren(...placed.map(([x, y, name]) => s("circle", { class: `man ${seatClass(1 - f.batting)}`, cx: x, cy: y, r: DOT_PX }, titled(name))),
      ...names(named, placed, path, size), ...[[bx, by], [bx - 8, size.y + 22]].map(([x, y]) => s("path", { class: `man ${seatClass(f.batting)}`, d: `M${x} ${y - 6}l6 6-6 6-6-6z` })));
    set(svg, "aria-label", `${f.field || ""} field: ${placed.map((man) => man[2]).join(", ")}`);
  };

  // The last ball's path from the bat to its landing, as a quadratic curve: start, control point, end.
  const curve = ({ shot, how, runs }) => {
    const [x0, y0] = [size.x, size.y - 24];
    const [x1, y1] = at(Number(shot.angle) || 0, Math.min(1.12, Number(shot.distance) || 0));
    const lift = Math.hypot(x1 - x0, y1 - y0) * (runs >= 6 ? 0.34 : how === "caught" ? 0.22 : 0.05);
    return [x0, y0, (x0 + x1) / 2, (y0 + y1) / 2 - lift, x1, y1];
  };

  // It flies once, when it is new; a look back or another size only draws it.
  const fly = (f, points, moving) => {
    hit.toggleAttribute("hidden", !points);
    if (!points) return;
    const { how, runs } = f.ball;
    const [x0, y0, mx, my, x1, y1] = points;
    set(hit, "class", `hit ${how ? "wicket" : runs >= 6 ? "six" : runs >= 4 ? "four" : ""}`);
    set(path, "d", `M${x0} ${y0}Q${mx} ${my} ${x1} ${y1}`);
    for (const one of [land, ball]) { set(one, "cx", x1); set(one, "cy", y1); }
    if (!moving || still.matches || Math.hypot(x1 - x0, y1 - y0) < 8) return;
    const length = path.getTotalLength();
    const timing = { duration: BALL_MS, easing: "cubic-bezier(.2,.6,.4,1)" };
    path.animate([{ strokeDasharray: `${length}`, strokeDashoffset: length }, { strokeDasharray: `${length}`, strokeDashoffset: 0 }], timing);
    ball.animate(along(points, 4).map(([x, y]) => ({ transform: `translate(${x - x1}px, ${y - y1}px)` })), timing);
  };

  const paint = (state, moving) => {
    if (!size || !state) return;
    const f = state.frame;
    const points = f.ball?.shot ? curve(f.ball) : null;
    const standing = JSON.stringify([f.fielders, f.batting, size, points]);
    if (standing !== svg.standing) place(f, points ? along(points, PATH_STEPS) : []);
    svg.standing = standing;
    fly(f, points, moving);
  };

  new ResizeObserver(([{ contentRect: { width, height } }]) => {
    if (!width || !height) return;
    const top = Number(getComputedStyle(box).getPropertyValue("--top")); // the caption's place
    const ry = (height - top) / 2 - EDGE_PX;
    size = { w: width, h: height, top, x: width / 2, y: top + EDGE_PX + ry, rx: Math.min(width / 2 - EDGE_PX, 2.1 * ry), ry };
    set(svg, "viewBox", `0 0 ${width} ${height}`);
    grass.forEach((one, i) => { for (const [key, value] of Object.entries({ cx: size.x, cy: size.y, rx: size.rx * [1, 0.985, 0.46][i], ry: size.ry * [1, 0.985, 0.46][i] })) one.setAttribute(key, value); });
    for (const [key, value] of [["x", size.x - 6], ["y", size.y - 27]]) set(strip, key, value);
    requestAnimationFrame(() => paint(last, false));
  }).observe(svg);

  const draw = eachMoment((state) => {
    last = state;
    const number = state.frame.ball?.number ?? -1;
    paint(state, number === shown + 1);
    shown = number;
    win.draw(state);
    middle.draw(state);
  });
  return { node, draw };
}

// Points along a quadratic curve, at even steps.
const along = ([x0, y0, mx, my, x1, y1], steps) => [...Array(steps + 1).keys()].map((i) => {
  const t = i / steps;
  return [(1 - t) ** 2 * x0 + 2 * t * (1 - t) * mx + t * t * x1, (1 - t) ** 2 * y0 + 2 * t * (1 - t) * my + t * t * y1];
});

const titled = (name) => put(s("title"), name);

// A name beside each fielder, where there is room.
function names(named, placed, path, { w, h: height, top, x: middle, y: centre }) {
  pen.font = `600 ${FONT_PX}px ${getComputedStyle(document.body).fontFamily}`;
  const around = (by) => ([x, y]) => [x - by, y - by, x + by, y + by];
  const pitch = [middle - 15, centre - 31, middle + 7, centre + 29]; // with both batters
  const taken = [pitch, ...placed.map(around(DOT_PX + 1)), ...path.map(around(PATH_PX)), ...path.slice(-1).map(around(DOT_PX + 2))];
  const nodes = [];
  for (const [x, y, name] of named) {
    const wide = pen.measureText(name).width * SAFE;
    const half = wide / 2;
    const shift = Math.max(half + 2 - x, Math.min(0, w - 2 - half - x)); // keeps a name above or below a fielder inside
    const [up, down, side] = [y - DOT_PX - 6, y + DOT_PX + LINE_PX - 1, DOT_PX + 4 + half]; // clear of the fielder's own dot
    const spots = [[x + side, y + 4], [x - side, y + 4], [x + shift, up], [x + shift, down], [x + half, up], [x - half, up], [x + half, down], [x - half, down]];
    const spot = spots.map(([cx, base]) => [cx, base, [cx - half, base - LINE_PX + 3, cx + half, base + 4]])
      .find(([, , [l, t, r, b]]) => l >= 0 && r <= w && t >= top && b <= height && taken.every(([l2, t2, r2, b2]) => r < l2 || l > r2 || b < t2 || t > b2));
    if (!spot) continue;
    taken.push(spot[2]);
    nodes.push(put(s("text.pos", { x: spot[0], y: spot[1] }), name));
  }
  return nodes;
}

// Seat 0 from the bottom, seat 1 from the top. It is scaled and never laid out again, so nothing moves around it.
function winBar() {
  const above = h("div.part.seat1");
  const figures = [1, 0].map((seat) => h("b.num", { class: seatClass(seat) }));
  const node = h("div.winbar.seat0", { role: "img" }, above, figures);
  const draw = (state) => {
    const [p] = state.frame.win_probability || [0.5];
    const percent = [Math.round(100 * p), 100 - Math.round(100 * p)];
    for (const name of ["aria-label", "title"]) set(node, name, `Win probability: ${percent.map((chance, seat) => `${sideOf(state, seat)} ${chance}%`).join(", ")}`);
    above.style.setProperty("--part", 1 - p);
    figures.forEach((figure, i) => put(figure, `${percent[1 - i]}%`));
  };
  return { node, draw };
}

// The batters, the last six balls and the bowler.
function middleStrip() {
  const batters = h("ul.batters");
  const balls = h("div.balls", { role: "img" });
  const bowling = h("p.bowling");
  const node = h("div.middle", null, batters, h("div.recent", null, h("small.dim", null, "Last six"), balls), bowling);
  const draw = (state) => {
    const f = state.frame;
    const inn = state.memory.innings.find((x) => x.id === `${f.super_over}-${f.innings}-${f.batting}`);
    const order = nameOf(state, f.batting);
    // in batting order, so that a single moves the mark and not the rows
    batters.replaceChildren(...[f.striker, f.other].filter(Boolean).sort((a, b) => a.player - b.player).map((who) => {
      const got = inn?.batters.get(who.player) || { runs: 0, balls: 0 };
      return h("li", { class: who === f.striker ? "strike" : "" }, badge(f.batting), " ", text("span", who.name || order(who.player)), who === f.striker && h("span.onstrike", { title: "on strike" }, "*"), h("b.num", null, ` ${got.runs}`), h("span.dim.num", null, ` (${got.balls})`));
    }));
    const recent = (inn ? inn.overs : []).flatMap((over) => over.signs).slice(-6);
    set(balls, "aria-label", `Last balls: ${recent.map(([sign]) => (sign === "•" ? "dot" : sign)).join(", ") || "none yet"}`);
    balls.replaceChildren(...chips(recent), ...[...Array(6 - recent.length)].map(() => h("span.chip.none")));
    const hand = f.bowler || (inn?.overs.length ? { player: inn.overs[inn.overs.length - 1].bowler } : null);
    const got = hand && inn?.bowlers.get(hand.player);
    bowling.replaceChildren(...(hand ? [badge(1 - f.batting), " ", text("span", hand.name || nameOf(state, 1 - f.batting)(hand.player)), h("b.num", null, got ? ` ${got.wickets}–${got.runs}` : ""), h("span.dim.num", null, got ? ` (${overs(got.balls)})` : " to bowl")] : [h("span.dim", null, "New over")]));
  };
  return { node, draw };
}
