-- Optimizers with paged states: the same bits as without, a budget of bytes that holds, saving and loading, wrong options.
local accel = require "accel"
local optim = accel.optim
local tmp = os.getenv "ACCEL_TEST_TMP"

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok and tostring(err):find(pattern), ("wanted an error with %s, got %s"):format(pattern, tostring(err)))
end

-- Two large ones, one that stays, one of f32 states, one of half a block
local SHAPES <const> = { { 400, 300 }, { 90000 }, { 600, 200 }, { 100 }, { 300001 } }
local function leaves(dtype)
  local out = {}
  for i, shape in ipairs(SHAPES) do
    accel.manual_seed(i)
    out[i] = accel.randn(shape):to(dtype or "f32"):clone():requires_grad_()
  end
  return out
end
local function gradients(params, step)
  accel.manual_seed(100 + step)
  for i, p in ipairs(params) do p.grad = (i ~= 3 or step ~= 2) and accel.randn(p.shape):to(p.dtype) or nil end
end
local function same(a, b, what)
  assert(a.dtype == b.dtype and a:clone():to_bytes() == b:clone():to_bytes(), what) -- what is paged has no bytes of its own
end
local function same_all(a, b, what)
  for i, p in ipairs(a) do same(p:detach(), b[i]:detach(), ("%s: parameter %d"):format(what, i)) end
end
local BUDGET <const> = 400000 -- bytes: less than the states of the largest parameter

-- every class, every step; with rounding at random as well: batches draw as the whole list does
for name, more in accel.pairs {
  AdamW8bit = {}, Adam8bit = {}, Lion8bit = {}, AdEMAMix8bit = { t_alpha = 5 }, AdamW32bit = {}, Lion32bit = {}, AdEMAMix32bit = {},
} do
  for _, dtype in ipairs { "f32", "bf16" } do
    local a, b = leaves(dtype), leaves(dtype)
    local o, paged = { lr = 0.01, stochastic_rounding = dtype == "bf16" }, { page_folder = tmp, page_budget = BUDGET }
    for key, value in next, more do o[key] = value end
    for key, value in next, o do paged[key] = value end
    local left, right = optim[name](a, o), optim["Paged" .. name](b, paged)
    for step = 1, 4 do
      gradients(a, step)
      accel.manual_seed(7 * step)
      left:step()
      local after = accel.rand(1):item()
      gradients(b, step)
      accel.manual_seed(7 * step)
      right:step()
      assert(accel.rand(1):item() == after, name .. " draws otherwise behind the step")
      same_all(a, b, ("%s %s step %d"):format(name, dtype, step))
    end
    for i, p in ipairs(a) do
      for key, t in accel.pairs(left.state[p]) do same(t, right.state[b[i]][key], ("%s %s of parameter %d"):format(name, key, i)) end
    end
    if dtype == "bf16" then -- and rounding at random was not idle
      local c = leaves(dtype)
      o.stochastic_rounding = false
      local plain = optim[name](c, o)
      gradients(c, 1)
      plain:step()
      assert(not accel.equal(c[1]:detach(), a[1]:detach()))
    end
  end
end

do -- the names without bits
  for name, class in accel.pairs { PagedAdamW = "PagedAdamW32bit", PagedAdam = "PagedAdam32bit", PagedLion = "PagedLion32bit",
    PagedAdEMAMix = "PagedAdEMAMix32bit" } do
    local a, b = leaves(), leaves()
    gradients(a, 1)
    gradients(b, 1)
    optim[name](a, { page_folder = tmp }):step()
    optim[class](b, { page_folder = tmp }):step()
    same_all(a, b, name)
  end
end

local function live() return accel.mem_stats("cpu").live_bytes end

