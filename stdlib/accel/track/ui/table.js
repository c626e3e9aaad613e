// The table of runs: columns of choice, sorted by a click on a heading, filtered by the field on the left, in groups.
const columns = {                 // by name: title, value of a run (to sort by), and its text
  status: ["status", r => r.sweep && r.sweep.state ? r.sweep.state : r.status], group: ["group", r => r.group], tags: ["tags", r => (r.tags || []).join(", ")],
  notes: ["notes", r => r.notes], project: ["project", r => r.project], started: ["started", r => r.started, clock],
  time: ["time", r => (r.ended || r.heartbeat) - r.started, duration], step: ["step", r => r.last_step], host: ["host", r => r.host],
};
// A column by its name: "c:lr" of the configuration, "m:loss" the last value of a series, "min:loss" its least, "max:loss" its most.
function column(name) {
  if (columns[name]) { const [title, value, text] = columns[name]; return { name, title, value, text: text || show }; }
  const [, kind, key] = /^(\w+):(.*)$/.exec(name) || [null, "c", name];
  if (kind === "c") return { name, title: key, value: r => r.config[key], text: show };
  const field = kind === "m" ? "last" : kind;
  return { name, title: kind === "m" ? key : `${kind} ${key}`, value: r => { const s = data.lasts.get(r.id)?.get(key); return s && s[field]; }, text: number };
}
function differing(runs) {        // keys of the configuration whose values are not all the same
  const keys = new Set();
  for (const r of runs) for (const k of Object.keys(r.config)) keys.add(k);
  return [...keys].filter(k => runs.some(r => show(r.config[k]) !== show(runs[0].config[k]))).sort();
}
function tagsOf(runs) {
  const tags = new Set();
  for (const r of runs) for (const t of data.lasts.get(r.id)?.keys() || []) tags.add(t);
  return [...tags].sort();
}
const compareValues = (a, b) => {
  const none = x => x === undefined || x === null || x === "" || Number.isNaN(x);
  if (none(a) || none(b)) return none(a) - none(b);
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true });
};
function sorted(runs, by) {
  if (!by) return runs;
  const c = column(by.replace(/^-/, "")), down = by[0] === "-";
  const none = x => x === undefined || x === null || x === "";
  return [...runs].sort((p, q) => {
    const a = c.value(p), b = c.value(q);
    return none(a) || none(b) ? none(a) - none(b) : (down ? -1 : 1) * compareValues(a, b); // runs without a value come last
  });
}

views.table = {
  cols: null, sort: "", by: "",
  chosen() {                      // columns: of choice, or what tells the runs apart
    if (this.cols) return this.cols;
    const some = f => filtered.some(r => f(r));
    return ["status", ...(some(r => r.group) ? ["group"] : []), ...(some(r => (r.tags || []).length) ? ["tags"] : []), "time", "step",
      ...differing(filtered).slice(0, 8).map(k => "c:" + k), ...tagsOf(filtered).slice(0, 6).map(t => "m:" + t)];
  },
  setSort(name) { this.sort = this.sort === name ? "-" + name : this.sort === "-" + name ? "" : name; this.draw(); remember(); },
  async render(into) {
    this.into = into;
    await data.loadLasts();
    if (current === "table") this.draw();
  },
  refresh() { this.render($("view")); },
  redraw() { this.draw(); },
  rows() { return sorted(filtered, this.sort); },
  csv() {
    const cols = this.chosen().map(column);
    return csv([["id", "name", ...cols.map(c => c.title)], ...this.rows().map(r => [r.uid, r.name, ...cols.map(c => { const v = c.value(r); return typeof v === "object" && v ? JSON.stringify(v) : v; })])]);
  },
  draw() {
    const names = this.chosen(), cols = names.map(column), open = this.into.querySelector("details")?.open;
    const head = c => {
      const state = this.sort === c.name ? "ascending" : this.sort === "-" + c.name ? "descending" : "none";
      return el("th", { "aria-sort": state, scope: "col" }, el("button", { text: c.title + { ascending: " ▲", descending: " ▼", none: "" }[state], on: { click: () => { this.setSort(c.name); [...this.into.querySelectorAll("th button")].find(b => b.dataset.name === c.name)?.focus(); } }, "data-name": c.name }));
    };
    const row = r => {
      const box = el("input", { type: "checkbox", "aria-label": "show " + r.name, on: { change: () => toggle(r) } }), name = el("button", { class: "link", text: r.name, on: { click: () => openRun(r) } });
      box.checked = data.chosen.has(r.id);
      box.style.accentColor = colour(r);
      return el("tr", {}, el("td", {}, box), el("td", {}, name), ...cols.map(c => { const v = c.value(r); return el("td", { text: v === undefined || v === null || v === "" ? "–" : c.text(v) }); }));
    };
    const list = this.rows(), body = [];
    if (this.by) {
      const c = column(this.by);
      for (const [value, runs] of [...groupBy(list, r => show(c.value(r)))].sort(([a], [b]) => compareValues(a, b))) {
        body.push(el("tr", { class: "groups" }, el("td"), el("th", { scope: "rowgroup", text: `${c.title} ${value} (${runs.length})` }), ...cols.map(k => {
          const xs = runs.map(r => k.value(r)).filter(x => typeof x === "number" && isFinite(x));
          return el("td", { text: xs.length === runs.length && k.name !== "started" ? "mean " + k.text(xs.reduce((a, b) => a + b, 0) / xs.length) : "" });
        })), ...runs.map(row));
      }
    } else body.push(...list.map(row));
    const pick = name => {
      const box = el("input", { type: "checkbox", on: { change: e => { this.cols = e.target.checked ? [...names, name] : names.filter(n => n !== name); this.draw(); remember(); } } });
      box.checked = names.includes(name);
      return el("label", {}, box, " " + column(name).title);
    };
    const keys = new Set();
    for (const r of filtered) for (const k of Object.keys(r.config)) keys.add(k);
    const tags = tagsOf(filtered), details = el("details", {}, el("summary", { text: "Columns" }), el("div", { class: "picks" }, ...Object.keys(columns).map(pick)),
      el("h3", { text: "Configuration" }), el("div", { class: "picks" }, ...[...keys].sort().map(k => pick("c:" + k))),
      el("h3", { text: "Series: last, least, most" }), el("div", { class: "picks" }, ...tags.flatMap(t => ["m:", "min:", "max:"].map(k => pick(k + t)))),
      el("button", { text: "the usual columns", on: { click: () => { this.cols = null; this.draw(); remember(); } } }));
    details.open = Boolean(open);
    const by = el("select", { "aria-label": "group by", on: { change: e => { this.by = e.target.value; this.draw(); remember(); } } },
      ...["", "group", "status", "project", "host", ...[...keys].sort().map(k => "c:" + k)].map(n => el("option", { value: n, text: n ? column(n).title : "no groups" })));
    by.value = this.by;
    this.into.replaceChildren(el("div", { class: "row wrap" }, el("label", {}, "group by ", by), el("button", { text: "CSV", title: "save the table", on: { click: () => save("runs.csv", new Blob([this.csv()], { type: "text/csv" })) } })), details,
      filtered.length ? el("div", { class: "scroll" }, el("table", { class: "data runs" }, el("thead", {}, el("tr", {}, el("th", { scope: "col", text: "show" }), head({ name: "name", title: "name" }), ...cols.map(head))), el("tbody", {}, ...body)))
        : nothing("no run passes the filter"));
  },
};
columns.name = ["name", r => r.name];
