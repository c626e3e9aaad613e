// One chart: the series of one name of several runs on a canvas. Lines are means of neighbours, the band behind one is their least and
// most; the server thins long series out, so that a zoom asks for the part that is to be seen.
const settings = { axis: "step", smooth: 0, log: false, sync: true };

function ticks(from, to, n) {
  const span = to - from;
  if (!(span > 0)) return [from];
  const raw = span / Math.max(1, n), unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(k => k * unit).find(s => s >= raw);
  const out = [];
  for (let v = Math.ceil(from / step) * step; v <= to + step * 1e-9; v += step) out.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return out;
}

class Chart {
  constructor(tag, on) {
    this.tag = tag;
    this.on = on;                 // zoomed(chart, range), called for charts that zoom together
    this.lines = [];              // { run, series, curve }
    this.range = null;            // of x; null: all of it
    this.canvas = el("canvas", { role: "img", "aria-label": tag, tabindex: "0" });
    this.tip = el("div", { class: "tip", hidden: "" });
    this.element = el("div", { class: "card" },
      el("h3", {}, el("span", { text: tag }), el("span", { class: "space" }),
        el("button", { text: "⤢", title: "large or small", on: { click: () => { this.element.classList.toggle("wide"); this.draw(); this.load(); } } })),
      el("div", { class: "chart" }, this.canvas, this.tip));
    this.visible = false;
    this.stale = true;
    const c = this.canvas;
    c.addEventListener("pointerdown", e => this.press(e));
    c.addEventListener("pointermove", e => this.move(e));
    c.addEventListener("pointerup", e => this.release(e));
    c.addEventListener("pointerleave", () => { this.hover = null; this.tip.hidden = true; if (this.drag === undefined) this.draw(); });
    c.addEventListener("dblclick", () => this.zoom(null));
    c.addEventListener("wheel", e => this.wheel(e), { passive: false });
    c.addEventListener("keydown", e => this.key(e));
    this.observer = new IntersectionObserver(list => {
      this.visible = list[list.length - 1].isIntersecting;
      if (this.visible && this.stale) this.load();
    }, { rootMargin: "200px" });
    this.observer.observe(this.element);
    this.sizes = new ResizeObserver(() => this.draw());
    this.sizes.observe(c);
  }
  close() { this.observer.disconnect(); this.sizes.disconnect(); this.closed = true; }

  setSeries(list) {               // { run, series } of chosen runs
    const kept = new Map(this.lines.map(l => [l.series.id, l.curve]));
    this.lines = list.map(l => ({ ...l, curve: kept.get(l.series.id) }));
    this.touch();
  }
  touch() { this.stale = true; if (this.visible) this.load(); }

  async load() {
    if (this.loading) { this.again = true; return; }
    this.loading = true;
    this.stale = false;
    try {
      const wall = settings.axis !== "step", ids = this.lines.map(l => l.series.id);
      const points = Math.max(100, Math.min(1500, Math.round(this.canvas.clientWidth / (ids.length > 30 ? 2 : 1))));
      const groups = new Map();   // time since start shifts each run's range
      for (const l of this.lines) {
        const shift = settings.axis === "time" ? l.run.started : 0, key = this.range ? shift : 0;
        if (!groups.has(key)) groups.set(key, []);
        groups.get(key).push(l);
      }
      const started = performance.now();
      await Promise.all([...groups].map(async ([shift, lines]) => {
        const [from, to] = this.range ? [this.range[0] + shift, this.range[1] + shift] : [-Infinity, Infinity];
        const got = await loadCurves(lines.map(l => l.series.id), wall ? "wall" : "step", from, to, points);
        for (const l of lines) {
          l.curve = got.get(l.series.id);
          if (settings.axis === "time" && l.curve) l.curve.x = l.curve.x.map(x => x - l.run.started);
        }
      }));
      this.took = performance.now() - started;
      this.draw();
    } catch (e) { console.warn(String(e)); }
    this.loading = false;
    if (this.again) { this.again = false; this.load(); }
  }

  bounds() {
    let x0 = Infinity, x1 = -Infinity, y0 = Infinity, y1 = -Infinity;
    const [from, to] = this.range || [-Infinity, Infinity], means = settings.smooth > 0 || settings.log || this.lines.length > 12;
    for (const l of this.lines) {
      const c = l.curve;
      if (!c) continue;
      for (let i = 0; i < c.x.length; i++) {
        const x = c.x[i];
        if (x < from || x > to || Number.isNaN(c.y[i])) continue;
        if (x < x0) x0 = x;
        if (x > x1) x1 = x;
        const low = means ? c.y[i] : c.min[i], high = means ? c.y[i] : c.max[i];
        if (settings.log && low <= 0) continue;
        if (low < y0) y0 = low;
        if (high > y1) y1 = high;
      }
    }
    if (this.range) [x0, x1] = this.range;
    if (!(x1 >= x0)) return null;
    if (!(y1 >= y0)) [y0, y1] = settings.log ? [1, 10] : [0, 1];
    if (settings.log) [y0, y1] = [Math.log10(y0), Math.log10(y1)];
    if (x0 === x1) { x0 -= 0.5; x1 += 0.5; }
    const pad = y1 > y0 ? (y1 - y0) * 0.05 : Math.abs(y0) * 0.1 || 0.5;
    return { x0, x1, y0: y0 - pad, y1: y1 + pad };
  }

