--- Ops on a device against the CPU: the cases of the numeric tests in several dtypes and in other memory layouts, results and gradients.
local accel = require "accel"
local numbers = require "numbers"
local cases = require "op_cases"

local M = {}

local BAR = { f64 = 64, f32 = 48, bf16 = 4, f16 = 4 } -- roundings: sums run in another order, libm differs, fused ops are plain

local function stay(t) return t end

-- Inputs that lie otherwise than in one run, from what `place` puts there; nil for what has no such form.
local function reversed(t)
  local dims = {}
  for d = #t.shape, 1, -1 do dims[#dims + 1] = d end
  return t:permute(dims)
end
local layouts = {
  plain = function(t, place) return place(t) end,
  transposed = function(t, place) return #t.shape > 1 and reversed(place(reversed(t):contiguous())) or nil end,
  -- in one run that begins at no multiple of 16 bytes, nor of two elements
  offset = function(t, place)
    local before = accel.zeros(1, { dtype = t.dtype, device = t.device })
    return place(accel.cat { before, t:reshape(-1) }):narrow(1, 2, t:numel()):view(t.shape)
  end,
  step = function(t, place) return place(accel.stack({ t, t }, -1)):select(-1, 2) end, -- every other element
  repeated = function(t, place)
    return #t.shape > 0 and t.shape[#t.shape] > 1 and place(t):narrow(-1, 1, 1):expand(t.shape) or nil
  end,
}

local function placed(case, dtype, layout, place)
  accel.manual_seed(5) -- large inputs are drawn
  local t = cases.build(case, dtype)
  for i, x in ipairs(t) do t[i] = (layouts[layout](x, place) or place(x)):detach() end
  return t
end

-- Results and gradients as tensors on the CPU; nil and the message when the call fails.
local function outcome(case, f, t, dtype)
  local leaves = {}
  for i, s in ipairs(case.inputs) do
    if case.grad ~= false and numbers.EPS[dtype] and cases.wants_grad(s) then
      t[i].requires_grad = true
      leaves[#leaves + 1] = t[i]
    end
  end
  local ok, results = pcall(cases.run, case, f, t)
  if not ok then return nil, tostring(results) end
  local list, outs, cots = {}, {}, {}
  for j, r in ipairs(results) do
    list[#list + 1] = { "result " .. j, r:detach():to("cpu") }
    if r.requires_grad then
      outs[#outs + 1] = r
      accel.manual_seed(500 + j)
      cots[#cots + 1] = accel.rand(r.shape, { dtype = r.dtype, device = "cpu" }):to(r.device)
    end
  end
  if #outs > 0 then
    local good, g = pcall(accel.grad, outs, leaves, { grad_outputs = cots, allow_unused = true })
    if not good then return nil, tostring(g) end
    for i = 1, #leaves do
      if g[i] then list[#list + 1] = { "gradient " .. i, g[i]:detach():to("cpu") } end
    end
  end
  return list
end

local function same(case, got, want, what)
  assert(#got == #want, ("%s: %d results and gradients instead of %d"):format(what, #got, #want))
  for i, w in ipairs(want) do
    local a, b = got[i][2], w[2]
    local name = what .. ": " .. w[1]
    assert(numbers.same_shape(a.shape, b.shape) and a.dtype == b.dtype, name .. " has another shape or dtype")
    if a:contiguous():to_bytes() ~= b:contiguous():to_bytes() then
      local e, why = numbers.distance(numbers.flat(a), numbers.flat(b), case.floor)
      local precision = case.single and b.dtype == "f64" and "f32" or b.dtype
      local bar = (BAR[precision] or 0) * (numbers.EPS[precision] or 0) * (case.loss or 1)
      assert(e <= bar, ("%s: error %.3g, bar %.3g%s"):format(name, e, bar, why and " (" .. why .. ")" or ""))
    end
  end
end

--- Runs all cases (of the op that arg[1] names). Calls that the device has no kernel for are counted, not compared.
---@param device string
---@param dtypes string[]
---@return integer failed
---@return table<string, string> unsupported by op: the op that has no kernel, or why a case is not taken
---@return table<string, integer> compared cases by op
function M.run(device, dtypes)
  local unsupported, compared = {}, {}
  local function move(t) return t:to(device) end
  local taken = cases.one_of(6) -- of the cases of an op, a dtype and a layout
  local function compare(info, case, f, dtype, layout)
    local what = dtype .. ", " .. layout
    if not taken(info.name .. " " .. what) then return end
    local want = outcome(case, f, placed(case, dtype, layout, stay), dtype)
    if not want then return end -- not for this dtype: the same check says so on every device
    local got, why = outcome(case, f, placed(case, dtype, layout, move), dtype)
    if not got and why:find("unsupported", 1, true) then
      unsupported[info.name] = why:match "([%w_]+): unsupported on device" or why
      return
    end
    assert(got, what .. ": " .. tostring(why))
    same(case, got, want, what)
    compared[info.name] = (compared[info.name] or 0) + 1
  end
  local failed = cases.each(function(info, case, f)
    if info.name == "to" then return end
    if case.big then
      if not case.random then compare(info, case, f, "f32", "plain") end
      return
    end
    for _, dtype in ipairs(dtypes) do
      if numbers.EPS[dtype] or case.ints ~= false then compare(info, case, f, dtype, "plain") end
    end
    if case.random or case.needs_contiguous then return end
    for _, layout in ipairs { "transposed", "step", "repeated" } do
      if layout ~= "repeated" or not case.full_rank then compare(info, case, f, "f32", layout) end
    end
    for _, dtype in ipairs { "f32", "bf16" } do compare(info, case, f, dtype, "offset") end
  end, function() return true end)
  return failed, unsupported, compared
end

return M