do -- memory: states beyond the budget, and beyond what one step of one parameter uses, are in the file alone
  local params = {}
  for i = 1, 12 do params[i] = accel.full({ 512, 512 }, i + 0.0, { requires_grad = true }) end
  local o = optim.PagedAdamW8bit(params, { page_folder = tmp, page_budget = 2 << 20 })
  local function step()
    for _, p in ipairs(params) do p.grad = accel.ones_like(p) end
    o:step()
    o:zero_grad()
  end
  step()
  collectgarbage()
  collectgarbage()
  local before = live()
  for _ = 1, 3 do step() end
  collectgarbage()
  collectgarbage()
  local window = o.paging:stats().windows.cpu
  local one = 2 * 512 * 512
  assert(o.paging.store:used() >= 12 * one, o.paging.store:used())
  assert(window.peak_bytes <= (2 << 20) + 2 * one, window.peak_bytes)
  assert(window.peak_bytes < 12 * one // 2 and window.evicted > 0 and window.prefetched > 0)
  assert(live() <= before + (1 << 16), live() - before)

  local whole = {}
  for i = 1, 12 do whole[i] = accel.full({ 512, 512 }, i + 0.0, { requires_grad = true }) end
  local plain = optim.AdamW8bit(whole, {})
  for _ = 1, 4 do
    for _, p in ipairs(whole) do p.grad = accel.ones_like(p) end
    plain:step()
    plain:zero_grad()
  end
  same_all(whole, params, "in batches")

  -- saved and loaded, with a file between, into a paged and into a plain one; assign leaves states paged
  local dict = o:state_dict()
  assert(not dict.param_groups[1].page_folder and not dict.param_groups[1].page_budget)
  local flat = {}
  for index, entry in accel.pairs(dict.state) do
    for key, t in accel.pairs(entry) do flat[index .. "." .. key] = t end
  end
  assert(accel.save(tmp .. "/states.safetensors", flat))
  local read = assert(accel.load(tmp .. "/states.safetensors"))
  local again = { state = {}, param_groups = dict.param_groups }
  for name, t in accel.pairs(read) do
    local index, key = name:match "^(%d+)%.(.*)$"
    again.state[tonumber(index)] = again.state[tonumber(index)] or {}
    again.state[tonumber(index)][key] = t
  end
  for _, assign in ipairs { false, true } do
    for name, opts in accel.pairs { PagedAdamW8bit = { page_folder = tmp, page_budget = 2 << 20 }, AdamW8bit = not assign and {} or nil } do
      local copies = {}
      for i, p in ipairs(params) do copies[i] = p:detach():clone():requires_grad_() end
      local other = optim[name](copies, opts)
      other:load_state_dict(again, { assign = assign })
      for i, p in ipairs(copies) do
        p.grad = accel.full(p.shape, i * 0.5)
        whole[i].grad = p.grad:clone()
      end
      local saved = {}
      for i, p in ipairs(whole) do saved[i] = p:detach():clone() end
      local back = plain:state_dict()
      for _, entry in accel.pairs(back.state) do
        for key, t in accel.pairs(entry) do entry[key] = t:clone() end
      end
      plain:step()
      other:step()
      same_all(whole, copies, name .. " loaded")
      if other.paging then assert(other.paging.store:used() >= 12 * one) end
      local _ <close> = accel.no_grad()
      for i, p in ipairs(whole) do p:copy_(saved[i]) end
      plain:load_state_dict(back)
    end
  end
end

do -- two groups are one pass: states of the second come during the first, and what stays from step to step is what the budget holds
  local function make(class, opts)
    local groups = { {}, {} }
    for _, group in ipairs(groups) do
      for i = 1, 4 do group[i] = accel.full({ 512, 512 }, i + 0.0, { requires_grad = true }) end
    end
    return optim[class]({ { params = groups[1] }, { params = groups[2], lr = 0.01 } }, opts), table.move(groups[2], 1, 4, 5, groups[1])
  end
  local one = 512 * 512 -- bytes of a state; there are 16
  local left, a = make("AdamW8bit", {})
  local right, b = make("PagedAdamW8bit", { page_folder = tmp, page_budget = 12 * one })
  local read = {}
  for step = 1, 6 do
    for i, p in ipairs(a) do p.grad, b[i].grad = accel.full(p.shape, step * 0.5), accel.full(p.shape, step * 0.5) end
    left:step()
    right:step()
    read[step] = right.paging:stats().files.read_bytes
  end
  same_all(a, b, "two groups")
  for step = 3, 6 do assert(read[step] - read[step - 1] <= 8 * one, (read[step] - read[step - 1]) // one) end
  assert(right.paging:stats().windows.cpu.prefetched > 0)
end

do -- parameters that are elsewhere when states are made: a file of real states, not meta's counted bytes
  local core = require "accel.parallel.core"
  local p, want = accel.zeros({ 1000, 300 }, { device = "meta", requires_grad = true }), accel.ones({ 1000, 300 }, { requires_grad = true })
  local paged, plain = optim.PagedAdamW8bit({ p }, { page_folder = tmp }), optim.AdamW8bit({ want }, {})
  assert(paged.paging == nil)
  core.replace(p, accel.ones(1000, 300))
  for step = 1, 2 do
    p.grad, want.grad = accel.full(p.shape, step * 0.5), accel.full(p.shape, step * 0.5)
    paged:step()
    plain:step()
  end
  same(p:detach(), want:detach(), "after meta")
  assert(paged.paging.store:used() >= 2 * 300000 and paged.paging:stats().windows.cpu.misses > 0)
end

do -- where states stay is said when they are made, once
  local said, warn_was = {}, warn
  warn = function(...) said[#said + 1] = table.concat { ... } end -- luacheck: ignore 121
  local p = leaves()
  local o = optim.PagedLion8bit(p)
  assert(#said == 0)
  for step = 1, 2 do
    gradients(p, step)
    o:step()
  end
  o:load_state_dict(o:state_dict(), { assign = true })
  warn = warn_was -- luacheck: ignore 121
  assert(#said == 1 and said[1]:find "PagedLion8bit: states on cpu are not paged" and o.paging == nil, table.concat(said, "\n"))
end

do -- meta: bytes are counted, no file is made
  local p = accel.zeros({ 1000, 1000 }, { device = "meta", requires_grad = true })
  local o = optim.PagedAdamW8bit({ p }, { page_folder = tmp .. "/nowhere" })
  p.grad = accel.zeros({ 1000, 1000 }, { device = "meta" })
  o:step()
  assert(o.paging.store:used() >= 2e6 and not os.rename(tmp .. "/nowhere", tmp .. "/nowhere"))
end

do -- what is wrong
  local p = leaves()
  fails("page_folder is the folder for the file of states, got 3", optim.PagedAdamW8bit, p, { page_folder = 3 })
  fails("page_budget must be a positive number of bytes, got 0", optim.PagedAdamW8bit, p, { page_folder = tmp, page_budget = 0 })
  fails("unknown option 'page_folder'", optim.AdamW8bit, p, { page_folder = tmp })
  fails("unknown option 'page_foldr'", optim.PagedAdamW8bit, p, { page_foldr = tmp })
  fails("PagedLion8bit: ", optim.PagedLion8bit, p, { page_folder = "/proc/none" })
end
