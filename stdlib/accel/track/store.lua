--- Store: reads the runs of a run store, for scripts, `accel-run runs` and `accel-run ui`.
local accel = require "accel"
local annotations = require "accel.track.annotations"
local class = require "accel.util.class"
local core = require "accel.track.core"
local options = require "accel.util.options"
local raise = require "accel.util.raise"
local Run = require "accel.track.run"

local LOST_SECONDS <const> = 30

--- Reads DIR/runs.db, even while runs write it. Every method returns nil, message, code if the file cannot be read.
--- example: local store, message, code = accel.track.Store.open "/tmp/there-is-none" return store == nil, code --> true, "not_found"
---@class accel.track.Store
---@field path string
local Store = class "accel.track.Store"

---@param where string folder, or file
---@param opts? {write: boolean?}
function Store:init(where, opts, ...)
  local o = options("Store", opts, { write = false }, ...)
  self.path = Run.path_of(where)
  local core_, message = core.open_store(self.path, o.write)
  if not core_ then raise("Store: %s", message) end
  self.core = core_
end

--- The store of a folder. On failure returns nil, message, code.
---@param where string
---@param opts? {write: boolean?}
---@return accel.track.Store?, string?, string?
function Store.open(where, opts, ...)
  local o = options("Store.open", opts, { write = false }, ...)
  local core_, message, code = core.open_store(Run.path_of(where), o.write)
  if not core_ then return nil, message, code end
  core_:close()
  return Store(where, opts)
end

--- Rows of a statement of SQL, by the names of their columns.
---@param sql string
---@param ... any for its question marks
---@return table[]? rows, integer|string changes, string? code
function Store:rows(sql, ...) return self.core:rows(sql, ...) end

local host_name
local function this_host()
  if not host_name then
    local file = io.open "/proc/sys/kernel/hostname"
    host_name = file and file:read "l" or ""
    if file then file:close() end
  end
  return host_name
end

--- The state of a run: for one recorded as running, whether its process exists. "killed" if it does not.
local function settle(run, now)
  if run.status ~= "running" then return end
  local lost = now - run.heartbeat > LOST_SECONDS
  if not lost and run.host == this_host() and now - run.heartbeat > 3 then
    local file = io.open(("/proc/%d/stat"):format(run.pid))
    if file then file:close() else lost = true end
  end
  if lost then run.status, run.ended = "killed", run.heartbeat end
end

local function seconds() return os.time() end

--- The runs, the last one first, each with its row of the table, `environment` decoded, `series`, the number of its series, and what is
--- noted about it: `group`, `tags`, `notes`, `sweep`.
---@return table[]? runs, string? message, string? code
function Store:runs()
  local list, message, code = self.core:rows [[SELECT r.*, (SELECT count(*) FROM series s WHERE s.run=r.id) AS series,
    (SELECT max(last_step) FROM series s WHERE s.run=r.id AND s.tag NOT LIKE 'system/%') AS last_step
    FROM runs r ORDER BY r.started DESC, r.id DESC]]
  if not list then return nil, message, code end
  local notes
  notes, message, code = self.core:rows [[SELECT x.run, x.tag, x.data FROM runs r JOIN records x ON x.run=r.id AND x.kind='annotation' ORDER BY x.id]]
  if not notes then return nil, message, code end
  local of = {}
  for _, row in ipairs(notes) do
    of[row.run] = of[row.run] or {}
    of[row.run][row.tag] = annotations.decode(row.tag, row.data)
  end
  local now = seconds()
  for _, run in ipairs(list) do
    settle(run, now)
    for key in next, annotations.KEYS do run[key] = of[run.id] and of[run.id][key] end
    local ok, value = pcall(accel.json.decode, run.environment)
    run.environment = ok and type(value) == "table" and value or {}
  end
  return list
end

