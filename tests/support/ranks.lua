--- Tests on several ranks: a script that starts itself on them, what it knows there, and its checks. Tests in folders
--- below tests/stdlib begin with
---   local ranks = dofile((arg[0]:match "^.*/" or "") .. "../../support/ranks.lua")
---   if ranks.start { 1, 2, 4 } then return end
--- and what follows runs on every rank. Tests on one rank use the checks alone.
local accel = require "accel"
local dist = accel.dist

local M = {}

--- Whether a launcher started this process (accel-run --num_processes, mpirun); else it is the test itself.
M.launched = dist.is_initialized()
M.rank, M.size = 0, 1
if M.launched then M.rank, M.size = dist.get_rank(), dist.get_world_size() end

--- The folder tests, with a slash.
M.tests = debug.getinfo(1, "S").source:match "^@(.*)support/ranks%.lua$"

--- Which of many cases are taken (support/sample.lua).
M.sample = dofile(M.tests .. "support/sample.lua")

--- What stands before a script that a test starts: a program that loses one option (tests/options/elsewhere_test.lua), or "".
M.before_script = os.getenv "ACCEL_TEST_DROP" and ("'%ssupport/option_drop.lua' "):format(M.tests) or ""

---@class ranks.Options
---@field args? string the script's own arguments, as in a shell
---@field backend? string accel-run's --backend; "mpi": mpirun starts the ranks
---@field env? table<string, string> variables
---@field timeout? integer seconds for one start, after which it hangs [850: ctest's own limit is 900]
---@field capture? boolean what the ranks print is not printed, the caller looks at it

-- What the launcher says where machines are small.
local NOISE <const> = "[^\n]*launch: %d+ ranks share %d+ CPUs?\n"
-- As root, on fewer cores than ranks (Open MPI 4, Open MPI 5); Open MPI leaks on its own.
local MPIRUN <const> = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 "
  .. "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe ASAN_OPTIONS=detect_leaks=0 "

--- Runs this script on n ranks (nil: without a launcher), however it ends: output, errors, exit status, command.
---@param n? integer
---@param options? ranks.Options
---@return string out, string err, integer status, string command
function M.try(n, options)
  local o, env = options or {}, {}
  for name, value in accel.pairs(o.env or {}) do env[#env + 1] = ("%s='%s' "):format(name, value) end
  local program = ("'%s' --num_threads 1"):format(accel.process.program())
  if o.backend == "mpi" then
    env[#env + 1] = MPIRUN
    program = ("mpirun -n %d %s"):format(n, program)
  else
    if n then program = ("%s --num_processes %d"):format(program, n) end
    if o.backend then program = program .. " --backend " .. o.backend end
  end
  local command = ("%stimeout -k 5 %d %s %s'%s' %s"):format(table.concat(env), o.timeout or 850, program, M.before_script, arg[0],
    o.args or "")
  local path = os.tmpname()
  local pipe = assert(io.popen(("%s </dev/null 2>'%s'"):format(command, path)))
  local out = pipe:read "a"
  local ok, _, code = pipe:close()
  local file = assert(io.open(path, "rb"))
  local err = file:read "a":gsub(NOISE, "")
  file:close()
  os.remove(path)
  return out, err, ok and 0 or code, command
end

--- The output of a run that must succeed.
---@param n? integer
---@param options? ranks.Options
---@return string
function M.run(n, options)
  local out, err, status, command = M.try(n, options)
  if status ~= 0 then
    error(("%s: status %d%s\n%s%s"):format(command, status, status == 124 and " (too slow)" or "", out, err), 0)
  end
  if not (options and options.capture) then io.write(out) end
  io.stderr:write(err)
  return out
end

--- In the test itself: runs it on each of these numbers of ranks, one after the other, and gives back what each
--- number printed. On the ranks: false.
---@param numbers integer[]|ranks.Options
---@return table<integer, string>|false
function M.start(numbers)
  if M.launched then return false end
  local outputs = {}
  for _, n in ipairs(numbers) do outputs[n] = M.run(n, numbers) end
  return outputs
end

--- Bounds on time hold where the cores are free. Calls f, which raises what is wrong and gives back a text where all
--- was right but late, until nothing was late: what the code itself makes late is so each time.
---@param f fun(): string?
function M.timely(f)
  local late
  for _ = 1, 10 do
    late = f()
    if not late then return end
    print("late, and tried again: " .. late)
  end
  error("late ten times in a row: " .. late, 2)
end

--- The contents of a file of JSON in the folder tests.
---@param path string
---@return any
function M.json(path)
  local file <close> = assert(io.open(M.tests .. path, "rb"))
  return assert(accel.json.decode(file:read "a"))
end

-- ---- checks; what they raise names the line of the caller and the rank ----

local function fail(text, ...)
  error(("%s%s"):format(M.size > 1 and ("rank %d of %d: "):format(M.rank, M.size) or "", text:format(...)), 3)
end

local function plain(x)
  if accel.is_tensor(x) then return x:tolist() end
  if type(x) ~= "table" then return x end
  local list = {}
  for key, value in pairs(x) do list[key] = plain(value) end
  return list
end
local function shown(x)
  if type(x) ~= "table" then return type(x) == "string" and ("'%s'"):format(x) or tostring(x) end
  local ok, text = pcall(accel.json.encode, plain(x))
  return ok and text or accel.inspect(x)
end

local function equal(a, b)
  if accel.is_tensor(a) and accel.is_tensor(b) then return a.dtype == b.dtype and accel.equal(a, b) end
  if accel.is_tensor(a) then a = a:tolist() end
  if accel.is_tensor(b) then b = b:tolist() end
  if type(a) ~= "table" or type(b) ~= "table" then return a == b and math.type(a) == math.type(b) end
  for key, value in pairs(a) do
    if not equal(value, b[key]) then return false end
  end
  for key in pairs(b) do
    if a[key] == nil then return false end
  end
  return true
end

--- The largest difference of two numbers, tensors, or tables of them; infinite where anything else differs.
local function distance(a, b)
  if accel.is_tensor(a) and accel.is_tensor(b) then
    if not equal(a.shape, b.shape) then return math.huge end
    if a:numel() == 0 then return 0 end
    local far = (a:detach():to "f64" - b:detach():to "f64"):abs():max():item()
    return far == far and far or math.huge
  end
  if accel.is_tensor(a) then a = a:tolist() end
  if accel.is_tensor(b) then b = b:tolist() end
  if type(a) == "table" and type(b) == "table" then
    local far = 0
    for key, value in pairs(a) do far = math.max(far, distance(value, b[key])) end
    for key in pairs(b) do
      if a[key] == nil then return math.huge end
    end
    return far
  end
  if a == b then return 0 end
  local far = type(a) == "number" and type(b) == "number" and math.abs(a - b) or math.huge
  return far == far and far or math.huge
end

--- f(...) raises an error that has this part in its message; gives back the error.
---@param part string plain text
---@param f function
---@return any
function M.fails(part, f, ...)
  local ok, err = pcall(f, ...)
  if ok then fail("no error with '%s'", part) end
  if not tostring(err):find(part, 1, true) then fail("'%s' is not in: %s", part, tostring(err)) end
  return err
end

--- Two values are the same: plain data by value, integers apart from floats, tensors as the lists that they hold (two
--- tensors with their dtypes).
---@param what string
function M.same(got, want, what)
  if not equal(got, want) then fail("%s: got %s, expected %s", what, shown(got), shown(want)) end
end

--- Numbers, tensors of one shape, or tables of them differ by no more than the tolerance; other values not at all.
---@param what string
---@param tolerance number
function M.close(got, want, what, tolerance)
  local far = distance(got, want)
  if far <= tolerance then return end
  local values = accel.is_tensor(got) and "" or (": got %s, expected %s"):format(shown(got), shown(want))
  fail("%s: off by %.3g%s", what, far, values)
end

return M
