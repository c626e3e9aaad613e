-- Models from the trees of device_maps/trees.json and wrap/trees.json: {class, params [name, shape, dtype], buffers [name, shape, dtype,
-- persistent], children [name, tree]} and groups of names that are one parameter.
local accel = require "accel"
local nn = accel.nn

local M = {}

local classes = {}

--- A module of its own class, so that no_split_module_classes finds it.
function M.build(node)
  classes[node.class] = classes[node.class] or nn.Module:extend(node.class)
  local module = classes[node.class]()
  for _, p in ipairs(node.params) do
    module:register_parameter(p[1], nn.Parameter(accel.zeros(p[2], { dtype = p[3] })))
  end
  for _, b in ipairs(node.buffers) do
    module:register_buffer(b[1], accel.zeros(b[2], { dtype = b[3] }), b[4])
  end
  for _, child in ipairs(node.children) do module:register_module(child[1], M.build(child[2])) end
  return module
end

--- Later names of a group become the first one's parameter.
function M.tie(model, groups)
  local function owner(name)
    local path, key = name:match "^(.*)%.([^.]+)$"
    return path and model:get_submodule(path) or model, key or name
  end
  for _, group in ipairs(groups or {}) do
    local module, key = owner(group[1])
    local p = module[key]
    for i = 2, #group do
      module, key = owner(group[i])
      module:register_parameter(key, p)
    end
  end
  return model
end

--- Whether two values are the same data: lists and tables by what is in them, numbers by value.
function M.equal(a, b)
  if type(a) ~= "table" or type(b) ~= "table" then return a == b end
  for key, value in next, a do
    if not M.equal(value, b[key]) then return false end
  end
  for key in next, b do
    if a[key] == nil then return false end
  end
  return true
end

return M
