// Deal or No Deal: the talk, each offer as a split, the payoff plane; the table is in table.js.
import { badge, capital, eachMoment, h, heads, many, put, s, scroll, seatClass, style } from "../../dom.js";
import { chart, ticks } from "../../chart.js";
import { ITEMS, line, pile, points, rest, tableCard, thing, words, worth } from "./table.js";

style(import.meta.url);

export const heading = "The talk";
export const newestFirst = false;
export const replayed = true; // the card at the end asks for a replay with the Bayesian player
const ACTS = ["propose", "insist", "agree", "disagree", "end"];
const MAX_OFFERS = 300;

export const begin = (state) => ({ offers: [], counts: state.frame.counts || [0, 0, 0] });

const split = (seat, kept, counts) => (seat === 0 ? [kept, rest(counts, kept)] : [rest(counts, kept), kept]);

export function step(state, before, entry) {
  const { memory } = state;
  const seat = entry.acts.findIndex((act) => act);
  if (seat < 0) return;
  const [type, ...kept] = entry.acts[seat];
  const kind = ACTS[type];
  const standing = memory.offers[memory.offers.length - 1];
  const spoke = type === 0 || type === 1 || type === 4;
  const shares = spoke ? split(seat, kept, memory.counts) : type === 2 && standing ? standing.shares : null;
  Object.assign(entry, { seat, kind, sign: kind.toUpperCase(), shares, kept });
  if (spoke) memory.offers.push({ turn: entry.turn, seat, kind, shares, seq: entry.seq });
  if (memory.offers.length > MAX_OFFERS) memory.offers.shift();
  if (kind === "agree") entry.moment = "Deal";
  else if (kind === "end") entry.moment = state.frame.deal ? "Deal by selection" : "Talk ended";
  else if (kind === "insist" && standing && standing.seat !== seat) entry.moment = "Insists";
  else if (state.frame.over) entry.moment = "No deal";
  entry.icon = state.frame.deal ? "yes" : state.frame.over ? "no" : "insist";
}

export function scoreboard(state) {
  const f = state.frame;
  const done = state.ended;
  const part = (seat) => done.returns[seat] / (worth(points(state, seat), state.memory.counts) || 1); // the pools differ
  const sides = [0, 1].map((seat) => {
    const own = points(state, seat);
    const offer = state.memory.offers[state.memory.offers.length - 1];
    const share = done ? String(done.returns[seat]) : own && offer ? String(worth(own, offer.shares[seat])) : own ? "–" : "?";
    const whole = own ? `of ${worth(own, state.memory.counts)} ${done ? "points" : "on offer"}` : "values hidden";
    return {
      seat, name: state.names[seat], by: "", active: !f.over && f.seat === seat,
      won: done && f.deal && part(seat) > part(1 - seat), main: share, sub: whole,
    };
  });
  const gone = (f.max_turns || 0) - (f.turns_left || 0);
  const now = f.over ? [] : [`Turn ${gone + 1} of ${f.max_turns}`, `${state.names[f.seat]} to speak`];
  return { sides, tags: f.over ? [f.deal ? "Deal" : "No deal"] : [], now };
}

// the other side, for the player at this page
const rival = ({ names, players, mine }) => (players[1 - mine] === "human" ? "the other person" : names[1 - mine]);

// The latest act for the player at this page, whom the commentary calls "the person", as it may call both sides.
export function caption(state) {
  const entry = state.mine === undefined ? null : state.turns.find(({ turn }) => turn === state.turn);
  if (!entry?.kind) return "";
  const own = entry.seat === state.mine;
  const end = own ? "" : "s"; // of the verb
  const items = words(entry.kept);
  const did = { propose: `ask${end} for ${items}`, insist: `insist${end} on ${items}`, agree: `agree${end}. It is a deal`, disagree: `disagree${end}`, end: `end${end} the talk and take${end} ${items}` };
  return `${own ? "You" : capital(rival(state))} ${did[entry.kind]}.`;
}

