// Figures as tables show them.
export const percent = (value) => (value === null ? "–" : `${(100 * value).toFixed(1)} %`);
export const between = (limits, show) => (limits && limits[0] !== null ? `${show(limits[0])} to ${show(limits[1])}` : "–");
export const whole = (value) => (value === null ? "–" : value.toFixed(0));
