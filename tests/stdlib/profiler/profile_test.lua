-- accel.profiler on one process: schedules, sums and their table, flops against the closed formula, memory against the pool, and that
-- a profile changes no number.
-- tier: every change, memory
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local accel = require "accel"
local nn, profiler = accel.nn, accel.profiler

local function step(model, opt, x, y)
  local loss = accel.cross_entropy(model(x), y)
  loss:backward()
  opt:step()
  opt:zero_grad()
  return loss
end

local function small()
  accel.manual_seed(7)
  local model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
  return model, accel.optim.AdamW(model:parameters()), accel.randn(32, 64), accel.randint(0, 10, { 32 })
end

do -- the five schedules of the reference's own test: traces of 100 steps
  for _, case in ipairs { { 1, 1, 2, 1, 0, 1 }, { 2, 2, 2, 2, 0, 2 }, { 0, 1, 3, 3, 1, 3 }, { 3, 2, 1, 1, 2, 1 }, { 1, 0, 1, 5, 0, 5 } } do
    local traces, spans = 0, 0
    local prof <close> = profiler.profile {
      schedule = profiler.schedule { wait = case[1], warmup = case[2], active = case[3], ["repeat"] = case[4], skip_first = case[5] },
      on_trace_ready = function(p)
        traces = traces + 1
        local steps = p:key_averages():find "ProfilerStep*"
        assert(steps and steps.count == case[3], "steps of a cycle")
        spans = spans + p:key_averages():find("add").count
      end,
    }
    for _ = 1, 100 do
      local _ = accel.ones(2) + 1
      prof:step()
    end
    prof:stop()
    assert(traces == case[6] and spans == case[6] * case[3], ("%d traces, %d spans"):format(traces, spans))
  end
  ranks.fails("needs active", profiler.schedule, { wait = 1 })
  ranks.fails("did you mean 'warmup'", profiler.schedule, { active = 1, warmupp = 1 })
end

