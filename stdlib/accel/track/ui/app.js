// Runs on the left, tabs, keyboard, and what the server says has changed.
const tabs = [["curves", "Curves"], ["table", "Table"], ["run", "Run"], ["config", "Compare"], ["relations", "Relations"], ["images", "Images"], ["text", "Texts"], ["tables", "Tables"], ["system", "System"]];
let current = "curves", cursor = 0, filtered = [];

function choose(name) {
  current = name;
  for (const b of $("tabs").children) { const on = b.dataset.name === name; b.setAttribute("aria-selected", String(on)); b.tabIndex = on ? 0 : -1; if (on) $("view").setAttribute("aria-labelledby", b.id); }
  $("tools").hidden = name !== "curves" && name !== "system";
  $("tools").style.display = $("tools").hidden ? "none" : "";
  $("view").dataset.view = name;
  render();
  remember();
}
function render() {
  const into = $("view");
  into.dataset.view = current;
  for (const [name, view] of Object.entries(views)) if (name !== current && view.close) view.close();
  into.replaceChildren();
  views[current].render(into);
}

function drawRuns() {
  const match = matcher($("runfilter").value);
  filtered = data.runs.filter(match);
  cursor = Math.min(cursor, Math.max(0, filtered.length - 1));
  $("runcount").textContent = `${filtered.length === data.runs.length ? "" : filtered.length + " of "}${data.runs.length} run${data.runs.length === 1 ? "" : "s"}, ${data.chosen.size} shown`;
  $("fold").textContent = `Runs (${data.chosen.size} of ${data.runs.length} shown)`;
  $("runs").replaceChildren(...filtered.map((r, i) => {
    const on = data.chosen.has(r.id), swatch = el("span", { class: "swatch" });
    swatch.style.borderColor = colour(r);
    swatch.style.background = on ? colour(r) : "transparent";
    const item = el("li", { class: (on ? "" : "off ") + (i === cursor ? "at" : ""), role: "option", id: "run-" + r.id, "aria-selected": String(on),
      title: `${r.project} / ${r.name}\n${r.uid}\n${clock(r.started)}`, on: { click: e => { cursor = i; toggle(r, e.altKey || e.ctrlKey || e.metaKey); } } },
      swatch, el("span", { class: "name", text: r.name }), el("span", { class: "status " + r.status, text: r.status === "finished" ? duration((r.ended || r.heartbeat) - r.started) : r.status }));
    return item;
  }));
  if (filtered[cursor]) $("runs").setAttribute("aria-activedescendant", "run-" + filtered[cursor].id); else $("runs").removeAttribute("aria-activedescendant");
}
async function toggle(run, alone) {
  if (alone) { data.chosen.clear(); data.chosen.add(run.id); }
  else if (!data.chosen.delete(run.id)) data.chosen.add(run.id);
  await chosenChanged();
}
async function chosenChanged() {
  data.remember();
  remember();
  drawRuns();
  await data.loadSeries();
  if (views[current].refresh) views[current].refresh(); else render();
}
async function allOrNone() {
  const all = filtered.every(r => data.chosen.has(r.id));
  for (const r of filtered) if (all) data.chosen.delete(r.id); else data.chosen.add(r.id);
  await chosenChanged();
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  try { localStorage.setItem("accel-theme", theme); } catch { /* a browser that keeps nothing */ }
  drawRuns();
  if (views[current].redraw) views[current].redraw(); else render();
}
function setAxis(axis) {
  remember();
  settings.axis = $("axis").value = axis;
  for (const v of [views.curves, views.system]) v.reload();
}
function setSmooth(w) {
  remember();
  settings.smooth = Math.max(0, Math.min(0.99, w));
  $("smooth").value = settings.smooth;
  $("smoothed").textContent = settings.smooth.toFixed(2).replace(/\.?0+$/, "");
  if (views[current].redraw) views[current].redraw();
}
function setLog(on) {
  remember();
  settings.log = $("log").checked = on;
  if (views[current].redraw) views[current].redraw();
}

