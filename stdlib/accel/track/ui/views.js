// The views: each has render(into), and refresh() where what it shows may grow.
const views = {};
const byStep = (a, b) => a.tag < b.tag ? -1 : a.tag > b.tag ? 1 : a.step - b.step;
const swatch = run => { const mark = el("i", { class: "mark" }); mark.style.background = colour(run); return mark; }; // a run's colour beside its name
const nothing = text => el("p", { class: "empty", text });

// ---- curves ----
class Curves {
  constructor(system) { this.system = system; this.charts = new Map(); }
  zoomed(range) {
    this.range = range;
    remember();
    for (const c of this.charts.values()) c.setRange(range);
  }
  render(into) {
    this.into = into;
    for (const c of this.charts.values()) c.close();
    this.charts.clear();
    into.replaceChildren();
    this.refresh();
  }
  tags() {
    let filter = null;
    try { filter = new RegExp($("tagfilter").value, "i"); } catch { filter = null; }
    const out = new Map();
    for (const s of data.series) {
      if (s.tag.startsWith("system/") !== this.system || (filter && !filter.test(s.tag))) continue;
      if (!out.has(s.tag)) out.set(s.tag, []);
      out.get(s.tag).push({ run: data.byId.get(s.run), series: s });
    }
    return new Map([...out].sort(([a], [b]) => a < b ? -1 : 1));
  }
  refresh() {
    const tags = this.tags(), groups = new Map();
    for (const [tag, c] of this.charts) if (!tags.has(tag)) { c.close(); this.charts.delete(tag); }
    for (const tag of tags.keys()) {
      const group = tag.includes("/") ? tag.slice(0, tag.indexOf("/")) : "";
      if (!groups.has(group)) groups.set(group, []);
      groups.get(group).push(tag);
    }
    const key = JSON.stringify([...groups]);
    if (key !== this.key || !this.into.firstChild) {
      this.key = key;
      const sections = [];
      for (const [group, list] of groups) {
        const grid = el("div", { class: "grid" });
        for (const tag of list) {
          if (!this.charts.has(tag)) {
            const chart = new Chart(tag, this);
            chart.range = this.range || null;
            this.charts.set(tag, chart);
          }
          grid.append(this.charts.get(tag).element);
        }
        sections.push(el("h2", { text: group || "values", class: groups.size > 1 || group ? "" : "unseen" }));
        sections.push(grid);
      }
      this.into.replaceChildren(...(sections.length ? sections : [nothing(data.chosen.size ? "no series of this name" : "choose a run on the left")]));
    }
    for (const [tag, list] of tags) this.charts.get(tag).setSeries(list.filter(l => l.run));
  }
  grown(ids) {                    // series that have new values
    for (const c of this.charts.values()) {
      const end = c.range ? c.range[1] : Infinity;
      if (c.lines.some(l => ids.has(l.series.id) && (settings.axis !== "step" || !(l.series.last_step > end)))) c.touch();
    }
  }
  close() { for (const c of this.charts.values()) c.close(); this.charts.clear(); this.key = null; }
  redraw() { for (const c of this.charts.values()) c.draw(); }
  reload() { this.range = null; for (const c of this.charts.values()) { c.range = null; for (const l of c.lines) l.curve = undefined; c.touch(); } }
}
views.curves = new Curves(false);
views.system = new Curves(true);

// ---- configuration side by side ----
const show = v => v === undefined ? "–" : typeof v === "object" ? JSON.stringify(v) : typeof v === "number" ? String(Number(v.toPrecision(12))) : String(v);

