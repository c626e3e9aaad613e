// Numbers, times and ticks of axes as text. An axis has one unit: 25M, 1e30, 30µ, 2.005.
const PREFIX = new Map([[-6, "µ"], [-3, "m"], [0, ""], [3, "k"], [6, "M"], [9, "G"], [12, "T"]]);
const TIME_STEPS = [0.001, 0.01, 0.1, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800, 2592000, 31536000];

function ticks(from, to, n, steps) {
  const span = to - from;
  if (!(span > 0) || !isFinite(span)) return { list: [from], step: 0 };
  const raw = span / Math.max(1, n), unit = 10 ** Math.floor(Math.log10(raw));
  const step = (steps && steps.find(s => s >= raw)) || [1, 2, 5, 10].map(k => k * unit).find(s => s >= raw * (1 - 1e-9));
  const out = [];
  for (let k = Math.ceil(from / step - 1e-9); k * step <= to + step * 1e-9 && out.length < 200; k++) out.push(k * step || 0);
  return { list: out, step };
}

// Values of a logarithmic axis between 10^from and 10^to: whole decades, with 2 and 5 where few are seen, else as on a plain axis.
function logTicks(from, to, n) {
  const decades = to - from, out = [];
  if (decades < 0.7) return ticks(10 ** from, 10 ** to, n).list.filter(v => v > 0);
  const every = Math.max(1, Math.ceil(decades / Math.max(1, n)));
  for (let d = Math.floor(from); d <= to; d++) {
    if (((d % every) + every) % every) continue;
    for (const k of decades > n / 3 ? [1] : [1, 2, 5]) {
      const v = Number(k + "e" + d), at = Math.log10(v);
      if (at >= from - 1e-9 && at <= to + 1e-9) out.push(v);
    }
  }
  return out;
}

// Texts of values that stand together, exact to a step between them. Step 0: each on its own.
function tickTexts(list, step) {
  const places = s => Math.min(15, Math.max(0, -Math.floor(Math.log10(s) + 1e-9)));
  const text = (v, most, s) => {  // with the unit that suits `most`
    if (v === 0 || !(most > 0)) return "0";
    const fixed = k => s > 0 ? (v / k).toFixed(places(s / k)) : String(Number((v / k).toPrecision(3)));
    if (most >= 1e-3 && most < 1e4) return fixed(1);
    const e = 3 * Math.floor(Math.log10(most) / 3 + 1e-9), prefix = PREFIX.get(e);
    if (prefix !== undefined) return fixed(10 ** e) + prefix;
    const own = Math.floor(Math.log10(Math.abs(v)) + 1e-9);
    return v.toExponential(s > 0 ? Math.min(15, Math.max(0, own - Math.floor(Math.log10(s) + 1e-9))) : undefined).replace("e+", "e");
  };
  const most = Math.max(...list.map(Math.abs));
  return list.map(v => text(v, step > 0 ? most : Math.abs(v), step));
}

function number(x) {
  if (x === null || x === undefined) return "–";
  if (typeof x !== "number") return String(x);
  if (!isFinite(x)) return String(x);
  if (Number.isInteger(x) && Math.abs(x) < 1e7) return String(x);
  const a = Math.abs(x);
  return a !== 0 && (a < 1e-3 || a >= 1e6) ? x.toExponential(3).replace("e+", "e") : String(Number(x.toPrecision(5)));
}
function duration(s) {
  s = Math.max(0, s);
  if (s < 60) return s.toFixed(s < 10 && s % 1 ? 1 : 0) + " s";
  const two = n => String(Math.floor(n)).padStart(2, "0");
  return s < 3600 ? Math.floor(s / 60) + ":" + two(s % 60) : Math.floor(s / 3600) + ":" + two(s / 60 % 60) + ":" + two(s % 60);
}
const bytesText = n => n < 1024 ? n + " B" : n < 2 ** 20 ? (n / 1024).toFixed(1) + " KiB" : n < 2 ** 30 ? (n / 2 ** 20).toFixed(1) + " MiB" : (n / 2 ** 30).toFixed(2) + " GiB";
const clock = s => new Date(s * 1000).toLocaleString();
function xTexts(list, step, axis) {
  if (axis === "step") return tickTexts(list, step);
  if (axis === "time") return list.map(duration);
  return list.map(t => { const d = new Date(t * 1000); return step >= 43200 ? d.toLocaleDateString() : d.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: step < 60 ? "2-digit" : undefined }); });
}
