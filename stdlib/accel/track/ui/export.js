// What leaves the page as a file: PNG, SVG and CSV. A chart's SVG comes from the same calls that draw its canvas.
class Vector {                    // a canvas's context that makes SVG
  constructor(w, h) {
    this.w = w; this.h = h; this.parts = []; this.path = ""; this.dash = []; this.clips = 0; this.depth = [0];
    this.globalAlpha = 1; this.measure = document.createElement("canvas").getContext("2d");
  }
  static text(s) { return String(s).replace(/[&<>"]/g, c => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" }[c])); }
  beginPath() { this.path = ""; this.shape = null; }
  moveTo(x, y) { this.path += `M${x.toFixed(2)} ${y.toFixed(2)}`; }
  lineTo(x, y) { this.path += `L${x.toFixed(2)} ${y.toFixed(2)}`; }
  rect(x, y, w, h) { this.path += `M${x} ${y}h${w}v${h}h${-w}z`; }
  arc(x, y, r) { this.path += `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`; }
  stroke() { if (this.path) this.parts.push(`<path d="${this.path}" fill="none" stroke="${this.strokeStyle}" stroke-width="${this.lineWidth}"${this.dash.length ? ` stroke-dasharray="${this.dash}"` : ""}/>`); }
  fill() { if (this.path) this.parts.push(`<path d="${this.path}" fill="${this.fillStyle}" fill-opacity="${this.globalAlpha}"/>`); }
  fillRect(x, y, w, h) { this.parts.push(`<rect x="${x}" y="${y}" width="${w}" height="${h}" fill="${this.fillStyle}" fill-opacity="${this.globalAlpha}"/>`); }
  setLineDash(list) { this.dash = list; }
  save() { this.depth.push(0); }
  clip() { const id = "c" + ++this.clips; this.parts.push(`<clipPath id="${id}"><path d="${this.path}"/></clipPath><g clip-path="url(#${id})">`); this.depth[this.depth.length - 1]++; }
  restore() { for (let n = this.depth.pop(); n > 0; n--) this.parts.push("</g>"); }
  measureText(s) { this.measure.font = this.font; return this.measure.measureText(s); }
  fillText(s, x, y) {
    const anchor = { right: "end", center: "middle" }[this.textAlign] || "start", down = { middle: 4, top: 10 }[this.textBaseline] || 0;
    this.parts.push(`<text x="${x.toFixed(1)}" y="${(y + down).toFixed(1)}" text-anchor="${anchor}" fill="${this.fillStyle}">${Vector.text(s)}</text>`);
  }
  toString() {
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${this.w}" height="${this.h}" viewBox="0 0 ${this.w} ${this.h}" font-family="DejaVu Sans, sans-serif" font-size="11">${this.parts.join("")}</svg>\n`;
  }
}

function save(name, blob) {
  const url = URL.createObjectURL(blob), a = el("a", { href: url, download: name.replace(/[^\w.-]+/g, "_") });
  document.body.append(a);
  a.click();
  a.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
const csvField = x => { const s = x === null || x === undefined ? "" : String(x); return /[",\r\n]/.test(s) ? '"' + s.replace(/"/g, '""') + '"' : s; };
const csv = rows => rows.map(r => r.map(csvField).join(",") + "\r\n").join("");

// A chart with its name and the names of its runs, as a picture of w x h.
function chartPicture(g, chart, w, h) {
  g.fillStyle = cssColour("--card");
  g.fillRect(0, 0, w, h);
  chart.paint(g, w, h);
  g.font = AXIS_FONT; g.textAlign = "left"; g.textBaseline = "top"; g.fillStyle = cssColour("--text");
  const left = (chart.box ? chart.box.left : 40) + 6;
  g.fillText(chart.tag, left, 10);
  chart.lines.slice(0, 12).forEach((l, i) => { g.fillStyle = colour(l.run); g.fillText(l.run.name, left, 26 + 14 * i); });
}
function chartSVG(chart) {
  const w = chart.canvas.clientWidth, h = chart.canvas.clientHeight, g = new Vector(w, h);
  chartPicture(g, chart, w, h);
  return String(g);
}
// The points that are drawn: of a long series, means of neighbours with their least and most.
function chartCSV(chart) {
  const rows = [["run", "name", "series", settings.axis, "mean", "min", "max"]];
  for (const l of chart.lines) if (l.curve) for (let i = 0; i < l.curve.x.length; i++) {
    const c = l.curve, bad = Number.isNaN(c.y[i]);
    rows.push([l.run.uid, l.run.name, chart.tag, c.x[i], ...(bad ? ["nan", "nan", "nan"] : [c.y[i], c.min[i], c.max[i]])]);
  }
  return csv(rows);
}
function exportChart(chart, kind) {
  const name = chart.tag + "." + kind;
  if (kind === "svg") return save(name, new Blob([chartSVG(chart)], { type: "image/svg+xml" }));
  if (kind === "csv") return save(name, new Blob([chartCSV(chart)], { type: "text/csv" }));
  const c = el("canvas"), w = chart.canvas.clientWidth, h = chart.canvas.clientHeight, g = c.getContext("2d");
  c.width = 2 * w; c.height = 2 * h;
  g.scale(2, 2);
  chartPicture(g, chart, w, h);
  c.toBlob(b => save(name, b), "image/png");
}
