-- Every name that README.md, CONTRIBUTING.md, SECURITY.md, the guides and the reference pages document exists: `accel.x.y`, ACCEL_*
-- variables, and options of accel-run in prose. Names marked "not in accel yet" do not exist, and neither does what the README lists as
-- missing (guides.lua checks files, commands and options in shell lines).
--   accel-run tests/check/names.lua     ACCEL_TEST_SRC, ACCEL_TEST_BUILD as for every test
local accel = require "accel"
local source, build = os.getenv "ACCEL_TEST_SRC" or ".", os.getenv "ACCEL_TEST_BUILD" or "build/dev"
local failed, n_names, n_variables, n_options, n_absent = 0, 0, 0, 0, 0

local function fail(fmt, ...)
  failed = failed + 1
  print("FAIL " .. fmt:format(...))
end

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

local function output_of(command)
  local pipe <close> = assert(io.popen(command))
  return pipe:read "a"
end

--- Whether "accel.x.y" or "accel.x:y" has a value, or is a module.
local function exists(name)
  local value = accel
  for part in name:match "^accel[.:](.*)$":gmatch "[%w_]+" do
    local ok, next_ = pcall(function() return value[part] end)
    value = ok and next_
    if value == nil or value == false then
      return (pcall(require, (name:gsub(":", "."))))
    end
  end
  return true
end
assert(exists "accel.nn.Linear" and exists "accel.nn.Linear:extend" and not exists "accel.nn.Linaer", "the probe itself")

-- ---- pages ----
local pages = { "README.md", "CONTRIBUTING.md", "SECURITY.md" }
for name in output_of(("ls '%s/lua/help/guides'"):format(source)):gmatch "%S+%.md" do pages[#pages + 1] = "lua/help/guides/" .. name end

-- Examples of CONTRIBUTING.md (an op, a device), and files whose names begin like a module of accel.
local EXAMPLES <const> = { ["accel.lua"] = true, ["accel.yaml"] = true, ["accel.json"] = true, ["accel.pc"] = true, ["accel.h"] = true,
  ["accel.squareplus"] = true, ACCEL_TINY_ROUND = true }

local words = {} -- words in capitals of sources, which read variables; classes and aliases of annotations
for name in output_of(("cd '%s' && grep -rhoE '[A-Z][A-Z0-9_]{2,}' host bindings lua stdlib tests/run.sh tests/support CMakeLists.txt "
  .. "--include=*.[ch] --include=*.def --include=*.lua --include=*.sh --include=CMakeLists.txt | sort -u"):format(source)):gmatch "[%u%d_]+" do
  words[name] = true
end
for name in output_of(("cd '%s' && grep -rhoE '@(class|alias) accel[A-Za-z_.]+' lua stdlib"):format(source)):gmatch "accel[%w_.]+" do
  words[name] = true
end

local usage = accel.host_chunk("help/topics").usage()

--- Whether accel-run, one of its commands or an example documents this option.
local all_options
local function is_option(name)
  if usage.options[name] then return true end
  all_options = all_options or output_of(("cd '%s' && cat stdlib/accel/cli/*.lua stdlib/accel/config/keys/*.lua host/app/*.[ch] examples/*.lua "
    .. "examples/*.sh tests/*.sh stdlib/accel/util/cli.lua tests/bench/*.lua tests/fuzz/*.sh"):format(source))
  local word = name:gsub("%-", "_")
  return all_options:find('"' .. word .. '"', 1, true) or all_options:find("--" .. name, 1, true) or all_options:find('"' .. name .. '"', 1, true)
    or all_options:find("--" .. word, 1, true)
end

for _, page in ipairs(pages) do
  local n = 0
  for line in (read(source .. "/" .. page) .. "\n"):gmatch "([^\n]*)\n" do
    n = n + 1
    for code in line:gmatch "`([^`]+)`" do
      for name in code:gmatch "%f[%w_.]accel[.:][%a_][%w_.:]*" do
        name = name:gsub("[.:]+$", "")
        if not EXAMPLES[name] and not code:find(name .. "%.?[%w]*%-") then
          n_names = n_names + 1
          if not (words[name] or exists(name)) then fail("%s:%d: %s does not exist", page, n, name) end
        end
      end
      for name in code:gmatch "%f[%w_]ACCEL_[%u%d_]+" do
        n_variables = n_variables + 1
        local short = name:match "^ACCEL_(.+)$"
        if not (EXAMPLES[name] or words[name] or words[short]) then fail("%s:%d: no source reads %s", page, n, name) end
      end
      local option = code:match "^%-%-([%l][%w_-]+)"
      if option then
        n_options = n_options + 1
        if not is_option(option) then fail("%s:%d: no program has the option --%s", page, n, option) end
      end
    end
  end
end

-- ---- names that accel lacks ----
for line in (read(source .. "/stdlib/accel/accelerator/accelerator.lua")):gmatch "([^\n]*)\n" do
  local option = line:match "^%-%-%-%s+([%w_]+) %S+:.*not in accel yet"
  if option then
    n_absent = n_absent + 1
    local ok, why = pcall(accel.Accelerator, { [option] = {} })
    if ok or not tostring(why):find("not in accel yet", 1, true) then fail("accel.Accelerator takes %s, which is marked as missing", option) end
  end
end
for name in output_of(("find '%s/share/doc/accel/reference' '%s/reference' -name '*.md' 2>/dev/null"):format(build, build)):gmatch "[^\n]+" do
  for line in read(name):gmatch "([^\n]*)\n" do
    local option = line:match "^%- `([%w_.]+)`.*not in accel yet" or line:match "^#+ `?accel%.([%w_.]+)`?.*not in accel yet"
    if option and option ~= "torch_tp_plugin" then fail("%s: '%s' is marked as missing; add a probe to tests/check/names.lua", name, option) end
  end
end

-- ---- the README's column "missing" ----
-- What would exist if accel had it. false: nothing that a script could ask. A cell that is not here has to be added.
local MISSING <const> = {
  macOS = false, Windows = false, ROCm = false, ["sparse tensors"] = "accel.sparse_coo_tensor", ["named dims"] = "accel.Tensor:refine_names",
  ["1-bit optimizers"] = "accel.optim.OnebitAdam", ["NCCL's symmetric windows"] = false, ["ONNX import"] = "accel.onnx.load",
  ["sharded jobs that outlive their ranks"] = false,
}
for cell in read(source .. "/README.md"):match("| area | works | missing |.-\n\n"):gmatch "|%s*([^|\n]-)%s*|\n" do
  if cell ~= "missing" and not cell:find "^%-" then
    for name in cell:gmatch "[^,]+" do
      name = name:match "^%s*(.-)%s*$"
      n_absent = n_absent + 1
      local probe = MISSING[name]
      if probe == nil then fail("README.md: '%s' is marked as missing; add a probe to tests/check/names.lua", name) end
      if probe and exists(probe) then fail("README.md: '%s' is marked as missing, and %s exists", name, probe) end
    end
  end
end

local n_examples = select(2, output_of(("ls '%s/examples'"):format(source)):gsub("%f[%w]%d%d_[%w_]+%.lua\n", ""))
local said = read(source .. "/README.md"):match "`examples/` has (%d+) numbered scripts"
if tonumber(said) ~= n_examples then fail("README.md: says %s numbered scripts, examples/ has %d", said, n_examples) end

print(("%d names, %d variables, %d options, %d missing names"):format(n_names, n_variables, n_options, n_absent))
assert(n_names > 100 and n_variables > 20 and n_options > 20 and n_absent > 0, "too few names were found")
if failed > 0 then os.exit(1, true) end
