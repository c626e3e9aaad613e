-- How save_model names files and shares weights out over them: every row of shards.json, on the models of trees.json in the same
-- folder. `split` rows go through the split alone, `save_model` rows through Accelerator:save_model and the files it wrote.
--   accel-run tests/reference/shards.lua DIR
-- Prints the first failures and ends with "N passed, M failed"; exit status 1 if anything failed.
local accel = require "accel"
local model_files = require "accel.ckpt.model_files"

local tools = dofile((arg[0]:match "^.*/" or "") .. "trees.lua")

local SHOWN <const> = 20
local dir = arg[1]
if not dir then
  io.stderr:write "usage: accel-run tests/reference/shards.lua DIR\n"
  os.exit(2)
end

local function read(name)
  local file <close> = assert(io.open(name, "rb"))
  return assert(accel.json.decode(file:read "a"))
end

local function end_with(passed, failures)
  for i = 1, math.min(SHOWN, #failures) do print("FAIL " .. failures[i]) end
  if #failures > SHOWN then print(("... and %d more"):format(#failures - SHOWN)) end
  print(("%d passed, %d failed"):format(passed, #failures))
  os.exit(#failures == 0 and 0 or 1, true)
end

local loaded, trees, shards = pcall(function()
  return read(dir .. "/trees.json").trees, read(dir .. "/shards.json")
end)
if not loaded then end_with(0, { tostring(trees) }) end

local models = {}
local function model_of(index)
  if not models[index] then
    local node = trees[index + 1].tree
    models[index] = tools.tie(tools.build(node), node.tied)
  end
  return models[index]
end

local passed, failures = 0, {}
local function row(kind, r, ok, made)
  local name = ("%s of tree %d at %s"):format(kind, r.tree, r.max_shard_size)
  if r.error then
    -- accel has more units than huggingface_hub
    if ok and not require("accel.util.sizes").parse(r.max_shard_size) then failures[#failures + 1] = ("%s: no error, wanted %s"):format(name, r.message) else passed = passed + 1 end
  elseif not ok then
    failures[#failures + 1] = ("%s: %s"):format(name, tostring(made))
  elseif not tools.equal(made, r.result) then
    failures[#failures + 1] = ("%s:\n  made   %s\n  wanted %s"):format(name, accel.inspect(made), accel.inspect(r.result))
  else
    passed = passed + 1
  end
end

for _, r in ipairs(shards.split) do
  local ok, made = pcall(function()
    local state, limit = model_of(r.tree):state_dict(), model_files.parse_size(r.max_shard_size)
    local parts, total, alias = model_files.split(state, limit), 0, model_files.aliases(state)
    local out = { is_sharded = #parts > 1, filename_to_tensors = {}, tensor_to_filename = {} }
    for i, names in ipairs(parts) do
      local file = model_files.file_name(i, #parts)
      out.filename_to_tensors[i] = { file, names }
      for _, name in ipairs(names) do
        table.insert(out.tensor_to_filename, { name, file })
        if not alias[name] then total = total + state[name]:numel() * state[name]:element_size() end
      end
    end
    out.metadata = { total_size = total }
    return out
  end)
  row("split", r, ok, made)
end

local accelerator = accel.Accelerator { cpu = true }
for _, r in ipairs(shards.save_model) do
  local ok, made = pcall(function()
    -- a folder of its own: shards that replace others in use get other names
    local root = assert(accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/shards-"))
    accelerator:save_model(model_of(r.tree), root, r.max_shard_size)
    local out = {}
    for _, file in ipairs(accel.listdir(root)) do
      if file:find "%.json$" then
        out[file] = read(root .. "/" .. file)
      else
        local reader <close> = assert(accel.open_safetensors(root .. "/" .. file))
        local names = reader:keys()
        table.sort(names)
        out[file] = { tensors = names, metadata = { format = reader:metadata().format } }
      end
    end
    return out
  end)
  row("save_model", r, ok, made)
end
end_with(passed, failures)
