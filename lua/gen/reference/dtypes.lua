--- Which dtypes an op takes, found by trying: its examples are run until one calls it with tensors, then the
--- same call is made with each of them in every dtype, alone and together with those that had the same one.
local examples = require "reference.examples"

local M = {}

local ALL = { "f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool", "c64", "c128" }
local GROUPS = {
  { "floats", { "f64", "f32", "f16", "bf16" } },
  { "integers", { "i64", "i32", "i16", "i8", "u8" } },
  { "complex", { "c64", "c128" } },
}
-- Rarely supported storage dtypes: listed if an example uses one.
local SHORT = { "f8_e4m3", "f8_e5m2" }
local function short(dtype) return dtype:find("^f8_") ~= nil end

-- Every tensor among the arguments: the parameter it stands for, and the path to it.
local function slots_of(accel, op, args)
  local slots = {}
  local function look(v, name, path)
    if accel.is_tensor(v) then
      slots[#slots + 1] = { name = name, path = path, dtype = v.dtype }
    elseif type(v) == "table" then
      for i, x in ipairs(v) do look(x, name, { i, table.unpack(path) }) end
    end
  end
  for i = 1, args.n do
    local v = args[i]
    if type(v) == "table" and not accel.is_tensor(v) and #v == 0 then
      for k, x in pairs(v) do look(x, k, { k, i }) end
    else
      look(v, (op.params[i] or { name = "?" }).name, { i })
    end
  end
  return slots
end

local function copied(accel, v)
  if accel.is_tensor(v) then return short(v.dtype) and v or v:detach():clone() end
  if type(v) ~= "table" or getmetatable(v) then return v end
  local t = {}
  for k, x in pairs(v) do t[k] = copied(accel, x) end
  return t
end

-- The first call of the op that each example makes, with its arguments as they were before it.
local function captured(accel, op)
  local calls, call = {}, nil
  local plain, method = accel[op.name], accel.Tensor[op.name]
  local function spy(...)
    if not call then
      call = table.pack(...)
      for i = 1, call.n do call[i] = copied(accel, call[i]) end
    end
    return plain(...)
  end
  accel[op.name] = spy
  if method then accel.Tensor[op.name] = spy end
  for _, line in ipairs(op.examples) do
    local code = examples.split(line)
    local f = code and examples.compile(accel, code)
    call = nil
    if f then
      accel.manual_seed(0)
      pcall(f)
    end
    calls[#calls + 1] = call
  end
  accel[op.name] = plain
  if method then accel.Tensor[op.name] = method end
  return calls
end

-- dtype of the first result with these slots cast, true when there is no result, false when it is refused.
local function try(accel, f, args, slots, dtype)
  warn "@off" -- `to` warns of imaginary parts
  local ok, result = pcall(accel.no_grad, function()
    local a = copied(accel, args)
    for _, s in ipairs(slots) do
      local t = a
      for d = #s.path, 2, -1 do t = t[s.path[d]] end
      local x = t[s.path[1]]
      if accel.is_complex(x) and dtype:sub(1, 1) ~= "c" then x = accel.real(x) end
      t[s.path[1]] = x:to(dtype)
    end
    local r = f(table.unpack(a, 1, args.n))
    if type(r) == "table" then r = r[1] end
    return accel.is_tensor(r) and r.dtype or true
  end)
  warn "@on"
  return ok and result
end

-- Whether a call names the dtype that it wants.
local function names_dtype(args)
  for i = 1, args.n do
    local v = args[i]
    local word = type(v) == "table" and getmetatable(v) == nil and v.dtype or v
    for _, d in ipairs(ALL) do
      if word == d then return true end
    end
  end
  return false
end

-- Rows {names = {...}, gives = {[dtype] = dtype of the result}} in the order of the parameters: the dtypes that any of
-- the examples accepts. If a call sets the dtype, the result's dtype is not listed.
local function probe(accel, op)
  local rows, by_name = {}, {}
  for _, args in ipairs(captured(accel, op)) do
    local slots, f, told = slots_of(accel, op, args), accel[op.name], names_dtype(args)
    local seen = {}
    for _, slot in ipairs(slots) do
      local row = by_name[slot.name]
      if not row then
        row = { names = { slot.name }, gives = {} }
        by_name[slot.name], rows[#rows + 1] = row, row
      end
      local own, joint = {}, {}
      for _, s in ipairs(slots) do
        if s.name == slot.name then own[#own + 1] = s end
        if s.dtype == slot.dtype then joint[#joint + 1] = s end
      end
      for _, d in ipairs(short(slot.dtype) and SHORT or ALL) do
        if not row.gives[d] and not seen[slot.name] then
          local r = try(accel, f, args, joint, d) or try(accel, f, args, own, d)
          row.gives[d] = r and told and true or r
        end
      end
      seen[slot.name] = true
    end
  end
  return rows
end

local function alike(a, b)
  for _, names in ipairs { ALL, SHORT } do
    for _, d in ipairs(names) do
      if a.gives[d] ~= b.gives[d] then return false end
    end
  end
  return true
end

-- "floats, i64 and bool"
local function words(set)
  local list, rest = {}, {}
  for d in next, set do rest[d] = true end
  for _, group in ipairs(GROUPS) do
    local whole = true
    for _, d in ipairs(group[2]) do whole = whole and rest[d] end
    if whole then
      list[#list + 1] = group[1]
      for _, d in ipairs(group[2]) do rest[d] = nil end
    end
  end
  for _, names in ipairs { ALL, SHORT } do
    for _, d in ipairs(names) do
      if rest[d] then list[#list + 1] = d end
    end
  end
  if #list == 4 and list[3] == "complex" and list[2] == "integers" then return "every dtype" end
  if #list == 3 and list[1] == "floats" and list[2] == "integers" and list[3] == "bool" then return "every real dtype" end
  local last = table.remove(list)
  return #list == 0 and last or table.concat(list, ", ") .. " and " .. last
end

-- Accepted dtypes, sorted by the result's: "floats; integers and bool (gives f32)". Without `results`, or when all give
-- one dtype that follows from another argument, in one set.
local function text_of(row, results)
  local all, by, order, own = {}, {}, {}, {}
  for i = 1, #ALL + #SHORT do
    local d = ALL[i] or SHORT[i - #ALL]
    local r = row.gives[d]
    if r then
      all[d] = true
      if r == d or r == true then
        own[d] = true
      else
        if not by[r] then
          by[r], order[#order + 1] = {}, r
        end
        by[r][d] = true
      end
    end
  end
  if next(all) == nil then return "as in the example" end
  if not results then return words(all) end
  if #order == 1 and own[order[1]] and next(own, next(own)) == nil then -- one dtype for all
    by[order[1]][order[1]], own = true, {}
  end
  local parts = {}
  if next(own) then parts[1] = words(own) end
  for _, r in ipairs(order) do parts[#parts + 1] = ("%s (gives %s)"):format(words(by[r]), r) end
  return table.concat(parts, "; ")
end

local function constant(row)
  local one
  for _, d in ipairs(ALL) do
    local r = row.gives[d]
    if r then
      if one and r ~= one then return false end
      one = r
    end
  end
  return true
end

--- One line for the page, nil when the op takes no tensors.
---@param accel table
---@param op table an entry of ops.json
---@return string?
function M.line(accel, op)
  local rows, merged = probe(accel, op), {}
  local varies = false
  for _, row in ipairs(rows) do
    varies = varies or not constant(row)
    local found
    for _, m in ipairs(merged) do
      if not found and alike(m, row) then found = m end
    end
    if found then found.names[#found.names + 1] = row.names[1]
    else merged[#merged + 1] = row end
  end
  if #merged == 0 then return nil end
  local parts = {}
  for i, row in ipairs(merged) do
    local results = not constant(row) or (i == 1 and not varies)
    parts[i] = ("`%s` %s"):format(table.concat(row.names, "`, `"), text_of(row, results))
  end
  return "Dtypes: " .. table.concat(parts, ". ") .. "."
end

return M
