// A page for one run: what people noted, configuration, where it came from, values, the machine, alerts, files, the order of events.
async function annotate(run, key, value) {
  const answer = await fetch("/api/annotate", { method: "POST", headers: { Authorization: "Bearer " + token, "Content-Type": "application/json" }, body: JSON.stringify({ run: run.id, key, value }) });
  if (!answer.ok) throw new Error(await answer.text());
  run[key] = value;
  drawRuns();
}
function openRun(run) { views.run.uid = run.uid; choose("run"); $("view").focus(); }

// Charts that zoom together, in a grid.
function chartGrid(list) {
  const charts = list.map(([tag, lines]) => { const c = new Chart(tag, { zoomed: range => { for (const each of charts) each.setRange(range); } }); c.setSeries(lines); return c; });
  return { charts: new Map(charts.map(c => [c.tag, c])), element: el("div", { class: "grid" }, ...charts.map(c => c.element)), close() { for (const c of charts) c.close(); } };
}
const pairs = rows => el("div", { class: "scroll" }, el("table", { class: "data" }, ...rows.filter(([, v]) => v !== undefined && v !== null && v !== "").map(([k, v]) => el("tr", {}, el("th", { scope: "row", text: k }), el("td", {}, v instanceof Node ? v : show(v))))));

views.run = {
  uid: null, grid: null,
  run() { return data.runs.find(r => r.uid === this.uid) || filtered[cursor] || data.runs[0]; },
  close() { if (this.grid) this.grid.close(); this.grid = null; },
  get charts() { return this.grid ? this.grid.charts : new Map(); },
  grown(ids) { for (const c of this.charts.values()) if (c.lines.some(l => ids.has(l.series.id))) c.touch(); },
  redraw() { for (const c of this.charts.values()) c.draw(); },
  editor(r) {
    const said = el("span", { class: "small", role: "status" });
    const keep = async (key, value) => { try { await annotate(r, key, value); said.textContent = "saved"; } catch (e) { said.textContent = "not saved: " + e.message; } };
    const field = (title, key, value, read) => { const input = el(key === "notes" ? "textarea" : "input", { id: "note-" + key, spellcheck: "false", on: { change: e => keep(key, read(e.target.value)) } }); input.value = value; return el("label", { class: "field" }, title, input); };
    return el("div", { class: "card editor" }, field("Group", "group", r.group || "", s => s.trim()),
      field("Tags, with commas between them", "tags", (r.tags || []).join(", "), s => s.split(",").map(t => t.trim()).filter(Boolean)), field("Notes", "notes", r.notes || "", s => s), said);
  },
  async render(into) {
    const r = this.run();
    if (!r) return into.replaceChildren(nothing("there is no run"));
    this.uid = r.uid;
    if (into.contains(document.activeElement) && document.activeElement.id.startsWith("note-")) return; // someone is writing
    const [series, alerts, files, texts] = await Promise.all([ask("/api/series?runs=" + r.id), ...["alert", "artifact", "text"].map(k => ask(`/api/records?run=${r.id}&kind=${k}`))]);
    if (current !== "run" || this.run() !== r) return;
    this.close();
    const env = r.environment || {}, git = env.git || {}, all = series.series.sort((a, b) => a.tag < b.tag ? -1 : 1), line = s => [s.tag, [{ run: r, series: s }]];
    this.grid = chartGrid(all.filter(s => s.tag.startsWith("system/")).map(line));
    const pick = el("select", { "aria-label": "run", on: { change: e => { this.uid = e.target.value; this.render(into); remember(); } } }, ...data.runs.map(x => el("option", { value: x.uid, text: x.name })));
    pick.value = r.uid;
    const events = [[r.started, "began"], ...alerts.records.map(a => [a.wall, `${a.meta.level || "alert"}: ${a.tag} (step ${a.step})`]), ...files.records.map(f => [f.wall, "file " + f.tag]),
      [r.ended || r.heartbeat, r.ended ? r.status + (r.message ? ": " + r.message : "") : "last sign of life"]].sort((a, b) => a[0] - b[0]);
    const values = all.filter(s => !s.tag.startsWith("system/"));
    const state = el("span", { class: "status " + r.status, text: r.status + (r.exit_code ? `, exit status ${r.exit_code}` : "") });
    into.replaceChildren(el("div", { class: "row wrap" }, el("h2", { text: r.name }), state, el("span", { class: "space" }), pick), this.editor(r),
      el("h2", { text: "Configuration" }), Object.keys(r.config).length ? pairs(Object.keys(r.config).sort().map(k => [k, r.config[k]])) : nothing("no configuration was logged"),
      el("h2", { text: "Values" }), values.length ? el("div", { class: "scroll" }, el("table", { class: "data" }, el("thead", {}, el("tr", {}, ...["series", "last", "least", "most", "step", "points", "not finite"].map(t => el("th", { scope: "col", text: t })))),
        el("tbody", {}, ...values.map(s => el("tr", {}, el("th", { scope: "row", text: s.tag }), ...[s.last, s.min, s.max, s.last_step, s.n, s.n - s.finite].map(x => el("td", { text: number(x) }))))))) : nothing("no values"),
      el("h2", { text: "Origin" }), pairs([["id", r.uid], ["project", r.project], ["sweep", r.sweep && `${r.sweep.sweep}, trial ${r.sweep.trial}`], ["command", (env.command || []).join(" ")], ["folder", env.directory], ["git revision", git.revision],
        ["branch", git.branch], ["files differ from it", git.dirty], ["host", `${r.host}, process ${r.pid}`], ["ranks", env.num_processes], ["threads", env.threads], ["processors", env.cpus], ["instruction set", env.isa],
        ["memory", env.memory && bytesText(env.memory)], ["accel", env.accel], ["Lua", env.lua], ...Object.entries(env.variables || {}).sort().map(([k, v]) => [k, v])]),
      el("h2", { text: "Events" }), pairs(events.map(([t, what]) => [clock(t), what])),
      ...(alerts.records.length ? [el("h2", { text: "Alerts" }), ...alerts.records.map(a => el("div", { class: "card" }, el("h3", { class: "alert-" + a.meta.level, text: `${a.tag}, step ${a.step}` }), el("pre", { text: a.data || "" })))] : []),
      ...(files.records.length ? [el("h2", { text: "Files" }), pairs(files.records.map(f => [f.tag, f.meta.path + (f.meta.bytes === undefined ? "" : ", " + bytesText(f.meta.bytes))]))] : []),
      ...(texts.records.length ? [el("h2", { text: "Texts" }), pairs(texts.records.slice(-20).map(t => [`${t.tag}, step ${t.step}`, t.data]))] : []),
      ...(this.grid.charts.size ? [el("h2", { text: "Machine" }), this.grid.element] : []));
  },
};