// How the result compares with the fair split (the Nash point) and with the Bayesian player, for the player at this page
// or for both sides.
export function verdict(state) {
  const { ended, frame, mine, names, review, memory } = state;
  if (!ended) return null;
  const whole = (seat) => worth(points(state, seat), memory.counts);
  const got = (seat) => `${ended.returns[seat]} of ${whole(seat) ?? "?"} points (${Math.round((100 * ended.returns[seat]) / (whole(seat) || 1))}%)`;
  const seats = mine === undefined ? [0, 1] : [mine];
  const named = (seat, own, other) => (seat === mine ? own : `${names[seat]} ${other}`);
  const fair = review.nash;
  const lines = [];
  if (frame.deal) lines.push(capital(`${seats.map((seat) => named(seat, `That is ${got(seat)}`, `took ${got(seat)}`)).join("; ")}.`));
  if (fair) lines.push(`The fair split gives ${seats.map((seat) => `${seat === mine ? "you" : names[seat]} ${many(fair[seat], "point")}`).join(" and ")}${frame.deal ? "" : "; walking away gives nothing"}.`);
  for (const seat of seats) lines.push(...besideBayes(state, seat, seat === mine));
  const head = mine === undefined ? String(ended.text || "") : frame.deal ? `You take ${many(ended.returns[mine], "point")}, ${rival(state)} takes ${ended.returns[1 - mine]}.` : `You and ${rival(state)} reached no deal: neither gets anything.`;
  return { head, lines, moment: turningPoint(state) };
}

// What the Bayesian player would have got in this place, where the partner can be replayed, and the first turn at which
// it would have acted otherwise.
function besideBayes(state, seat, mine) {
  const would = (state.review.reference || []).filter((one) => one.seat === seat);
  if (state.players[seat] === "bayes") return [];
  const who = mine ? "you" : state.names[seat];
  const place = mine ? "your place" : `${who}’s place`;
  const got = state.replayed?.[seat]?.returns;
  const replay = got ? `In ${place}, with the same partner and the same luck, the Bayesian player ${got[seat] || got[1 - seat] ? `would have taken ${many(got[seat], "point")}, ${compared(got[seat] - state.ended.returns[seat])} ${who}` : "would have left without a deal"}.` : "";
  const first = firstOther(state, seat, would, who, replay ? "it" : "the Bayesian player", place);
  return [[replay, first].filter(Boolean).join(" ")].filter(Boolean);
}

const compared = (more) => (more ? `${Math.abs(more)} ${more > 0 ? "more" : "fewer"} than` : "as many as");

function firstOther(state, seat, would, who, bayes, place) {
  if (!would.length) return "";
  const other = would.find((one) => { const entry = state.turns.find(({ turn }) => turn === one.turn); return entry?.kind && !same(one, entry); });
  if (!other) return `${capital(bayes)} would have acted as ${who} did on every turn.`;
  const own = points(state, seat);
  const standing = [...state.memory.offers].reverse().find((one) => one.turn < other.turn && one.seat !== seat);
  const paid = other.act[0] === 2 ? standing && worth(own, standing.shares[seat]) : other.act[0] !== 3 ? worth(own, other.act.slice(1)) : null;
  return `On turn ${other.turn + 1} ${bayes} would have ${didAct(other.act)}${paid === null || paid === undefined ? "" : ` (${many(paid, "point")})`}${bayes === "it" ? "" : ` in ${place}`}.`;
}

// the largest step that a side went towards the other
function turningPoint(state) {
  const last = [null, null];
  let most = null;
  for (const offer of state.memory.offers) {
    const own = worth(points(state, offer.seat), offer.shares[offer.seat]);
    const before = last[offer.seat];
    last[offer.seat] = own;
    if (before !== null && own !== null && before - own > (most?.step ?? 0)) most = { step: before - own, offer, before, own };
  }
  if (!most) return null;
  const who = most.offer.seat === state.mine ? "you" : state.names[most.offer.seat];
  return { seq: most.offer.seq, text: `on turn ${most.offer.turn + 1} ${who} went down from ${most.before} to ${many(most.own, "point")}.` };
}

export function mount(root, { caption, end, tab }) {
  const board = tableCard(caption, end);
  const plane = planeCard();
  const offers = offersCard();
  root.classList.add("hero");
  root.append(h("div.col.one", null, board.node));
  const payoffs = tab("Payoffs", plane.node);
  tab("Offers", offers.node);
  let finished = false;
  return (state) => {
    [board, plane, offers].forEach((part) => part.draw(state));
    const first = payoffs?.previousSibling.getAttribute("aria-selected") === "true"; // a small board has no tabs
    if (state.ended && !finished && first) payoffs.click(); // the plane belongs to the verdict
    finished = Boolean(state.ended);
  };
}

