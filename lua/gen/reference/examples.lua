--- Examples in comments, "EXPR --> EXPECTED": taken apart, run, compared. Used by the reference page, which
--- shows them, and by its test, which runs every one.
---
--- EXPR is an expression, or a chunk that ends in `return ...`, with `accel` in scope. EXPECTED lists the results as
--- Lua literals: tensors as nested lists, a tensor of rank 0 as a number. It may contain inf and nan.
local M = {}

local TOLERANCE = 1e-4 -- absolute below 1, relative above

--- Code and expectation. nil when the line has no arrow.
---@param line string
---@return string? code
---@return string? expected
function M.split(line)
  return line:match("^(.*%S)%s+%-%->%s*(.-)%s*$")
end

local function shown(v)
  if type(v) == "number" then return ("%.7g"):format(v) end
  if type(v) == "string" then return ("%q"):format(v) end
  if type(v) ~= "table" then return tostring(v) end
  local parts = {}
  for i, x in ipairs(v) do parts[i] = shown(x) end
  for k, x in pairs(v) do
    if type(k) ~= "number" then parts[#parts + 1] = ("%s = %s"):format(tostring(k), shown(x)) end
  end
  return "{ " .. table.concat(parts, ", ") .. " }"
end

-- Tensors become lists, including those inside tables.
local function plain(accel, v)
  if accel.is_tensor(v) then
    if #v.shape == 0 then return v:item() end
    return v:detach():tolist()
  end
  if type(v) ~= "table" or getmetatable(v) then return v end
  local t = {}
  for k, x in pairs(v) do t[k] = plain(accel, x) end
  return t
end

local function same(got, want)
  if type(want) == "number" and type(got) == "number" then
    if want ~= want then return got ~= got end
    return got == want or math.abs(got - want) <= TOLERANCE * math.max(1, math.abs(want))
  end
  if type(want) ~= "table" or type(got) ~= "table" then return got == want end
  for k, x in pairs(want) do
    if not same(got[k], x) then return false end
  end
  for k in pairs(got) do
    if want[k] == nil then return false end
  end
  return true
end

--- A chunk of EXPR with access to `accel`. nil and the reason when it is not Lua.
---@return function?
---@return string?
function M.compile(accel, code)
  local env = setmetatable({ accel = accel }, { __index = _G })
  return load("return " .. code, "=example", "t", env) or load(code, "=example", "t", env)
end

--- Runs one line. True, or false and why not.
---@param accel table
---@param line string
---@return boolean
---@return string?
function M.run(accel, line)
  local code, expected = M.split(line)
  if not code then return false, "no ' --> ' with the result" end
  local f, why = M.compile(accel, code)
  if not f then
    local _, chunk_why = load(code, "=example")
    return false, chunk_why or why
  end
  local want = load("return " .. expected, "=expected", "t", { math = math, inf = math.huge, nan = 0 / 0 })
  if not want then return false, "the expected result is not Lua: " .. expected end
  accel.manual_seed(0)
  local got = table.pack(pcall(f))
  if not got[1] then return false, tostring(got[2]) end
  local wants = table.pack(want())
  if got.n - 1 ~= wants.n then return false, ("%d results, not %d"):format(got.n - 1, wants.n) end
  for i = 1, wants.n do
    local v = plain(accel, got[i + 1])
    if not same(v, wants[i]) then return false, ("result %d is %s, not %s"):format(i, shown(v), shown(wants[i])) end
  end
  return true
end

return M
