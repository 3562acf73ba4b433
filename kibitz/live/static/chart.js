// Small SVG charts. Each has a sentence for screen readers and a table behind a disclosure.
import { h, s, scroll, seatClass, set, style } from "./dom.js";

style(import.meta.url);

const MAX_ROWS = 400; // of the table
const PAD = { left: 38, right: 10, top: 10, bottom: 24 };

// Returns { node, draw(spec) }. A spec has `x` and `y`, ranges; `xt` and `yt`, ticks as [value, label];
// `draw(px, py, size)`, which returns nodes; `label`, the sentence; `head` and `rows()`, the table.
export function chart(title, height, legend) {
  const svg = s("svg.plot", { role: "img", "aria-label": title, height });
  const more = h("details.alt", null, h("summary", null, "As a table"));
  const node = h("figure.chart", null, h("figcaption", null, h("span", null, title), legend), svg, more);
  const axes = s("g.grid");
  const plot = s("g");
  svg.append(axes, plot);
  let spec = null;
  let width = 0;
  let ruled = ""; // axes are drawn again only when they change

  const fill = async () => {
    if (!more.open || !spec) return;
    const { table } = await import("./parts/table.js");
    const rows = spec.rows();
    more.replaceChildren(more.firstChild, scroll(`${title}, table`, table(spec.head, rows.slice(-MAX_ROWS), rows.length > MAX_ROWS ? `The last ${MAX_ROWS} of ${rows.length} rows` : "")));
  };
  const paint = () => {
    if (!spec || !width) return;
    const [x0, x1] = spec.x;
    const [y0, y1] = spec.y;
    const size = { left: PAD.left, right: width - PAD.right, top: PAD.top, bottom: height - PAD.bottom };
    const px = (x) => Math.round((size.left + ((x - x0) / (x1 - x0 || 1)) * (size.right - size.left)) * 10) / 10;
    const py = (y) => Math.round((size.bottom - ((y - y0) / (y1 - y0 || 1)) * (size.bottom - size.top)) * 10) / 10;
    set(svg, "viewBox", `0 0 ${width} ${height}`);
    set(svg, "aria-label", `${title}. ${spec.label}`);
    const rules = JSON.stringify([width, spec.x, spec.y, spec.xt, spec.yt]);
    if (rules !== ruled) axes.replaceChildren(
      ...spec.yt.map(([v]) => s("path", { d: `M${size.left} ${py(v)}H${size.right}` })),
      ...spec.yt.map(([v, text]) => s("text", { x: size.left - 7, y: py(v) + 4, "text-anchor": "end" }, text)),
      ...spec.xt.map(([v, text]) => s("text", { x: px(v), y: height - 6, "text-anchor": v === x1 ? "end" : v === x0 ? "start" : "middle" }, text)));
    ruled = rules;
    plot.replaceChildren(...spec.draw(px, py, size).flat());
    fill();
  };
  more.addEventListener("toggle", fill);
  new ResizeObserver(([entry]) => {
    const now = Math.round(entry.contentRect.width);
    if (now === width) return;
    width = now;
    requestAnimationFrame(paint);
  }).observe(node);
  return { node, draw: (next) => { spec = next; paint(); } };
}

export const line = (points, px, py, cls) =>
  s("path", { class: cls, d: points.map(([x, y], i) => `${i ? "L" : "M"}${px(x)} ${py(y)}`).join("") });

export const key = (seat) => h("span", { class: `key ${seatClass(seat)}` });

// Round numbers from `low` to `top` in about `n` steps.
export function ticks(top, n = 4, low = 0) {
  const raw = Math.max(top - low, 1e-9) / n;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((k) => k * unit).find((x) => x >= raw);
  const found = [];
  for (let v = Math.ceil(low / step - 0.001) * step; v <= top + step * 0.01; v += step) found.push(Math.round(v * 1e6) / 1e6);
  return found;
}
