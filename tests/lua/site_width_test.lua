-- Pages of the site fit a phone, 390 pixels wide: nothing but blocks of code and tables scrolls sideways. Measured by Chromium.
--   accel-run tests/lua/site_width_test.lua
-- tier: slow
local build, tmp = os.getenv "ACCEL_TEST_BUILD" or "build/dev", os.getenv "ACCEL_TEST_TMP" or "/tmp"
local WIDTH <const> = 390

local browser
for _, name in ipairs { "chromium", "chromium-browser", "google-chrome" } do
  if not browser and os.execute(("command -v %s >/dev/null 2>&1"):format(name)) then browser = name end
end
local function skip(why)
  print("skipped: " .. why)
  os.exit(77)
end
if not browser then skip "Chromium is not installed" end
if not io.open(build .. "/reference/html/index.html") then skip "the site is missing: build the target `reference`" end

local html = tmp .. "/html"
assert(os.execute(("rm -rf '%s' && cp -R '%s/reference/html' '%s'"):format(html, build, html)))
local names, list = {}, assert(io.popen(("cd '%s' && find . -name '*.html' | sort"):format(html)))
for name in list:lines() do names[#names + 1] = ("%q"):format(name) end
list:close()
local page = assert(io.open(html .. "/measure.html", "w"))
page:write(([[<html><body><pre id="out"></pre><script>
const pages = [%s], out = document.getElementById("out");
function next(i) {
  if (i === pages.length) { out.textContent += "measured " + i + "\n"; return; }
  const frame = document.createElement("iframe");
  frame.style.cssText = "width:%dpx;height:800px;border:0";
  frame.src = pages[i];
  frame.onload = () => {
    const width = frame.contentDocument.documentElement.scrollWidth;
    if (width > %d) out.textContent += "wide " + pages[i] + " " + width + "\n";
    frame.remove();
    next(i + 1);
  };
  document.body.append(frame);
}
next(0);
</script></body></html>]]):format(table.concat(names, ","), WIDTH, WIDTH))
page:close()
local pipe = assert(io.popen(("%s --headless --no-sandbox --disable-gpu --allow-file-access-from-files --virtual-time-budget=600000 "
  .. "--user-data-dir='%s/profile' --dump-dom 'file://%s/measure.html' 2>/dev/null"):format(browser, tmp, html)))
local text = pipe:read "a"
pipe:close()
local n = tonumber(text:match "measured (%d+)\n")
if not n then skip "Chromium does not run here" end
assert(n == #names and not text:find "\nwide " and not text:find '>wide ', text:match "<pre.-</pre>")
print(n .. " pages")
