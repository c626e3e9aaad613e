-- What the kinds of data_files.lua share: expected values, tensors within a row's tolerance, JSON trees.
local accel = require "accel"

local M = {}

--- A figure of /proc/self/status in KiB, 0 where the system has none.
function M.status(name)
  local f <close> = io.open("/proc/self/status")
  return f and tonumber(f:read("a"):match(name .. ":%s*(%d+)")) or 0
end

function M.read_json(path)
  local f <close> = assert(io.open(path, "rb"))
  return accel.json.decode(f:read "a", { nulls = true, records = true })
end

local last_path, last_value -- rows of one picture lie side by side and share one file

--- The expected values of a row: a JSON value, or tensors by name. A row's key chooses a part of its file.
function M.expected(dir, row)
  local path = dir .. "/" .. row.expected
  if path ~= last_path then
    last_value = path:find "%.json$" and M.read_json(path) or assert(accel.load(path))
    last_path = path
  end
  if not row.key then return last_value end
  if path:find "%.json$" then return last_value[row.key] end
  local out, prefix = {}, row.key .. "/"
  for name, t in next, last_value do
    if name:sub(1, #prefix) == prefix then out[name:sub(#prefix + 1)] = t end
  end
  return out
end

local function same_bits(a, b)
  return a.dtype == b.dtype and a:contiguous():to_bytes() == b:contiguous():to_bytes()
end

--- Reports a tensor that is not the expected one within the row's tolerance: 0 for equal, or the bars that the README lists.
function M.tensor(report, name, got, want, tolerance)
  if tostring(got.shape) ~= tostring(want.shape) then return report(name, tostring(got.shape), tostring(want.shape)) end
  if same_bits(got, want) or want:numel() == 0 then return end
  local a, b = got:to "f64", want:to "f64"
  local both_nan = a:ne(a):logical_and(b:ne(b))
  local same = a:eq(b):logical_or(both_nan)
  local gap = accel.where(same, accel.zeros_like(a), (a - b):abs())
  local largest = gap:ne(gap):any():item() and math.huge or gap:max():item()
  local function above(what, value, bar)
    if not (value <= bar) then report(name .. ", " .. what, ("%.4g"):format(value), bar) end
  end
  if type(tolerance) ~= "table" then tolerance = { max_abs = tolerance or 0 } end
  local bar = tolerance.max_abs or tolerance.rel_max and tolerance.rel_max * b:abs():max():item()
  if tolerance.share_off and bar then
    above("share of values above the bar", gap:gt(bar):to("f64"):mean():item(), tolerance.share_off)
  elseif bar then
    above("largest difference", largest, bar)
  end
  if tolerance.mean_abs then above("mean difference", gap:mean():item(), tolerance.mean_abs) end
end

local function show(v) return type(v) == "table" and accel.json.encode(v) or tostring(v) end

--- Reports the first place where two JSON values differ. Integers and floats of one value are equal.
function M.tree(report, name, got, want)
  if got == want then return end
  local both = type(got) == "table" and type(want) == "table" and got ~= accel.json.null and want ~= accel.json.null
  if not both then return report(name, show(got):sub(1, 200), show(want):sub(1, 200)) end
  for k, w in pairs(want) do
    if got[k] ~= w then return M.tree(report, ("%s/%s"):format(name, k), got[k], w) end
  end
  for k in pairs(got) do
    if want[k] == nil then return report(("%s/%s"):format(name, k), show(got[k]):sub(1, 200), "nothing") end
  end
end

return M
