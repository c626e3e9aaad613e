-- Fuzzing of what stands behind the YAML reader: any text becomes a configuration with problems or a plan, or an error of one line; never a
-- raise, in bounded time. Texts are those of the corpus and of reference/configs, cut, joined and changed byte by byte.
--   accel-run tests/fuzz/configs.lua SECONDS [SEED]
local accel = require "accel"
local arguments = require "accel.config.arguments"
local plan = require "accel.config.plan"
local read = require "accel.config.read"
local validate = require "accel.config.validate"
local write = require "accel.config.write"
local yaml11 = require "accel.config.yaml11"

if not accel.yaml.available() then
  print "skipped: no libyaml here"
  os.exit(77)
end
local seconds, seed = tonumber(arg[1] or 5), math.tointeger(tonumber(arg[2] or os.getenv "ACCEL_TEST_SEED" or os.time()))
math.randomseed(seed)
local here = arg[0]:match "^(.*)/[^/]*$" or "."

local corpus = {}
for _, dir in ipairs { here .. "/corpus/yaml", here .. "/../reference/configs/yaml" } do
  for _, name in ipairs(accel.listdir(dir) or {}) do
    local file <close> = assert(io.open(dir .. "/" .. name, "rb"))
    corpus[#corpus + 1] = file:read "a"
  end
end
assert(#corpus > 20, "no corpus")

local PIECES <const> = { "\n", ": ", "- ", "[", "]", "{", "}", "'", '"', "&a ", "*a", "!!int ", "|\n  ", "? ", "#", "\t", "~", "yes", "no", "1e9",
  "-1", "0x", "99999999999999999999", "fsdp_config:\n  ", "deepspeed_config: ", "\0", "\xff", "\u{e9}", ",", "<<: *a\n", "...\n", "---\n" }

local function pick(list) return list[math.random(#list)] end

local function change(text)
  for _ = 1, math.random(6) do
    local at, kind = math.random(0, #text), math.random(6)
    if kind == 1 then text = text:sub(1, at) .. pick(PIECES) .. text:sub(at + 1)
    elseif kind == 2 then text = text:sub(1, at) .. text:sub(at + math.random(20))
    elseif kind == 3 then text = text:sub(1, at) .. string.char(math.random(0, 255)) .. text:sub(at + 2)
    elseif kind == 4 then
      local other = pick(corpus)
      text = text:sub(1, at) .. other:sub(math.random(#other + 1))
    elseif kind == 5 then
      local piece = text:sub(at, at + math.random(40))
      text = text:sub(1, at) .. piece:rep(math.random(50)) .. text:sub(at + 1)
    else text = text:gsub("%d+", function(n) return math.random(4) == 1 and tostring(math.random(-3, 1 << 40)) or n end) end
  end
  return text:sub(1, 1 << 20)
end

local ARGV <const> = { { "x.lua" }, { "--cpu", "x.lua" }, { "--use_fsdp", "--fsdp_version=2", "x.lua" }, { "--use_deepspeed", "x.lua" },
  { "--num_machines", "2", "--main_process_ip", "a", "x.lua" } }

local slowest = 0

local function one(text)
  local began = os.clock() -- of the processor: other programs do not count
  local file = (math.random(8) == 1 and read.json or read.yaml)(text, "x.yaml")
  slowest = math.max(slowest, os.clock() - began)
  for _, line in ipairs(validate.lines(file)) do assert(#line < 4096 and line:sub(1, 6) == "x.yaml", line) end
  local given = assert(arguments.read(pick(ARGV)))
  local ok, made = pcall(plan.make, given, file, { gpus = math.random(0, 4), cores = 4, fp8 = false, cwd = "/", interpreter = "lua",
    mpi = "Open MPI", free_port = function() return 1 end })
  assert(ok or (type(made) == "table" and type(made.message) == "string"), made)
  for name, value in next, ok and made.env or {} do assert(type(name) == "string" and type(value) == "string", name) end
  if #file.problems == 0 then -- what is written is read back
    local again = read.yaml(write.yaml(read.fields(file)), "again.yaml")
    assert(#again.problems == 0, again.problems[1] and again.problems[1].message)
    for key, value in next, file.values do
      if type(value) ~= "table" then assert(again.values[key] == value, key) end
    end
  end
  local node = accel.yaml.decode(text)
  if node then yaml11.plain(node) end
end

-- A count as well, so that a run on a faster machine does not go further than the one before it.
local ends, most, n = accel.clock() + seconds, seconds * 1500, 0
while accel.clock() < ends and n < most do
  local text = change(pick(corpus))
  local ok, why = pcall(one, text)
  if not ok then
    local file <close> = assert(io.open("crash.yaml", "wb"))
    file:write(text)
    print(("seed %d, text %d, which is in crash.yaml: %s"):format(seed, n, tostring(why)))
    os.exit(1, true)
  end
  n = n + 1
end
print(("%d texts, the slowest read in %.1f ms (seed %d)"):format(n, 1000 * slowest, seed))
