-- Measures accel beside its peers: both sides alternate in one run, medians and ratios are printed. Nothing here passes or fails.
--   accel-run tests/bench/run.lua [--rounds 5] [--threads 2] [--only NAME], the suites are listed at the end of this file
-- The PyTorch side runs where `python3 -c 'import torch'` works (tuned: fused AdamW, malloc tunables) and is left out otherwise.
local accel = require "accel"

local here = arg[0]:match("^(.*)/[^/]*$") or "."
local options = { rounds = 5, threads = 2 }
do
  local i = 1
  while arg[i] do
    local name = arg[i]:match("^%-%-(%w+)$")
    if not name or (name ~= "rounds" and name ~= "threads" and name ~= "only") or not arg[i + 1] then
      io.stderr:write("usage: accel-run tests/bench/run.lua [--rounds N] [--threads N] [--only NAME]\n")
      os.exit(2)
    end
    options[name] = tonumber(arg[i + 1]) or arg[i + 1]
    i = i + 2
  end
end

local function quote(s) return "'" .. s:gsub("'", "'\\''") .. "'" end
local exe = os.getenv("ACCEL_RUN")
if not exe then -- the shell's parent is this interpreter
  local p = assert(io.popen("readlink /proc/$PPID/exe"))
  exe = p:read("l")
  p:close()
end

local function capture(command)
  local p = assert(io.popen(command, "r"))
  local text = p:read("a")
  local ok = p:close()
  return ok and text or nil, text
end

