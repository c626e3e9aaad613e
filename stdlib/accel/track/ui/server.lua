--- The server of accel-run ui: one page, JSON, images and server-sent events of a run store, on 127.0.0.1, for anyone who knows the
--- token in the address. Used by stdlib/accel/cli/ui.lua and by its test.
---
---   GET /?token=T                      the page, which holds everything it needs
---   GET /api/runs                      runs with configuration and environment
---   GET /api/series?runs=1,2           series of runs. runs=all: of all runs, without the machine's
---   GET /api/curves?ids=1,2&axis=step|wall&from=&to=&points=&format=json|f64
---   GET /api/near?ids=1,2&at=5,9.5&axis=step|wall      the logged point of each series nearest to a place
---   GET /api/records?run=1&kind=text   texts, images (without bytes), histograms, tables, artifacts, alerts
---   GET /api/image?id=1                bytes of one
---   POST /api/annotate                 {"run": 1, "key": "group"|"tags"|"notes", "value": ...} into the store
---   GET /api/events?limit=             server-sent events: `change` with the series that grew, `runs` when their number or state changed;
---                                      ends after so many
---   GET /metrics                       last values, as Prometheus reads them
--- The token comes as ?token= or as "Authorization: Bearer T". What changes the store takes only the second, JSON, and the page's own
--- origin, none of which a page of another site can send.
local accel = require "accel"
local class = require "accel.util.class"
local core = require "accel.track.core"
local environment = require "accel.track.environment"
local metrics = require "accel.track.ui.metrics"
local page = require "accel.track.ui.page"
local raise = require "accel.util.raise"
local Store = require "accel.track.store"

local LOOK_SECONDS <const>, BEAT_SECONDS <const>, MAX_IDS <const>, MAX_POINTS <const> = 0.25, 10, 2000, 20000
local MOST_SERIES <const> = 50000

--- Serves one store. `url` is the address with its token.
---@class accel.track.ui.Server
---@field url string
---@field port integer
local Server = class "accel.track.ui.Server"

---@param where string folder, or file, of a run store
---@param opts? {port: integer?, token: string?}
function Server:init(where, opts)
  opts = opts or {}
  self.store = Store(where)
  self.token = opts.token or environment.random_id(26) -- 134 bits
  local server, message = core.http(opts.port or 0)
  if not server then raise("%s", message) end
  self.server, self.port = server, server:port()
  self.url = ("http://127.0.0.1:%d/?token=%s"):format(self.port, self.token)
  self.streams, self.known, self.next_look, self.next_beat = {}, {}, 0, 0
end

-- ---- answers ----

local function text(status, body, kind)
  return { status = status, body = body, headers = { ["Content-Type"] = kind or "text/plain; charset=utf-8" } }
end
local function json(value) return text(200, accel.json.encode(value), "application/json") end

--- Numbers that JSON has not become null.
local function number(x)
  if type(x) == "number" and x - x ~= 0 then return nil end
  return x
end

local function read(self, sql, ...) return assert(self.store:rows(sql, ...)) end