  label(x, span) {
    if (settings.axis === "step") return Math.abs(x) >= 1e4 ? number(x / 1000) + "k" : number(x);
    if (settings.axis === "time") return duration(x);
    const d = new Date(x * 1000);
    return span > 2 * 86400 ? d.toLocaleDateString() : d.toLocaleTimeString();
  }

  draw() {
    if (this.closed || this.canvas.clientWidth === 0) return;
    const c = this.canvas, ratio = window.devicePixelRatio || 1, w = c.clientWidth, h = c.clientHeight;
    if (c.width !== Math.round(w * ratio) || c.height !== Math.round(h * ratio)) { c.width = Math.round(w * ratio); c.height = Math.round(h * ratio); }
    const g = c.getContext("2d"), style = getComputedStyle(document.documentElement);
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, w, h);
    g.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    const b = this.bounds();
    this.box = b && { ...b, left: 56, right: w - 8, top: 6, bottom: h - 20 };
    const soft = style.getPropertyValue("--soft"), line = style.getPropertyValue("--line");
    if (!b) {
      g.fillStyle = soft;
      g.fillText(this.stale || this.loading ? "loading" : "no values here", 60, h / 2);
      return;
    }
    const { left, right, top, bottom } = this.box;
    const X = x => left + (x - b.x0) / (b.x1 - b.x0) * (right - left);
    const Y = y => bottom - ((settings.log ? Math.log10(y) : y) - b.y0) / (b.y1 - b.y0) * (bottom - top);
    g.strokeStyle = line; g.fillStyle = soft; g.lineWidth = 1; g.textAlign = "right"; g.textBaseline = "middle";
    g.beginPath();
    for (const t of ticks(b.y0, b.y1, (bottom - top) / 36)) {
      const y = Math.round(bottom - (t - b.y0) / (b.y1 - b.y0) * (bottom - top)) + 0.5;
      g.moveTo(left, y); g.lineTo(right, y);
      g.fillText(number(settings.log ? Number((10 ** t).toPrecision(3)) : Number(t.toPrecision(10))), left - 6, y);
    }
    g.textAlign = "center"; g.textBaseline = "top";
    for (const t of ticks(b.x0, b.x1, (right - left) / 90)) {
      const x = Math.round(X(t)) + 0.5;
      if (x < left || x > right) continue;
      g.moveTo(x, top); g.lineTo(x, bottom);
      g.fillText(this.label(t, b.x1 - b.x0), Math.min(Math.max(x, left + 14), right - 14), bottom + 5);
    }
    g.stroke();
    g.save();
    g.beginPath(); g.rect(left, top, right - left, bottom - top); g.clip();
    for (const l of this.lines) this.drawLine(g, l, X, Y);
    if (this.drag !== undefined && this.dragTo !== undefined) {
      g.fillStyle = style.getPropertyValue("--accent"); g.globalAlpha = 0.18;
      g.fillRect(Math.min(this.drag, this.dragTo), top, Math.abs(this.dragTo - this.drag), bottom - top);
      g.globalAlpha = 1;
    }
    if (this.hover !== undefined && this.hover !== null) {
      g.strokeStyle = soft; g.setLineDash([3, 3]); g.beginPath(); g.moveTo(this.hover, top); g.lineTo(this.hover, bottom); g.stroke();
    }
    g.restore();
  }

  drawLine(g, l, X, Y) {
    const c = l.curve;
    if (!c || !c.x.length) return;
    const n = c.x.length, many = this.lines.length > 12;
    let spread = false;
    for (let i = 0; i < n && !spread; i++) spread = c.max[i] > c.min[i];
    if (spread && !many) {        // what the means hide
      g.fillStyle = colour(l.run, 0.16);
      g.beginPath();
      let open = false;
      for (let i = 0; i < n; i++) if (!Number.isNaN(c.y[i])) { if (open) g.lineTo(X(c.x[i]), Y(Math.max(c.max[i], settings.log ? 1e-300 : -Infinity))); else g.moveTo(X(c.x[i]), Y(c.max[i])); open = true; }
      for (let i = n - 1; i >= 0; i--) if (!Number.isNaN(c.y[i])) g.lineTo(X(c.x[i]), Y(settings.log ? Math.max(c.min[i], 1e-300) : c.min[i]));
      g.fill();
    }
    g.strokeStyle = colour(l.run);
    g.lineWidth = many ? 1 : 1.5;
    g.beginPath();
    let mean, pen = false, drawn = 0, last;
    l.smooth = settings.smooth > 0 ? new Float64Array(n) : c.y;
    for (let i = 0; i < n; i++) {
      const y = c.y[i];
      if (Number.isNaN(y) || (settings.log && y <= 0)) { pen = false; if (settings.smooth > 0) l.smooth[i] = NaN; continue; }
      mean = mean === undefined ? y : settings.smooth * mean + (1 - settings.smooth) * y;
      const v = settings.smooth > 0 ? mean : y, px = X(c.x[i]), py = Y(v);
      if (settings.smooth > 0) l.smooth[i] = v;
      if (pen) g.lineTo(px, py); else g.moveTo(px, py);
      pen = true; drawn++; last = [px, py];
    }
    g.stroke();
    if (drawn === 1) { g.fillStyle = colour(l.run); g.beginPath(); g.arc(last[0], last[1], 3, 0, 7); g.fill(); }
  }

  at(px) { const b = this.box; return b.x0 + (px - b.left) / (b.right - b.left) * (b.x1 - b.x0); }
  press(e) { if (e.button === 0 && this.box) { this.drag = e.offsetX; this.dragTo = undefined; this.canvas.setPointerCapture(e.pointerId); } }
  move(e) {
    if (!this.box) return;
    this.hover = e.offsetX;
    if (this.drag !== undefined) this.dragTo = e.offsetX;
    if (!this.frame) this.frame = requestAnimationFrame(() => { this.frame = 0; this.draw(); this.tell(e); });
  }
  release() {
    const from = this.drag, to = this.dragTo;
    this.drag = this.dragTo = undefined;
    if (from !== undefined && to !== undefined && Math.abs(to - from) > 4) this.zoom([this.at(Math.min(from, to)), this.at(Math.max(from, to))]);
    else this.draw();
  }
  wheel(e) {
    if (!e.shiftKey || !this.box) return;
    e.preventDefault();
    const x = this.at(e.offsetX), k = (e.deltaY || e.deltaX) < 0 ? 0.8 : 1.25, b = this.box;
    this.zoom([x - (x - b.x0) * k, x + (b.x1 - x) * k]);
  }
  key(e) {
    if (!this.box) return;
    const { x0, x1 } = this.box, w = x1 - x0, moves = { ArrowLeft: [-0.2, -0.2], ArrowRight: [0.2, 0.2], ArrowUp: [0.2, -0.2], ArrowDown: [-0.35, 0.35] };
    const m = moves[e.key];
    if (!m) return;
    e.preventDefault();
    this.zoom([x0 + m[0] * w, x1 + m[1] * w]);
  }
  zoom(range) {
    if (range && !(range[1] > range[0])) return;
    if (settings.sync) this.on.zoomed(range); else this.setRange(range);
  }
  setRange(range) {
    this.range = range;
    this.draw();                  // at once with what is there, then with more
    this.touch();
  }

  tell(e) {                       // the values at the pointer
    if (this.drag !== undefined || !this.box || this.hover === null) { this.tip.hidden = true; return; }
    const x = this.at(e.offsetX), rows = [];
    let near = null;
    for (const l of this.lines) {
      const c = l.curve;
      if (!c || !c.x.length) continue;
      let lo = 0, hi = c.x.length - 1;
      while (lo < hi) { const mid = (lo + hi) >> 1; if (c.x[mid] < x) lo = mid + 1; else hi = mid; }
      if (lo > 0 && Math.abs(c.x[lo - 1] - x) < Math.abs(c.x[lo] - x)) lo--;
      if (near === null || Math.abs(c.x[lo] - x) < Math.abs(near - x)) near = c.x[lo];
      rows.push({ run: l.run, y: (l.smooth || c.y)[lo], x: c.x[lo] });
    }
    const b = this.box, Y = y => b.bottom - ((settings.log ? Math.log10(y) : y) - b.y0) / (b.y1 - b.y0) * (b.bottom - b.top);
    rows.sort((p, q) => Math.abs(Y(p.y) - e.offsetY) - Math.abs(Y(q.y) - e.offsetY));
    if (!rows.length) { this.tip.hidden = true; return; }
    this.tip.replaceChildren(el("b", { text: (settings.axis === "step" ? "step " : "") + this.label(near, b.x1 - b.x0) }),
      ...rows.slice(0, 8).map(r => {
        const mark = el("i");
        mark.style.background = colour(r.run);
        return el("div", {}, mark, el("span", { text: r.run.name }), el("b", { text: number(r.y) }));
      }));
    if (rows.length > 8) this.tip.append(el("div", { text: `and ${rows.length - 8} more` }));
    this.tip.hidden = false;
    const right = e.offsetX > this.canvas.clientWidth / 2;
    this.tip.style.left = right ? "" : e.offsetX + 14 + "px";
    this.tip.style.right = right ? this.canvas.clientWidth - e.offsetX + 14 + "px" : "";
    this.tip.style.top = Math.min(e.offsetY, this.canvas.clientHeight - 60) + "px";
  }
}