local function median(v)
  local s = {}
  for i, x in ipairs(v) do s[i] = x end
  table.sort(s)
  local n = #s
  return n % 2 == 1 and s[(n + 1) // 2] or (s[n // 2] + s[n // 2 + 1]) / 2
end
local function range(v) return math.min(table.unpack(v)), math.max(table.unpack(v)) end

local env = ("env OMP_NUM_THREADS=%d ACCEL_NUM_THREADS=%d "):format(options.threads, options.threads)
local tuned = "MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=17179869184 "
local function ours(script, args) return env .. quote(exe) .. " " .. quote(here .. "/sides/" .. script) .. " " .. (args or "") end
local function torch(args) return env .. tuned .. "python3 " .. quote(here .. "/sides/peer_torch.py") .. " " .. args end
local have_torch = capture("python3 -c 'import torch' 2>/dev/null && echo yes") ~= nil

-- Every side prints one JSON object of figures; sides alternate, so that both see the same machine.
local function alternate(sides, rounds)
  local got = {}
  for round = 1, rounds do
    for _, side in ipairs(sides) do
      local text, raw = capture(side.command)
      if not text then error(("%s failed: %s\n%s"):format(side.name, side.command, raw), 0) end
      local figures = accel.json.decode(text:match("[^\n]*\n?$"))
      got[side.name] = got[side.name] or {}
      for k, v in accel.pairs(figures) do
        got[side.name][k] = got[side.name][k] or {}
        table.insert(got[side.name][k], v)
      end
      io.stderr:write(("\r\27[Kround %d/%d: %s"):format(round, rounds, side.name))
    end
  end
  io.stderr:write("\r\27[K")
  return got
end

local function line(what, unit, a, b, goal)
  local lo, hi = range(a)
  local text = ("%-34s %10.4g %-5s [%.4g, %.4g]"):format(what, median(a), unit, lo, hi)
  if b then
    local blo, bhi = range(b)
    text = text .. ("  peer %10.4g [%.4g, %.4g]  ratio %.2fx"):format(median(b), blo, bhi, median(b) / median(a))
  end
  if goal then text = text .. "  goal " .. goal end
  print(text)
end

local suites = {}

function suites.dispatch()
  local sides = { { name = "accel", command = ours("dispatch.lua") } }
  if have_torch then sides[2] = { name = "torch", command = torch("dispatch") } end
  local got = alternate(sides, options.rounds)
  local t = got.torch or {}
  line("add, 1 element", "ns", got.accel.add, t.add, "200 ns")
  line("add, 1 element, gradient", "ns", got.accel.add_grad, t.add_grad, "400 ns")
  line("matmul 8x8", "ns", got.accel.mm8, t.mm8)
  line("nn.Linear(8,8) forward", "ns", got.accel.linear8, t.linear8)
  line("3-op chain, forward and backward", "ns", got.accel.chain, t.chain)
  line("MLP 784-128-10 B32 SGD step", "us", got.accel.mlp_sgd, t.mlp_sgd)
  line("MLP 784-128-10 B32 AdamW step", "us", got.accel.mlp_adamw, t.mlp_adamw)
end

-- From exec to the end of the first MLP step, the whole process.
function suites.start()
  local function timed(command)
    return ("sh -c 's=$(date +%%s%%N); %s >/dev/null; e=$(date +%%s%%N); echo \"{\\\"ms\\\": $(( (e - s) / 1000 )).0}\"'"):format(command)
  end
  local sides = { { name = "accel", command = timed(ours("first_step.lua"):gsub("'", '"')) } }
  if have_torch then sides[2] = { name = "torch", command = timed(torch("first_step"):gsub("'", '"')) } end
  local got = alternate(sides, options.rounds * 2)
  local function ms(v)
    local r = {}
    for i, x in ipairs(v or {}) do r[i] = x / 1000 end
    return v and r
  end
  line("exec to end of first MLP step", "ms", ms(got.accel.ms), got.torch and ms(got.torch.ms), "30 ms")
end

function suites.size()
  local root = exe:match("^(.*)/bin/[^/]*$")
  for _, path in ipairs { exe, root .. "/lib/libaccel.so", root .. "/lib/accel/accel_onednn.so", root .. "/lib/lua/5.4/accel/core.so" } do
    local text = capture(([[f=%s; t=/tmp/accel-bench-strip.$$; [ -e "$f" ] && strip -o $t "$(readlink -f "$f")" &&
      stat -c %%s $t; rm -f $t]]):format(quote(path)))
    local n = tonumber((text or ""):match("%d+"))
    if n then line("stripped " .. path:match("[^/]*$"), "KiB", { n / 1024 }) end
  end
end

-- Memory-bound ops beside what threads reach with memcpy, and reductions beside plain reading, in the same rounds.
function suites.bandwidth()
  local tool = os.tmpname()
  if not capture(("cc -O3 -march=native -pthread -o %s %s 2>&1"):format(quote(tool), quote(here .. "/sides/memory.c"))) then
    print "no C compiler: left out"
    return
  end
  for _, dtype in ipairs { "f32", "bf16" } do
    local got = alternate({
      { name = "memory", command = quote(tool) .. " " .. options.threads }, { name = "accel", command = ours("bandwidth.lua", dtype) },
    }, options.rounds)
    local copy, read = median(got.memory.copy), median(got.memory.read)
    print(("%s: copy %.1f GB/s, read %.1f GB/s, write %.1f GB/s"):format(dtype, copy, read, median(got.memory.write)))
    local reads = { sum = 1, sum_dim1 = 1, sum_dim2 = 1, amax = 1, argmax = 1, norm = 1, var_dim2 = 1, mse_loss = 1 }
    for name, v in accel.pairs(got.accel) do
      local limit = reads[name] and read or copy
      local lo, hi = range(v)
      print(("%-28s %7.1f GB/s [%.1f, %.1f]  %3.0f %% of %s"):format(name, median(v), lo, hi, 100 * median(v) / limit,
        reads[name] and "read" or "copy"))
    end
  end
  os.remove(tool)
end

local function gpt(dtype)
  return function()
    local args = "--dtype " .. dtype
    local sides = { { name = "accel", command = ours("gpt_step.lua", args) } }
    if have_torch then sides[2] = { name = "torch", command = torch("gpt_step " .. args) } end
    local got = alternate(sides, options.rounds)
    local t = got.torch or {}
    line("GPT step 6x384 T256 B8 " .. dtype, "ms", got.accel.ms, t.ms, "ratio 1.0x")
    line("  forward", "ms", got.accel.forward_ms, t.forward_ms)
    line("  backward", "ms", got.accel.backward_ms, t.backward_ms)
    line("  clip and AdamW", "ms", got.accel.update_ms, t.update_ms)
    print(("  loss after 12 steps on one batch: accel %.3f%s (own initial weights each)"):format(median(got.accel.loss),
      t.loss and (", peer %.3f"):format(median(t.loss)) or ""))
  end
end
suites.gpt_f32, suites.gpt_bf16 = gpt("f32"), gpt("bf16")

-- images, channels, size, output channels, kernel, stride, padding, groups: the layers of a ResNet-50, depthwise and grouped
-- ones, and two of a small network for digits
local convs = {
  { "7x7 3-64 by 2 @224", "8,3,224,64,7,2,3,1" }, { "3x3 64 @56", "8,64,56,64,3,1,1,1" },
  { "1x1 64-256 @56", "8,64,56,256,1,1,0,1" }, { "1x1 256-64 @56", "8,256,56,64,1,1,0,1" },
  { "3x3 128 by 2 @56", "8,128,56,128,3,2,1,1" }, { "1x1 256-512 by 2 @56", "8,256,56,512,1,2,0,1" },
  { "3x3 128 @28", "8,128,28,128,3,1,1,1" }, { "1x1 128-512 @28", "8,128,28,512,1,1,0,1" },
  { "3x3 256 @14", "8,256,14,256,3,1,1,1" }, { "1x1 1024-256 @14", "8,1024,14,256,1,1,0,1" },
  { "3x3 512 @7", "8,512,7,512,3,1,1,1" }, { "1x1 512-2048 @7", "8,512,7,2048,1,1,0,1" },
  { "3x3 depthwise 128 @56", "8,128,56,128,3,1,1,128" }, { "3x3 depthwise 128 by 2 @56", "8,128,56,128,3,2,1,128" },
  { "3x3 128 in 32 groups @56", "8,128,56,128,3,1,1,32" }, { "3x3 1-8 @8, 64 images", "64,1,8,8,3,1,1,1" },
  { "3x3 8-16 by 2 @8, 64 images", "64,8,8,16,3,2,1,1" },
}
local function conv(dtype)
  return function()
    local shapes = {}
    for i, c in ipairs(convs) do shapes[i] = c[2] end
    local args = ("--dtype %s --shapes '%s'"):format(dtype, table.concat(shapes, ";"))
    local sides = { { name = "accel", command = ours("conv.lua", args) } }
    if have_torch then sides[2] = { name = "torch", command = torch("conv " .. args) } end
    local got = alternate(sides, options.rounds)
    local t = got.torch or {}
    for i, c in ipairs(convs) do
      line(c[1], "ms", got.accel["f" .. i], t["f" .. i], i == 1 and "ratio 0.83x" or nil)
      line("  gradient of the input", "ms", got.accel["x" .. i], t["x" .. i])
      line("  gradient of the weight", "ms", got.accel["w" .. i], t["w" .. i])
    end
    line("max pool 3x3 by 2, 64 @112", "ms", got.accel.pool_f, t.pool_f)
    line("  gradient", "ms", got.accel.pool_x, t.pool_x)
  end
end
suites.conv_f32, suites.conv_bf16 = conv("f32"), conv("bf16")

local harness = {
  here = here, exe = exe, options = options, have_torch = have_torch, cores = tonumber(capture "nproc") or 1, quote = quote, capture = capture,
  alternate = alternate, line = line, median = median,
}
dofile(here .. "/comm.lua")(harness, suites)
dofile(here .. "/ddp.lua")(harness, suites)
dofile(here .. "/accelerator.lua")(harness, suites)
dofile(here .. "/loader.lua")(harness, suites)

print(("accel %s, %d threads, median of %d alternating rounds [min, max]%s"):format(accel._VERSION or "", options.threads, options.rounds,
  have_torch and "" or "; no PyTorch here"))
for _, name in ipairs { "size", "start", "dispatch", "bandwidth", "gpt_f32", "gpt_bf16", "conv_f32", "conv_bf16", "comm_2", "comm_4", "launch",
  "ddp", "accelerator", "loader" } do
  if not options.only or options.only == name then
    print("-- " .. name)
    suites[name]()
  end
end
