"""Cases of the page of `accel-run ui` in headless Chromium: series of NaN, labels of axes, hover, marks of differences, a narrow window.
Prints one JSON object of what it found. python3 page_faults.py CHROMIUM URL [FOLDER_FOR_SCREENSHOTS]
"""
import json
import os
import sys

sys.argv[3:3] = [""]  # browser.py's picture() takes the folder from the fourth argument
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from browser import OVERFLOW, Browser  # noqa: E402


def chart(tag):
    return "[...views.curves.charts.values()].find(c => c.tag === '%s')" % tag


SETTLED = "(c => c && !c.loading && !c.stale && c.lines.every(l => l.curve))(%s)"
# Every text that a chart draws: what it says, and whether any of it is left of, right of or above the canvas.
TEXTS = """(c => { const seen = [], g = new Proxy(document.createElement('canvas').getContext('2d'), { get(t, k) {
    if (k === 'fillText') return (s, x, y, most) => { const w = Math.min(t.measureText(s).width, most || Infinity);
      const from = t.textAlign === 'right' ? x - w : t.textAlign === 'center' ? x - w / 2 : x;
      seen.push({ text: s, cut: from < -0.5 || from + w > c.canvas.clientWidth + 0.5 || most < t.measureText(s).width }); };
    return typeof t[k] === 'function' ? t[k].bind(t) : t[k]; }, set(t, k, v) { t[k] = v; return true; } });
  c.paint(g, c.canvas.clientWidth, c.canvas.clientHeight); return seen; })(%s)"""
# Tips along a chart, at equal distances: the heading and the rows of each.
HOVER = """(async c => { c.element.scrollIntoView(); const out = [], r = c.canvas.getBoundingClientRect();
  for (let k = 0; k <= 20; k++) { const x = c.box.left + (c.box.right - c.box.left) * k / 20;
    const e = { offsetX: x, offsetY: 100 }; c.inside = true; await c.tell(e);
    out.push(c.tip.hidden ? null : [c.tip.querySelector('b').textContent, ...[...c.tip.querySelectorAll('div')].map(d => d.innerText.replace(/\\n/g, ' '))]); }
  c.inside = false; return out; })(%s)"""


def main():
    b, out = Browser(sys.argv[1]), {}
    try:
        b.window(1400, 1000)
        b.call("Page.navigate", url=sys.argv[2])
        tags = ["nan", "some", "tokens", "huge", "lr", "loss", "big", "ends", "down"]
        b.until("the charts", "typeof views === 'object' && !!%s" % chart("nan"))
        for tag in tags:
            b.js(chart(tag) + ".element.scrollIntoView()")
            b.until("chart " + tag, SETTLED % chart(tag))
            out[tag] = b.js(TEXTS % chart(tag))
        out["nan_crosses"] = b.js(chart("nan") + ".lines[0].crosses")
        out["nan_note"] = b.js(chart("nan") + ".bad.textContent")
        out["some_crosses"] = b.js(chart("some") + ".lines[0].crosses")
        out["hover"] = b.js(HOVER % chart("ends"))
        out["hover_long"] = b.js(HOVER % chart("loss"))
        b.js("scrollTo(0, 0)")
        b.js("choose('curves')")
        b.until("all in sight", "[...views.curves.charts.values()].filter(c => c.visible).every(c => !c.loading && !c.stale)")
        b.picture("light")
        b.js("setLog(true)")
        b.js(chart("down") + ".element.scrollIntoView()")
        b.until("logarithms", SETTLED % chart("down"))
        out["log"] = b.js(TEXTS % chart("down"))
        b.js("setLog(false)")
        b.js("views.config.only = false, choose('config')")
        out["marked"] = b.js("[...document.querySelectorAll('#view tr')].map(r => [...r.children].map(d => [d.textContent, d.classList.contains('differs')]))")
        b.picture("compare")
        b.js("setTheme('dark')")
        b.picture("dark")
        b.js("choose('curves')")
        b.window(420, 900)
        b.js("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")
        visible = "document.getElementById('runs').getClientRects().length > 0"
        out["folded"] = not b.js(visible)
        out["overflow"] = b.js(OVERFLOW)
        out["chart_height"] = b.js("document.getElementById('view').clientHeight")
        b.picture("narrow")
        b.js("document.getElementById('fold').focus()")
        b.key("Enter", "Enter", 13)
        b.js("document.getElementById('fold').getAttribute('aria-expanded') === 'true' || document.getElementById('fold').click()")
        out["unfolded"] = b.js(visible)
        b.picture("narrow_open")
        b.window(1920, 1080)
        b.js("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")
        b.until("wide", SETTLED % chart("loss"))
        out["wide_overflow"] = b.js(OVERFLOW)
        b.picture("wide")
        out["errors"] = [e["params"]["exceptionDetails"].get("text") for e in b.events if e.get("method") == "Runtime.exceptionThrown"]
    finally:
        b.close()
    print(json.dumps(out))


main()
