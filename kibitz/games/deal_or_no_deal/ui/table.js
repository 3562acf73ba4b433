// The table: two hands face to face, the items that move between them, and the last words of each side.
import { badge, eachMoment, h, many, put, s, seatClass, set, text } from "../../dom.js";

export const ITEMS = ["book", "hat", "ball"];
export const rest = (counts, kept) => counts.map((n, i) => n - kept[i]);
export const worth = (points, items) => (points ? points.reduce((sum, p, i) => sum + p * items[i], 0) : null);
export const words = (items) => {
  const parts = items.map((n, i) => (n ? many(n, ITEMS[i]) : "")).filter(Boolean);
  return parts.length > 1 ? `${parts.slice(0, -1).join(", ")} and ${parts[parts.length - 1]}` : parts[0] || "nothing";
};
export const points = (state, seat) => state.private[seat]?.utilities || null;

const SHAPES = {
  book: () => [s("path.fill", { d: "M5 4h12a2 2 0 0 1 2 2v15H7a2 2 0 0 1-2-2z" }), s("path.edge", { d: "M5 19a2 2 0 0 1 2-2h12M9 8h6M9 11h4" })],
  hat: () => [s("path.fill", { d: "M2 18c5 3 15 3 20 0-1-2-3-2-4-2L17 7c-3-2-7-2-10 0L6 16c-1 0-3 0-4 2z" }), s("path.edge", { d: "M6.3 14c4 1.6 7.4 1.6 11.4 0" })],
  ball: () => [s("circle.fill", { cx: 12, cy: 12, r: 9 }), s("path.edge", { d: "M5 6.5c4 3 4 8 0 11M19 6.5c-4 3-4 8 0 11" })],
};
export const thing = (i) => s("svg", { viewBox: "0 0 24 24", class: `thing ${ITEMS[i]}`, "aria-hidden": "true" }, SHAPES[ITEMS[i]]());
export const pile = (items, cls) => h("span", { class: `pile ${cls || ""}`, role: "img", "aria-label": words(items) }, items.flatMap((n, i) => [...Array(n)].map(() => thing(i))));

// One turn of the talk as a line.
export function line(entry) {
  const other = entry.shares ? words(entry.shares[1 - entry.seat]) : "nothing";
  return { propose: `I would keep ${words(entry.kept)}; you take ${other}.`, insist: `I insist: I keep ${words(entry.kept)}; you take ${other}.`, agree: "Agreed.", disagree: "No deal.", end: `Enough. I take ${words(entry.kept)}.` }[entry.kind];
}

const MAX_STEP = 9; // between two items of a row, in percent of the table's width
const ROWS = { far: 17, middle: 50, near: 83 }; // the centre of each row, in percent of the table's height

export function tableCard(caption, end) {
  const hands = [0, 1].map(() => h("div.hand"));
  const bubbles = [0, 1].map(() => h("p.lastword"));
  const items = h("div.items", { role: "img" });
  const talk = h("div.between", null, caption, bubbles, end);
  const node = h("section.card.first.table", { "aria-label": "The table" }, items, talk, hands);
  let laid = "";
  let nodes = [];

  const lay = (counts) => {
    nodes = counts.flatMap((n, i) => [...Array(Math.max(0, Math.min(n, 12)))].map(() => [i, h("span.item", null, thing(i))]));
    items.replaceChildren(...nodes.map(([, one]) => one));
  };
  // every item goes to the side that the standing offer gives it to; before the first offer all lie in the middle
  const move = (shares, near) => {
    const left = shares ? shares.map((share) => [...share]) : null;
    const rows = { far: [], middle: [], near: [] };
    for (const [i, one] of nodes) {
      const seat = left ? [near, 1 - near].find((side) => left[side][i] > 0) : undefined;
      if (seat !== undefined) left[seat][i] -= 1;
      rows[seat === undefined ? "middle" : seat === near ? "near" : "far"].push(one);
    }
    for (const [row, list] of Object.entries(rows)) {
      const step = Math.min(MAX_STEP, 84 / Math.max(list.length, 1));
      list.forEach((one, k) => { one.style.setProperty("--x", 50 + (k - (list.length - 1) / 2) * step); one.style.setProperty("--y", ROWS[row]); });
    }
  };

  const draw = eachMoment((state) => {
    const { counts, offers } = state.memory;
    const near = state.mine ?? 0;
    if (laid !== counts.join()) lay(counts);
    laid = counts.join();
    const offer = offers[offers.length - 1];
    const lost = state.frame.over && !state.frame.deal;
    move(offer && !lost ? offer.shares : null, near);
    set(items, "aria-label", !offer || lost ? `On the table: ${words(counts)}` : [0, 1].map((seat) => `${state.names[seat]}: ${words(offer.shares[seat])}`).join("; "));
    hands.forEach((hand, seat) => {
      const own = points(state, seat);
      const share = offer && !lost ? offer.shares[seat] : null;
      set(hand, "class", `hand ${seatClass(seat)} ${seat === near ? "near" : "far"}${!state.frame.over && state.frame.seat === seat ? " active" : ""}`);
      hand.replaceChildren(h("h3", null, badge(seat), " ", text("span", state.names[seat]), h("b.num", null, own ? `${share ? worth(own, share) : 0} of ${worth(own, counts)} points` : "values hidden")),
        h("p.worths", null, ITEMS.map((item, i) => h("span.worth", null, thing(i), h("span.num", null, own ? `${own[i]} each` : "? each")))));
      const last = [...state.turns].reverse().find((entry) => entry.seat === seat && entry.kind);
      set(bubbles[seat], "class", `lastword ${seatClass(seat)} ${seat === near ? "near" : "far"}${last && last.turn === state.turn ? " now" : ""}`);
      put(bubbles[seat], last ? line(last) : "");
    });
  });
  return { node, draw };
}
