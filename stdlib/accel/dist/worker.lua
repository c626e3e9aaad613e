--- The program of a rank of accel.launch. It runs as accel-run worker.lua JOB, with the path of the encoded job (see
--- accel/launch.lua). It calls the function and writes its results, or the error that ends it, to the caller's memory.
local accel = require "accel"

local unlimited = { max_bytes = math.maxinteger }
local job_path = ...

local file = assert(io.open(job_path, "rb"))
local job = assert(accel.decode(file:read "a", unlimited))
file:close()
package.path, package.cpath = job.path, job.cpath
package.loaded["accel.dist.worker"] = true
local rank = math.tointeger(tonumber(os.getenv "RANK" or 0))

local function report(r)
  local bytes = accel.encode(r, unlimited)
  local out = assert(io.open(job.results[rank + 1], "wb"))
  assert(out:write(bytes))
  assert(out:close())
end

--- The error propagates unchanged, with the traceback of its origin.
local done = false
local failing <close> = setmetatable({}, { __close = function(_, err)
  if done and err == nil then return end
  local code = type(err) == "table" and rawget(err, "code")
  report { ok = false, message = accel.host_chunk "error_text"(err), code = type(code) == "string" and code or nil }
end })

local function entry()
  local value
  if job.parcel then return require "accel.util.parcel".unpack(job.parcel) end
  if job.module then
    value = require(job.module)
  else
    local chunk, why = loadfile(job.file, "t")
    if not chunk then error(why, 0) end
    value = chunk()
  end
  local f = type(value) == "table" and value.main or value
  if type(f) == "function" then return f end
  error(("launch: %s must return a function, or a table with one named main; it returned %s"):format(
    job.module and "module '" .. job.module .. "'" or job.file, type(value)), 0)
end

arg = { [0] = job.file, table.unpack(job.args, 1, job.n) }
local values = table.pack(entry()(table.unpack(job.args, 1, job.n)))
local n = values.n
values.n = nil
local ok, why = pcall(report, { ok = true, values = values, n = n })
if not ok then
  why = tostring(why):gsub("^.-encode: ", ""):gsub(" at %.values", " at result")
  error("launch: the function's result cannot be returned: " .. why, 0)
end
done = true
