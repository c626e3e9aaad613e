-- Small models that a model.json describes: `modules`, [name, "Conv2d(3, 6, 3, padding 1)"], and `forward`, an expression of them. Used by
-- folders_peft.lua.
local accel = require "accel"
local nn = accel.nn

local M = {}

-- "Conv2d(3, 6, (3, 2), stride 2, no bias)": numbers and lists of them by position, the others by name.
local function layer(text)
  local class, inside = text:match "^(%w+)%((.*)%)$"
  local args, options = {}, {}
  inside = inside:gsub("%(([^()]*)%)", function(list) return (list:gsub(",%s*", ";")) end)
  for part in inside:gmatch "[^,]+" do
    part = part:match "^%s*(.-)%s*$"
    local key, value = part:match "^(%a+) (.+)$"
    if key == "no" then options[value] = false
    elseif key then options[key] = tonumber(value)
    elseif part:find ";" then
      local list = {}
      for n in part:gmatch "%d+" do list[#list + 1] = math.tointeger(n) end
      args[#args + 1] = list
    else args[#args + 1] = math.tointeger(part) end
  end
  args[#args + 1] = next(options) and options or nil
  return nn[class](table.unpack(args))
end

-- f(x), f(x, channels first): x's last dimension becomes the second before. f(x, channels last): the second of the result becomes the last.
-- "mean over space of" means over the dimensions behind the second.
local function evaluate(model, text, x)
  local rest = text:match "^mean over space of (.*)$"
  if rest then
    local y = evaluate(model, rest, x)
    local dims = {}
    for i = 3, y.ndim do dims[#dims + 1] = i end
    return y:mean(dims)
  end
  local name, inside = text:match "^(%w+)(%b())$"
  if not name then return x end
  inside = inside:sub(2, -2)
  local argument, order = inside:match "^(.*), channels (%a+)$"
  local y = evaluate(model, argument or inside, x)
  if order == "first" then y = y:transpose(2, y.ndim) end
  y = name == "relu" and y:relu() or model[name](y)
  return order == "last" and y:transpose(2, y.ndim) or y
end

--- The model in a folder, with its weights.
---@param path string
---@param dtype string
---@return accel.nn.Module?
function M.load(path, dtype)
  local f <close> = io.open(path .. "/model.json", "rb")
  if not f then return nil end
  local about = accel.json.decode(f:read "a")
  local Described = nn.Module:extend "Described"
  function Described:forward(x) return evaluate(self, about.forward, x) end
  local model = Described()
  for _, at in ipairs(about.modules) do model[at[1]] = layer(at[2]) end
  model:load_state_dict(assert(accel.load(path .. "/model.safetensors")))
  return model:to(dtype)
end

return M