do -- spans nest, times add up, calls are counted
  local model, opt, x, y = small()
  local t0 = accel.clock()
  local prof = profiler.profile { record_shapes = true, with_flops = true, with_stack = true, with_modules = true }
  for _ = 1, 3 do
    local _ <close> = profiler.record_function "whole step"
    step(model, opt, x, y)
  end
  prof:stop()
  local wall = accel.clock() - t0
  local events, sums = prof:events(), prof:key_averages()
  for i, e in ipairs(events) do
    local around = events[e.parent]
    assert(e.stop >= e.start and e.self_time >= 0)
    if around then assert(e.parent < i and around.start <= e.start and e.stop <= around.stop, e.name) end
  end
  assert(sums:find("linear").count == 6 and sums:find("whole step").count == 3 and sums:find("autograd::linear").count == 6)
  assert(sums:find("nn.Module: Linear").count == 6 and sums:find("Optimizer.step#AdamW.step").count == 3)
  local total = sums:self_cpu_time_total() / 1e6
  assert(total <= wall and total >= 0.2 * sums:find("whole step").cpu_time_total / 1e6)
  assert(math.abs(total - sums:find("whole step").cpu_time_total / 1e6) < 1e-6 * math.max(1, total) + 1e-9, "nothing counted twice")
  local by_shape = prof:key_averages { group_by_input_shape = true }
  local first = by_shape:find "linear"
  assert(first.input_shapes == "[[32, 64], [128, 64], [128]]" and first.flops == 3 * 2 * 32 * 64 * 128)
  for _, e in ipairs(events) do
    if e.kind == "op" then assert(e.site and e.site:find "profile_test%.lua:%d+", e.name) end
  end
  -- sorted, limited, and refused where a key is unknown
  local text = sums:table { sort_by = "self_cpu_time_total", row_limit = 3, header = "Sums" }
  local n = 0
  for line in text:gmatch "[^\n]+" do
    n = n + 1
    if n == 1 then assert(line:find "^=+$") elseif n == 2 then assert(line == "Sums") end
  end
  assert(n == 2 + 3 + 3 + 2, n)
  -- in a narrow terminal columns are left out, the name at last cut; what took the time stays
  for _, width in ipairs { 120, 80, 40 } do
    text = sums:table { width = width }
    for line in text:gmatch "[^\n]+" do assert(#line <= width, line) end
    assert(text:find(" Self CPU ", 1, true) and (width < 80 or text:find("# of Calls", 1, true)), text)
  end
  ranks.fails("did you mean 'cpu_time_total'", sums.table, sums, { sort_by = "cpu_time_totl" })
end

do -- the table, character for character as torch lays it out, of a recording that is made by hand
  local averages = require "accel.profiler.averages"
  local e = { name = "aten", kind = "op", start = 0, stop = 1500000, self_time = 1500000, memory = 2048, self_memory = 2048,
    flops = 2000000, bytes = 0 }
  local f = { name = "other", kind = "op", start = 0, stop = 500000, self_time = 500000, memory = -64, self_memory = -64, bytes = 0 }
  local t = averages({ e, f }, { group_by_input_shape = false, group_by_stack_n = 0 }, { profile_memory = true, with_flops = true })
  assert(t:table { sort_by = "cpu_time_total" } == table.concat({
    "------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ",
    "        Name    Self CPU %      Self CPU   CPU total %     CPU total  CPU time avg       CPU Mem  Self CPU Mem    # of Calls  Total MFLOPs  ",
    "------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ",
    "        aten        75.00%       1.500ms        75.00%       1.500ms       1.500ms       2.00 KB       2.00 KB             1         2.000  ",
    "       other        25.00%     500.000us        25.00%     500.000us     500.000us         -64 B         -64 B             1            --  ",
    "------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ------------  ",
    "Self CPU time total: 2.000ms", "" }, "\n"), t:table { sort_by = "cpu_time_total" })
end

do -- flops of a GPT step: forward and backward of the products and of attention, closed form; on meta, so that the size is real
  local V, T, B, C, L, H = 1024, 256, 4, 768, 4, 12
  local _ <close> = accel.device "meta"
  local model = accel.models.GPT2 { vocab_size = V, n_positions = T, n_embd = C, n_layer = L, n_head = H }
  local ids = accel.randint(0, V, { B, T })
  local prof = profiler.profile { with_flops = true }
  accel.cross_entropy(model(ids):reshape(-1, V), ids:reshape(-1)):backward()
  prof:stop()
  local tokens = B * T
  local products = 3 * 2 * tokens * (12 * C * C * L + C * V) -- qkv, projection, feed-forward: 12 C^2 weights a layer; and the head
  local attention = (2 + 5) * 2 * tokens * T * C * L / 2    -- causal; backward makes the scores once more
  local got = prof:key_averages():total_average().flops
  assert(math.abs(got / (products + attention) - 1) < 0.01, ("%d flops, formula %d"):format(got, products + attention))
end

do -- memory: the timeline's peak is the pool's, and categories are what they are by count
  local model, opt, x, y = small()
  for _ = 1, 2 do step(model, opt, x, y) end
  accel.collect()
  local params = 0
  for _, p in ipairs(model:parameters()) do params = params + 64 * math.ceil(p:numel() * 4 / 64) end
  accel.reset_peak_memory()
  local prof = profiler.profile { profile_memory = true }
  for _ = 1, 3 do step(model, opt, x, y) end
  prof:stop()
  local pool, cpu = accel.mem_stats().peak_bytes, nil
  for _, d in ipairs(prof:memory_timeline(50)) do
    if d.device == "cpu" then cpu = d end
  end
  local peak = cpu.peak
  assert(peak.total == pool, ("timeline %d, pool %d"):format(peak.total, pool))
  local sum = 0
  for _, name in ipairs(require("accel.profiler.trace").categories) do sum = sum + peak[name] end
  assert(sum == peak.total, "categories add up")
  assert(peak.parameters == params, ("%d bytes of parameters, %d"):format(peak.parameters, params))
  assert(peak.gradients <= params and peak.gradients > 0.9 * params, peak.gradients)
  assert(peak.states >= 2 * params and peak.states < 2 * params + 1024, peak.states)
  assert(peak.activations > 32 * 128 * 4)
  local most = 0
  for _, point in ipairs(cpu.points) do most = math.max(most, point.total) end
  assert(#cpu.points <= 50 and most == peak.total, "the thinned timeline keeps the peak")
  ranks.fails("profile_memory = true", profiler.profile({}, function() end).memory_timeline, profiler.profile({}, function() end))
end

do -- a profile changes no number
  local function losses(opts)
    local model, opt, x, y = small()
    local prof = opts and profiler.profile(opts)
    local out = {}
    for i = 1, 4 do out[i] = step(model, opt, x, y):item() end
    if prof then prof:stop() end
    return table.concat(out, " ")
  end
  local all = { record_shapes = true, profile_memory = true, with_stack = true, with_flops = true, with_modules = true,
    activities = { "cpu", "cuda" } }
  assert(losses(nil) == losses(all))
  assert(rawget(nn.Module, "_hooks") == nil and losses(nil) == losses(all))
end

if not accel.devices()[3] then -- devices that are not here: a warning
  local was, said = warn, {}
  warn = function(...) said[#said + 1] = table.concat { ... } end -- luacheck: ignore 121
  require "accel.util.no_effect".reset()
  profiler.profile { activities = { "cpu" } }:stop()
  assert(#said == 0)
  profiler.profile { activities = { "cpu", "cuda" } }:stop()
  warn = was -- luacheck: ignore 121
  assert(#said == 1 and said[1]:find "activities has no effect for 'cuda'", said[1])
end

do -- modules with hooks of their own, and a hook that ends the recording in the middle of a backward
  local model, opt, x, y = small()
  local seen = 0
  local handle = model:register_forward_hook(function() seen = seen + 1 end)
  local prof = profiler.profile { with_modules = true }
  step(model, opt, x, y)
  prof:stop()
  assert(seen == 1 and prof:key_averages():find("nn.Module: Sequential").count == 1)
  handle.remove()
  local half = profiler.profile { profile_memory = true }
  local w = accel.ones(3, { requires_grad = true })
  local z = w * 2
  z:register_hook(function() half:stop() end)
  z:sum():backward()
  assert(half:key_averages():find "backward" and w.grad[1]:item() == 2)
  assert(half:key_averages():find("backward").count == 1)
end

do -- mistakes
  local prof = profiler.profile()
  ranks.fails("another profile records already", profiler.profile)
  ranks.fails("is still recording", prof.key_averages, prof)
  local ok, why = pcall(function()
    local _ <close> = profiler.record_function "fails"
    error "inside"
  end)
  assert(not ok and why:find "inside")
  local _ = accel.ones(2) + 1
  prof:stop()
  prof:stop()
  assert(prof:key_averages():find("fails").count == 1 and prof:events()[#prof:events()].parent == 0, "the span ended with its block")
  ranks.fails("outside of start", prof.step, prof)
  ranks.fails("activities[1] must be one of cpu", profiler.profile, { activities = { "gpu" } })
  ranks.fails("unknown option", profiler.profile, { record_shape = true })
  local empty = profiler.profile { schedule = profiler.schedule { wait = 5, active = 1 } }
  empty:stop()
  ranks.fails("nothing was recorded", empty.key_averages, empty)
  -- one that is never stopped goes with its state
  profiler.profile { profile_memory = true }
end
