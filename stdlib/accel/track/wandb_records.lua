--- The W&B tracker's own records: wandb_internal.Record of W&B's protocol, encoded, for the transaction log that host/track/wandb.c writes.
--- Names and numbers of fields come from wandb_internal.proto. Used by wandb.lua.
local accel = require "accel"
local proto = require "accel.util.proto"

local int, bytes = proto.int, proto.bytes

local M = {}

-- Fields of Record, and values of FilesItem's enums.
local HISTORY <const>, SUMMARY <const>, CONFIG <const>, FILES <const>, RUN <const>, EXIT <const>, HEADER <const> = 2, 3, 5, 6, 17, 18, 21
local NOW <const>, MEDIA <const> = 0, 2

--- JSON as W&B reads it, which has NaN and infinities.
---@param x any
---@return string
function M.json(x)
  if type(x) == "number" and x - x ~= 0 then return x ~= x and "NaN" or x > 0 and "Infinity" or "-Infinity" end
  if type(x) == "table" then
    local parts = {}
    if #x > 0 or next(x) == nil and getmetatable(x) ~= nil then
      for i, y in ipairs(x) do parts[i] = M.json(y) end
      return "[" .. table.concat(parts, ",") .. "]"
    end
    for key, y in accel.pairs(x) do parts[#parts + 1] = accel.json.encode(tostring(key)) .. ":" .. M.json(y) end
    return "{" .. table.concat(parts, ",") .. "}"
  end
  if type(x) == "number" and math.type(x) == "float" and x == math.floor(x) and math.abs(x) < 2 ^ 53 then x = math.floor(x) end
  return accel.json.encode(x)
end

--- A record. num: its position in the log, from 1.
local function record(num, field, message) return int(1, num) .. bytes(field, message) end

--- Items of a config (key 1) or of history and summary (nested_key 2), with values as JSON.
local function items(field, key, values)
  local out = {}
  for name, text in accel.pairs(values) do out[#out + 1] = bytes(field, bytes(key, name) .. bytes(16, text)) end
  return table.concat(out)
end

--- The first record.
---@param num integer
---@param producer string
---@return string
function M.header(num, producer) return record(num, HEADER, bytes(1, bytes(1, producer) .. bytes(2, "0.0.1"))) end

--- The run. o: id, project, entity, group, job_type, name, notes, tags, host, started (seconds since 1970), remote and commit (of git),
--- config (values as JSON), resume.
---@param num integer
---@param o table
---@return string
function M.run(num, o)
  local out = {}
  local function text(field, s) if s then out[#out + 1] = bytes(field, s) end end
  text(1, o.id)
  text(2, o.entity)
  text(3, o.project)
  text(4, items(1, 1, o.config))
  text(6, o.group)
  text(7, o.job_type)
  text(8, o.name)
  text(9, o.notes)
  for _, tag in ipairs(o.tags or {}) do text(10, tag) end
  text(13, o.host)
  local whole = math.floor(o.started)
  text(17, int(1, whole) .. int(2, math.floor((o.started - whole) * 1e9)))
  if o.commit then text(21, (o.remote and bytes(1, o.remote) or "") .. bytes(2, o.commit)) end
  if o.resume then out[#out + 1] = int(24, 1) end
  return record(num, RUN, table.concat(out))
end

--- The run's configuration, with values as JSON.
---@param num integer
---@param values table<string, string>
---@return string
function M.config(num, values) return record(num, CONFIG, items(1, 1, values)) end

--- The values of a step, as JSON.
---@param num integer
---@param step integer
---@param values table<string, string>
---@return string
function M.history(num, step, values) return record(num, HISTORY, items(1, 2, values) .. bytes(2, step ~= 0 and int(1, step) or "")) end

--- The last values, as JSON.
---@param num integer
---@param values table<string, string>
---@return string
function M.summary(num, values) return record(num, SUMMARY, items(1, 2, values)) end

--- A file below the folder's files/, which is sent.
---@param num integer
---@param path string
---@return string
function M.file(num, path) return record(num, FILES, bytes(1, bytes(1, path) .. int(2, NOW) .. int(3, MEDIA))) end

--- The end.
---@param num integer
---@param code integer
---@param seconds integer
---@return string
function M.exit(num, code, seconds) return record(num, EXIT, int(1, code) .. int(2, seconds)) end

return M