function compare(rows, runs, only) { // rows: Map of key to values by run
  const body = [];
  for (const [key, of] of rows) {
    const texts = runs.map(r => show(of(r))), differs = runs.length > 1 && texts.some(t => t !== texts[0]);
    if (only && !differs) continue;
    const counts = new Map(); // marked: what is not as in most runs, of equals the first
    for (const t of texts) counts.set(t, (counts.get(t) || 0) + 1);
    const usual = texts.reduce((a, t) => counts.get(t) > counts.get(a) ? t : a, texts[0]);
    body.push(el("tr", {}, el("td", { text: key }), ...texts.map((t, i) => el("td", { text: t + (of.note ? of.note(runs[i]) : ""), class: t === usual ? "" : "differs" }))));
  }
  return body;
}
views.config = {
  only: true, grid: null,
  close() { if (this.grid) this.grid.close(); this.grid = null; },
  get charts() { return this.grid ? this.grid.charts : new Map(); },
  grown(ids) { for (const c of this.charts.values()) if (c.lines.some(l => ids.has(l.series.id))) c.touch(); },
  redraw() { this.render($("view")); },
  render(into) {
    const runs = data.shown().slice(0, 20), keys = new Set(), last = new Map();
    for (const r of runs) for (const k of Object.keys(r.config)) keys.add(k);
    for (const s of data.series) {
      if (s.tag.startsWith("system/")) continue;
      if (!last.has(s.tag)) last.set(s.tag, new Map());
      last.get(s.tag).set(s.run, s.last);
    }
    const config = new Map([...keys].sort().map(k => [k, r => r.config[k]]));
    const env = r => r.environment || {}, git = r => env(r).git || {};
    const around = new Map([["status", r => r.status], ["group", r => r.group], ["tags", r => (r.tags || []).join(", ") || undefined], ["notes", r => r.notes], ["started", r => clock(r.started)], ["time", r => duration((r.ended || r.heartbeat) - r.started)],
      ["revision", r => git(r).revision && git(r).revision.slice(0, 12)], ["branch", r => git(r).branch], ["files differ", r => git(r).dirty],
      ["host", r => r.host], ["ranks", r => env(r).num_processes], ["command", r => (env(r).command || []).join(" ")],
      ["folder", r => env(r).directory], ["accel", r => env(r).accel], ["exit status", r => r.exit_code], ["message", r => r.message || undefined]]);
    const change = (of, r) => {   // of the second of two runs against the first
      const p = of.get(runs[0].id), q = of.get(r.id);
      return runs.length === 2 && r === runs[1] && p && q !== p && q !== null && q !== undefined ? ` (${q >= p ? "+" : ""}${(100 * (q - p) / Math.abs(p)).toFixed(1)} %)` : "";
    };
    const values = new Map([...last].sort(([a], [b]) => a < b ? -1 : 1).map(([tag, of]) => [tag, Object.assign(r => number(of.get(r.id)), { note: r => change(of, r) })]));
    const head = title => el("tr", {}, el("th", { text: title }), ...runs.map(r => el("th", {}, swatch(r), r.name)));
    const box = el("input", { type: "checkbox", on: { change: e => { this.only = e.target.checked; this.render(into); } } });
    box.checked = this.only;
    const parts = [["Configuration", config], ["Surroundings", around], ["Last values", values]].flatMap(([title, rows]) => {
      const body = compare(rows, runs, this.only && runs.length > 1);
      return body.length ? [head(title), ...body] : [];
    });
    into.replaceChildren(el("label", {}, box, " only what differs"), runs.length
      ? el("div", { class: "scroll" }, el("table", { class: "data" }, ...parts)) : nothing("choose a run on the left"));
    this.close();
    if (runs.length === 2) {      // their common curves
      const [a, b] = runs.map(r => new Map(data.series.filter(s => s.run === r.id && !s.tag.startsWith("system/")).map(s => [s.tag, s])));
      this.grid = chartGrid([...a.keys()].filter(t => b.has(t)).sort().map(t => [t, [{ run: runs[0], series: a.get(t) }, { run: runs[1], series: b.get(t) }]]));
      if (this.grid.charts.size) into.append(el("h2", { text: "Curves of both" }), this.grid.element);
    }
    if (data.shown().length > 20) into.append(el("p", { class: "small", text: "the first 20 of the chosen runs" }));
  },
};

