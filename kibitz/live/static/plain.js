// A game without a file of its own: who plays, and what they got.
const side = ({ names, ended }, seat) => ({ seat, name: names[seat], by: "", main: ended ? ended.returns[seat] : "", sub: "" });

export const scoreboard = (state) => ({ sides: [side(state, 0), side(state, 1)], tags: [], now: [] });
