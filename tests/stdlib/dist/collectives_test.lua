-- accel.dist on 2, 3, 4 and 7 ranks against closed forms: every collective, uneven parts, groups, works, tensors whose
-- bytes do not lie in order; then what ranks say of each other when they differ, fail or leave.
--   accel-run tests/stdlib/dist/collectives_test.lua
local accel = require "accel"
local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
local dist, same = accel.dist, ranks.same

-- ---- as one of many ranks ----
local function closed_forms()
  local R, P = ranks.rank, ranks.size
  assert(P == tonumber(os.getenv "WORLD_SIZE") and R == tonumber(os.getenv "RANK"))
  assert(dist.is_initialized() and dist.get_local_rank() == R and dist.get_local_world_size() == P)
  assert(dist.get_backend() == (P > 1 and "shm" or dist.get_backend()))
  local function range(n, add, o) return (accel.arange(n, { dtype = "f64" }) % 7 + add):to(o and o.dtype or "f32") end

  for _, dtype in ipairs { "f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u8" } do
    local o = { dtype = dtype }
    for _, n in ipairs { 0, 1, 33, 1025, dtype == "f32" and 70001 or 4099 } do
      local t = range(n, R, o)
      dist.all_reduce(t)
      same(t, (range(n, 0, { dtype = "f64" }) * P + P * (P - 1) // 2):to(dtype), "sum " .. dtype)
      t = range(n, R, o)
      dist.all_reduce(t, "min")
      same(t, range(n, 0, o), "min " .. dtype)
      t = range(n, R, o)
      dist.all_reduce(t, { op = dist.ReduceOp.MAX, async_op = true }):wait()
      same(t, range(n, P - 1, o), "max " .. dtype)
      t = accel.full({ n }, R == 0 and 3 or R == P - 1 and 2 or 1):to(dtype)
      dist.all_reduce(t, "prod")
      same(t, accel.full({ n }, P == 1 and 3 or 6):to(dtype), "prod " .. dtype)
      for root = 0, P - 1, 2 do
        t = range(n, R, o)
        dist.broadcast(t, root)
        same(t, range(n, root, o), "broadcast " .. dtype)
        t = range(n, R, o)
        dist.reduce(t, root, "max")
        same(t, range(n, R == root and P - 1 or R, o), "reduce " .. dtype)
      end
      local all = accel.zeros({ P, n }, o)
      dist.all_gather_into_tensor(all, range(n, R, o))
      for r = 0, P - 1 do same(all[r + 1], range(n, r, o), "all_gather_into_tensor " .. dtype) end
      local part = accel.zeros({ n }, o)
      dist.reduce_scatter_tensor(part, all, "max") -- all ranks have the same there
      same(part, range(n, R, o), "reduce_scatter_tensor " .. dtype)
      dist.all_to_all_single(all:clone(), all) -- shapes
      local sent, got = accel.zeros({ P, n }, o), accel.zeros({ P, n }, o)
      for r = 0, P - 1 do sent[r + 1] = range(n, 1, o) * (R % 5) + r % 3 end
      dist.all_to_all_single(got, sent)
      for r = 0, P - 1 do same(got[r + 1], range(n, 1, o) * (r % 5) + R % 3, "all_to_all_single " .. dtype) end
    end
  end
  local mean = accel.full({ 100 }, R + 1.0)
  dist.all_reduce(mean, "avg")
  same(mean, accel.full({ 100 }, (P + 1) / 2), "avg")
  local flag = accel.tensor { R == 0, true, R == P - 1 and P == 1 }
  dist.all_reduce(flag, "min")
  same(flag, accel.tensor { P == 1, true, P == 1 }, "and")

  -- parts of different sizes: rank r has r + 1 rows (rank 2 has none)
  local rows = {}
  for r = 0, P - 1 do rows[r + 1] = r == 2 and 0 or r + 1 end
  local function block(r, n) return (accel.arange(n * 3, { dtype = "f32" }) + 100 * r):view(n, 3) end
  local list = {}
  for r = 0, P - 1 do list[r + 1] = accel.zeros(rows[r + 1], 3) end
  dist.all_gather(list, block(R, rows[R + 1]))
  for r = 0, P - 1 do same(list[r + 1], block(r, rows[r + 1]), "all_gather") end
  for r = 0, P - 1 do list[r + 1] = block(r, rows[r + 1]) + R end
  local out = accel.zeros(rows[R + 1], 3)
  dist.reduce_scatter(out, list)
  same(out, block(R, rows[R + 1]) * P + P * (P - 1) // 2, "reduce_scatter")
  -- rank a sends rank b a block of (a + b) % 3 rows
  local ins, outs = {}, {}
  for r = 0, P - 1 do
    ins[r + 1] = block(R * 10 + r, (R + r) % 3)
    outs[r + 1] = accel.zeros((R + r) % 3, 3)
  end
  assert(dist.all_to_all(outs, ins, { async_op = true }):wait())
  local to, from = {}, {}
  for r = 0, P - 1 do
    same(outs[r + 1], block(r * 10 + R, (R + r) % 3), "all_to_all")
    to[r + 1], from[r + 1] = (R + r) % 3, (R + r) % 3
  end
  local got = accel.zeros_like(accel.cat(outs, 1))
  dist.all_to_all_single(got, accel.cat(ins, 1), { input_split_sizes = to, output_split_sizes = from })
  same(got, accel.cat(outs, 1), "all_to_all_single")
  -- gather and scatter
  local root = P - 1
  if R == root then
    local all = accel.zeros(P, 5)
    dist.gather(accel.full({ 5 }, R * 1.0), { gather_list = all:unbind(), dst = root })
    for r = 0, P - 1 do same(all[r + 1], accel.full({ 5 }, r * 1.0), "gather") end
    local parts = {}
    for r = 0, P - 1 do parts[r + 1] = accel.full({ 5 }, r + 0.5) end
    local mine = accel.zeros(5)
    dist.scatter(mine, { scatter_list = parts, src = root })
    same(mine, accel.full({ 5 }, R + 0.5), "scatter")
  else
    dist.gather(accel.full({ 5 }, R * 1.0), { dst = root })
    local mine = accel.zeros(5, 2):select(2, 1) -- every other number
    dist.scatter(mine, { src = root })
    same(mine, accel.full({ 5 }, R + 0.5), "scatter")
  end

  -- tensors whose bytes do not lie in order; parts of what is received lie in what is sent
  local wide = accel.zeros(6, 4):fill_(R)
  local odd = wide:t():narrow(1, 2, 2)
  dist.all_reduce(odd)
  same(odd, accel.full({ 2, 6 }, P * (P - 1) / 2), "all_reduce of a view")
  same(wide:narrow(2, 1, 1), accel.full({ 6, 1 }, R * 1.0), "what lies beside a view")
  dist.broadcast(odd:fill_(R), P - 1)
  same(odd, accel.full({ 2, 6 }, P - 1.0), "broadcast of a view")
  local line = accel.zeros(P + 1)
  line[1] = R * 1.0
  dist.all_gather_into_tensor(line:narrow(1, 2, P), line:narrow(1, 1, 1))
  same(line:narrow(1, 2, P), accel.arange(P, { dtype = "f32" }), "buffers side by side")
  line = accel.full({ P }, -1.0)
  line[R + 1] = R * 2.0
  dist.all_gather_into_tensor(line, line:narrow(1, R + 1, 1)) -- the own part in place
  same(line, accel.arange(P, { dtype = "f32" }) * 2, "all_gather in place")
  dist.all_to_all_single(line, line)
  same(line, accel.full({ P }, R * 2.0), "all_to_all in place")

  -- works: many at once, out of one's hands
  local many, works = {}, {}
  for i = 1, 40 do
    many[i] = accel.full({ i * 50 }, R + i * 1.0)
    works[i] = dist.all_reduce(many[i], { async_op = true })
  end
  dist.barrier()
  for i = 40, 1, -1 do
    assert(works[i]:is_completed() and works[i]:wait())
    same(many[i], accel.full({ i * 50 }, P * i + P * (P - 1) / 2), "work")
  end
  for _ = 1, 100 do dist.all_reduce(accel.ones(1000), { async_op = true }) end
  collectgarbage()

  -- one to one: around the ring, both ways at once
  if P > 1 then
    local right, left = (R + 1) % P, (R - 1) % P
    local a, b, c = accel.full({ 5000 }, R * 1.0), accel.zeros(5000), accel.zeros(3)
    local w = dist.isend(a, right)
    assert(dist.recv(b, left) == left)
    w:wait()
    same(b, accel.full({ 5000 }, left * 1.0), "ring")
    local p = dist.P2POp
    works = dist.batch_isend_irecv { p(dist.isend, a, left, nil, 7), p(dist.irecv, b, right, nil, 7),
      p(dist.isend, a:narrow(1, 1, 3), right), p(dist.irecv, c, left) }
    assert(#works == 4)
    for _, x in ipairs(works) do x:wait() end
    same(b, accel.full({ 5000 }, right * 1.0), "batch")
    same(c, accel.full({ 3 }, left * 1.0), "batch")
    if R == 0 then dist.send(accel.tensor { 1.0, 2.0 }, 1) end
    if R == 1 then
      local t = accel.zeros(2, 2)
      dist.recv(t:select(2, 1), 0)
      same(t, accel.tensor { { 1.0, 0 }, { 2, 0 } }, "recv into a view")
    end
  end

  -- groups
  local even, odds = {}, {}
  for r = 0, P - 1 do table.insert(r % 2 == 0 and even or odds, r) end
  local g = dist.new_group(even)
  local h = #odds > 0 and dist.new_group(odds)
  local mine, members = R % 2 == 0 and g or h, R % 2 == 0 and even or odds
  assert(mine:size() == #members and members[mine:rank() + 1] == R
    and dist.get_rank(R % 2 == 0 and h or g) == (h and -1 or 0))
  local t, sum = accel.full({ 10 }, R * 1.0), 0
  for _, r in ipairs(members) do sum = sum + r end
  dist.all_reduce(t, { group = mine })
  same(t, accel.full({ 10 }, sum * 1.0), "all_reduce in a group")
  t:fill_(R)
  dist.broadcast(t, members[#members], { group = mine })
  same(t, accel.full({ 10 }, members[#members] * 1.0), "broadcast in a group")
  dist.all_reduce(t:fill_(1), { group = mine, async_op = true }) -- nobody waits for it
  g, h, mine = nil, nil, nil -- luacheck: ignore
  collectgarbage()
  collectgarbage()
  for _ = 1, 20 do
    dist.new_group(even)
    if #odds > 0 then dist.new_group(odds) end
    collectgarbage()
  end
  for _ = 1, 150 do dist.new_group(even) end -- more than can be alive at once: those without a handle go

  -- memory that all ranks map, the recorder, steps
  local shared = dist.empty(1000):fill_(R)
  dist.all_reduce(shared)
  same(shared, accel.full({ 1000 }, P * (P - 1) / 2), "shared memory")
  assert(P == 1 or dist.heap_bytes() >= 4000, dist.heap_bytes())
  local last = dist.records(1)[1]
  assert(last.kind == "all_reduce" and last.count == 1000 and last.site:find "collectives_test.lua:%d+$")
  accel.step()
  dist.barrier()
end

-- ---- ranks that differ, fail and leave; each case ends the world ----
local cases = {
  mismatch = function(R)
    local ok, e = pcall(dist.all_reduce, accel.ones(R == 0 and 3 or 4))
    assert(not ok and e.code == "mismatch", tostring(e))
    print("seen: " .. e)
    local again, f = pcall(dist.barrier)
    assert(not again and (f.code == "mismatch" or f.code == "peer"), tostring(f))
    ok, e = pcall(accel.step)
    assert(not ok and e.code == f.code, tostring(e))
  end,
  kinds = function(R)
    local ok, e = pcall(R == 0 and dist.barrier or dist.all_reduce, R ~= 0 and accel.ones(3) or nil)
    assert(not ok and e.code == "mismatch", tostring(e))
    print("seen: " .. e)
  end,
  work = function(R)
    local w = dist.all_reduce(accel.ones(R == 0 and 3 or 4), { async_op = true })
    for _ = 1, 2 do
      local ok, e = pcall(w.wait, w)
      assert(not ok and e.code == "mismatch", tostring(e))
      print("seen: " .. e)
    end
  end,
  fail = function(R)
    dist.barrier()
    if R == 1 then error "told you" end
    local ok, e = pcall(dist.barrier)
    assert(not ok and e.code == "peer" and e.rank == 1, tostring(e))
    print("seen: " .. e)
  end,
  leave = function(R)
    if R == 1 then return end
    local ok, e = pcall(dist.barrier)
    assert(not ok and e.code == "peer", tostring(e))
    print("seen: " .. e)
  end,
  exit = function(R)
    if R == 1 then os.exit(0) end
    local ok, e = pcall(dist.barrier)
    assert(not ok and e.code == "peer", tostring(e))
    print("seen: " .. e)
  end,
  destroy = function(R)
    if R == 1 then dist.destroy_process_group() end
    local ok, e = pcall(dist.barrier)
    assert(not ok and e.code == (R == 1 and "state" or "peer"), tostring(e))
    print("seen: " .. e)
  end,
  timeout = function(R)
    local mark = (os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/timed_out"
    if R == 0 then os.remove(mark) end
    dist.barrier()
    dist.set_timeout(0.3)
    if R == 1 then
      local file
      repeat file = io.open(mark) until file
      file:close()
      return
    end
    local ok, e = pcall(dist.barrier)
    assert(not ok and e.code == "timeout", tostring(e))
    print("seen: " .. e)
    assert(io.open(mark, "w")):close()
  end,
}

-- A signal to one rank interrupts all of them at one step.
local function interrupted(R, step)
  local pid = assert(io.open "/proc/self/stat"):read "n"
  for i = 1, 1000 do
    dist.all_reduce(accel.ones(10))
    if R == 1 and i == 5 then io.popen(("kill -INT %d"):format(pid)):close() end
    if step() then break end
  end
  local n = dist.empty(1, { dtype = "i64" }):fill_(accel.step_count())
  dist.all_reduce(n, "max")
  assert(n[1]:item() == accel.step_count() and accel.step_count() >= 5 and accel.step_count() < 100, accel.step_count())
  print("stopped after " .. accel.step_count())
end
function cases.flag(R)
  accel.on_interrupt "flag"
  interrupted(R, function()
    accel.step()
    return accel.interrupted()
  end)
end
function cases.interrupt(R)
  interrupted(R, function()
    local ok, e = pcall(accel.step)
    assert(ok or e.code == "interrupted", tostring(e))
    return not ok
  end)
  accel.step() -- once: what comes after is the script's
end

if not ranks.start { 2, 3, 4, 7 } then
  if arg[1] then cases[arg[1]](ranks.rank) else closed_forms() end
  return
end

-- ---- the launcher's side ----
local here = "collectives_test.lua:%d+"
local function expect(case, ...)
  local patterns = { ... }
  ranks.timely(function()
    local out, err = ranks.try(2, { args = case })
    local text = out .. err
    -- half a second after a rank failed the launcher ends the others, whether they have said what they know or not
    if text:find "stopped: rank 1 failed" and not text:find "seen: " then return text end
    for _, pattern in ipairs(patterns) do
      assert(text:find(pattern), ("%s: no %q in: %s"):format(case, pattern, text))
    end
  end)
end
expect("mismatch", "seen: .*" .. here .. ": all_reduce: .*count.*rank 0 in all_reduce f32 %(3%) sum at .*" .. here
  .. ".*rank 1 in all_reduce f32 %(4%)", "%[rank 1%] seen: ")
expect("kinds", "seen: .*operation.*rank 0 in barrier.*" .. here, "rank 1 in all_reduce")
expect("work", "seen: .*" .. here .. ".*count.*" .. here .. ".*" .. here)
expect("fail", "seen: .*rank 1 failed at .*" .. here .. ": told you", "told you.*stack traceback")
expect("leave", "seen: .*rank 1.*" .. here)
expect("exit", "seen: .*rank 1.*" .. here)
expect("destroy", "seen: .*rank 1.*" .. here, "destroyed at .*" .. here)
expect("timeout", "seen: .*rank 1")
expect("flag", "stopped after %d+", "%[rank 1%] stopped after")
expect("interrupt", "stopped after %d+", "%[rank 1%] stopped after")

-- ---- a stock interpreter is a rank as soon as it has accel ----
local build = os.getenv "ACCEL_TEST_BUILD"
if build and os.getenv "ACCEL_TEST_SANITIZE" == "" and os.execute "command -v lua5.4 > /dev/null" then
  local code = [[local dist = require("accel").dist
    assert(dist.is_initialized() == (os.getenv("RANK") ~= nil))
    assert(dist.get_rank() == 0 and dist.get_backend() == "solo")]]
  local path = ("LUA_PATH='B/share/lua/5.4/?.lua;B/share/lua/5.4/?/init.lua' LUA_CPATH='B/lib/lua/5.4/?.so'"):gsub("B",
    build)
  assert(os.execute(("%s lua5.4 -e '%s'"):format(path, code)))
  assert(os.execute(("RANK=0 WORLD_SIZE=1 %s lua5.4 -e '%s'"):format(path, code)))
  assert(not os.execute(("RANK=1 WORLD_SIZE=1 %s lua5.4 -e '%s' 2>/dev/null"):format(path, code)))
end
