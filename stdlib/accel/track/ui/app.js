// Runs on the left, tabs, keyboard, and what the server says has changed.
const tabs = [["curves", "Curves"], ["config", "Compare"], ["images", "Images"], ["text", "Texts"], ["tables", "Tables"], ["system", "System"]];
let current = "curves", cursor = 0, filtered = [];

function choose(name) {
  current = name;
  for (const b of $("tabs").children) b.setAttribute("aria-selected", String(b.dataset.name === name));
  $("tools").hidden = name !== "curves" && name !== "system";
  $("tools").style.display = $("tools").hidden ? "none" : "";
  $("view").dataset.view = name;
  render();
}
function render() {
  const into = $("view");
  into.dataset.view = current;
  for (const name of ["curves", "system"]) if (name !== current) { for (const c of views[name].charts.values()) c.close(); views[name].charts.clear(); views[name].key = null; }
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
    const item = el("li", { class: (on ? "" : "off ") + (i === cursor ? "at" : ""), role: "checkbox", "aria-checked": String(on),
      title: `${r.project} / ${r.name}\n${r.uid}\n${clock(r.started)}`, on: { click: e => { cursor = i; toggle(r, e.altKey || e.ctrlKey || e.metaKey); } } },
      swatch, el("span", { class: "name", text: r.name }), el("span", { class: "status " + r.status, text: r.status === "finished" ? duration((r.ended || r.heartbeat) - r.started) : r.status }));
    return item;
  }));
}
async function toggle(run, alone) {
  if (alone) { data.chosen.clear(); data.chosen.add(run.id); }
  else if (!data.chosen.delete(run.id)) data.chosen.add(run.id);
  await chosenChanged();
}
async function chosenChanged() {
  data.remember();
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
  settings.axis = $("axis").value = axis;
  for (const v of [views.curves, views.system]) v.reload();
}
function setSmooth(w) {
  settings.smooth = Math.max(0, Math.min(0.99, w));
  $("smooth").value = settings.smooth;
  $("smoothed").textContent = settings.smooth.toFixed(2).replace(/\.?0+$/, "");
  if (views[current].redraw) views[current].redraw();
}
function setLog(on) {
  settings.log = $("log").checked = on;
  if (views[current].redraw) views[current].redraw();
}

// ---- keyboard ----
const keys = [
  ["/", "filter runs", () => $("runfilter").focus()], ["m", "filter series", () => $("tagfilter").focus()],
  ["j", "next run", () => { cursor = Math.min(cursor + 1, filtered.length - 1); drawRuns(); $("runs").children[cursor]?.scrollIntoView({ block: "nearest" }); }],
  ["k", "run before", () => { cursor = Math.max(cursor - 1, 0); drawRuns(); $("runs").children[cursor]?.scrollIntoView({ block: "nearest" }); }],
  [" ", "show or hide it", () => filtered[cursor] && toggle(filtered[cursor])], ["o", "show it alone", () => filtered[cursor] && toggle(filtered[cursor], true)],
  ["a", "all or none", allOrNone], ["x", "another x axis", () => setAxis({ step: "time", time: "wall", wall: "step" }[settings.axis])],
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
  const found = keys.find(k => k[0] === e.key);
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
  tabs.forEach(([name, title], i) => $("tabs").append(el("button", { role: "tab", "data-name": name, text: title, title: `key ${i + 1}`, on: { click: () => choose(name) } })));
  $("keylist").append(...keys.map(([key, what]) => el("tr", {}, el("td", {}, el("kbd", { text: key === " " ? "space" : key })), el("td", { text: what }))),
    el("tr", {}, el("td", {}, el("kbd", { text: "1" }), " – ", el("kbd", { text: String(tabs.length) })), el("td", { text: "views" })),
    el("tr", {}, el("td", {}, el("kbd", { text: "Esc" })), el("td", { text: "whole range; leave a field" })),
    el("tr", {}, el("td", {}, el("kbd", { text: "← → ↑ ↓" })), el("td", { text: "in a chart: move, zoom" })));
  $("help").onclick = () => $("keys").showModal();
  $("fold").onclick = () => $("fold").setAttribute("aria-expanded", String($("fold").getAttribute("aria-expanded") !== "true"));
  $("theme").onclick = () => setTheme(dark() ? "light" : "dark");
  $("all").onclick = allOrNone;
  $("reset").onclick = resetZoom;
  $("runfilter").oninput = drawRuns;
  $("tagfilter").oninput = () => views[current].refresh && views[current].refresh();
  $("axis").onchange = e => setAxis(e.target.value);
  $("smooth").oninput = e => setSmooth(Number(e.target.value));
  $("log").onchange = e => setLog(e.target.checked);
  $("sync").onchange = e => { settings.sync = e.target.checked; };
  $("runfilter").value = new URLSearchParams(location.hash.slice(1)).get("filter") || "";
  await data.loadRuns($("runfilter").value && matcher($("runfilter").value));
  document.title = "accel: " + data.store;
  drawRuns();
  await data.loadSeries();
  choose("curves");
  connect();
}
begin().catch(e => { $("view").textContent = "This page could not be filled: " + e.message; });
