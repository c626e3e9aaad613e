"""The page of `accel-run ui` in headless Chromium, spoken to over a pipe in the DevTools protocol. Prints one JSON object of what it found.

python3 browser.py CHROMIUM URL LIVE_COMMAND [FOLDER_FOR_SCREENSHOTS]
"""
import base64
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

PATIENCE = float(os.environ.get("ACCEL_TEST_PATIENCE", "120"))  # seconds: a loaded machine


class Browser:
    def __init__(self, program):
        self.home = tempfile.mkdtemp(prefix="chromium-")
        self.count, self.events = 0, []
        from_us, to_us = os.pipe(), os.pipe()
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 40) for fd in (from_us[0], to_us[1])]

        def place():
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--hide-scrollbars", "--user-data-dir=" + self.home, "--remote-debugging-pipe", "about:blank"],
            preexec_fn=place, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.out, self.inp = from_us[1], to_us[0]
        for fd in (from_us[0], to_us[1], *high):
            os.close(fd)
        self.rest = b""
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime"):
            self.call(domain + ".enable")

    def read(self):
        while b"\0" not in self.rest:
            part = os.read(self.inp, 1 << 20)
            if not part:
                raise RuntimeError("the browser has ended")
            self.rest += part
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **params):
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            got = self.read()
            if got.get("id") == self.count:
                if "error" in got:
                    raise RuntimeError("%s: %s" % (method, got["error"]))
                return got["result"]
            self.events.append(got)

    def js(self, text):
        got = self.call("Runtime.evaluate", expression=text, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in got:
            raise RuntimeError("%s: %s" % (text[:80], got["exceptionDetails"].get("exception", {}).get("description")))
        return got["result"].get("value")

    def until(self, what, text):
        end = time.time() + PATIENCE
        while time.time() < end:
            if self.js(text):
                return
            time.sleep(0.05)
        raise RuntimeError("never: " + what)

    def key(self, key, code=None, number=0):
        for kind in ("keyDown", "keyUp"):
            more = {"text": key} if len(key) == 1 and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=code or key, windowsVirtualKeyCode=number, **more)

    def window(self, width, height, scale=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False)

    def picture(self, name):
        if len(sys.argv) > 4:
            with open("%s/%s.png" % (sys.argv[4], name), "wb") as f:
                f.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.home, ignore_errors=True)


# Pixels of a chart's canvas that have a colour: lines, not axes.
COLOURED = """(() => { let n = 0; for (const c of document.querySelectorAll('#view canvas')) { if (!c.width) continue;
  const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
  for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 200 && Math.max(d[i], d[i + 1], d[i + 2]) - Math.min(d[i], d[i + 1], d[i + 2]) > 60) n++; }
  return n; })()"""
CHART = "[...views.curves.charts.values()].find(c => c.tag === 'train/loss')"
OVERFLOW = "document.documentElement.scrollWidth > innerWidth"


def main():
    program, url, live = sys.argv[1:4]
    base = url.split("/?")[0]
    b, out = Browser(program), {}
    try:
        b.window(1400, 1000)
        b.call("Page.navigate", url=url)
        b.until("curves drawn", "document.readyState === 'complete' && typeof views === 'object' && !!%s && %s > 200" % (CHART, COLOURED))
        out["runs"] = b.js("data.runs.length")
        b.js("(async () => { for (const r of data.runs) data.chosen.add(r.id); await chosenChanged(); })()")
        wait = "(async c => { while (c.loading || c.stale) await new Promise(r => setTimeout(r, 1)); return true; })(%s)" % CHART
        b.js(wait)
        out["lines"] = b.js(CHART + ".lines.length")
        out["points"] = b.js(CHART + ".lines.reduce((n, l) => n + l.series.n, 0)")
        b.picture("light")
        # a zoom, from the call until more points are drawn; of several the least, for a loaded machine makes one longer, never shorter
        zooms = [b.js("""(async c => { const at = performance.now(), n = %d; c.zoom([n, n + Math.round(c.lines[0].series.n / 5)]);
          await new Promise(r => requestAnimationFrame(r)); while (c.loading || c.stale) await new Promise(r => setTimeout(r, 1));
          return performance.now() - at; })(%s)""" % (1000 * k, CHART)) for k in range(1, 9)]
        out["zoom_ms"], out["zooms"] = min(zooms), zooms
        out["zoomed"] = b.js("(b => [b.x0, b.x1])(%s.box)" % CHART)
        b.picture("zoom")
        # keyboard
        b.key("r")
        out["reset"] = b.js("%s.range === null" % CHART)
        theme = b.js("document.documentElement.dataset.theme")
        b.key("t")
        out["themes"] = sorted([theme, b.js("document.documentElement.dataset.theme")])
        b.js(wait)
        b.picture("dark" if theme == "light" else "light2")
        b.key("?")
        out["help"] = b.js("document.getElementById('keys').open")
        b.picture("help")
        b.key("Escape", "Escape", 27)
        out["help_closed"] = b.js("!document.getElementById('keys').open")
        for i, name in enumerate(b.js("tabs.map(t => t[0])")):
            b.key(str(i + 1))
            b.until("view " + name, "(v => v.dataset.view === '%s' && v.innerText.length > 5)(document.getElementById('view'))" % name)
            out["view_" + name] = True
            b.picture(name)
        b.key("1")
        b.until("curves again", "!!%s && %s > 200" % (CHART, COLOURED))
        b.js("%s.canvas.focus()" % CHART)
        b.js(wait)
        b.key("ArrowUp", "ArrowUp", 38)
        out["arrow"] = b.js("%s.range !== null" % CHART)
        b.key("r")
        # 80 %, and a narrow window
        for name, size in {"normal": (1400, 1000), "80": (1750, 1250, 0.8), "narrow": (700, 900)}.items():
            b.window(*size)
            b.js("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")
            out["overflow_" + name] = b.js(OVERFLOW)
            b.picture("size_" + name)
        b.window(1400, 1000)
        # live: a run logs the time; how old is the newest value when it is drawn
        child = subprocess.Popen(live, shell=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        out["lags"] = b.js("""(async () => { const lags = []; let last = 0; const end = Date.now() + %d;
          while (lags.length < 12 && Date.now() < end) { await new Promise(r => setTimeout(r, 10));
            const c = [...views.curves.charts.values()].find(c => c.tag === 'live/time'); const l = c && c.lines[c.lines.length - 1];
            if (!l || !l.curve || !l.curve.y.length) { if (c) c.element.scrollIntoView(); continue; }
            const y = l.curve.y[l.curve.y.length - 1]; if (y > last) { last = y; lags.push(Date.now() / 1000 - y); } }
          return lags; })()""" % (1000 * PATIENCE))
        out["lag"] = min(out["lags"])
        b.picture("live")
        child.kill()
        child.wait()
        urls = [e["params"]["request"]["url"] for e in b.events if e.get("method") == "Network.requestWillBeSent"]
        out["elsewhere"] = [u for u in urls if not u.startswith(base + "/") and not u.startswith("data:") and u != "about:blank"]
        out["asked"] = len(urls)
        out["errors"] = [e["params"]["exceptionDetails"].get("text") for e in b.events if e.get("method") == "Runtime.exceptionThrown"]
        # another user's browser
        b.call("Page.navigate", url=base + "/")
        b.until("an answer", "document.readyState === 'complete'")
        out["without_token"] = b.js("document.querySelectorAll('canvas').length + ' ' + document.body.innerText.slice(0, 200)")
    finally:
        b.close()
    print(json.dumps(out))


if __name__ == "__main__":
    main()
