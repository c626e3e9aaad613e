"""The views of the page of `accel-run ui` in headless Chromium: table, page of a run, comparison, relations, files, the address, axe-core.
Prints one JSON object of what it found. python3 page_views.py CHROMIUM URL [FOLDER_FOR_SCREENSHOTS]
"""
import glob
import importlib.util
import json
import os
import sys

sys.argv[3:3] = [""]  # browser.py's picture() takes the folder from the fourth argument
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from browser import OVERFLOW, Browser  # noqa: E402

FRAME = "new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))"
TABLE = "[...document.querySelectorAll('#view table.runs tr')].map(r => [...r.children].map(c => c.innerText.trim()))"


def axe_source():
    """axe-core as the package axe_playwright_python has it, or None."""
    spec = importlib.util.find_spec("axe_playwright_python")
    found = glob.glob(os.path.join(os.path.dirname(spec.origin), "**", "axe*.js"), recursive=True) if spec and spec.origin else []
    return open(found[0], encoding="utf-8").read() if found else None


def main():
    b, out = Browser(sys.argv[1]), {}

    def view(name, ready):
        b.js("choose('%s')" % name)
        b.until("view " + name, "document.getElementById('view').dataset.view === '%s' && (%s)" % (name, ready))

    try:
        b.window(1400, 1000)
        b.call("Page.navigate", url=sys.argv[2])
        b.until("the page", "document.readyState === 'complete' && typeof ready === 'boolean' && ready")
        # table: usual columns, sorted by the keyboard, filtered, grouped, as CSV
        view("table", "document.querySelectorAll('#view table.runs tr').length > 3")
        out["table"] = b.js(TABLE)
        b.picture("table")
        b.js("[...document.querySelectorAll('th button')].find(x => x.textContent === 'loss').focus()")
        b.key("Enter", "Enter", 13)
        b.js("document.activeElement.textContent.includes('▲') || [...document.querySelectorAll('th button')].find(x => x.textContent === 'loss').click()")
        out["sorted"] = b.js("views.table.rows().map(r => r.name)")
        out["aria_sort"] = b.js("[...document.querySelectorAll('th')].filter(t => t.getAttribute('aria-sort') === 'ascending').map(t => t.innerText)")
        out["csv"] = b.js("views.table.csv()")
        b.js("$('runfilter').value = 'lr>=0.2', $('runfilter').oninput()")
        out["filtered"] = b.js("views.table.rows().map(r => r.name)")
        b.js("views.table.by = 'c:opt', views.table.draw()")
        out["groups"] = b.js("[...document.querySelectorAll('tr.groups th')].map(t => t.innerText)")
        b.picture("groups")
        b.js("views.table.cols = ['status', 'min:loss'], views.table.draw(), setSmooth(0.5), setLog(true), remember()")
        b.js("new Promise(r => setTimeout(r, 400))")
        # the address keeps the view
        out["address"] = b.js("location.href")
        b.call("Page.navigate", url="about:blank")
        b.call("Page.navigate", url=out["address"])
        b.until("the page again", "document.readyState === 'complete' && typeof ready === 'boolean' && ready && document.querySelectorAll('tr.groups').length > 0")
        out["kept"] = b.js("[current, $('runfilter').value, views.table.by, views.table.sort, views.table.cols.join(' '), settings.smooth, settings.log]")
        out["heads"] = b.js("[...document.querySelectorAll('#view thead th')].map(t => t.innerText)")
        # the page of a run: notes are edited and stored
        b.js("$('runfilter').value = '', $('runfilter').oninput(), setLog(false), setSmooth(0)")
        b.js("openRun(data.runs.find(r => r.name === 'run 3'))")
        b.until("the run", "document.getElementById('note-notes') && document.querySelector('#view h2').innerText === 'run 3'")
        b.js("document.getElementById('note-tags').focus()")
        for c in "good, <b>":
            b.key(c)
        b.key("Tab", "Tab", 9)
        b.js("document.activeElement.id === 'note-notes' || document.getElementById('note-notes').focus()")
        for c in "seen":
            b.key(c)
        b.js("document.getElementById('note-notes').blur(), document.getElementById('note-tags').blur()")
        b.until("saved", "document.querySelector('.editor [role=status]').innerText === 'saved' && data.runs.find(r => r.name === 'run 3').notes === 'seen'")
        out["run"] = b.js("document.getElementById('view').innerText")
        b.picture("run")
        b.js("$('runfilter').value = 'tag=good', $('runfilter').oninput()")
        out["by_tag"] = b.js("filtered.map(r => r.name)")
        b.js("$('runfilter').value = '', $('runfilter').oninput()")
        # two runs
        b.js("(async () => { data.chosen = new Set(data.runs.filter(r => r.name === 'run 1' || r.name === 'run 2').map(r => r.id)); await chosenChanged(); })()")
        view("config", "views.config.grid && views.config.grid.charts.has('loss')")
        b.until("both curves", "(c => !c.loading && !c.stale && c.lines.length === 2 && c.box)(views.config.grid.charts.get('loss'))")
        out["compare"] = b.js("[...document.querySelectorAll('#view table.data tr')].map(r => [...r.children].map(c => c.innerText))")
        b.picture("compare2")
        # parallel coordinates and scatter
        b.js("(async () => { data.chosen = new Set(data.runs.map(r => r.id)); await chosenChanged(); })()")
        view("relations", "document.querySelectorAll('#view svg').length === 2")
        out["lines"] = b.js("document.querySelectorAll('#view polyline.run').length")
        out["dots"] = b.js("document.querySelectorAll('#view circle.run').length")
        out["axes"] = b.js("[...document.querySelectorAll('#view svg:first-of-type text[font-weight]')].map(t => t.textContent)")
        box = b.js("(r => [r.x + r.width / 2, r.top + 6, r.bottom - 6])(document.querySelector('.brush').getBoundingClientRect())")
        for kind, y in (("mousePressed", box[2]), ("mouseMoved", (box[1] + box[2]) / 2), ("mouseReleased", (box[1] + box[2]) / 2 - 1)):
            b.call("Input.dispatchMouseEvent", type=kind, x=box[0], y=y, button="left", buttons=1, clickCount=1)
        out["brushed"] = b.js("views.relations.shownRuns.length")
        b.picture("relations")
        # files of a chart
        view("curves", "views.curves.charts.has('loss')")
        chart = "views.curves.charts.get('loss')"
        b.until("the chart", "(c => !c.loading && !c.stale && c.box)(%s)" % chart)
        out["svg"] = b.js("chartSVG(%s)" % chart)
        out["svg_valid"] = b.js("!new DOMParser().parseFromString(chartSVG(%s), 'image/svg+xml').querySelector('parsererror')" % chart)
        out["chart_csv"] = b.js("chartCSV(%s)" % chart)
        # every view in light and dark at three widths: nothing is wider than the window, and axe-core finds nothing
        axe = axe_source()
        out["axe"] = [] if axe else None
        wide = []
        if axe:
            b.js(axe + "; true")
        for theme in ("light", "dark"):
            b.js("setTheme('%s')" % theme)
            for name in b.js("tabs.map(t => t[0])"):
                b.js("choose('%s')" % name)
                b.until("filled " + name, "document.getElementById('view').innerText.length > 5")
                for width in (1920, 1400, 420):
                    b.window(width, 1000)
                    b.js(FRAME)
                    if b.js(OVERFLOW):
                        wide.append("%s %d" % (name, width))
                    if width == 420:
                        b.picture("%s_%s_420" % (name, theme))
                b.window(1400, 1000)
                if axe:
                    b.js(FRAME)
                    for v in b.js("axe.run().then(r => r.violations.map(v => v.id + ': ' + v.nodes[0].html.slice(0, 120) + ' ' + v.nodes[0].failureSummary.slice(0, 160)))"):
                        out["axe"].append("%s %s %s" % (theme, name, v))
        out["wide"] = wide
        out["errors"] = [e["params"]["exceptionDetails"].get("text", "") + e["params"]["exceptionDetails"].get("exception", {}).get("description", "") for e in b.events if e.get("method") == "Runtime.exceptionThrown"]
        base = sys.argv[2].split("/?")[0]
        urls = [e["params"]["request"]["url"] for e in b.events if e.get("method") == "Network.requestWillBeSent"]
        out["elsewhere"] = [u for u in urls if not u.startswith(base + "/") and not u.startswith(("data:", "blob:")) and u != "about:blank"]
    finally:
        b.close()
    print(json.dumps(out))


main()
