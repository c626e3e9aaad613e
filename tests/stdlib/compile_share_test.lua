--- Blocks of a model that repeat share the kernels that accel.compile makes, and so do calls of other shapes; ACCEL_COMPILE_LIMIT bounds them;
--- a compiled training step takes no more memory than a plain one.
-- tier: every change, memory
local accel = require "accel"
local run = os.getenv "ACCEL_TEST_BUILD" .. "/bin/accel-run"
local tmp = os.getenv "ACCEL_TEST_TMP"
local function sh(command)
  local p <close> = assert(io.popen(command .. " 2>&1"))
  return p:read "a"
end
if not sh("command -v cc"):match "^/" then
  print "skipped: there is no C compiler 'cc'"
  os.exit(77, true)
end

local script = tmp .. "/share.lua"
assert(accel.write_file(script, [[
  local accel, core = require "accel", require "accel.fuse.core"
  local nn = accel.nn
  accel.manual_seed(1)
  if arg[1] == "kinds" then
    for kind = 1, 4 do -- each another chain
      local function f(t)
        for _ = 1, kind do t = (t * 0.5 + 1):tanh() end
        return t
      end
      local c, x = accel.compile(f), accel.randn(300, 500)
      for _ = 1, 4 do assert(accel.equal(c(x), f(x))) end
    end
    print("generated", (select(5, core.counts())))
    return
  end
  local Block = nn.Module:extend "Block"
  function Block:init(n)
    self.lin = nn.Linear(n, n)
    self.weight = nn.Parameter(accel.ones(n))
  end
  function Block:forward(x)
    local d = x - x:mean(-1, true)
    local h = d * ((d * d):mean(-1, true) + 1e-5):rsqrt() * self.weight
    return x + (self.lin(h) * 1.5):gelu() * 0.5
  end
  local blocks = {}
  for i = 1, tonumber(arg[1]) do blocks[i] = Block(256) end
  local model, plain = nn.Sequential(table.unpack(blocks)), nn.Sequential(table.unpack(blocks))
  accel.accelerator.compile_regions(model)
  accel.no_grad(function()
    for rows = 600, 600 + 7 * (tonumber(arg[2]) or 0), 7 do
      local x = accel.randn(rows, 256)
      for _ = 1, 4 do assert(accel.equal(model(x), plain(x))) end
    end
  end)
  assert((select(5, core.counts())) > 0)
]]))
local function kernels(args, limit)
  local folder = tmp .. "/shared_kernels"
  sh(("rm -rf '%s'"):format(folder))
  local said = sh(("ACCEL_COMPILE_CACHE='%s' ACCEL_COMPILE_LIMIT=%d ACCEL_DEVICE=cpu '%s' '%s' %s"):format(folder, limit or 256, run, script, args))
  return select(2, sh(("ls '%s'"):format(folder)):gsub("%.so", "")), said
end
local four, twelve, shapes = kernels "4", kernels "12", kernels "4 20" -- the first and the last block have neighbours of other kinds
assert(four > 0 and twelve == four and shapes == four, ("%d %d %d"):format(four, twelve, shapes))
local made, said = kernels("kinds", 2)
assert(made == 2 and said:match "generated%s+4" and said:find("more than 2 kinds of chains", 1, true), said)

-- ---- memory: a step of a GPT, plain and compiled, where garbage goes at once ----
assert(accel.write_file(script, [[
  local accel = require "accel"
  accel.manual_seed(3)
  local model = accel.models.GPT2 { vocab_size = 64, n_positions = 256, n_embd = 128, n_layer = 3, n_head = 4, activation_function = "gelu" }
  if arg[1] == "compiled" then accel.compile(model) end
  local optimizer = accel.optim.AdamW(model:parameters(), { lr = 1e-3 })
  local ids = accel.randint(0, 64, { 8, 256 })
  local most, loss = 0, nil
  for step = 1, 5 do
    accel.reset_peak_memory()
    loss = accel.nn.functional.cross_entropy(model(ids):reshape(-1, 64), ids:reshape(-1))
    loss:backward()
    optimizer:step()
    optimizer:zero_grad()
    if step > 3 then most = math.max(most, accel.mem_stats().peak_bytes) end
  end
  print(most, ("%.17g"):format(loss:item()))
]]))
local function peak(how)
  local said = sh(("ACCEL_COMPILE_CACHE='%s/kernels' ACCEL_GC=exact ACCEL_DEVICE=cpu '%s' '%s' %s"):format(tmp, run, script, how))
  local bytes, loss = said:match "^(%d+)%s+(%S+)\n$"
  assert(bytes, said)
  return tonumber(bytes), loss
end
local plain, loss = peak "plain"
local compiled, other = peak "compiled"
assert(loss == other and compiled <= plain, ("%d bytes, plain %d"):format(compiled, plain))
