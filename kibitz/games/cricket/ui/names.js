// What players, sides and balls are called.
import { h } from "../../dom.js";

// names by place in the order of one side
export function nameOf(state, seat) {
  const players = state.cast.sides?.[seat]?.players;
  return (i) => players?.[i]?.name || `No. ${i + 1}`;
}
export const sideOf = (state, seat) => state.cast.sides?.[seat]?.name || state.frame.sides?.[seat] || state.names[seat];

export const overs = (legal) => `${Math.floor(legal / 6)}.${legal % 6}`;
export const rate = (runs, legal) => (legal ? ((6 * runs) / legal).toFixed(2) : "–");
export const chips = (signs) => signs.map(([sign, kind]) => h("span", { class: `chip ${kind}` }, sign));