// Every way to divide the pool, once both sides' values are public.
function plane(state) {
  if (state.review.allocations) return state.review;
  const [a, b] = [points(state, 0), points(state, 1)];
  if (!a || !b) return null;
  const [n0, n1, n2] = state.memory.counts;
  const found = [];
  for (let x = 0; x <= n0; x++) for (let y = 0; y <= n1; y++) for (let z = 0; z <= n2; z++) {
    found.push({ seat0: [x, y, z], payoffs: [worth(a, [x, y, z]), worth(b, rest(state.memory.counts, [x, y, z]))] });
  }
  for (const one of found) one.pareto = !found.some(({ payoffs: [p, q] }) => p >= one.payoffs[0] && q >= one.payoffs[1] && p + q > one.payoffs[0] + one.payoffs[1]);
  const best = found.reduce((top, one) => (one.payoffs[0] * one.payoffs[1] > top.payoffs[0] * top.payoffs[1] ? one : top));
  return { allocations: found, nash: best.payoffs };
}

function planeCard() {
  const picture = chart("Payoff plane", 300, h("span.keys", null, ["Pareto set", "Nash point", "offers in order"].map((x, i) => h("span", { class: `key p${i}` }, x))));
  const wait = h("p.dim", null, "Each side's values stay private until the end. Then this chart shows every possible split, the Pareto set, the Nash point and the path of the offers.");
  const own = chart("What each offer gives you", 200);
  const axes = h("p.dim.small");
  const node = h("div.payoffs", null, picture.node, axes, own.node, wait);
  let drawn = null;
  const draw = eachMoment((state) => {
    if (!drawn || drawn.id !== state.id || !drawn.plane || drawn.plane !== state.review) drawn = { id: state.id, plane: plane(state) };
    const known = [0, 1].find((seat) => points(state, seat));
    picture.node.hidden = axes.hidden = !drawn.plane;
    put(axes, `Horizontal axis: ${state.names[0]}’s points. Vertical axis: ${state.names[1]}’s points.`.replaceAll("You’s", "your"));
    own.node.hidden = Boolean(drawn.plane) || known === undefined || !state.memory.offers.length;
    wait.hidden = Boolean(drawn.plane);
    if (drawn.plane) picture.draw(planeSpec(state, drawn.plane));
    else if (known !== undefined) own.draw(ownSpec(state, known));
  });
  return { node, draw };
}

const valued = (state) => state.memory.offers.map((offer) => ({ ...offer, pays: [0, 1].map((seat) => worth(points(state, seat), offer.shares[seat])) }));

function planeSpec(state, { allocations, nash }) {
  const [a, b] = [0, 1].map((seat) => worth(points(state, seat), state.memory.counts) || 1);
  const path = valued(state);
  const edge = [...new Map(allocations.filter((one) => one.pareto).map((one) => [one.payoffs.join(), one.payoffs])).values()].sort((p, q) => p[0] - q[0]);
  const dots = [...new Map(allocations.map((one) => [one.payoffs.join(), one])).values()];
  return {
    x: [0, a], y: [0, b], xt: ticks(a).map((v) => [v, String(v)]), yt: ticks(b).map((v) => [v, String(v)]),
    label: `${state.names[0]} across, ${state.names[1]} up. Nash point ${nash.join(" and ")}. Offers: ${path.map((o) => o.pays.join(" and ")).join("; ") || "none"}.`,
    head: [`For ${state.mine === 0 ? "you" : state.names[0]}`, ...state.names.map((name, seat) => (seat === state.mine ? "Your points" : `${name}: points`)), "Pareto"],
    rows: () => allocations.filter((one) => one.pareto).map((one) => [words(one.seat0), ...one.payoffs, "yes"]),
    draw: (px, py) => [
      dots.map((one) => s("circle", { class: one.pareto ? "dot best" : "dot", cx: px(one.payoffs[0]), cy: py(one.payoffs[1]), r: one.pareto ? 4.5 : 2.5 })),
      s("path.edge", { d: edge.map(([x, y], i) => `${i ? "L" : "M"}${px(x)} ${py(y)}`).join("") }),
      s("path.nash", { d: star(px(nash[0]), py(nash[1]), 15) }),
      s("path.path", { d: path.map((o, i) => `${i ? "L" : "M"}${px(o.pays[0])} ${py(o.pays[1])}`).join("") }),
      path.map((o, i) => s("g", { class: `stop ${seatClass(o.seat)}` }, o.seat ? s("path", { d: diamond(px(o.pays[0]), py(o.pays[1]), 10) }) : s("circle", { cx: px(o.pays[0]), cy: py(o.pays[1]), r: 8 }), s("text", { x: px(o.pays[0]), y: py(o.pays[1]) + 3.6 }, String(i + 1)))),
    ],
  };
}

const diamond = (x, y, r) => `M${x} ${y - r}l${r} ${r}-${r} ${r}-${r}-${r}z`;
const star = (x, y, r) => `M${[...Array(10).keys()].map((i) => { const turn = (i * Math.PI) / 5; const k = i % 2 ? r * 0.45 : r; return `${(x + Math.sin(turn) * k).toFixed(1)} ${(y - Math.cos(turn) * k).toFixed(1)}`; }).join("L")}Z`;

