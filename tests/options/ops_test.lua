-- Options of every op: each optional parameter, by name and by position, changes a result or raises. Parameters come from the
-- signatures, calls from the cases of the generated tests (support/op_cases.lua), values from these cases, types and the tables below.
-- tests/numerics/ops_errors_test.lua has unknown options and surplus arguments.
--   accel-run tests/options/ops_test.lua [OP]
local accel = require "accel"
local here = arg[0]:match "^(.*)/[^/]*$"
package.path = here .. "/../support/?.lua;" .. package.path
local cases = require "op_cases"
local observer = require "option_observer"

-- Values by op and parameter where neither a type nor another case gives one, or the derived one is not valid.
local t = accel.tensor
local function filled(...) return ((accel.arange(accel.zeros(...):numel()):to "f32" * 0.7):sin()):reshape(...) end
local nan = 0 / 0
local values = {
  dequantize_blockwise = { bits = { 4 }, block_size = { 128 } }, repeat_interleave = { output_size = { 5 } },
  quantize_4bit = { blocksize = { 32 } }, newton_schulz = { coefficients = { { 3, -4, 2 } } },
  nll_loss = { ignore_index = { 1 } }, scaled_dot_product_attention = { enable_gqa = { true } },
  slice_scatter = { stop = { 2 } }, blockwise_step_stochastic_ = { beta3 = { 0.5 }, first = { 256 } },
  rprop_step_ = { etaminus = { 0.4, 0.1 } }, embedding = { padding_idx = { 1 } },
  sgd_schedule_free_step_ = { warmup_steps = { 9 } }, adamw_schedule_free_step_ = { warmup_steps = { 9 } },
  diff = { prepend = { t { 9.0 } }, append = { t { 9.0 } } }, searchsorted = { sorter = { t { 2, 0, 1 } } }, random_ = { to = { 1 << 20 } },
}
for _, name in ipairs { "std", "std_mean", "var", "var_mean" } do values[name] = { unbiased = { false } } end

-- Calls beside those of the cases, by name: where an option needs data of its own.
local special = {
  bucketize = { { x = t { 1.0, 2 }, boundaries = t { 1.0, 2, 3 } } },
  searchsorted = { { sorted_sequence = t { 1.0, 2, 3 }, values = t { 1.0, 2 } } },
  cross = { { x = filled(3, 3), other = filled(3, 3) + t { 1.0, 3, 2 } } },
  diff = { { x = filled(4) } },
  fill_diagonal_ = { { x = filled(7, 2), fill_value = 5 } },
  clip_grad_norm_ = { { grads = { t { nan } }, max_norm = 1 } },
  isclose = { { x = t { nan }, other = t { nan } } },
  nan_to_num = { { x = t { nan, 1 / 0, -1 / 0 } } },
  glu = { { x = filled(4, 2) } },
  fold = {
    { x = filled(1, 4, 9), output_size = { 4, 4 }, kernel_size = { 2, 2 } },
    { x = filled(1, 4, 2), output_size = { 4, 3 }, kernel_size = { 2, 2 }, dilation = { 3, 1 } },
    { x = filled(1, 4, 4), output_size = { 2, 2 }, kernel_size = { 2, 2 }, padding = { 1, 1 }, stride = { 2, 2 } },
  },
  slice_scatter = { { x = filled(3, 3), src = filled(2, 2), dim = 2, start = 2, stop = 3 }, { x = filled(3, 3), src = filled(3, 3) } },
  rprop_step_ = { { params = { filled(2) }, grads = { filled(2) }, prevs = { filled(2) * -1 }, step_sizes = { accel.ones(2) }, step = t { 3.0 } } },
  embedding = { { ids = t { 1, 0 }, weight = filled(3, 2) } },
  dequantize_blockwise = { { q = accel.zeros({ 2, 256 }, { dtype = "i8" }) + 3, scale = t { 1.0, 2 }, shape = { 512 } } },
  interpolate = { { x = filled(1, 2, 4), size = { 6 } }, { x = filled(1, 2, 4), scale_factor = { 2 } } },
  mlp = { { x = filled(2, 4), weight1 = filled(4, 4), weight2 = filled(4, 4) } },
  conv_transpose1d = { { x = filled(1, 2, 4), weight = filled(2, 2, 3), dilation = { 2 } } },
  conv_transpose2d = { { x = filled(1, 2, 4, 3), weight = filled(2, 2, 3, 2), dilation = { 2, 2 } } },
  conv_transpose3d = {
    { x = filled(1, 1, 2, 2, 2), weight = filled(1, 1, 2, 2, 2), dilation = { 2, 2, 2 } },
    { x = filled(1, 1, 2, 2, 2), weight = filled(1, 1, 2, 2, 2), stride = { 2, 2, 2 }, output_padding = { 1, 1, 1 } },
  },
  -- a target longer than its input, whose loss is infinite
  ctc_loss = { { log_probs = filled(1, 2, 3), targets = t { { 1, 2 }, { 1, 2 } }, input_lengths = t { 1, 1 }, target_lengths = t { 2, 1 } } },
  nll_loss = { { input = filled(3, 4), target = t { 1, 0, 2 } } },
  eigh = { { A = filled(3, 3) } }, lu_factor_ex = { { A = filled(3, 3) } },
}
for _, name in ipairs { "std", "std_mean", "var", "var_mean" } do special[name] = { { x = filled(4) } } end

