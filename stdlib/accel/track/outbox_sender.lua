--- Sends the journals of outboxes: in a thread during training (accel.worker starts this file), and for `accel-run runs sync`.
---
--- PATH.sent holds the number of journal bytes that the server has accepted, and the driver's data about it (ids). It is written
--- atomically after every batch. A batch whose answer is lost is sent again: drivers make that harmless, by ids that are the journal's
--- own. A driver (send_*.lua) is a function of (setup, uid, request) that returns
---   begin(state)            makes or finds the remote run. Returns true, or nil, message, kind
---   send(state, entries)    true, or nil, message, kind. entries have `at`, their position in the journal
---   size                    entries per batch
--- kind: "retry" (the default: it may succeed later), or "permanent" (it never will: the entry is left out, with a
--- warning).
local accel = require "accel"
local address = require "accel.util.address"
local core = require "accel.track.core"
local lfs = require "lfs"
local open_read = require("accel.file.core").open_read

local CHUNK <const>, IDLE <const>, LONGEST <const>, SLICE <const> = 1 << 19, 0.2, 30, 0.2

local M = {}

local drivers <const> = { mlflow = "send_mlflow", trackio = "send_trackio", clearml = "send_clearml", comet_ml = "send_comet_ml" }

local function exists(path) return lfs.attributes(path, "mode") ~= nil end

local function authorized(headers)
  for _, header in ipairs(headers or {}) do
    if header:lower():find "^authorization:" then return true end
  end
  return false
end

