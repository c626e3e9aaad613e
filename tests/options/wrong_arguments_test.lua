--- Every public function and class called with wrong arguments: each call returns or raises a message about the arguments, never an
--- error that Lua raised inside the library. The first calls are the same in every run; more are drawn from ACCEL_TEST_SEED.
local accel = require "accel"
local seed = math.tointeger(tonumber(os.getenv "ACCEL_TEST_SEED" or "")) or os.time()
io.write("seed ", seed, "\n")
math.randomseed(seed)
local only = arg[1] -- of this module alone

local MODULES <const> = { "accelerator", "nn", "optim", "data", "dist", "models", "text", "util", "metrics", "track", "profiler", "deepspeed",
  "quant", "peft", "parallel", "autograd", "offload", "ckpt", "config", "fp8", "amp", "optim.lr_scheduler", "nn.functional", "nn.init",
  "nn.utils", "fft", "functional", "linalg", "special", "vision", "vision.transforms", "vision.io", "audio", "audio.transforms",
  "audio.functional", "func", "onnx", "models.gguf", "dist.hooks", "nn.utils.rnn", "nn.parallel", "optim.swa_utils" }

-- Start ranks or programs, wait for peers or people, or change the environment of all calls after them.
local LEFT_OUT <const> = { launch = true, destroy_process_group = true, barrier = true, notebook_launcher = true, debug_launcher = true,
  clear_environment = true, tqdm = true, wait_for_everyone = true, init_process_group = true, ui = true, serve = true, start = true,
  monitored_barrier = true }

local RANDOM <const> = 2 -- drawn argument lists of each name

-- Made anew for each call, since calls may write to them.
local makers = {
  function() return {} end, function() return 5 end, function() return "x" end, function() return accel.ones(2, 2) end,
  function() return true end, function() return -1 end, function() return 2.5 end, function() return function() end end,
  function() return { "a", "b" } end, function() return { x = 1 } end, function() return accel.nn.Linear(2, 2) end,
  function() return 0 / 0 end,
}

local function is_raw(text)
  return text:find "attempt to " or text:find "bad argument #%d+ to 'for iterator'" or text:find("/lua/5.4/accel/", 1, true)
    or text:find("stdlib/accel/", 1, true)
end

local calls, raw = 0, {}
local function try(name, f, ...)
  calls = calls + 1
  local result = table.pack(pcall(f, ...))
  local text = ""
  if not result[1] then
    text = tostring(result[2])
  elseif select("#", ...) <= 1 then
    local ok, shown = pcall(tostring, result[2])
    if not ok then text = "tostring: " .. tostring(shown) end
  end
  if is_raw(text) then raw[#raw + 1] = ("%s: %s"):format(name, text:gsub("\n.*", "")) end
end

local function callable(value)
  local meta = type(value) == "table" and getmetatable(value)
  return type(value) == "function" or type(meta) == "table" and meta.__call ~= nil
end

for _, path in ipairs(MODULES) do
  local module = accel
  for part in path:gmatch "[%w_]+" do module = module[part] end -- "": accel itself
  assert(type(module) == "table", path)
  local names, meta = {}, getmetatable(module)
  for name in next, module do names[name] = true end
  for name in next, meta and meta.__names or {} do names[name] = true end
  for name in accel.pairs(names) do
    local found, value = pcall(function() return module[name] end)
    if type(name) == "string" and not name:find "^_" and not LEFT_OUT[name] and found and callable(value) and (not only or path == only) then
      local full = path .. "." .. name
      local models = path == "models" -- whose defaults are whole models, of billions of parameters
      if not models then try(full .. "()", value) end
      for i = models and 2 or 1, 4 do try(("%s(value %d)"):format(full, i), value, makers[i]()) end
      for _ = 1, models and 0 or RANDOM do
        local drawn, shown = {}, {}
        for i = 1, math.random(1, 3) do
          shown[i] = math.random(#makers)
          drawn[i] = makers[shown[i]]()
        end
        try(("%s(values %s)"):format(full, table.concat(shown, ", ")), value, table.unpack(drawn))
      end
    end
  end
end

io.write(("%d calls, %d errors of Lua\n"):format(calls, #raw))
for _, text in ipairs(raw) do io.write(text:sub(1, 240), "\n") end
assert(calls > (only and 20 or 4000), "only " .. calls .. " calls")
assert(#raw == 0, "errors of Lua from inside the library")