// ---- the address: it keeps the view, so that a copy of it or a reload shows the same ----
let remembering = 0;
function state() {
  const out = new URLSearchParams(), put = (key, value, usual) => { if (value !== usual) out.set(key, value); }, range = views.curves.range;
  put("view", current, "curves");
  put("filter", $("runfilter").value, "");
  put("series", $("tagfilter").value, "");
  put("axis", settings.axis, "step");
  put("smooth", String(settings.smooth), "0");
  put("log", settings.log ? "1" : "", "");
  if (range) put("range", range.join(","), "");
  if (current === "run" && views.run.uid) out.set("run", views.run.uid);
  const shown = data.shown().map(r => r.uid);
  put("runs", shown.length === data.runs.length ? "all" : shown.length <= 100 ? shown.join(",") : "", "");
  const t = views.table, r = views.relations;
  put("sort", t.sort, ""); put("by", t.by, ""); put("cols", t.cols ? t.cols.map(encodeURIComponent).join(",") : "", "");
  put("metric", r.metric, ""); put("x", r.x, ""); put("y", r.y, "");
  return out.toString();
}
function remember() {
  if (remembering) return;
  remembering = setTimeout(() => { remembering = 0; if (ready) history.replaceState(null, "", location.pathname + location.search + "#" + state()); }, 150);
}
let ready = false;
async function restore() {        // the address into the page
  const at = new URLSearchParams(location.hash.slice(1)), get = (key, usual) => at.get(key) ?? usual;
  $("runfilter").value = get("filter", "");
  $("tagfilter").value = get("series", "");
  settings.axis = $("axis").value = ["step", "time", "wall"].includes(get("axis")) ? get("axis") : "step";
  settings.smooth = Math.max(0, Math.min(0.99, Number(get("smooth", 0)) || 0));
  $("smooth").value = settings.smooth;
  $("smoothed").textContent = String(settings.smooth);
  settings.log = $("log").checked = get("log") === "1";
  const range = get("range", "").split(",").map(Number);
  views.curves.range = range.length === 2 && range[1] > range[0] ? range : null;
  Object.assign(views.table, { sort: get("sort", ""), by: get("by", ""), cols: get("cols") ? get("cols").split(",").map(decodeURIComponent) : null });
  Object.assign(views.relations, { metric: get("metric", ""), x: get("x", ""), y: get("y", "") });
  views.run.uid = get("run", views.run.uid);
  const runs = get("runs"), list = runs && new Set(runs.split(","));
  if (!ready) await data.loadRuns(runs === "all" ? () => true : list ? r => list.has(r.uid) : $("runfilter").value ? matcher($("runfilter").value) : null);
  else if (list) data.chosen = new Set(data.runs.filter(r => runs === "all" || list.has(r.uid)).map(r => r.id));
  drawRuns();
  await data.loadSeries();
  const view = get("view", "curves");
  choose(views[view] ? view : "curves");
}

// ---- keyboard ----
const keys = [
  ["/", "filter runs", () => $("runfilter").focus()], ["m", "filter series", () => $("tagfilter").focus()],
  ["ArrowDown", "", () => keys.find(k => k[0] === "j")[2](), "runs"], ["ArrowUp", "", () => keys.find(k => k[0] === "k")[2](), "runs"], ["j", "next run", () => { cursor = Math.min(cursor + 1, filtered.length - 1); drawRuns(); $("runs").children[cursor]?.scrollIntoView({ block: "nearest" }); }],
  ["k", "run before", () => { cursor = Math.max(cursor - 1, 0); drawRuns(); $("runs").children[cursor]?.scrollIntoView({ block: "nearest" }); }],
  [" ", "show or hide it", () => filtered[cursor] && toggle(filtered[cursor])], ["o", "show it alone", () => filtered[cursor] && toggle(filtered[cursor], true)],
  ["a", "all or none", allOrNone], ["Enter", "the page of this run", () => filtered[cursor] && openRun(filtered[cursor])], ["x", "another x axis", () => setAxis({ step: "time", time: "wall", wall: "step" }[settings.axis])],
  ["l", "logarithms", () => setLog(!settings.log)], ["s", "smoother", () => setSmooth(settings.smooth < 0.9 ? settings.smooth + 0.1 : settings.smooth + 0.02)],
  ["S", "less smooth", () => setSmooth(settings.smooth > 0.9 ? settings.smooth - 0.02 : settings.smooth - 0.1)],
  ["r", "whole range", () => resetZoom()], ["t", "dark or light", () => setTheme(dark() ? "light" : "dark")], ["?", "this list", () => $("keys").showModal()],
];
function resetZoom() { for (const v of [views.curves, views.system]) v.zoomed(null); }

document.addEventListener("keydown", e => {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName) && e.target.type !== "checkbox" && e.target.type !== "range";
  if (e.key === "Escape") { if (typing) e.target.blur(); else resetZoom(); return; }
  if (typing || e.ctrlKey || e.metaKey || e.altKey || $("keys").open) return;
  if (e.target.tagName === "BUTTON" && (e.key === " " || e.key === "Enter")) return;
  const tab = Number(e.key);
  if (tab >= 1 && tab <= tabs.length) { e.preventDefault(); choose(tabs[tab - 1][0]); return; }
  if (e.key === "Enter" && e.target.id !== "runs" && e.target !== document.body) return;
  const found = keys.find(k => k[0] === e.key && (!k[3] || e.target.id === k[3]));
  if (found) { e.preventDefault(); found[2](); }
});