local function ids_of(list)
  local out = {}
  for word in (list or ""):gmatch "[^,]+" do
    out[#out + 1] = math.tointeger(tonumber(word))
    if #out > MAX_IDS then return nil end
  end
  return out
end

local routes = {}

routes["/api/runs"] = function(self)
  local list = assert(self.store:runs())
  local config = {}
  for _, row in ipairs(read(self, "SELECT run, key, value FROM config")) do
    config[row.run] = config[row.run] or {}
    local ok, value = pcall(accel.json.decode, row.value)
    config[row.run][row.key] = ok and value or row.value
  end
  local out = {}
  for i, run in ipairs(list) do
    out[i] = { id = run.id, uid = run.uid, name = run.name, project = run.project, status = run.status, started = run.started,
      ended = run.ended, heartbeat = run.heartbeat, host = run.host, pid = run.pid, exit_code = run.exit_code, message = run.message,
      last_step = run.last_step, config = config[run.id] or {}, environment = run.environment, group = run.group, notes = run.notes,
      tags = accel.json.array(run.tags or {}), sweep = run.sweep }
  end
  return json { runs = accel.json.array(out), store = self.store.path, now = os.time() }
end

routes["/api/series"] = function(self, request)
  local out = {}
  local function add(list)
    for _, s in ipairs(list) do
      out[#out + 1] = { id = s.id, run = s.run, tag = s.tag, n = s.n, finite = s.finite, first_step = s.first_step, last_step = s.last_step,
        first_wall = s.first_wall, last_wall = s.last_wall, last = number(s.last), min = number(s.min), max = number(s.max) }
    end
  end
  if request:query "runs" == "all" then -- without the machine's
    add(read(self, "SELECT * FROM series WHERE tag NOT LIKE 'system/%' ORDER BY run, tag LIMIT ?", MOST_SERIES))
  else
    for _, id in ipairs(ids_of(request:query "runs") or {}) do add(read(self, "SELECT * FROM series WHERE run=?", id)) end
  end
  return json { series = accel.json.array(out) }
end

local function limit(word, fallback)
  local x = tonumber(word)
  return x == x and x or fallback
end

routes["/api/curves"] = function(self, request)
  local ids = ids_of(request:query "ids")
  if not ids then return text(400, "too many ids\n") end
  local axis = request:query "axis" == "wall" and "wall" or "step"
  local from, to = limit(request:query "from", -math.huge), limit(request:query "to", math.huge)
  local points = math.tointeger(limit(request:query "points", 500)) or 500
  points = math.max(2, math.min(MAX_POINTS, points))
  if request:query "format" == "f64" then -- of each: id, number of points, then x, mean, least, most of every point
    local out = {}
    for _, id in ipairs(ids) do
      local bytes = assert(self.store.core:curve(id, axis, from, to, points))
      out[#out + 1] = ("<dd"):pack(id, #bytes // 32)
      out[#out + 1] = bytes
    end
    return text(200, table.concat(out), "application/octet-stream")
  end
  local out = {}
  for i, id in ipairs(ids) do
    local c = assert(self.store:curve(id, { axis = axis, from = from, to = to, points = points }))
    local rows = {}
    for k = 1, #c.x do -- {} stands for a value that is not finite
      local bad = c.y[k] ~= c.y[k]
      rows[k] = accel.json.array(bad and { c.x[k] } or { c.x[k], c.y[k], c.min[k], c.max[k] })
    end
    out[i] = { id = id, points = accel.json.array(rows) }
  end
  return json { curves = accel.json.array(out) }
end

routes["/api/near"] = function(self, request)
  local ids, at, out = ids_of(request:query "ids"), {}, {}
  for word in (request:query "at" or ""):gmatch "[^,]+" do at[#at + 1] = limit(word, 0) end
  if not ids or #ids ~= #at then return text(400, "ids and at are lists of the same length\n") end
  for i, id in ipairs(ids) do
    local p = assert(self.store:near(id, at[i], { axis = request:query "axis" == "wall" and "wall" or "step" }))
    local value = p.value
    if p.step and not value then value = "NaN" elseif value and value - value ~= 0 then value = value > 0 and "Infinity" or "-Infinity" end
    out[i] = { step = p.step, wall = p.wall, value = value }
  end
  return json { points = accel.json.array(out) }
end

routes["/api/records"] = function(self, request)
  local out = {}
  for i, r in ipairs(assert(self.store:records(tonumber(request:query "run") or 0, request:query "kind" or ""))) do
    out[i] = { id = r.id, tag = r.tag, step = r.step, wall = r.wall, meta = r.meta, data = r.data }
  end
  return json { records = accel.json.array(out) }
end

routes["/api/image"] = function(self, request)
  local row = read(self, "SELECT meta, data FROM records WHERE id=? AND kind='image'", tonumber(request:query "id") or 0)[1]
  if not row then return text(404, "there is no such image\n") end
  local mime = accel.json.decode(row.meta).mime
  return text(200, row.data, mime == "image/jpeg" and mime or "image/png")
end

routes["/api/events"] = function(self, request)
  self.streams[#self.streams + 1] = { id = request:stream(), left = math.tointeger(tonumber(request:query "limit")) or math.maxinteger }
  return { status = 200, stream = true, body = ": hello\n\n", headers = { ["Content-Type"] = "text/event-stream" } }
end

routes["/metrics"] = function(self) return text(200, metrics.text(self.store), metrics.CONTENT_TYPE) end

local EDITED <const> = { group = true, tags = true, notes = true }

local writes = {}

writes["/api/annotate"] = function(self, request)
  local ok, o = pcall(accel.json.decode, request:body())
  if not ok or type(o) ~= "table" or math.type(o.run) ~= "integer" or not EDITED[o.key] then
    return text(400, "expected {run: id, key: group, tags or notes, value: ...}\n")
  end
  if not self.writer then
    local store, message = Store.open(self.store.path, { write = true })
    if not store then return text(409, message .. "\n") end
    self.writer = store
  end
  local done, message, code = self.writer:annotate(o.run, o.key, o.value)
  if not done then return text(code == "not_found" and 404 or code == "invalid_argument" and 400 or 409, message .. "\n") end
  return json { ok = true }
end

--- Whether two texts are the same, in a time independent of the position of a difference.
local function same(a, b)
  if type(a) ~= "string" or #a ~= #b then return false end
  local differ = 0
  for i = 1, #a do differ = differ | (a:byte(i) ~ b:byte(i)) end
  return differ == 0
end

local function allowed(self, request)
  local host = request:header "Host" or ""
  if host ~= ("127.0.0.1:%d"):format(self.port) and host ~= ("localhost:%d"):format(self.port) then return false end -- DNS rebinding
  local bearer = (request:header "Authorization" or ""):match "^Bearer (.+)$"
  return same(request:query "token", self.token) or same(bearer, self.token)
end

--- Why a request must not change the store: nil if it may. A form or a script of another site sends neither the header with the token nor
--- JSON without asking first, and browsers name its origin.
local function foreign(self, request)
  local bearer, origin = (request:header "Authorization" or ""):match "^Bearer (.+)$", request:header "Origin"
  local site = request:header "Sec-Fetch-Site"
  if not same(bearer, self.token) then return "the token must come as Authorization: Bearer" end
  if not (request:header "Content-Type" or ""):find "^application/json" then return "the body must be application/json" end
  if origin and origin ~= "http://" .. request:header "Host" then return "another origin" end
  if site and site ~= "same-origin" and site ~= "none" then return "another site" end
end

local function answer(self, request)
  local path, method, out = request:path(), request:method(), nil
  if method == "POST" and writes[path] then
    local why = not allowed(self, request) and "This address needs the token that accel-run ui printed." or foreign(self, request)
    out = why and text(403, why .. "\n") or writes[path](self, request)
  elseif method ~= "GET" and method ~= "HEAD" then
    out = text(405, "only GET and HEAD\n")
    out.headers.Allow = "GET, HEAD"
  elseif not allowed(self, request) then
    out = text(403, "This address needs the token that accel-run ui printed.\n")
  elseif path == "/" then
    local nonce = environment.random_id(24)
    out = text(200, page(nonce), "text/html; charset=utf-8")
    out.headers["Content-Security-Policy"] = ("default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; img-src 'self' data:; "
      .. "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"):format(nonce, nonce)
  elseif routes[path] then
    out = routes[path](self, request)
  else
    out = text(404, "there is nothing here\n")
  end
  local h = out.headers
  h["Cache-Control"], h["X-Content-Type-Options"], h["Referrer-Policy"] = "no-store", "nosniff", "no-referrer"
  h["Cross-Origin-Resource-Policy"], h["X-Frame-Options"] = "same-origin", "DENY"
  return out
end

-- ---- changes ----

local function send(self, bytes, events)
  local alive = {}
  for _, stream in ipairs(self.streams) do
    local there = self.server:send(stream.id, bytes)
    stream.left = stream.left - events
    if there and stream.left > 0 then alive[#alive + 1] = stream else self.server:finish(stream.id) end
  end
  self.streams = alive
end

local function event(self, name, value) send(self, ("event: %s\ndata: %s\n\n"):format(name, accel.json.encode(value)), 1) end

--- Compares the store with its known state. Streams are notified of the differences.
local function look(self)
  local version = read(self, "PRAGMA data_version")[1].data_version
  local running = self.running
  if version == self.version and not running then return end
  if version ~= self.version then
    local grown, first = {}, next(self.known) == nil
    for _, s in ipairs(read(self, "SELECT id, run, n FROM series")) do
      if self.known[s.id] ~= s.n then
        grown[#grown + 1] = accel.json.array { s.id, s.run, s.n }
        self.known[s.id] = s.n
      end
    end
    if #grown > 0 and not first then event(self, "change", { series = accel.json.array(grown) }) end
    self.version = version
  end
  local states, any = {}, false
  for i, run in ipairs(assert(self.store:runs())) do
    states[i] = run.uid .. run.status .. (run.series or 0)
    any = any or run.status == "running"
  end
  local all = table.concat(states, " ") .. read(self, "SELECT count(*) || ' ' || coalesce(max(id), 0) AS n FROM records")[1].n
  self.running = any
  if self.states and self.states ~= all then event(self, "runs", { runs = #states }) end
  self.states = all
end

--- Serves for up to so many seconds. Errors of a handler are printed on stderr.
---@param seconds number
function Server:poll(seconds)
  local now = accel.clock()
  local ok, message = self.server:poll(math.max(0, math.min(seconds, self.next_look - now)), function(request) return answer(self, request) end)
  if not ok then io.stderr:write("accel-run ui: ", tostring(message), "\n") end
  now = accel.clock()
  if now >= self.next_look then
    if #self.streams > 0 then look(self) end
    self.next_look = now + LOOK_SECONDS
  end
  if now >= self.next_beat then -- finds clients that have left
    if #self.streams > 0 then send(self, ": \n\n", 0) end
    self.next_beat = now + BEAT_SECONDS
  end
end

--- Stops.
function Server:close()
  self.server:close()
  self.store:close()
  if self.writer then self.writer:close() end
end

return Server
