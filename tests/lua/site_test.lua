-- The site of guides and reference pages (lua/gen/reference/site.lua): Markdown as HTML, links that lead somewhere, an index
-- for the search, nothing from a network. How wide pages are on a phone: site_width_test.lua.
--   accel-run tests/lua/site_test.lua
local accel = require "accel"
local source, build = os.getenv "ACCEL_TEST_SRC" or ".", os.getenv "ACCEL_TEST_BUILD" or "build/dev"
package.path = source .. "/lua/gen/?.lua;" .. package.path
local html = require "reference.html"

-- ---- Markdown ----
local function is(markdown, want)
  local got = html.page(markdown)
  assert(got == want, ("%s\ngives\n%s\nnot\n%s"):format(markdown, got, want))
end
is("a `<b>` & **c**\nd", "<p>a <code>&lt;b&gt;</code> &amp; <b>c</b> d</p>")
is("- one\n  more\n  - `x`: inner\n- two\n\nafter",
  "<ul>\n<li>\none more\n<ul>\n<li>\n<code>x</code>: inner\n</li></ul>\n</li>\n<li>\ntwo\n</li></ul>\n<p>after</p>")
is("1. one\n2. two", "<ol>\n<li>\none\n</li>\n<li>\ntwo\n</li></ol>")
is("```lua no-run\nif a < b then\n\nend\n```", '<pre><code class="lua">if a &lt; b then\n\nend</code></pre>')
is("| a | b |\n| --- | --- |\n| `x\\|y` | [t](data.md#z) |",
  '<table>\n<tr><th>a</th><th>b</th></tr>\n<tr><td><code>x|y</code></td><td><a href="data.html#z">t</a></td></tr>\n</table>')
is("[a](guides/b.md) [c](https://x.org/d.md)", '<p><a href="guides/b.html">a</a> <a href="https://x.org/d.md">c</a></p>')
do
  local page, sections = html.page "# Title\n\n### nn.Linear\n\nText.\n\n#### `:step(closure)`\n\nMore.\n\n## Two words\n"
  local anchors = {}
  for i, s in ipairs(sections) do anchors[i] = s.anchor end
  assert(table.concat(anchors, " ") == "Title nn.Linear nn.Linear:step two-words", table.concat(anchors, " "))
  assert(sections[3].text == "More." and page:find('<h4 id="nn.Linear:step">', 1, true), page)
end

-- ---- the site of this build ----
local root = build .. "/reference/html"
local function read(path)
  local file <close> = io.open(path, "rb")
  return file and file:read "a"
end
if not read(root .. "/index.html") then
  print "the site is missing: build the target `reference`"
  os.exit(77)
end

local pages, n_links = {}, 0
local list = assert(io.popen(("cd '%s' && find . -name '*.html' | sort"):format(root)))
for path in list:lines() do
  local text = read(root .. "/" .. path:sub(3))
  local ids = {}
  for id in text:gmatch ' id="([^"]*)"' do
    assert(not ids[id], ("%s: two of %s"):format(path, id))
    ids[id] = true
  end
  pages[path:sub(3)] = { text = text, ids = ids }
end
list:close()

local function unescape(text) return (text:gsub("&quot;", '"'):gsub("&lt;", "<"):gsub("&gt;", ">"):gsub("&amp;", "&")) end

for path, page in pairs(pages) do
  local folder = path:match "^(.*/)" or ""
  for address in page.text:gmatch '<a[^>]- href="([^"]*)"' do
    address = unescape(address)
    if not address:find "^%a+:" then
      local file, id = address:match "^([^#]*)#?(.*)$"
      local target = file == "" and path or (folder .. file):gsub("^[^/]+/%.%./", "")
      assert(pages[target], ("%s: there is no %s"):format(path, address))
      assert(id == "" or pages[target].ids[id], ("%s: %s has no anchor %s"):format(path, target, id))
      n_links = n_links + 1
    end
  end
  for what in page.text:gmatch 'src="([^"]*)"' do
    assert(not what:find "//" and read(root .. "/" .. (folder .. what):gsub("^[^/]+/%.%./", "")), path .. ": " .. what)
  end
  assert(not page.text:find "<script>[^<]*http" and not page.text:find '<link[^>]*href="http', path)
end
assert(n_links > 1000, n_links)

local index = accel.json.decode((read(root .. "/search-index.js"):gsub("^const SEARCH_INDEX = ", ""):gsub(";\n$", "")))
local found = {}
for _, row in ipairs(index) do
  local file, id = row[2]:match "^([^#]*)#(.*)$"
  assert(pages[file] and pages[file].ids[id], row[2])
  found[row[1]] = row
end
for _, name in ipairs { "matmul", "nn.Linear", "optim.Optimizer:step", "ac_host_open", "Workers", "data.CSV" } do
  assert(found[name], "the search does not know " .. name)
end
-- every public header is on the page of the C API, every page has the version, and names that are too long for a phone may break
do
  local folder <close> = assert(io.popen(("ls '%s/host/include/accel'"):format(source)))
  for name in folder:lines() do
    if name ~= "accel.h" then assert(pages["embed.html"].text:find("accel/" .. name, 1, true), name) end
  end
  for path, page in pairs(pages) do
    assert(page.text:find('<span class="version">' .. accel._VERSION .. "</span>", 1, true), path)
  end
  for _, name in ipairs { "12_early_stopping.lua", "accel-run plan", "ac_ckpt_scan", "ac_store_open" } do assert(found[name], name) end
end

print(("%d links, %d places to search"):format(n_links, #index))
