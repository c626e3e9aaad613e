--- Puts the parameters of a model in the order in which Transformers registers them. States of optimizers that PyTorch wrote count the
--- parameters by number, so the order decides which parameter gets which state.
---
---   order = { ["layers.*.self_attn"] = "k_proj v_proj q_proj out_proj" }
---
--- A key is the end of a module's path, with * in place of numbers. "" is the model itself. The value lists its fields in order. Fields that
--- it does not list follow.
local lists = setmetatable({}, { __mode = "k" })

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
return function(model, order)
  local rules = parsed(order)
  for path, module in pairs(model:named_modules()) do
    local rest = ("." .. path):gsub("%.%d+%f[.\0]", ".*"):sub(2)
    while true do
      if rules[rest] and (rest ~= "" or path == "") then module:_reorder(rules[rest]) end
      local shorter = rest:match "^[^.]*%.(.*)$"
      if not shorter then break end
      rest = shorter
    end
  end
end