--- The run that a word means: its id, the begin of one, its name (the last of several), or "last", "last~1" (the one
--- before), ...
---@param word string
---@return table? run, string? message, string? code
function Store:find(word)
  local list, message, code = self:runs()
  if not list then return nil, message, code end
  local back = word == "last" and 0 or math.tointeger(tonumber(word:match "^last~(%d+)$"))
  if back then
    if list[back + 1] then return list[back + 1] end
    return nil, ("%s has %d run%s"):format(self.path, #list, #list == 1 and "" or "s"), "not_found"
  end
  local begins, names = {}, {}
  for _, run in ipairs(list) do
    if run.uid == word then return run end
    if run.uid:sub(1, #word) == word then begins[#begins + 1] = run end
    names[#names + 1] = run.name
    names[#names + 1] = run.uid
  end
  for _, run in ipairs(list) do
    if run.name == word then return run end
  end
  if #begins == 1 then return begins[1] end
  if #begins > 1 then return nil, ("'%s' begins the ids of %d runs"):format(word, #begins), "invalid_argument" end
  local near = require "accel.util.nearest"(word, names)
  return nil, ("%s has no run '%s'%s"):format(self.path, word, near and ("; did you mean '%s'?"):format(near) or ""), "not_found"
end

--- A run's configuration.
---@param run table|integer
---@return table<string, any>? config, string? message, string? code
function Store:config(run)
  local list, message, code = self.core:rows("SELECT key, value FROM config WHERE run=?", type(run) == "table" and run.id or run)
  if not list then return nil, message, code end
  local out = {}
  for _, row in ipairs(list) do
    local ok, value = pcall(accel.json.decode, row.value)
    if ok then out[row.key] = value else out[row.key] = row.value end
  end
  return out
end

--- The series of a run by name: rows of the table.
---@param run table|integer
---@return table[]? list, string? message, string? code
function Store:series(run)
  return self.core:rows("SELECT * FROM series WHERE run=? ORDER BY tag", type(run) == "table" and run.id or run)
end

--- A series in at most `points` points, each the mean of neighbours, with the least and the most of them.
---@param id integer of the series
---@param opts? {axis: "step"|"wall"?, from: number?, to: number?, points: integer?}
---@return {x: number[], y: number[], min: number[], max: number[]}? curve, string? message, string? code
function Store:curve(id, opts, ...)
  local o = options("curve", opts, { axis = "step", from = -math.huge, to = math.huge, points = 1000 }, ...)
  local bytes, message, code = self.core:curve(id, o.axis, o.from, o.to, o.points)
  if not bytes then return nil, message, code end
  local out = { x = {}, y = {}, min = {}, max = {} }
  for i = 1, #bytes // 32 do
    out.x[i], out.y[i], out.min[i], out.max[i] = ("<dddd"):unpack(bytes, 32 * i - 31)
  end
  return out
end

--- Points lie by step: the first bucket that ends at this time or later, with its neighbours, tells which steps to search. After the
--- last bucket that is every step from there on.
local function near_wall(self, id, x)
  local list, message, code = self.core:rows("SELECT idx FROM buckets WHERE series=? AND level=1 AND wall1>=? ORDER BY idx LIMIT 1", id, x)
  if not list then return nil, message, code end
  local idx = list[1] and list[1].idx
  list, message, code = self.core:rows(idx and "SELECT min(step0) AS a, max(step1) AS b FROM buckets WHERE series=?1 AND level=1"
    .. " AND idx BETWEEN ?2-1 AND ?2+1" or "SELECT step0 AS a, NULL AS b FROM buckets WHERE series=?1 AND level=1 AND idx>=?2"
    .. " ORDER BY idx DESC LIMIT 1", id, idx or 0)
  if not list then return nil, message, code end
  local range = list[1] or {}
  list, message, code = self.core:rows("SELECT step, wall, value FROM points WHERE series=? AND step BETWEEN ? AND ?"
    .. " ORDER BY abs(wall-?), seq DESC LIMIT 1", id, range.a or math.mininteger, range.b or math.maxinteger, x)
  if not list then return nil, message, code end
  return list[1] or {}
end

--- The point of a series that is nearest to a place of an axis, of equal ones the last logged. An empty table for a series without points.
---@param id integer of the series
---@param x number
---@param opts? {axis: "step"|"wall"?}
---@return {step: integer?, wall: number?, value: number?}? point value is nil where it is not a number
---@return string? message, string? code
function Store:near(id, x, opts, ...)
  local o = options("near", opts, { axis = "step" }, ...)
  if o.axis ~= "step" and o.axis ~= "wall" then raise("near: axis must be 'step' or 'wall', got '%s'", tostring(o.axis)) end
  if o.axis == "wall" then return near_wall(self, id, x) end
  local best
  for _, sql in ipairs { "step<=? ORDER BY step DESC, seq DESC", "step>? ORDER BY step, seq DESC" } do
    local list, message, code = self.core:rows("SELECT step, wall, value FROM points WHERE series=? AND " .. sql .. " LIMIT 1", id, x)
    if not list then return nil, message, code end
    if list[1] and (not best or math.abs(list[1].step - x) < math.abs(best.step - x)) then best = list[1] end
  end
  return best or {}
end

--- Values other than numbers, of a kind ("text", "image", "histogram", "table", "artifact", "alert"), by step, without the bytes of
--- images.
---@param run table|integer
---@param kind string
---@return table[]? list, string? message, string? code
function Store:records(run, kind)
  local data = kind == "image" and "NULL" or "data"
  local list, message, code = self.core:rows(("SELECT id, kind, tag, step, wall, meta, %s AS data FROM records WHERE run=? AND kind=?"
    .. " ORDER BY tag, step, id"):format(data), type(run) == "table" and run.id or run, kind)
  if not list then return nil, message, code end
  for _, row in ipairs(list) do
    local ok, value = pcall(accel.json.decode, row.meta or "{}")
    row.meta = ok and value or {}
  end
  return list
end

--- Notes something about a run, in place of what was noted under this key. An empty text or list removes it. The store must be open for
--- writing.
---@param run table|integer
---@param key "group"|"tags"|"notes"|"sweep"
---@param value string|string[]|table
---@return boolean? ok, string? message, string? code
function Store:annotate(run, key, value)
  local data, wrong = annotations.encode(key, value)
  if not data then return nil, wrong, "invalid_argument" end
  local id = type(run) == "table" and run.id or run
  local list, message, code = self.core:rows("SELECT coalesce(max(id), 0) AS id FROM records WHERE run=? AND kind='annotation' AND tag=?", id, key)
  if not list then return nil, message, code end
  local last = list[1].id
  if data ~= "" and data ~= "[]" then
    list, message, code = self.core:rows("INSERT INTO records(run, kind, tag, step, wall, data) SELECT id, 'annotation', ?2, 0, ?3, ?4 FROM runs"
      .. " WHERE id=?1", id, key, core.now(), data)
    if not list then return nil, message, code end
    if message == 0 then return nil, "there is no such run", "not_found" end
  end
  list, message, code = self.core:rows("DELETE FROM records WHERE run=? AND kind='annotation' AND tag=? AND id<=?", id, key, last)
  if not list then return nil, message, code end
  return true
end

--- Removes a run and all its data. The file keeps its size until it is packed.
---@param run table|integer
---@return integer? removed, string? message, string? code
function Store:remove(run)
  local id = type(run) == "table" and run.id or run
  for _, sql in ipairs {
    "DELETE FROM points WHERE series IN (SELECT id FROM series WHERE run=?)",
    "DELETE FROM buckets WHERE series IN (SELECT id FROM series WHERE run=?)", "DELETE FROM series WHERE run=?",
    "DELETE FROM records WHERE run=?", "DELETE FROM config WHERE run=?" } do
    local list, message, code = self.core:rows(sql, id)
    if not list then return nil, message, code end
  end
  local list, changes, code = self.core:rows("DELETE FROM runs WHERE id=?", id)
  if not list then return nil, changes, code end
  return changes
end

--- Gives the memory of removed runs back to the disk.
---@return boolean? ok, string? message, string? code
function Store:pack()
  local list, message, code = self.core:rows "VACUUM"
  if not list then return nil, message, code end
  return true
end

--- Closes it. Only the first call has an effect.
function Store:close() self.core:close() end

return Store
