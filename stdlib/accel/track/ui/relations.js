// The configuration against results: parallel coordinates, in which a drag along an axis keeps the runs of that range, and a scatter.
const SVG = "http://www.w3.org/2000/svg";
function svg(name, attributes, ...children) {
  const e = document.createElementNS(SVG, name);
  for (const [k, v] of Object.entries(attributes)) if (k === "on") for (const [event, f] of Object.entries(v)) e.addEventListener(event, f); else e.setAttribute(k, v);
  e.append(...children);
  return e;
}
// A scale of an axis from values to 0..1: numbers, on logarithms where they span three decades, or words in order.
function scaleOf(values) {
  const known = values.filter(v => v !== undefined && v !== null), numeric = known.length > 0 && known.every(v => typeof v === "number" && isFinite(v));
  if (!numeric) {
    const words = [...new Set(known.map(show))].sort((a, b) => compareValues(a, b));
    return { words, at: v => v === undefined || v === null ? null : words.length > 1 ? words.indexOf(show(v)) / (words.length - 1) : 0.5, marks: words.slice(0, 40).map((w, i) => [words.length > 1 ? i / (words.length - 1) : 0.5, w.length > 14 ? w.slice(0, 13) + "…" : w]) };
  }
  const low = Math.min(...known), high = Math.max(...known), log = low > 0 && high / low >= 100;
  const f = log ? Math.log10 : x => x, a = f(low), b = f(high) > a ? f(high) : a + 1;
  const list = high > low ? (log ? logTicks(a, b, 5) : ticks(low, high, 5).list) : [low], step = log || high <= low ? 0 : ticks(low, high, 5).step, texts = tickTexts(list, step);
  return { log, at: v => typeof v === "number" && isFinite(v) && (!log || v > 0) ? (f(v) - a) / (b - a) : null, marks: list.map((v, i) => [(f(v) - a) / (b - a), texts[i]]) };
}
const shade = t => t === null ? "hsl(0 0% 60%)" : `hsl(${(250 - 200 * t).toFixed(0)} 75% ${dark() ? 62 : 44}%)`;

