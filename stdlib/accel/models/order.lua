--- Puts the parameters of a model in the order in which Transformers registers them. States of optimizers that PyTorch wrote count the
--- parameters by number, so the order decides which parameter gets which state.
---
---   order = { ["layers.*.self_attn"] = "k_proj v_proj q_proj out_proj" }
---
--- A key is the end of a module's path, with * in place of numbers. "" is the model itself. The value lists its fields in order. Fields that
--- it does not list follow.
---
--- Earlier versions of accel listed them in the order of build (former), and their states that count by number are of that order.
local M = {}

local lists = setmetatable({}, { __mode = "k" })
local ordered = setmetatable({}, { __mode = "k" }) -- models -> true
local built = setmetatable({}, { __mode = "k" }) -- modules -> their fields in the order of build

--- The names of each rule as a list.
local function parsed(order)
  local rules = lists[order]
  if not rules then
    rules = {}
    for path, fields in next, order do
      rules[path] = {}
      for field in fields:gmatch "%S+" do table.insert(rules[path], field) end
    end
    lists[order] = rules
  end
  return rules
end

---@param model accel.nn.Module
---@param order table<string, string>
function M.apply(model, order)
  local rules = parsed(order)
  ordered[model] = true
  for path, module in pairs(model:named_modules()) do
    local rest = ("." .. path):gsub("%.%d+%f[.\0]", ".*"):sub(2)
    while true do
      if rules[rest] and (rest ~= "" or path == "") then
        built[module] = built[module] or module._order
        module:_reorder(rules[rest])
      end
      local shorter = rest:match "^[^.]*%.(.*)$"
      if not shorter then break end
      rest = shorter
    end
  end
end

--- The parameters of a model in the order of earlier versions of accel.
local function before(model)
  local now = {}
  for _, module in model:named_modules() do
    local names = built[module]
    if names then
      now[module] = module._order
      module:_reorder(names)
    end
  end
  local list = model:parameters()
  for module, order in next, now do rawset(module, "_order", order) end
  return list
end

--- Where earlier versions of accel had the parameters of an optimizer's group: list[i] is the position of the i-th one then. nil if the
--- positions are the same, or of no model. false if they differ and the group does not follow the order of its models, so that nobody can tell.
---@param params accel.Tensor[]
---@return integer[]|false|nil
function M.former(params)
  local place, past, n = {}, {}, 0
  for model in next, ordered do
    local old = before(model)
    for i, p in ipairs(model:parameters()) do place[p] = place[p] or n + i end
    for i, p in ipairs(old) do past[p] = past[p] or n + i end
    n = n + #old
  end
  local sorted, follows, moved, last = {}, true, false, 0
  for i, p in ipairs(params) do
    if place[p] then
      sorted[#sorted + 1], follows, last = i, follows and place[p] > last, place[p]
      moved = moved or place[p] ~= past[p]
    end
  end
  if not moved then return nil end
  if not follows or #sorted < #params then return false end
  table.sort(sorted, function(a, b) return past[params[a]] < past[params[b]] end)
  local list, same = {}, true
  for position, i in ipairs(sorted) do
    list[i], same = position, same and position == i
  end
  if same then return nil end
  return list
end

return M