--- A request with a JSON answer: the decoded answer. On failure nil, message, kind, decoded answer of a refusal,
--- status.
local function request_of(stop, taken, credentials)
  return function(o)
    local user = o.user or not authorized(o.headers) and credentials or nil
    local given = { method = o.method, url = o.url, user = user, file = o.file, seconds = o.seconds or 20, stop = stop, headers = {} }
    for _, header in ipairs(o.headers or {}) do given.headers[#given.headers + 1] = header end
    if o.json then
      given.body = accel.json.encode(o.json)
      given.headers[#given.headers + 1] = "Content-Type: application/json"
    elseif o.body then given.body = o.body end
    local status, body, code = core.request(given)
    if not status then return nil, body, code == "invalid_argument" and "permanent" or "retry" end
    local ok, value = pcall(accel.json.decode, body)
    if status >= 200 and status < 300 then
      if o.plain or ok and body:find "^%s*{" then
        taken.n = taken.n + 1
        return ok and type(value) == "table" and value or {}
      end
      return nil, ("%s: the answer is not JSON: %s"):format(address.shown(o.url), (body:sub(1, 60):gsub("[^%g ]", "."))), "retry"
    end
    local text = ok and type(value) == "table" and tostring(value.message or value.msg or value.error or value.error_code or "") or ""
    local later = status == 408 or status == 425 or status == 429 or status == 401 or status == 403 or status >= 500
      or not (ok and type(value) == "table") -- somebody else answers in the server's place
    local message = ("%s: status %d%s"):format(address.shown(o.url), status, text ~= "" and ": " .. text:sub(1, 200) or "")
    return nil, message, later and "retry" or "permanent", ok and value or nil, status
  end
end

--- The state of a journal: its head and its sent length. On failure returns nil, message.
local function open(path)
  local file, message = open_read(path)
  if not file then return nil, message end
  local line = file:read "L"
  file:close()
  local ok, head = pcall(accel.json.decode, line or "")
  if not ok or type(head) ~= "table" or not drivers[head.tracker or ""] then return nil, path .. " is not the journal of an outbox" end
  local sent, state = #line, {}
  local saved = open_read(path .. ".sent")
  if saved then
    local good, value = pcall(accel.json.decode, saved:read "a")
    saved:close()
    if good and type(value) == "table" and math.tointeger(value.sent) then sent, state = value.sent, value.state or {} end
  end
  return { path = path, head = head, sent = sent, state = state }
end

--- Whole lines of the journal after the sent part, as entries, and the position of their end.
local function read(journal)
  local file = open_read(journal.path)
  if not file then return {}, journal.sent end
  file:seek("set", journal.sent)
  local text = file:read(CHUNK) or ""
  if #text == CHUNK and not text:find "\n" then text = text .. (file:read "L" or "") end
  file:close()
  local entries, at = {}, journal.sent
  for line in text:gmatch "[^\n]*\n" do
    local ok, entry = pcall(accel.json.decode, line)
    if ok and type(entry) == "table" then
      entry.at, entry.after = at, at + #line
      entries[#entries + 1] = entry
    end
    at = at + #line
  end
  return entries, at
end

local function save(journal)
  return accel.write_file(journal.path .. ".sent", accel.json.encode { sent = journal.sent, state = journal.state }, { private = true })
end

--- One batch: "idle", "sent" or "done". nil, message if it must be retried.
local function round(journal, driver, warn)
  local entries, after = read(journal)
  if #entries == 0 then
    journal.sent = after
    return "idle"
  end
  if not journal.begun then
    local ok, message, kind = driver.begin(journal.state)
    if not ok then
      if kind == "permanent" then warn(message) end
      return nil, message
    end
    journal.begun = true
    save(journal)
  end
  local batch, ended = {}, false
  for _, entry in ipairs(entries) do
    batch[#batch + 1] = entry
    ended = entry.k == "end"
    if #batch >= driver.size or ended then break end
  end
  local ok, message, kind = driver.send(journal.state, batch)
  if not ok and kind == "permanent" and #batch > 1 then -- which of them it is
    for _, entry in ipairs(batch) do
      ok, message, kind = driver.send(journal.state, { entry })
      if not ok and kind ~= "permanent" then break end
      if not ok then warn(("left out: %s"):format(message)) end
      journal.sent, ok = entry.after, true
    end
  elseif not ok and kind == "permanent" then
    warn(("left out: %s"):format(message))
    ok = true
  end
  if not ok then return nil, message end
  journal.sent = batch[#batch].after
  save(journal)
  return ended and "done" or "sent"
end

local function clean(journal)
  os.remove(journal.path)
  os.remove(journal.path .. ".sent")
  local folder = journal.path:match "^(.*)/[^/]*$"
  if folder and #(accel.listdir(folder) or { "" }) == 0 then os.remove(folder) end
end

--- Secrets that a run had in the address of its server and that the journal omits: from the environment variable that named
--- it.
local function credentials_of(setup)
  local variable = type(setup) == "table" and setup.credentials_from
  if variable ~= "MLFLOW_TRACKING_URI" and variable ~= "TRACKIO_SERVER_URL" and variable ~= "CLEARML_API_HOST"
    and variable ~= "COMET_URL_OVERRIDE" then return nil end
  local bare, user = address.split(os.getenv(variable) or "")
  return bare:gsub("/+$", "") == setup.url and user or nil
end

--- Sends a journal until its end is sent (true), or `go_on` returns no (false).
---@param path string
---@param warn fun(text: string)
---@param go_on fun(state: string): boolean asked between batches: "idle", "sent" or "failed"
---@param credentials? string "user:password" of the server [from the address in the environment]
---@return boolean? done, string? message if the journal cannot be read
function M.send(path, warn, go_on, credentials)
  local journal, why = open(path)
  if not journal then return nil, why end
  local stop = path .. ".stop"
  local taken = { n = 0 } -- requests that the server answered well
  local setup = journal.head.setup
  if type(setup) == "table" and type(setup.url) == "string" then -- journals of earlier versions had them in the address
    local bare, user = address.split(setup.url)
    setup.url, credentials = bare, credentials or user
  end
  credentials = credentials or credentials_of(setup)
  local driver = require("accel.track." .. drivers[journal.head.tracker])(setup, journal.head.uid, request_of(stop, taken, credentials))
  local wait, failing, told = 0, false, 0
  local function warn_some(text) -- report twenty refusals of one server
    told = told + 1
    if told <= 20 then warn(text) end
  end
  while true do
    local before = taken.n
    local fine, state, message = pcall(round, journal, driver, warn_some)
    if not fine then state, message = nil, "an answer that makes no sense: " .. tostring(state) end -- JSON of another shape
    if state == "done" then
      clean(journal)
      return true
    end
    if state then
      if failing then warn_some "the server answers again" end
      wait, failing = state == "idle" and IDLE or 0, false
    else
      if not failing then warn_some(("%s; training continues, and sending is retried"):format(message)) end
      wait, failing = taken.n > before and 0.5 or math.min(LONGEST, math.max(0.5, wait * 2)), true
    end
    local until_ = accel.clock() + wait
    repeat
      if exists(stop) or not go_on(state or "failed") then return false end
      local left = until_ - accel.clock()
      if left > 0 then core.pause(math.min(SLICE, left)) end
    until accel.clock() >= until_
  end
end

--- The thread that runs during training.
local function thread(setup, endpoint)
  local done, message = M.send(setup.path, function(text) endpoint:send { warn = text } end, function() return true end, setup.credentials)
  if done == nil then endpoint:send { warn = message } end
  endpoint:send { done = done or nil, stopped = not done or nil }
end

return setmetatable(M, { __call = function(_, ...) return thread(...) end })