// ---- what is not a number ----
async function records(kind) {
  const out = [];
  for (const run of data.shown().slice(0, 30)) {
    for (const r of (await ask(`/api/records?run=${run.id}&kind=${kind}`)).records) out.push({ ...r, run });
  }
  return out.sort(byStep);
}
const heading = r => el("span", { class: "small" }, swatch(r.run), `${r.run.name}, step ${r.step}`);
function listing(kinds, draw, empty) {
  return {
    async render(into) {
      const lists = await Promise.all(kinds.map(records));
      const all = lists.flat();
      if (into.dataset.view !== $("view").dataset.view) return;
      into.replaceChildren(...(all.length ? draw(all) : [nothing(empty)]));
    },
    renew: true,
  };
}
const groupBy = (list, key) => {
  const out = new Map();
  for (const x of list) { const k = key(x); if (!out.has(k)) out.set(k, []); out.get(k).push(x); }
  return out;
};

views.images = listing(["image"], all => [...groupBy(all, r => r.tag)].flatMap(([tag, list]) => {
  const steps = [...new Set(list.map(r => r.step))].sort((a, b) => a - b), box = el("div", { class: "pictures" });
  const told = el("output", {}), slider = el("input", { type: "range", min: 0, max: steps.length - 1, value: steps.length - 1, "aria-label": "step of " + tag });
  const put = () => {
    const step = steps[slider.value];
    told.textContent = "step " + step;
    box.replaceChildren(...list.filter(r => r.step === step).map(r => el("figure", {}, el("img", { src: imageURL(r.id), alt: `${tag}, step ${r.step}`, loading: "lazy" }),
      el("figcaption", {}, heading(r), r.meta.caption ? ` ${r.meta.caption}` : ""))));
  };
  slider.addEventListener("input", put);
  put();
  return [el("h2", { text: tag }), ...(steps.length > 1 ? [el("div", { class: "row" }, slider, told)] : []), box];
}), "no images");

views.text = listing(["text", "alert"], all => [el("h2", { class: "unseen", text: "Texts and alerts" }), ...all.map(r => el("div", { class: "card" }, el("h3", { class: r.meta.level ? "alert-" + r.meta.level : "" , text: r.tag }), heading(r),
  el("pre", { text: r.data || "" })))], "no texts");

function histogram(r) {
  const { limits, counts } = JSON.parse(r.data), w = 320, h = 110, most = Math.max(1, ...counts);
  const c = el("canvas", { width: w * 2, height: h * 2, role: "img", "aria-label": r.tag }), g = c.getContext("2d");
  c.style.width = "100%";
  g.scale(2, 2);
  g.fillStyle = colour(r.run, 0.8);
  const x0 = limits[0], x1 = limits[limits.length - 1], X = x => x1 > x0 ? (x - x0) / (x1 - x0) * w : w / 2;
  for (let i = 1; i < counts.length; i++) {
    const bar = counts[i] / most * (h - 16);
    g.fillRect(X(limits[i - 1]), h - 14 - bar, Math.max(1, X(limits[i]) - X(limits[i - 1]) - 0.5), bar);
  }
  g.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--soft");
  g.font = "10px sans-serif";
  g.fillText(number(x0), 0, h - 2);
  g.textAlign = "right";
  g.fillText(number(x1), w, h - 2);
  return c;
}
function dataTable(r) {
  const t = JSON.parse(r.data);
  return el("div", { class: "scroll" }, el("table", { class: "data" }, el("tr", {}, ...t.columns.map(c => el("th", { text: c }))),
    ...t.rows.slice(0, 500).map(row => el("tr", {}, ...row.map(x => el("td", { text: show(x) }))))));
}
views.tables = listing(["histogram", "table", "artifact"], all => {
  const of = groupBy(all, r => r.data && r.data.startsWith('{"columns"') ? "Tables" : r.meta.path ? "Artifacts" : "Histograms");
  return [...of].flatMap(([title, list]) => [el("h2", { text: title }), title === "Artifacts"
    ? el("table", { class: "data" }, ...list.map(r => el("tr", {}, el("td", { text: r.tag }), el("td", { text: r.meta.path }), el("td", { text: r.meta.bytes === undefined ? "" : r.meta.bytes + " bytes" }), el("td", { text: r.run.name }))))
    : el("div", { class: "grid" }, ...list.slice(-200).map(r => el("div", { class: "card" }, el("h3", { text: r.tag }), heading(r), title === "Tables" ? dataTable(r) : histogram(r))))]);
}, "no tables, histograms or artifacts");
