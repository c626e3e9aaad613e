// One chart: the series of one name of several runs on a canvas. Lines are means of neighbours, the band behind one is their least and
// most; the server thins long series out, so that a zoom asks for the part that is to be seen.
const settings = { axis: "step", smooth: 0, log: false, sync: true };

class Chart {
  constructor(tag, on) {
    this.tag = tag;
    this.on = on;                 // zoomed(chart, range), called for charts that zoom together
    this.lines = [];              // { run, series, curve }
    this.range = null;            // of x; null: all of it
    this.canvas = el("canvas", { role: "img", "aria-label": tag, tabindex: "0" });
    this.tip = el("div", { class: "tip", hidden: "" });
    this.bad = el("span", { class: "bad" });
    this.element = el("div", { class: "card" },
      el("h3", {}, el("span", { text: tag }), this.bad, el("span", { class: "space" }),
        ...["png", "svg", "csv"].map(kind => el("button", { class: "save", text: kind, title: `save ${tag} as ${kind.toUpperCase()}`, on: { click: () => exportChart(this, kind) } })),
        el("button", { text: "⤢", title: "large or small", "aria-label": `${tag}: large or small`, on: { click: () => { this.element.classList.toggle("wide"); this.draw(); this.load(); } } })),
      el("div", { class: "chart" }, this.canvas, this.tip));
    this.visible = false;
    this.stale = true;
    const c = this.canvas;
    c.addEventListener("pointerdown", e => this.press(e));
    c.addEventListener("pointermove", e => this.move(e));
    c.addEventListener("pointerup", e => this.release(e));
    c.addEventListener("pointerleave", () => { this.inside = false; this.hover = null; this.tip.hidden = true; this.draw(); });
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
    } catch (e) { console.warn(String(e)); }
    this.loading = false;
    this.draw();
    if (this.again) { this.again = false; this.load(); }
  }

  // What the chart says where it has no picture, else null.
  state() {
    if (this.lines.some(l => !l.curve) && (this.stale || this.loading)) return "loading";
    return this.bounds ? null : "no values here";
  }
  // All of it, with `g` a canvas's context or vector.js's.
  paint(g, w, h) {
    this.bounds = boundsOf(this.lines, this.range);
    const told = this.state();
    this.box = null;
    if (!this.bounds) {
      g.font = AXIS_FONT;
      g.fillStyle = cssColour("--soft");
      g.fillText(told, 60, h / 2);
      return;
    }
    const { box, X, Y } = drawAxes(g, this.bounds, w, h), { left, right, top, bottom } = box;
    this.box = box;
    g.save();
    g.beginPath(); g.rect(left, top, right - left, bottom - top); g.clip();
    for (const l of this.lines) drawLine(g, l, box, X, Y, this.lines.length > 12);
    if (this.drag !== undefined && this.dragTo !== undefined) {
      g.fillStyle = cssColour("--accent"); g.globalAlpha = 0.18;
      g.fillRect(Math.min(this.drag, this.dragTo), top, Math.abs(this.dragTo - this.drag), bottom - top);
      g.globalAlpha = 1;
    }
    if (this.hover) {             // at a step that was logged
      const x = X(this.hover.x);
      g.strokeStyle = cssColour("--soft"); g.lineWidth = 1; g.setLineDash([3, 3]); g.beginPath(); g.moveTo(x, top); g.lineTo(x, bottom); g.stroke(); g.setLineDash([]);
      for (const r of this.hover.rows) if (typeof r.y === "number" && (!settings.log || r.y > 0)) { g.fillStyle = colour(r.run); g.beginPath(); g.arc(X(r.x), Y(r.y), 3, 0, 7); g.fill(); }
    }
    g.restore();
    if (!this.bounds.some) { g.textAlign = "left"; g.textBaseline = "middle"; g.fillStyle = cssColour("--soft"); g.fillText(told || (settings.log ? "no value above 0" : "no finite values"), left + 8, (top + bottom) / 2); }
  }
  draw() {
    if (this.closed || this.canvas.clientWidth === 0) return;
    const c = this.canvas, ratio = window.devicePixelRatio || 1, w = c.clientWidth, h = c.clientHeight;
    if (c.width !== Math.round(w * ratio) || c.height !== Math.round(h * ratio)) { c.width = Math.round(w * ratio); c.height = Math.round(h * ratio); }
    const g = c.getContext("2d");
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.clearRect(0, 0, w, h);
    this.paint(g, w, h);
    const bad = this.lines.reduce((n, l) => n + l.series.n - l.series.finite, 0);
    this.bad.textContent = bad ? `${bad} not finite` : "";
    c.setAttribute("aria-label", `${this.tag}: ` + this.lines.slice(0, 8).map(l => `${l.run.name} ${number(l.series.last)} at step ${l.series.last_step}`).join(", ")
      + (this.lines.length > 8 ? `, and ${this.lines.length - 8} more` : ""));
  }

  at(px) { const b = this.box; return b.x0 + (px - b.left) / (b.right - b.left) * (b.x1 - b.x0); }
  press(e) { if (e.button === 0 && this.box) { this.drag = e.offsetX; this.dragTo = undefined; this.canvas.setPointerCapture(e.pointerId); } }
  move(e) {
    if (!this.box) return;
    this.inside = true;
    this.pointer = e;
    if (this.drag !== undefined) { this.dragTo = e.offsetX; this.draw(); }
    if (!this.frame) this.frame = requestAnimationFrame(async () => { try { await this.tell(this.pointer); } finally { this.frame = 0; } });
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

  // The values at the pointer: of real points only, which the server looks up, and of no run that had not begun or had ended there.
  async tell(e) {
    const leave = () => { this.hover = null; this.tip.hidden = true; };
    if (this.drag !== undefined || !this.box || !this.inside) return leave();
    const b = this.box, x = this.at(e.offsetX), reach = 6 * (b.x1 - b.x0) / (b.right - b.left), wall = settings.axis !== "step";
    const shift = l => settings.axis === "time" ? l.run.started : 0;
    const Y = y => b.bottom - ((settings.log ? Math.log10(y) : y) - b.y0) / (b.y1 - b.y0) * (b.bottom - b.top);
    const near = [];
    for (const l of this.lines) {
      const c = l.curve, s = l.series, from = (wall ? s.first_wall : s.first_step) - shift(l), to = (wall ? s.last_wall : s.last_step) - shift(l);
      if (!c || !c.x.length || x < from - reach || x > to + reach) continue;
      let lo = 0, hi = c.x.length - 1;
      while (lo < hi) { const mid = (lo + hi) >> 1; if (c.x[mid] < x) lo = mid + 1; else hi = mid; }
      near.push({ l, away: Number.isNaN(c.y[lo]) ? Infinity : Math.abs(Y(c.y[lo]) - e.offsetY) });
    }
    near.sort((p, q) => p.away - q.away);
    const shown = near.slice(0, 8), ask = this.asked = {};
    if (!shown.length) { leave(); return this.draw(); }
    let got;
    try {
      got = await loadNear(shown.map(n => n.l.series.id), shown.map(n => x + shift(n.l)), wall ? "wall" : "step");
    } catch (error) { console.warn(String(error)); return leave(); }
    if (this.asked !== ask || !this.inside || this.closed) return;
    const rows = [];
    shown.forEach(({ l }, i) => { const p = got[i]; if (p) rows.push({ run: l.run, step: p.step, x: wall ? p.wall - shift(l) : p.step, y: p.value }); });
    if (!rows.length) { leave(); return this.draw(); }
    const first = rows.reduce((a, r) => Math.abs(r.x - x) < Math.abs(a.x - x) ? r : a);
    this.hover = { x: first.x, rows };
    const head = settings.axis === "step" ? `step ${first.step}` : `step ${first.step}, ` + (settings.axis === "time" ? duration(first.x) : clock(first.x));
    this.tip.replaceChildren(el("b", { text: head }), ...rows.map(r => {
      const mark = el("i");
      mark.style.background = colour(r.run);
      return el("div", {}, mark, el("span", { text: r.run.name + (r.step === first.step ? "" : ` (step ${r.step})`) }), el("b", { text: number(r.y) }));
    }));
    if (near.length > 8) this.tip.append(el("div", { text: `and ${near.length - 8} more` }));
    this.tip.hidden = false;
    const right = e.offsetX > this.canvas.clientWidth / 2;
    this.tip.style.left = right ? "" : e.offsetX + 14 + "px";
    this.tip.style.right = right ? this.canvas.clientWidth - e.offsetX + 14 + "px" : "";
    this.tip.style.top = Math.min(e.offsetY, this.canvas.clientHeight - 60) + "px";
    this.draw();
  }
}