-- Errors that show that a parameter is read, where another value needs other tensors.
local raises = {
  clip_grad_norm_ = { error_if_nonfinite = "total norm" }, dequantize_blockwise = { bits = "4 bits lie in u8", block_size = "block_size|scale" },
  conv1d = { groups = "groups" }, conv2d = { groups = "groups" }, conv3d = { groups = "groups" },
  scaled_dot_product_attention = { enable_gqa = "enable_gqa" }, repeat_interleave = { output_size = "output_size" },
  searchsorted = { side = "side is left and right is true" }, -- left is what it does without
}

-- Ops with a parameter that only their gradient shows.
local by_gradient = { embedding = "weight" }

-- Parameters whose effect no result shows, with the reason.
local unseen = {
  sort = { stable = "a promise that every sort keeps" }, argsort = { stable = "a promise that every sort keeps" },
  topk = { sorted = "false allows any order, the sorted one too" },
  isin = { assume_unique = "a promise that it does not need" }, unique = { sorted = "false allows any order, the sorted one too" },
  linear_cross_entropy = { keep = "memory for time: tests/host/ops/loss/linear_cross_entropy_test.lua" },
}

local function derived(p)
  local default = p.default
  if p.type == "bool" then return { not (default == true or default == "true") } end
  if p.type:find "^enum" then
    local list = {}
    for word in (p.enum and table.concat(p.enum, "|") or p.type:match "%((.*)%)" or ""):gmatch "[^|]+" do
      if word ~= default then list[#list + 1] = word end
    end
    return list
  end
  if p.type == "dtype" then return { "f64" } end
  if p.type == "device" then return { "meta" } end
  if p.type == "generator" then return { "generator" } end
  local n = tonumber(default)
  if p.type == "int" then return { (n or 0) + 1, (n or 0) + 2, -1 } end
  if p.type == "float" or p.type == "scalar" or p.type == "operand" then return { n and n ~= 0 and n * 0.5 or 0.25, 0.7, 3 } end
  if p.type == "dim" then return { 1, 2, -1 } end
  if p.type == "dims" then return { { 1 }, { 2 } } end
  return {}
end

--- The arguments that a case calls its op with, by name; nil for calls whose arguments are no plain list.
local function capture(info, case, t)
  local all
  local function f(...)
    all = all or table.pack(...)
    return accel.op(info.name)(...)
  end
  accel.manual_seed(11)
  local ok, why = pcall(cases.run, case, f, t)
  if not ok or not all then return nil, why end
  local given, last, n = {}, all[all.n], all.n
  local is_options = n > 0 and type(last) == "table" and not accel.is_tensor(last) and #last == 0 and next(last) ~= nil
  for i = 1, n - (is_options and 1 or 0) do
    if not info.params[i] then return nil, "variadic" end
    given[info.params[i].name] = all[i]
  end
  for key, value in pairs(is_options and last or {}) do given[key] = value end
  return given
end

local function copy(value)
  if accel.is_tensor(value) then
    local ok, own = pcall(function() return value:detach():clone() end)
    return ok and own or value -- storage dtypes have no copies
  end
  if type(value) ~= "table" then return value end
  local list = {}
  for key, v in pairs(value) do list[key] = copy(v) end
  return list
end

--- One call with these arguments: its results and what it has written to.
local function attempt(info, given, by_position)
  local own, f = {}, accel.op(info.name)
  for key, value in pairs(given) do own[key] = copy(value) end
  local leaf = by_gradient[info.name]
  if leaf then own[leaf] = own[leaf]:requires_grad_(true) end
  if own.generator == "generator" then own.generator = accel.Generator(99) end
  accel.manual_seed(11)
  local results
  if by_position then
    local list, n = {}, 0
    for i, p in ipairs(info.params) do
      list[i] = own[p.name]
      if list[i] ~= nil then n = i end
    end
    results = table.pack(pcall(f, table.unpack(list, 1, n)))
  else
    results = table.pack(pcall(f, own))
  end
  if not results[1] then return nil, tostring(results[2]):gsub("\n%s*", " ") end
  if leaf then
    results[2]:sum():backward()
    results[3], results.n = own[leaf].grad, 3
  end
  for _, p in ipairs(info.params) do
    if p.mutates then
      results.n = results.n + 1
      results[results.n] = own[p.name]
    end
  end
  return observer.text(results)
end

local failures, n = {}, { ops = 0, options = 0, values = 0, effect = 0, raises = 0, unseen = 0 }
local function fail(...) failures[#failures + 1] = (...):format(select(2, ...)) end

local function shown(value)
  return accel.is_tensor(value) and "a tensor" or type(value) == "table" and accel.json.encode(value) or tostring(value)
end

local function sweep_values(info, p, calls, list)
  local effect, raised, tried, differs = false, nil, 0, nil
  for _, given in ipairs(calls) do
    if effect then break end
    local plain = {}
    for key, value in pairs(given) do plain[key] = value end
    plain[p.name] = nil
    local base = attempt(info, plain)
    if not base and given[p.name] ~= nil and attempt(info, given) then effect = true end -- the call needs it
    local here_ = { table.unpack(list) }
    if given[p.name] ~= nil and p.type ~= "enum" then table.insert(here_, 1, given[p.name]) end
    for _, value in ipairs(base and here_ or {}) do
      local with = {}
      for key, v in pairs(plain) do with[key] = v end
      with[p.name] = value
      local got, why = attempt(info, with)
      tried = tried + 1
      n.values = n.values + 1
      if not got then raised = why
      else
        local other, position_why = attempt(info, with, true)
        if other ~= got then differs = ("%s = %s: by position it gives %s"):format(p.name, shown(value), position_why or "another result") end
        if got ~= base then effect = true break end
      end
    end
  end
  if differs then fail("%s: %s", info.name, differs) end
  local excuse = unseen[info.name] and unseen[info.name][p.name]
  if effect then n.effect = n.effect + 1
    if excuse then fail("%s: %s has an effect; it stands in `unseen`", info.name, p.name) end
  elseif excuse then n.unseen = n.unseen + 1
  elseif raised and raises[info.name] and raises[info.name][p.name] and raised:find(raises[info.name][p.name]) then n.raises = n.raises + 1
  elseif tried == 0 then fail("%s: no value for '%s' (%s)", info.name, p.name, p.type)
  elseif raised then fail("%s: every value of '%s' raises or does nothing: %s", info.name, p.name, raised)
  else fail("%s: SILENT: %s (%s), %d values", info.name, p.name, p.type, tried) end
end

local function sweep_option(info, p, calls)
  n.options = n.options + 1
  local list = values[info.name] and values[info.name][p.name] or derived(p)
  if p.type ~= "enum" then return sweep_values(info, p, calls, list) end
  local was = n.effect
  for _, word in ipairs(list) do sweep_values(info, p, calls, { word }) end -- each one
  n.effect = math.min(n.effect, was + 1)
end

for _, info in ipairs(cases.ops()) do
  local optional = {}
  for _, p in ipairs(info.params) do
    if p.optional or p.default ~= nil then optional[#optional + 1] = p end
  end
  if #optional > 0 and (not arg[1] or arg[1] == info.name) then
    n.ops = n.ops + 1
    local calls = special[info.name] and { table.unpack(special[info.name]) } or {}
    local stochastic = info.name == "blockwise_step_stochastic_" -- the other one's rules, and a rounding to 16 bits
    for _, case in ipairs(cases.cases(stochastic and { name = "blockwise_step_" } or info)) do
      if not case.big then
        local given, why = capture(info, case, cases.build(case, stochastic and "bf16" or "f32"))
        if given then calls[#calls + 1] = given
        elseif why and why ~= "variadic" then fail("%s [%s]: %s", info.name, case.label or "?", why) end
      end
    end
    if #calls == 0 then fail("%s: no case gives a call", info.name) end
    for _, p in ipairs(optional) do sweep_option(info, p, calls) end
  end
end

for _, line in ipairs(failures) do print("FAIL " .. line) end
print(("options of ops: %d ops, %d options in %d values: %d have an effect, %d raise, %d cannot be seen; %d failures"):format(n.ops,
  n.options, n.values, n.effect, n.raises, n.unseen, #failures))
if #failures > 0 then os.exit(1, true) end
