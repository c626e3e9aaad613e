-- The questions of accel-run config: random walks over every branch. What they end in is a configuration that reads back as it was
-- answered, in which everything has an effect, and with which a launch can be planned; going back forgets an answer and what hung on it.
--   accel-run tests/stdlib/config/questions_test.lua [SEED]
local arguments = require "accel.config.arguments"
local plan = require "accel.config.plan"
local questions = require "accel.config.questions"
local read = require "accel.config.read"
local validate = require "accel.config.validate"
local write = require "accel.config.write"

local seed = math.tointeger(tonumber(arg[1] or 7))
math.randomseed(seed)
local machine = { gpus = 2, cores = 4, fp8 = true, cwd = "/", interpreter = "lua", mpi = "Open MPI", free_port = function() return 1 end }

local function a_number(how)
  local n = math.random(1, 4)
  return how.kind == "float" and n + 0.5 or n
end

local function an_answer(how)
  if math.random(3) == 1 and how.default ~= nil then return "" end
  if how.choices then
    local i = math.random(#how.choices)
    return math.type(how.choices[1]) ~= "integer" and math.random(2) == 1 and tostring(i - 1) or tostring(how.choices[i])
  end
  local kind = how.kind
  if kind == "bool" or kind == "switch" then return math.random(2) == 1 and "yes" or "no" end
  if kind == "int" or kind == "float" or kind == "auto_int" or kind == "auto_float" then return tostring(a_number(how)) end
  if kind == "bools" then return "yes,no,yes" end
  return "name"
end

local asked, seen_keys = {}, {}
for walk = 1, 1500 do
  local depth, back = 0, {}
  local values = assert(questions.run(function(question, how)
    depth = depth + 1
    assert(depth < 400, "the questions do not end")
    asked[question] = true
    assert(not how.why, how.why)
    if math.random(12) == 1 and depth < 60 then
      back[#back + 1] = question
      return questions.BACK
    end
    return an_answer(how)
  end, machine))
  for key in next, values do seen_keys[key] = true end
  local text = write.yaml(questions.fields(values))
  local file = read.yaml(text, "q.yaml")
  local lines = validate.lines(file)
  assert(#lines == 0, ("walk %d, seed %d: %s\n%s"):format(walk, seed, table.concat(lines, "\n"), text))
  for key, value in next, values do
    if type(value) ~= "table" then assert(file.values[key] == value, key .. "\n" .. text) end
  end
  local ok, made = pcall(plan.make, assert(arguments.read { "t.lua" }), file, machine)
  assert(ok or made.message, made)
end

-- Every question of the schema was met, and every kind of distribution.
local schema = require "accel.config.schema"
local missing = {}
for _, row in ipairs(schema.list) do
  if row.question and not row.topic.environment and row.key ~= "compute_environment" and not asked[row.question] then
    missing[#missing + 1] = row.key
  end
end
assert(#missing == 0, table.concat(missing, ", "))

-- Taking every default is what a machine needs; the end of the input stops.
local values = questions.run(function() return "" end, { gpus = 0 })
assert(values.distributed_type == "NO" and values.use_cpu == true and values.mixed_precision == "no")
assert(questions.run(function() return nil end, machine) == nil)

-- A wrong answer is asked again with the reason.
local n, why = 0, nil
questions.run(function(question, how)
  if question:find "mixed precision" then
    n = n + 1
    why = why or how.why
    if n == 1 then return "fp12" end
  end
  return ""
end, machine)
assert(n == 2 and why == "one of no, fp16, bf16, fp8", why)
print(("%d keys asked for (seed %d)"):format((function() local k = 0 for _ in next, seen_keys do k = k + 1 end return k end)(), seed))