views.relations = {
  metric: "", x: "", y: "", kept: new Map(), // of an axis: the range that runs must be in
  async render(into) {
    this.into = into;
    await data.loadLasts();
    if (current === "relations") this.draw();
  },
  refresh() { this.render($("view")); },
  redraw() { this.draw(); },
  select(title, names, value, set) {
    const s = el("select", { on: { change: e => { set(e.target.value); this.draw(); remember(); } } }, ...names.map(n => el("option", { value: n, text: column(n).title })));
    s.value = value;
    return el("label", {}, title + " ", s);
  },
  draw() {
    const runs = data.shown(), keys = differing(runs).map(k => "c:" + k), metrics = tagsOf(runs).flatMap(t => ["m:" + t, "min:" + t, "max:" + t]);
    if (runs.length < 2 || !metrics.length) return this.into.replaceChildren(nothing("show two or more runs with values"));
    const usual = metrics.find(m => /^m:.*loss/.test(m)) || metrics[0];
    if (!metrics.includes(this.metric)) this.metric = usual;
    const all = [...keys, ...metrics, "step", "time"];
    if (!all.includes(this.x)) this.x = keys[0] || "time";
    if (!all.includes(this.y)) this.y = this.metric;
    this.into.replaceChildren(el("div", { class: "row wrap" }, this.select("metric", metrics, this.metric, v => { this.metric = v; }),
      el("button", { text: "SVG", title: "save the picture", on: { click: () => save("parallel.svg", new Blob([new XMLSerializer().serializeToString(this.into.querySelector("svg"))], { type: "image/svg+xml" })) } }),
      el("button", { text: "all runs", title: "no ranges", on: { click: () => { this.kept.clear(); this.draw(); } } })),
    el("h2", { text: "Parallel coordinates" }), this.parallel(runs, [...keys.slice(0, 12), this.metric]),
    el("h2", { text: "Scatter" }), el("div", { class: "row wrap" }, this.select("x", all, this.x, v => { this.x = v; }), this.select("y", all, this.y, v => { this.y = v; })), this.scatter(runs));
  },
  passes(r, axes) { return axes.every(a => { const range = this.kept.get(a.name), t = range && a.scale.at(a.value(r)); return !range || (t !== null && t >= range[0] && t <= range[1]); }); },
  parallel(runs, names) {
    const w = Math.max(320, Math.min(1600, this.into.clientWidth - 30)), h = 330, top = 34, bottom = h - 16, left = 40, right = w - 90;
    const axes = names.map((name, i) => { const c = column(name); return { ...c, scale: scaleOf(runs.map(c.value)), x: names.length > 1 ? left + i * (right - left) / (names.length - 1) : (left + right) / 2 }; });
    const last = axes[axes.length - 1], Y = t => bottom - t * (bottom - top), ink = cssColour("--soft"), lines = svg("g", { fill: "none" }), front = svg("g", {});
    const put = () => {
      const kept = runs.filter(r => this.passes(r, axes));
      lines.replaceChildren(...[...runs.filter(r => !kept.includes(r)), ...kept].map(r => {
        const points = axes.map(a => [a.x, a.scale.at(a.value(r))]).filter(p => p[1] !== null), on = kept.includes(r);
        return svg("polyline", { points: points.map(([x, t]) => `${x.toFixed(1)},${Y(t).toFixed(1)}`).join(" "), stroke: on ? shade(last.scale.at(last.value(r))) : cssColour("--line"), "stroke-width": on ? 1.8 : 1, class: on ? "run" : "", "data-uid": r.uid,
          on: { click: () => openRun(r) } }, svg("title", {}, `${r.name}: ` + axes.map(a => `${a.title} ${a.text(a.value(r))}`).join(", ")));
      }));
      this.shownRuns = kept.map(r => r.uid);
    };
    for (const a of axes) {
      front.append(svg("line", { x1: a.x, x2: a.x, y1: top, y2: bottom, stroke: ink }), svg("text", { x: a.x, y: 14, "text-anchor": "middle", fill: cssColour("--text"), "font-weight": "600" }, a.title + (a.scale.log ? " (log)" : "")),
        ...a.scale.marks.map(([t, s]) => svg("text", { x: a.x + 6, y: Y(t) + 4, fill: ink }, s)));
      const range = this.kept.get(a.name), brush = svg("rect", { x: a.x - 7, width: 14, y: range ? Y(range[1]) : 0, height: range ? Y(range[0]) - Y(range[1]) : 0, fill: cssColour("--accent"), "fill-opacity": 0.25 });
      const area = svg("rect", { x: a.x - 12, y: top - 6, width: 24, height: bottom - top + 12, fill: "transparent", class: "brush" });
      let from = null;
      const at = e => Math.max(0, Math.min(1, (bottom - (e.clientY - area.getBoundingClientRect().top + top - 6)) / (bottom - top)));
      area.addEventListener("pointerdown", e => { from = at(e); area.setPointerCapture(e.pointerId); });
      area.addEventListener("pointermove", e => { if (from === null) return; const to = at(e), r = [Math.min(from, to), Math.max(from, to)]; this.kept.set(a.name, r); brush.setAttribute("y", Y(r[1])); brush.setAttribute("height", Y(r[0]) - Y(r[1])); put(); });
      area.addEventListener("pointerup", e => { if (from !== null && Math.abs(at(e) - from) < 0.02) { this.kept.delete(a.name); brush.setAttribute("height", 0); put(); } from = null; });
      front.append(brush, area);
    }
    put();
    return el("div", { class: "scroll" }, svg("svg", { xmlns: SVG, width: w, height: h, viewBox: `0 0 ${w} ${h}`, "font-size": 11, "font-family": "DejaVu Sans, sans-serif", role: "img", "aria-label": `${runs.length} runs over ${axes.map(a => a.title).join(", ")}; the Table has the same values` }, lines, front));
  },
  scatter(runs) {
    const w = Math.max(320, Math.min(900, this.into.clientWidth - 30)), h = 340, left = 64, right = w - 14, top = 10, bottom = h - 40;
    const cx = column(this.x), cy = column(this.y), sx = scaleOf(runs.map(cx.value)), sy = scaleOf(runs.map(cy.value)), ink = cssColour("--soft"), line = cssColour("--line");
    const X = t => left + 8 + t * (right - left - 16), Y = t => bottom - 8 - t * (bottom - top - 16);
    const dots = runs.map(r => [r, sx.at(cx.value(r)), sy.at(cy.value(r))]).filter(d => d[1] !== null && d[2] !== null);
    return el("div", { class: "scroll" }, svg("svg", { xmlns: SVG, width: w, height: h, viewBox: `0 0 ${w} ${h}`, "font-size": 11, "font-family": "DejaVu Sans, sans-serif", role: "img", "aria-label": `${cy.title} against ${cx.title} of ${dots.length} runs` },
      ...sx.marks.flatMap(([t, s]) => [svg("line", { x1: X(t), x2: X(t), y1: top, y2: bottom, stroke: line }), svg("text", { x: X(t), y: bottom + 14, "text-anchor": "middle", fill: ink }, s)]),
      ...sy.marks.flatMap(([t, s]) => [svg("line", { x1: left, x2: right, y1: Y(t), y2: Y(t), stroke: line }), svg("text", { x: left - 6, y: Y(t) + 4, "text-anchor": "end", fill: ink }, s)]),
      svg("text", { x: (left + right) / 2, y: h - 6, "text-anchor": "middle", fill: cssColour("--text") }, cx.title + (sx.log ? " (log)" : "")),
      ...dots.map(([r, a, b]) => svg("circle", { cx: X(a).toFixed(1), cy: Y(b).toFixed(1), r: 4.5, fill: colour(r), class: "run", on: { click: () => openRun(r) } }, svg("title", {}, `${r.name}: ${cx.title} ${cx.text(cx.value(r))}, ${cy.title} ${cy.text(cy.value(r))}`)))));
  },
};