// ---- live ----
let grown = new Set(), due = 0;
function later() {                // at most so often that drawing keeps up
  if (due) return;
  const busy = Math.max(0, ...[...views[current].charts?.values() || []].map(c => c.took || 0));
  due = setTimeout(async () => {
    due = 0;
    const ids = grown;
    grown = new Set();
    if (!views[current].grown) return;
    if (data.series.some(s => ids.has(s.id))) views[current].grown(ids);
  }, Math.min(2000, 50 + 3 * busy));
}
let structure = 0;
function renew() {                // runs or series have come
  if (structure) return;
  structure = setTimeout(async () => {
    structure = 0;
    try {
      await data.loadRuns();
      await data.loadSeries();
      drawRuns();
      if (views[current].refresh) views[current].refresh(); else render();
    } catch (e) { console.warn(String(e)); }
  }, 100);
}
function connect() {
  const source = new EventSource("/api/events?token=" + encodeURIComponent(token));
  const say = (text, name) => { $("live").textContent = text; $("live").className = "live " + name; };
  source.addEventListener("open", () => { say("live", "on"); if (connect.lost) renew(); connect.lost = false; });
  source.addEventListener("error", () => { connect.lost = true; say("disconnected", "off"); });
  source.addEventListener("change", e => {
    let unknown = false;
    const mine = new Map(data.series.map(s => [s.id, s]));
    for (const [id, run, n] of JSON.parse(e.data).series) {
      grown.add(id);
      const s = mine.get(id);
      if (s) s.n = n; else if (data.chosen.has(run) || !data.byId.has(run)) unknown = true;
    }
    if (unknown) renew(); else later();
  });
  source.addEventListener("runs", renew);
}

async function begin() {
  let theme = null;
  try { theme = localStorage.getItem("accel-theme"); } catch { theme = null; }
  document.documentElement.dataset.theme = theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  tabs.forEach(([name, title], i) => $("tabs").append(el("button", { role: "tab", id: "tab-" + name, "aria-controls": "view", "data-name": name, text: title, title: `key ${i + 1}`, on: { click: () => choose(name) } })));
  $("keylist").append(...keys.filter(k => k[1]).map(([key, what]) => el("tr", {}, el("td", {}, el("kbd", { text: key === " " ? "space" : key })), el("td", { text: what }))),
    el("tr", {}, el("td", {}, el("kbd", { text: "1" }), " – ", el("kbd", { text: String(tabs.length) })), el("td", { text: "views" })),
    el("tr", {}, el("td", {}, el("kbd", { text: "Esc" })), el("td", { text: "whole range; leave a field" })),
    el("tr", {}, el("td", {}, el("kbd", { text: "← → ↑ ↓" })), el("td", { text: "in a chart: move, zoom" })));
  $("help").onclick = () => $("keys").showModal();
  $("fold").onclick = () => $("fold").setAttribute("aria-expanded", String($("fold").getAttribute("aria-expanded") !== "true"));
  $("theme").onclick = () => setTheme(dark() ? "light" : "dark");
  $("all").onclick = allOrNone;
  $("reset").onclick = resetZoom;
  $("runfilter").oninput = () => { drawRuns(); remember(); if (current === "table") views.table.draw(); };
  $("tagfilter").oninput = () => { remember(); if (views[current].refresh) views[current].refresh(); };
  $("tabs").onkeydown = e => {      // as tabs are used: arrows, Home, End
    const i = tabs.findIndex(t => t[0] === current), n = tabs.length, to = { ArrowRight: (i + 1) % n, ArrowLeft: (i + n - 1) % n, Home: 0, End: n - 1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    choose(tabs[to][0]);
    $("tabs").children[to].focus();
  };
  $("axis").onchange = e => setAxis(e.target.value);
  $("smooth").oninput = e => setSmooth(Number(e.target.value));
  $("log").onchange = e => setLog(e.target.checked);
  $("sync").onchange = e => { settings.sync = e.target.checked; };
  await restore();
  ready = true;
  document.title = "accel: " + data.store;
  addEventListener("hashchange", () => restore());
  connect();
}
begin().catch(e => { $("view").textContent = "This page could not be filled: " + e.message; });
