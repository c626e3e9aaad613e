// What the page knows of the store, and how it asks for more. Everything comes from the server that the page came from.
const token = new URLSearchParams(location.search).get("token") || "";

async function ask(path, kind) {
  const answer = await fetch(path, { headers: { Authorization: "Bearer " + token }, cache: "no-store" });
  if (!answer.ok) throw new Error(path + ": " + answer.status);
  return kind === "bytes" ? answer.arrayBuffer() : answer.json();
}

const imageURL = id => "/api/image?id=" + id + "&token=" + encodeURIComponent(token);

const data = {
  runs: [], byId: new Map(), chosen: new Set(), series: [], // of chosen runs
  async loadRuns(wanted) {        // wanted: of an address with a filter
    const got = await ask("/api/runs");
    const known = new Set(this.byId.keys());
    this.runs = got.runs;
    this.store = got.store;
    this.byId = new Map(got.runs.map(r => [r.id, r]));
    for (const id of [...this.chosen]) if (!this.byId.has(id)) this.chosen.delete(id);
    if (known.size === 0) { // a first look: what was chosen before, else the last ten
      const kept = new Set(JSON.parse(sessionStorage.getItem("chosen") || "[]"));
      const list = wanted ? this.runs.filter(wanted).slice(0, 200) : kept.size ? this.runs.filter(r => kept.has(r.uid)) : this.runs.slice(0, 10);
      for (const r of list) this.chosen.add(r.id);
    } else for (const r of this.runs) if (!known.has(r.id)) this.chosen.add(r.id);
    this.remember();
  },
  remember() { sessionStorage.setItem("chosen", JSON.stringify(this.shown().map(r => r.uid))); },
  shown() { return this.runs.filter(r => this.chosen.has(r.id)); },
  lasts: new Map(),               // of all runs: series by name, without the machine's
  async loadLasts() {
    const lasts = new Map(this.runs.map(r => [r.id, new Map()]));
    for (const s of (await ask("/api/series?runs=all")).series) lasts.get(s.run)?.set(s.tag, s);
    this.lasts = lasts;
  },
  async loadSeries() {
    const ids = this.shown().map(r => r.id);
    this.series = ids.length ? (await ask("/api/series?runs=" + ids.join(","))).series : [];
  },
};

// Curves of many series in one answer: Map of series id to { x, y, min, max }.
async function loadCurves(ids, axis, from, to, points) {
  const query = new URLSearchParams({ ids: ids.join(","), axis, points, format: "f64" });
  if (isFinite(from)) query.set("from", from);
  if (isFinite(to)) query.set("to", to);
  const all = new Float64Array(await ask("/api/curves?" + query, "bytes"));
  const out = new Map();
  for (let at = 0; at < all.length;) {
    const id = all[at], n = all[at + 1];
    const c = { x: new Float64Array(n), y: new Float64Array(n), min: new Float64Array(n), max: new Float64Array(n) };
    for (let i = 0, p = at + 2; i < n; i++, p += 4) {
      c.x[i] = all[p]; c.y[i] = all[p + 1]; c.min[i] = all[p + 2]; c.max[i] = all[p + 3];
    }
    out.set(id, c);
    at += 2 + 4 * n;
  }
  return out;
}

// The real point of each series nearest to a place of the axis: [{ step, wall, value }], null where there is none.
async function loadNear(ids, at, axis) {
  const got = await ask("/api/near?" + new URLSearchParams({ ids: ids.join(","), at: at.join(","), axis }));
  return got.points.map(p => p.step === undefined ? null : { ...p, value: typeof p.value === "string" ? Number(p.value) : p.value });
}

// Colours far from each other, whatever their number; the order of runs by id keeps them.
const dark = () => document.documentElement.dataset.theme === "dark";
function colour(run, alpha) {
  const hue = (run.id * 137.508) % 360;
  const light = dark() ? 64 : 40 + (run.id % 3) * 4;
  return `hsl(${hue.toFixed(0)} ${dark() ? 68 : 72}% ${light}% / ${alpha === undefined ? 1 : alpha})`;
}

// Elements without markup: what runs logged is text, never code.
function el(name, attributes, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "on") for (const [event, f] of Object.entries(value)) e.addEventListener(event, f);
    else if (key === "text") e.textContent = value;
    else if (key === "class") e.className = value;
    else e.setAttribute(key, value);
  }
  e.append(...children);
  return e;
}
const $ = id => document.getElementById(id);

// "name lr>0.01 status=running": words are in name, project, state or id; comparisons are of configuration and state.
function matcher(text) {
  const tests = text.trim().split(/\s+/).filter(Boolean).map(word => {
    const m = /^([\w./-]+)(>=|<=|!=|=|>|<)(.*)$/.exec(word);
    if (!m) {
      const low = word.toLowerCase();
      return r => [r.name, r.project, r.status, r.uid, r.group || "", ...(r.tags || [])].some(s => String(s).toLowerCase().includes(low));
    }
    const [, key, op, want] = m;
    return r => {
      if (key === "tag") { const has = r.tags.includes(want); return op === "!=" ? !has : has; }
      let have = key in r.config ? r.config[key] : r[key];
      if (have === undefined) {
        const full = Object.keys(r.config).find(k => k.endsWith("/" + key));
        have = full && r.config[full];
      }
      if (have === undefined) return op === "!=";
      const a = Number(have), b = Number(want), numeric = want !== "" && !Number.isNaN(a) && !Number.isNaN(b);
      switch (op) {
        case "=": return numeric ? a === b : String(have) === want;
        case "!=": return numeric ? a !== b : String(have) !== want;
        case ">": return numeric && a > b;
        case "<": return numeric && a < b;
        case ">=": return numeric && a >= b;
        default: return numeric && a <= b;
      }
    };
  });
  return r => tests.every(t => t(r));
}
