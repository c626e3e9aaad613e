--- state_dict and load_state_dict of nn.Module, installed by nn/module.lua.
local accel = require "accel"
local arguments = require "accel.nn.arguments"
local optimizers = require "accel.nn.replaced"
local check = require "accel.util.check"
local listed = require "accel.util.listed"
local options = require "accel.util.options"
local ordered = require "accel.util.ordered"
local parameter = require "accel.nn.parameter"
local raise = require "accel.util.raise"
local tensors = require "accel.util.tensors"

--- The problems with the names, or "".
local state_arguments = arguments("state_dict", { "prefix", "" })

local function advice(missing, unexpected)
  if #missing == 0 or #unexpected == 0 then return "" end
  local prefix = unexpected[1]:match "^([^.]+%.)"
  if prefix then -- one prefix on all of them, as wrappers put it there
    local bare = {}
    for i, name in ipairs(unexpected) do
      if name:sub(1, #prefix) ~= prefix then
        prefix = nil
        break
      end
      bare[name:sub(#prefix + 1)] = i
    end
    if prefix and bare[missing[1]] then
      return ("; every unexpected name begins with '%s': strip it"):format(prefix)
    end
  end
  local near = #unexpected <= 1000 and require "accel.util.nearest"(missing[1], unexpected)
  return near and ("; is '%s' meant to be '%s'?"):format(near, missing[1]) or ""
end

local function run_hooks(module, kind, ...)
  local hooks = rawget(module, "_hooks")
  if not hooks then return end
  for _, entry in ipairs(hooks:of(kind)) do entry.fn(module, ...) end
end

return function(Module)
  --- Runs the state hooks of one module.
  ---@param kind string "state_dict_pre", "state_dict_post"
  function Module:_run_state_hooks(kind, ...) run_hooks(self, kind, ...) end

  --- Visits (name, tensor, module, field) in self and below: a module's parameters, then its buffers, then its
  --- children's. before and after are called with each module and its prefix.
  local function visit(self, prefix, each, before, after)
    self = self:_itself()
    if before then before(self, prefix) end
    self:_refuse_lazy(prefix:sub(1, -2))
    for _, wanted in ipairs { "parameter", "buffer" } do
      for key, value, kind, field in self:_fields() do
        if kind == wanted then each(prefix .. key, value, self, field) end
      end
    end
    for key, value, kind in self:_fields() do
      if kind == "module" then visit(value, prefix .. key .. ".", each, before, after) end
    end
    if after then after(self, prefix) end
  end

  --- Name -> tensor (sharing the module's bytes, without gradients), in the order of PyTorch's files. A
  --- tensor with several names appears under each.
  ---@param ... any prefix = "", such as "model.", by position or in a table
  ---@return table<string, accel.Tensor>
  function Module:state_dict(...)
    local out = ordered()
    visit(self, state_arguments(...).prefix, function(name, t) out[name] = t:detach() end,
      function(module, at) run_hooks(module, "state_dict_pre", at) end,
      function(module, at)
        module:_extend_state(out, at)
        run_hooks(module, "state_dict_post", out, at)
      end)
    return out
  end

  --- For modules whose tensors have other entries in a state dict than their own (quantised weights): writes them to out.
  function Module:_extend_state() end

  --- `_collect_state(state, prefix)`, if a class has it, converts such entries back to tensors of the module's kind.

  --- The state after its load hooks. The caller's table is not modified.
  local function prepared(self, state)
    local hooked = false
    for _, module in ipairs(self:modules()) do
      local hooks = rawget(module, "_hooks")
      hooked = hooked or module._collect_state or (hooks and #hooks:of "load_state_dict_pre" > 0)
    end
    if not hooked then return state end
    local own = {}
    for name, t in next, state do own[name] = t end
    visit(self, "", function() end,
      function(module, at)
        run_hooks(module, "load_state_dict_pre", own, at)
        if module._collect_state then module:_collect_state(own, at) end
      end)
    return own
  end

  --- Puts tensors into the places of the module's own, one parameter for each that there was.
  local function assign(entries, state)
    local done = {}
    for _, entry in ipairs(entries) do
      local value = state[entry.name]
      if value ~= nil then
        local new, module, field = done[entry.t], entry.module, entry.field
        if not new then
          new = value:detach()
          if parameter.is(entry.t) then new = parameter(new, entry.t.requires_grad) end
          done[entry.t] = new
        end
        rawset(rawget(module, field) == nil and module._tensors or module, field, new)
      end
    end
    optimizers.replace(done)
  end

  --- Copies values by name. Strict (default): every name must exist on both sides. One error lists all missing and
  --- unexpected names and different shapes. Shapes must always match. Nothing is copied unless everything fits. With
  --- assign = true the tensors of state replace the module's own, with their dtype and device, without a copy.
  --- Optimizers update them from then on. Returns {missing_keys=, unexpected_keys=}.
  ---@param state table<string, accel.Tensor>
  ---@param opts? boolean|{strict: boolean?, assign: boolean?} false: not strict
  ---@return {missing_keys: string[], unexpected_keys: string[]}
  function Module:load_state_dict(state, opts, ...)
    check.result("load_state_dict", state, opts)
    if type(opts) == "boolean" then opts = { strict = opts } end
    local o = options("load_state_dict", opts, { strict = true, assign = false }, ...)
    if type(state) ~= "table" then
      raise("load_state_dict: expected a table of tensors, got %s", check.shown(state))
    end
    state = prepared(self, state)
    local missing, unexpected, wrong, entries, own = {}, {}, {}, {}, {}
    visit(self, "", function(name, t, module, field)
      entries[#entries + 1] = { name = name, t = t, module = module, field = field }
      own[name] = true
    end)
    for _, entry in ipairs(entries) do
      local name, t, value = entry.name, entry.t, state[entry.name]
      if value == nil then
        -- files from before norms counted their batches lack this one
        if entry.field ~= "num_batches_tracked" then missing[#missing + 1] = name end
      elseif not tensors.is_tensor(value) then
        wrong[#wrong + 1] = ("'%s' is a %s"):format(name, type(value))
      elseif not tensors.same_shape(t, value) then
        wrong[#wrong + 1] = ("'%s' has shape %s, the module needs %s"):format(name,
          tensors.shape_string(value), tensors.shape_string(t))
      end
    end
    for name in ordered.iterate(state) do
      if not own[name] then unexpected[#unexpected + 1] = tostring(name) end
    end
    local problems, hint = {}, ""
    if o.strict then
      if #missing > 0 then problems[#problems + 1] = "missing " .. listed(missing) end
      if #unexpected > 0 then problems[#problems + 1] = "unexpected " .. listed(unexpected) end
      hint = advice(missing, unexpected)
    end
    for _, text in ipairs(wrong) do problems[#problems + 1] = text end
    if #problems > 0 then
      raise("load_state_dict of %s: %s%s", getmetatable(self).__name, table.concat(problems, "; "), hint)
    end
    if o.assign then
      assign(entries, state)
    else
      local _ <close> = accel.no_grad()
      for _, entry in ipairs(entries) do
        local value = state[entry.name]
        if value ~= nil then entry.t:copy_(value) end
      end
    end
    local result = { missing_keys = missing, unexpected_keys = unexpected }
    for _, module in ipairs(self:modules()) do run_hooks(module, "load_state_dict_post", result) end
    return result
  end
end
