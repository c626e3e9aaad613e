-- accel-run ui by an HTTP client: who has no token gets nothing, the page holds everything it needs and names no other place, JSON and
-- curves are what the store has, server-sent events tell of new values within a second, bad requests do no harm.  tier: every change
--   accel-run tests/stdlib/track/ui_test.lua
local accel = require "accel"
local core = require "accel.track.core"
package.path = (arg[0]:match "^(.*)/" or ".") .. "/../../support/?.lua;" .. package.path
local support = require "track"
support.needs(core.sqlite, core.http_library, core.rest_library)

local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/ui-"))
local program = accel.process.program()
local run = accel.track.Run { dir = root, name = "<script>alert(1)</script>", config = { lr = 0.5, nested = { a = true } } }
for i = 1, 3000 do run:log({ loss = i, odd = i % 3 == 0 and 0 / 0 or i }, i) end
run:log_images({ pic = accel.rand(3, 8, 6) }, 5)
run:log({ note = "text" }, 6)
assert(run:flush())

local url, pid = support.page(("'%s'"):format(root), root)
local base, token = url:match "^(http://127%.0%.0%.1:%d+)/%?token=(%w+)$"
assert(base and #token >= 24, url)

local function get(path, more)
  local o = { url = base .. path, headers = { "Authorization: Bearer " .. token }, seconds = 20 }
  for key, value in next, more or {} do o[key] = value end
  local status, body = core.request(o)
  return assert(status, body), body
end
local function json(path)
  local status, body = get(path)
  assert(status == 200, path .. ": " .. status .. " " .. body)
  return accel.json.decode(body)
end

local ok, err = xpcall(function()
  -- ---- no token, another one, a name that another page was given ----
  for _, path in ipairs { "/", "/api/runs", "/api/image?id=1", "/api/events", "/metrics", "/api/runs?token=" .. token:sub(1, -2) .. "!" } do
    local status, body = get(path, { headers = {} })
    assert(status == 403 and not body:find "loss", path)
  end
  assert(get("/api/runs", { headers = { "Authorization: Bearer " .. token, "Host: evil.example" } }) == 403, "DNS rebinding")
  assert(get("/api/runs?token=" .. token, { headers = {} }) == 200)
  assert(get("/", { method = "POST", body = "x" }) == 405 and get "/nothing" == 404)

  -- ---- notes: only JSON with the token in its header and from the page's own origin ----
  local function note(body, headers, path)
    local list = { "Authorization: Bearer " .. token, "Content-Type: application/json" }
    for key, line in next, headers or {} do
      if math.type(key) then list[key] = line or nil else list[#list + 1] = line end
    end
    return get(path or "/api/annotate", { method = "POST", headers = list, body = type(body) == "string" and body or accel.json.encode(body) })
  end
  local mine = { run = 1, key = "notes", value = "from the page" }
  for name, headers in accel.pairs { cookie = { "X: y" }, form = { [2] = "Content-Type: text/plain" },
    origin = { o = "Origin: http://evil.example" },
    site = { o = "Sec-Fetch-Site: cross-site" }, other_port = { o = "Origin: http://127.0.0.1:1" } } do
    assert(note(mine, headers) == 403, name)
  end
  assert(note(mine, { [1] = "X: y" }, "/api/annotate?token=" .. token) == 403, "the token of an address is not enough")
  assert(get("/api/annotate") == 404 and json("/api/runs").runs[1].notes == nil)
  for _, bad in ipairs { "x", "[]", '{"run": "1", "key": "notes", "value": ""}', '{"run": 1, "key": "sweep", "value": {}}',
    '{"run": 1, "key": "tags", "value": "x"}', '{"run": 1, "key": "notes", "value": 5}' } do
    assert(note(bad) == 400, bad)
  end
  assert(note { run = 77, key = "notes", value = "x" } == 404)
  assert(note(mine, { o = "Origin: " .. base, s = "Sec-Fetch-Site: same-origin" }) == 200)
  assert(note { run = 1, key = "tags", value = { "a", "b" } } == 200)
  assert(note { run = 1, key = "notes", value = "again" } == 200)
  local noted = json("/api/runs").runs[1]
  assert(noted.notes == "again" and table.concat(noted.tags, " ") == "a b")
  local seen = accel.track.Store(root)
  assert(#seen:rows "SELECT 1 FROM records WHERE kind='annotation'" == 2, "one record for each key")
  assert(note { run = 1, key = "tags", value = accel.json.array {} } == 200 and seen:runs()[1].tags == nil)
  seen:close()

  -- ---- the page ----
  local status, page = get "/"
  assert(status == 200 and page:find "<canvas" == nil and page:find('<script nonce="%w+">') and not page:find "{{")
  for link in page:gmatch "https?://[^\"'%s]+" do
    assert(link == "http://www.w3.org/2000/svg", "the page names " .. link) -- a name of XML, which nobody fetches
  end
  assert(not page:find("alert(1)", 1, true))

  -- ---- what the store has ----
  local runs = json("/api/runs").runs
  assert(#runs == 1 and runs[1].name == run.name and runs[1].config.lr == 0.5 and runs[1].config["nested/a"] == true)
  assert(runs[1].status == "running" and runs[1].environment.cpus >= 1)
  local by = {}
  for _, s in ipairs(json("/api/series?runs=" .. runs[1].id).series) do by[s.tag] = s end
  assert(by.loss.n == 3000 and by.loss.last == 3000 and by.loss.max == 3000 and by["system/memory_percent"])
  assert(#json("/api/series?runs=99,x,").series == 0)
  local curve = json("/api/curves?points=100&ids=" .. by.loss.id).curves[1]
  assert(curve.id == by.loss.id and #curve.points <= 100 and #curve.points >= 40 and curve.points[1][3] == 1)
  curve = json("/api/curves?from=10&to=11&ids=" .. by.odd.id).curves[1].points
  assert(#curve == 4 and #curve[1] == 1 and curve[2][2] == 10 and #curve[4] == 1, "NaN is not a value")
  local _, bytes = get("/api/curves?format=f64&from=10&to=11&ids=" .. by.loss.id .. "," .. by.odd.id)
  assert(#bytes == 2 * (16 + 4 * 32))
  local id, n, x, y = ("<dddd"):unpack(bytes)
  assert(id == by.loss.id and n == 4 and x == 9 and y == 9)
  assert(get("/api/curves?ids=" .. ("1,"):rep(3000)) == 400)
  assert(#json("/api/curves?ids=&from=nan&to=x&points=-5").curves == 0)
  assert(#json("/api/curves?ids=" .. by.loss.id .. "&from=nan&to=x&points=-5").curves[1].points == 2)
  assert(json("/api/records?kind=text&run=" .. runs[1].id).records[1].data == "text")
  local image = json("/api/records?kind=image&run=" .. runs[1].id).records[1]
  assert(image.meta.width == 6 and image.data == nil)
  status, bytes = get("/api/image?id=" .. image.id)
  assert(status == 200 and bytes:sub(2, 4) == "PNG" and get "/api/image?id=99" == 404)
  status, bytes = get "/metrics"
  assert(status == 200 and bytes:find('accel_value{[^}]*tag="loss"} 3000\n') and bytes:find('name="<script>alert', 1, true))

  -- ---- new values are told of; the client that left is forgotten ----
  local file = assert(io.open(root .. "/live.lua", "w"))
  file:write(([[local accel = require "accel"
    local core = require "accel.track.core"
    local run = accel.track.Run { dir = '%s', name = "live", system = false }
    for i = 1, 40 do run:log({ x = i }, i) core.pause(0.1) end]]):format(root))
  file:close()
  local pipe = assert(io.popen(("'%s' '%s/live.lua' & echo $!"):format(program, root)))
  local began = accel.clock()
  local _, events = get "/api/events?limit=4"
  local took = accel.clock() - began
  assert(events:find "event: change\ndata: {\"series\":%[%[%d+,%d+,%d+%]" and events:find "event: runs\n", events)
  assert(took < 20, took)
  assert(core.request { url = base .. "/api/events?token=" .. token, seconds = 0.7 } == nil, "a stream goes on")
  pipe:close()
  assert(#json("/api/runs").runs == 2)
end, debug.traceback)

os.execute("kill " .. pid)
assert(ok, err)

-- ---- what it says where it cannot ----
local function refuses(args, part)
  local pipe = assert(io.popen(("'%s' ui %s 2>&1"):format(program, args)))
  local text = pipe:read "a"
  pipe:close()
  assert(text:find(part, 1, true), text)
end
refuses("'" .. root .. "/none'", "there is no run store")
refuses(("'%s' --port 99999"):format(root), "a port is 0 to 65535, got 99999")
refuses(("'%s' --token short"):format(root), "--token takes 8 or more")
run:finish()
