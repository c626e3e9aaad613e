--- accel-run runs diff: the differences between two runs: configuration, sources and environment, last values.
local accel = require "accel"
local command = require "accel.cli.command"
local opened = require "accel.cli.runs_store"
local shown = require "accel.cli.runs_shown"

local PROGRAM <const> = "accel-run runs diff"

local function text(x)
  if x == nil then return "-" end
  return type(x) == "table" and accel.json.encode(x) or tostring(x)
end

--- Rows of the keys whose values are not the same.
local function differences(a, b)
  local keys, rows = {}, {}
  for _, t in ipairs { a, b } do
    for key in next, t do keys[key] = true end
  end
  for key in accel.pairs(keys) do
    if text(a[key]) ~= text(b[key]) then rows[#rows + 1] = { "  " .. key, text(a[key]), text(b[key]) } end
  end
  return rows
end

local function around(run)
  local env, git = run.environment, run.environment.git or {}
  return { status = run.status, revision = git.revision, branch = git.branch, ["files differ"] = git.dirty, accel = env.accel,
    command = env.command and table.concat(env.command, " "), folder = env.directory, host = run.host, ranks = env.num_processes,
    threads = env.threads, isa = env.isa }
end

local function last_values(series)
  local out = {}
  for _, s in ipairs(series) do
    if not s.tag:find "^system/" then out[s.tag] = s end
  end
  return out
end

return function(...)
  local o, words = command.parse({
    name = PROGRAM, usage = "RUN RUN", summary = "Compares two runs: configuration, environment, last values.",
    opened.option, { "json", "flag", false, nil, "print JSON" },
  }, 2, 2, ...)
  local store <close>, a = opened.run(PROGRAM, o, words[1])
  if not a then return false end
  local b = opened.need(store.store:find(words[2]))
  if not b then return false end
  local config = differences(assert(store.store:config(a)), assert(store.store:config(b)))
  local other = differences(around(a), around(b))
  local x, y = last_values(assert(store.store:series(a))), last_values(assert(store.store:series(b)))
  local tags, values = {}, {}
  for _, t in ipairs { x, y } do
    for tag in next, t do tags[tag] = true end
  end
  for tag in accel.pairs(tags) do
    local p, q = x[tag] and x[tag].last, y[tag] and y[tag].last
    local change = p and q and p ~= 0 and p - p == 0 and q - q == 0 and ("%+.1f %%"):format(100 * (q - p) / math.abs(p)) or ""
    values[#values + 1] = { "  " .. tag, shown.number(p), shown.number(q), change }
  end
  if o.json then
    local function list(rows)
      local out = {}
      for _, r in ipairs(rows) do out[r[1]:sub(3)] = accel.json.array { r[2], r[3] } end
      return out
    end
    print(accel.json.encode({ a = a.uid, b = b.uid, config = list(config), environment = list(other), last = list(values) },
      { pretty = true }))
    return true
  end
  local heads = { { "Config", a.name, b.name }, { "Surroundings", a.name, b.name }, { "Last values", a.name, b.name, "change" } }
  local first = true
  for i, rows in ipairs { config, other, values } do
    if #rows > 0 then
      if not first then print "" end
      table.insert(rows, 1, heads[i])
      shown.table(rows, { 1, 2, 3 })
      first = false
    end
  end
  if #config == 0 then print((first and "" or "\n") .. "the two configurations are the same") end
  return true
end
