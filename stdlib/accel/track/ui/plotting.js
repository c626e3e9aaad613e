// How a chart is drawn: on a canvas, or by the same calls into SVG (vector.js).
const AXIS_FONT = "11px system-ui, 'DejaVu Sans', sans-serif";
const cssColour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// The bounds of what is drawn, or null where no point is. Places of values that are not finite count on the x axis.
function boundsOf(lines, range) {
  let x0 = Infinity, x1 = -Infinity, y0 = Infinity, y1 = -Infinity;
  const [from, to] = range || [-Infinity, Infinity], means = settings.smooth > 0 || settings.log || lines.length > 12;
  for (const l of lines) {
    const c = l.curve;
    if (!c) continue;
    for (let i = 0; i < c.x.length; i++) {
      const x = c.x[i];
      if (x < from || x > to) continue;
      if (x < x0) x0 = x;
      if (x > x1) x1 = x;
      if (Number.isNaN(c.y[i])) continue;
      const low = means ? c.y[i] : c.min[i], high = means ? c.y[i] : c.max[i];
      if (settings.log && low <= 0) continue;
      if (low < y0) y0 = low;
      if (high > y1) y1 = high;
    }
  }
  if (range) [x0, x1] = range;
  if (!(x1 >= x0)) return null;
  const some = y1 >= y0;
  if (!some) [y0, y1] = settings.log ? [1, 10] : [0, 1];
  if (settings.log) [y0, y1] = [Math.log10(y0), Math.log10(y1)];
  if (x0 === x1) { x0 -= 0.5; x1 += 0.5; }
  const pad = y1 > y0 ? (y1 - y0) * 0.05 : Math.abs(y0) * 0.1 || 0.5;
  return { x0, x1, y0: y0 - pad, y1: y1 + pad, some };
}

// Axes with labels that fit: the left margin is as wide as the widest label, and labels of x keep within the chart. Returns the box.
function drawAxes(g, b, w, h) {
  g.font = AXIS_FONT;
  const soft = cssColour("--soft"), grid = cssColour("--line"), top = 8, bottom = h - 20, rows = (bottom - top) / 36;
  const t = settings.log ? { list: logTicks(b.y0, b.y1, rows), step: 0 } : ticks(b.y0, b.y1, rows);
  const texts = b.some ? tickTexts(t.list, t.step) : [];
  const widest = Math.max(0, ...texts.map(s => g.measureText(s).width));
  const left = Math.min(w * 0.45, Math.max(30, Math.ceil(widest) + 12)), right = w - 10;
  const box = { ...b, left, right, top, bottom, yTexts: texts };
  const X = x => left + (x - b.x0) / (b.x1 - b.x0) * (right - left);
  const Y = y => bottom - ((settings.log ? Math.log10(y) : y) - b.y0) / (b.y1 - b.y0) * (bottom - top);
  g.strokeStyle = grid; g.fillStyle = soft; g.lineWidth = 1; g.textAlign = "right"; g.textBaseline = "middle";
  g.beginPath();
  if (b.some) t.list.forEach((v, i) => {
    const y = Math.round(Y(v)) + 0.5;
    g.moveTo(left, y); g.lineTo(right, y);
    g.fillText(texts[i], left - 6, y, left - 8);
  });
  const time = settings.axis === "step" ? null : TIME_STEPS;
  let n = (right - left) / 90, x, names;
  do {                            // fewer where the labels would touch
    x = ticks(b.x0, b.x1, n, time);
    if (settings.axis === "step" && x.step < 1) x = { list: x.list.filter(Number.isInteger), step: Math.max(1, x.step) };
    names = xTexts(x.list, x.step, settings.axis);
    n /= 1.5;
  } while (n > 0.5 && x.list.length > 1 && Math.max(...names.map(s => g.measureText(s).width)) + 10 > (right - left) * x.step / (b.x1 - b.x0));
  g.textAlign = "center"; g.textBaseline = "top";
  box.xTexts = names;
  x.list.forEach((v, i) => {
    const at = Math.round(X(v)) + 0.5, half = g.measureText(names[i]).width / 2 + 1;
    if (at < left - 1 || at > right + 1) return;
    g.moveTo(at, top); g.lineTo(at, bottom);
    g.fillText(names[i], Math.min(Math.max(at, half), w - half), bottom + 5);
  });
  g.stroke();
  return { box, X, Y };
}

// A line, the band between its least and most values, and a cross at the bottom where values are not finite.
function drawLine(g, l, box, X, Y, many) {
  const c = l.curve;
  if (!c || !c.x.length) return;
  const n = c.x.length, ink = colour(l.run), floor = settings.log ? 1e-300 : -Infinity;
  let spread = false;
  for (let i = 0; i < n && !spread; i++) spread = c.max[i] > c.min[i];
  if (spread && !many) {
    g.fillStyle = colour(l.run, 0.16);
    g.beginPath();
    let open = false;
    for (let i = 0; i < n; i++) if (!Number.isNaN(c.y[i])) { if (open) g.lineTo(X(c.x[i]), Y(Math.max(c.max[i], floor))); else g.moveTo(X(c.x[i]), Y(Math.max(c.max[i], floor))); open = true; }
    for (let i = n - 1; i >= 0; i--) if (!Number.isNaN(c.y[i])) g.lineTo(X(c.x[i]), Y(Math.max(c.min[i], floor)));
    g.fill();
  }
  g.strokeStyle = ink;
  g.lineWidth = many ? 1 : 1.5;
  g.beginPath();
  let mean, pen = false, run = 0, last, crosses = [];
  const dots = [];
  const lift = () => { if (run === 1) dots.push(last); run = 0; pen = false; };
  for (let i = 0; i < n; i++) {
    const y = c.y[i];
    if (Number.isNaN(y) || (settings.log && y <= 0)) {
      lift();
      const at = X(c.x[i]);
      if (Number.isNaN(y) && at >= box.left && at <= box.right && (!crosses.length || at - crosses[crosses.length - 1] > 7)) crosses.push(at);
      continue;
    }
    mean = mean === undefined ? y : settings.smooth * mean + (1 - settings.smooth) * y;
    const px = X(c.x[i]), py = Y(settings.smooth > 0 ? mean : y);
    if (pen) g.lineTo(px, py); else g.moveTo(px, py);
    pen = true; run++; last = [px, py];
  }
  lift();
  g.stroke();
  g.fillStyle = ink;
  for (const [x, y] of dots) { g.beginPath(); g.arc(x, y, 2.5, 0, 7); g.fill(); } // a point between gaps
  g.lineWidth = 1.5;
  g.beginPath();
  for (const x of crosses) { const y = box.bottom - 6; g.moveTo(x - 3, y - 3); g.lineTo(x + 3, y + 3); g.moveTo(x - 3, y + 3); g.lineTo(x + 3, y - 3); }
  g.stroke();
  l.crosses = crosses.length;
}