function ownSpec(state, seat) {
  const whole = worth(points(state, seat), state.memory.counts) || 1;
  const path = valued(state).map((offer) => [offer.turn + 1, offer.pays[seat], offer.seat]);
  const end = Math.max(state.frame.max_turns || 0, 2);
  return {
    x: [1, end], y: [0, whole], xt: [[1, "turn 1"], [end, `turn ${end}`]], yt: ticks(whole).map((v) => [v, String(v)]),
    label: `${seat === state.mine ? "Your points" : `Points for ${state.names[seat]}`}: ${path.map(([turn, paid]) => `turn ${turn} ${paid}`).join(", ")}.`, head: ["Turn", "Points", "Asked by"], rows: () => path.map(([turn, paid, who]) => [turn, paid, state.names[who]]),
    draw: (px, py) => [s("path.path", { d: path.map(([x, y], i) => `${i ? "L" : "M"}${px(x)} ${py(y)}`).join("") }),
      path.map(([x, y, who]) => (who ? s("path.fall.seat1", { d: diamond(px(x), py(y), 6) }) : s("circle.fall.seat0", { cx: px(x), cy: py(y), r: 5 })))],
  };
}

function offersCard() {
  const body = h("tbody");
  const note = h("p.dim.small");
  const node = h("div.offers", null, scroll("Offers", h("table.data", null, heads(["Turn", "Said", "Points", "Bayes would"], [1, 3]), body)), note);
  const draw = eachMoment((state) => {
    const would = new Map((state.review.reference || []).map((one) => [one.turn, one]));
    const paid = (entry) => entry.shares ? [0, 1].map((seat) => worth(points(state, seat), entry.shares[seat]) ?? "?").join(" : ") : "";
    const rows = state.turns.slice(-60).filter((entry) => entry.kind).map((entry) => {
      const other = would.get(entry.turn);
      return h("tr", null, h("th", { scope: "row" }, badge(entry.seat), ` ${entry.turn + 1}`), h("td.left", null, said(entry)), h("td", null, paid(entry)), h("td.left", null, other ? (same(other, entry) ? "✓ the same" : sayAct(other.act)) : ""));
    });
    body.replaceChildren(...rows);
    put(note, would.size ? "What the Bayesian player would have said in that seat, knowing only its own values and the talk so far." : state.ended ? "No reference for these settings." : "The reference's acts are shown at the end.");
  });
  return { node, draw };
}

// AGREE and DISAGREE have no counts
const same = ({ act: [type, ...kept] }, entry) => ACTS[type] === entry.kind && (type === 2 || type === 3 || kept.join() === entry.kept.join());
const sayAct = ([type, ...kept]) => (type === 2 ? "agree" : type === 3 ? "walk away" : `${ACTS[type]} on ${words(kept)}`.replace("propose on", "ask for").replace("end on", "end with"));
const didAct = ([type, ...kept]) => ["asked for", "insisted on", "agreed", "walked away", "ended with"][type] + (type === 2 || type === 3 ? "" : ` ${words(kept)}`);
const said = (entry) => ({ propose: `asks for ${words(entry.kept)}`, insist: `insists on ${words(entry.kept)}`, agree: "agrees", disagree: "walks away", end: `ends, taking ${words(entry.kept)}` })[entry.kind];

// One turn of the talk, in place of the commentary line.
export function say(entry, state) {
  if (!entry.kind) return null;
  const own = [0, 1].find((seat) => points(state, seat));
  const would = (state.review.reference || []).find((one) => one.turn === entry.turn);
  return [h("div", { class: `bubble ${seatClass(entry.seat)}` }, h("p", null, line(entry)),
    entry.shares && entry.kind !== "agree" && h("div.minisplit", null, badge(0), pile(entry.shares[0]), h("span.bar"), pile(entry.shares[1]), badge(1)),
    entry.shares && own !== undefined && h("p.small.dim", null, [0, 1].filter((seat) => points(state, seat)).map((seat) => `${state.names[seat]}: ${worth(points(state, seat), entry.shares[seat])}`).join(" · "))),
    would && h("div.note.ref", null, same(would, entry) ? "bayes would have said the same" : `bayes would have ${didAct(would.act)}`)];
}

