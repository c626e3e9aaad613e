--- state_dict and load_state_dict of nn.Module, installed by nn/module.lua.
local accel = require "accel"
local ordered = require "accel.util.ordered"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

local function listed(names)
  local shown = {}
  for i = 1, math.min(#names, 8) do shown[i] = "'" .. names[i] .. "'" end
  if #names > 8 then shown[#shown + 1] = ("... (%d in all)"):format(#names) end
  return table.concat(shown, ", ")
end

return function(Module)
  --- Name -> tensor: a module's parameters, then its buffers, then those of its children.
  local function collect(self, prefix, out)
    for _, wanted in ipairs { "parameter", "buffer" } do
      for key, value, kind in self:_fields() do
        if kind == wanted then out[prefix .. key] = value end
      end
    end
    for key, value, kind in self:_fields() do
      if kind == "module" then collect(value, prefix .. key .. ".", out) end
    end
    return out
  end

  --- Name -> tensor (sharing the module's bytes, without gradients), in the order of PyTorch's files. A
  --- tensor with several names appears under each.
  ---@param prefix? string "model."
  function Module:state_dict(prefix)
    local out = ordered()
    for name, t in pairs(collect(self, prefix or "", ordered())) do out[name] = t:detach() end
    return out
  end

  --- Copies values by name. Strict (default): every name must be there, on both sides. Shapes must agree
  --- always; nothing is copied unless everything fits. Returns {missing_keys=, unexpected_keys=}.
  ---@param state table<string, accel.Tensor>
  ---@param strict? boolean|{strict: boolean}
  function Module:load_state_dict(state, strict)
    if type(strict) == "table" then strict = strict.strict end
    if type(state) ~= "table" then
      raise("load_state_dict: expected a table of tensors, got %s", type(state))
    end
    local missing, unexpected, wrong = {}, {}, {}
    local own = collect(self, "", ordered())
    for name, t in pairs(own) do
      local value = state[name]
      if value == nil then
        missing[#missing + 1] = name
      elseif not tensors.is_tensor(value) then
        wrong[#wrong + 1] = ("'%s' is a %s"):format(name, type(value))
      elseif not tensors.same_shape(t, value) then
        wrong[#wrong + 1] = ("'%s' has shape %s, the module needs %s"):format(name,
          tensors.shape_string(value),
          tensors.shape_string(t))
      end
    end
    for name in ordered.iterate(state) do
      if rawget(own, name) == nil then unexpected[#unexpected + 1] = tostring(name) end
    end
    local problems = {}
    if strict ~= false then
      if #missing > 0 then problems[#problems + 1] = "missing " .. listed(missing) end
      if #unexpected > 0 then problems[#problems + 1] = "unexpected " .. listed(unexpected) end
    end
    for _, text in ipairs(wrong) do problems[#problems + 1] = text end
    if #problems > 0 then
      raise("load_state_dict of %s: %s", getmetatable(self).__name, table.concat(problems, "; "))
    end
    local _ <close> = accel.no_grad()
    for name, t in pairs(own) do
      local value = state[name]
      if value ~= nil then t:copy_(value) end
    end
    return { missing_keys = missing, unexpected_keys = unexpected }
  end
end