// A person's turn: a stepper for each item to keep, a button for each legal act.
export function form(turn, state, seat, send) {
  const { counts } = state.memory;
  const own = points(state, seat);
  const offer = state.memory.offers[state.memory.offers.length - 1];
  const mine = state.memory.offers.filter((one) => one.seat === seat).pop();
  const keep = [...(mine ? mine.shares[seat] : counts)]; // goes on from one's own last offer
  const open = turn.masks[0];
  const theirs = state.memory.offers.filter((one) => one.seat !== seat).pop();
  const left = theirs ? theirs.shares[seat] : [0, 0, 0]; // what their last offer leaves: the only selection that ends the talk with a deal
  const fits = () => keep.join() === left.join();
  const total = h("output.num", { "aria-live": "polite" });
  const show = () => {
    steps.forEach((node, i) => { put(node.querySelector("output"), `${keep[i]} of ${counts[i]}`); });
    const [got, whole] = [keep, counts].map((items) => worth(own, items) ?? "this");
    put(total, `You keep ${words(keep)}${own ? `: ${got} of ${whole} points` : ""}. The other side gets ${words(rest(counts, keep))}.`);
    const all = own && keep.join() === counts.join();
    const offers = open[2] ? `Counter for ${got}` : all ? `Propose: keep all ${got}` : own ? `Propose: keep ${got} of ${whole}` : "Propose this";
    [[0, offers], [1, `Insist on ${got}`], [4, fits() ? `End the talk with ${got}` : "End the talk (0 : 0)"]].forEach(([type, says]) => acts[type] && put(acts[type], says));
  };
  const steps = ITEMS.map((item, i) => {
    const move = (by) => () => { keep[i] = Math.min(counts[i], Math.max(0, keep[i] + by)); show(); };
    return h("div.stepper", { role: "group", "aria-label": `${item}s to keep` }, thing(i), h("span", null, `${item}s`, own && h("small.dim", null, ` ${own[i]} each`)),
      h("button", { "aria-label": `one ${item} fewer`, onclick: move(-1) }, "−"), h("output"), h("button", { "aria-label": `one ${item} more`, onclick: move(1) }, "+"));
  });
  const walks = state.about.options?.disagree_ends !== false; // whether DISAGREE ends the game with nothing for either side
  const act = (type) => [type, ...(type === 2 || type === 3 ? [0, 0, 0] : keep)];
  const press = (type) => ((type === 3 && walks) || (type === 4 && !fits()) ? askFirst(type) : send(act(type)));
  // every button says what it does; only `show` knows the points of those that depend on the steppers
  const labels = ["", "", own && offer ? `Accept ${worth(own, offer.shares[seat])}` : "Accept", walks ? "Walk away (0 : 0)" : "Disagree", ""];
  const keys = [1, 2, 3, 5, 4]; // in the order of the buttons
  const acts = labels.map((label, type) => open[type] && h("button", { class: type === 0 || (type === 4 && !open[0]) ? "primary" : "", "aria-keyshortcuts": String(keys[type]), onclick: () => press(type) }, label));
  let asked = null; // the act that would end the game with nothing
  const yes = h("button", { onclick: () => send(act(asked)) });
  const sure = h("div.row", { hidden: true, role: "group", "aria-label": "End without a deal" }, h("span", null, "The game ends and both sides get 0 points."), yes, h("button", { onclick: () => askFirst(null) }, "Keep talking"));
  const main = h("div.row.go", null, acts[0], acts[2]);
  const row = h("div.row", null, acts[1], acts[4], acts[3]);
  const note = acts[4] && h("p.small.dim.ending", null, `Ending the talk is a deal only if you take exactly what the other side has left you${theirs ? `: ${words(left)}` : ", which is nothing so far"}.`);
  const askFirst = (type) => {
    const back = acts[type ?? asked];
    asked = type;
    put(yes, type === 4 ? "Yes, end the talk" : "Yes, walk away");
    [row.hidden, main.hidden, sure.hidden] = [type !== null, type !== null, type === null];
    (type === null ? back : sure.querySelector("button:last-child")).focus();
  };
  show();
  const form = h("div", null, h("div.steppers", null, steps), h("p", null, total), main, row, note, sure);
  // an act such as the hint's: its items go into the steppers, its button is marked
  form.fill = ([type, ...items]) => {
    if (type !== 2 && type !== 3) items.forEach((n, i) => { keep[i] = Math.min(counts[i], n); });
    show();
    acts.forEach((button, other) => button && button.classList.toggle("hinted", other === type));
  };
  return form;
}

// a hint in the words of the buttons
export const actText = ([type, ...kept]) => (type === 2 ? "accept" : type === 3 ? "walk away" : `${["propose to keep", "insist on", "", "", "end the talk, taking"][type]} ${words(kept)}`);
export const inWords = ({ act, text: line }) => (Array.isArray(act) ? actText(act) : line);
