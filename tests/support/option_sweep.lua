--- The sweep that sets every accepted option (DESIGN.md, rule 7): each option of each public class, function and method of a folder of
--- stdlib gets a value that is not its default, and the call must then do something else, warn, or raise. Nothing is silent.
---
--- A folder is one test, tests/options/FOLDER_test.lua, which says how its classes are called and watched:
---
---   local sweep = require "option_sweep"
---   local s = sweep.folder "optim"                        -- reads classes, functions, methods and their options
---   s:recipe("accel.optim.SGD", {
---     base = function() return { lr = 0.1 } end,          -- arguments of the plain call by name, made anew for each call
---     run = function(call, given) return call(...) end,   -- makes the call and returns all that can be seen of it
---     values = { lr = { 0.2 }, device = { "meta" } },     -- values, where types and names do not give them (option_values)
---     with = { nesterov = { momentum = 0.9 } },           -- arguments without which an option has no meaning (sweep.none: left out)
---     raises = { eps = "eps must be" },                   -- an option that raises, and what the error says
---     elsewhere = { sync = "tests/stdlib/optim/x_test.lua" }, -- an option whose effect needs several ranks or a device: the test
---   })
---   s:finish()                                            -- prints the counts, fails for what is silent or has no recipe
---
--- A recipe is for a name, a Lua pattern of names ("^accel%.optim%."), or a list of these; an exact name goes first, then the recipe that
--- was added last. `call(...)` calls the class or function with leading arguments and then those of the table, by position where the
--- declaration knows a place; a method is called with its object first. `run` may be left out: results of the call are compared, or for a
--- layer, option_observer.layer with `inputs`.
---
--- `passes_on = true`: what the function does not know goes to a function that it is given. A list of values with `any = true` needs a
--- verdict for one of them only (a switch whose default is not known).
---
--- Verdicts of a value: effect (what is seen differs), warns (a warning names the option), raises (an error that the recipe expects),
--- excepted (it stands in accel.util.no_effect with the reason, and warns). Anything else fails and names entry, option and value. So do an
--- option without a value, an entry with options and no recipe, a recipe that no entry wants, an unknown key or a surplus argument that is
--- taken, and a value that does one thing by position and another by name. What cannot be called in a test stands in `s:leave(NAME, why)`.
--- An option with an entry in `with` that has no effect alone is counted, and listed where ACCEL_TEST_ALONE=1.
--- The options come from annotations and declarations (option_reader), so that a new one is swept without anybody remembering.
local accel = require "accel"
local class = require "accel.util.class"
local no_effect = require "accel.util.no_effect"
local observer = require "option_observer"
local reader = require "option_reader"
local values_of = require "option_values"

local M = { none = setmetatable({}, { __tostring = function() return "left out" end }) }
local Sweep = {}
Sweep.__index = Sweep

local LIST_ALONE <const> = os.getenv "ACCEL_TEST_ALONE" == "1"
local UNKNOWN = "zzzz" -- near no name, so that the error lists those there are

local function all() return true end

local function merged(a, b)
  local all = {}
  for key, value in pairs(a or {}) do all[key] = value end
  for key, value in pairs(b or {}) do
    all[key] = value
    if rawequal(value, M.none) then all[key] = nil end
  end
  return all
end

---@param folder string of stdlib/accel; or a list of files of lua/meta, for what comes from C
---@param keep? fun(entry: table): boolean which of its entries; the others are another test's
function M.folder(folder, keep)
  local entries = type(folder) == "table" and reader.stubs(folder) or reader.entries(folder)
  folder = type(folder) == "table" and "accel" or folder
  local self = setmetatable({ names_taken = all, folder = folder, entries = {}, recipes = {}, left = {}, failures = {}, n = {} }, Sweep)
  for _, entry in ipairs(entries) do
    if not keep or keep(entry) then self.entries[#self.entries + 1] = entry end
  end
  for _, verdict in ipairs { "options", "values", "effect", "warns", "raises", "excepted", "elsewhere", "depends", "refused",
    "entries", "left" } do
    self.n[verdict] = 0
  end
  return self
end

function Sweep:recipe(names, recipe)
  for _, name in ipairs(type(names) == "table" and names or { names }) do
    table.insert(self.recipes, 1, { name = name, recipe = recipe })
  end
end

--- The same entry once more under the name NAME.LABEL with a recipe of its own: one whose options depend on another argument. In the place
--- of the entry itself.
---@param name string
---@param label string
---@param recipe table
function Sweep:variant(name, label, recipe)
  for _, entry in ipairs(self.entries) do
    if entry.name == name then
      local twin = merged(entry, { name = name .. "." .. label, whole = name, options = merged(entry.options), varied = M.none })
      self.entries[#self.entries + 1] = twin
      self:recipe(twin.name, recipe)
      entry.varied = true
      return
    end
  end
  self:fail("no entry %s to make a variant of", name)
end

--- The methods of a class that no name of `accel` leads to: what a function of the folder returns.
---@param name string "accel.profiler.Averages"
---@param object table
function Sweep:objects(name, object)
  for _, entry in ipairs(reader.of_class(name, class.of(object))) do self.entries[#self.entries + 1] = entry end
end

--- Compares calls by name and by position for one of n values: where calls take long (tier: sampled).
---@param n integer
function Sweep:sampled(n)
  self.names_taken = dofile(debug.getinfo(1, "S").source:match "^@(.*/)" .. "sample.lua").one_of(n)
end

--- Entries that are not swept here, with the reason: their options belong to another test, or need what no test has.
function Sweep:leave(names, why)
  for _, name in ipairs(type(names) == "table" and names or { names }) do self.left[name] = why end
end

function Sweep:fail(fmt, ...)
  self.failures[#self.failures + 1] = fmt:format(...)
end

local function find(self, entry)
  for _, r in ipairs(self.recipes) do
    if r.name == entry.name then r.used = true return r.recipe end
  end
  for _, r in ipairs(self.recipes) do
    if r.name:find "^%^" and entry.name:find(r.name) then r.used = true return r.recipe end
  end
end

-- ---- one call ----
local function is_layer(entry)
  return entry.kind == "class" and class.isinstance(setmetatable({}, entry.target), accel.nn.Module)
end

--- Arguments by position as far as the declaration has places, the others in a table at the end.
local function arguments(entry, given, named, lead)
  local args, n, rest = {}, 0, {}
  for key, value in pairs(given) do rest[key] = value end
  for i, name in ipairs(entry.order) do
    if named and i > (entry.lead or 0) then break end
    if rest[name] ~= nil then args[i - lead], n = rest[name], i - lead end
    rest[name] = nil
  end
  if next(rest) ~= nil then
    n = n + 1
    args[n] = rest
  end
  args.n = n
  return args
end

local function joined(a, b)
  local all = { table.unpack(a, 1, a.n) }
  for i = 1, b.n do all[a.n + i] = b[i] end
  all.n = a.n + b.n
  return all
end

--- What is seen of one call: {ok =, text =, warnings =}. `surplus`: further arguments by position.
local function attempt(entry, recipe, given, how)
  local warnings, was = {}, warn
  warn = function(...) warnings[#warnings + 1] = table.concat { ... } end -- luacheck: ignore 121
  no_effect.reset()
  accel.manual_seed(12) -- what a recipe makes is the same each time, or any option would seem to have an effect
  local all = merged(recipe.base and recipe.base(), given)
  accel.manual_seed(11)
  local function call(...)
    local lead = select("#", ...) - (entry.kind == "method" and 1 or 0) -- places that are filled already
    local args = arguments(entry, all, how.named, lead)
    if how.surplus then
      args = arguments(entry, all, false, lead)
      args.n = math.max(args.n, #entry.order - lead)
      if how.after_table then
        if args.n > #entry.order - lead then args.n = #entry.order - lead end
        args.n = args.n + 1
        args[args.n] = {}
      end
      for _ = 1, how.surplus do
        args.n = args.n + 1
        args[args.n] = "surplus"
      end
    end
    args = joined(table.pack(...), args)
    return entry.target(table.unpack(args, 1, args.n))
  end
  local results = table.pack(pcall(function()
    if recipe.run then return recipe.run(call, all, entry) end
    if is_layer(entry) then return observer.layer(call(), table.unpack(recipe.inputs(all))) end
    return call()
  end))
  warn = was -- luacheck: ignore 121
  if not results[1] then return { ok = false, text = tostring(results[2]), warnings = warnings } end
  results[1] = true
  return { ok = true, text = observer.text(results), warnings = warnings }
end

local function names_it(list, name)
  for _, text in ipairs(list) do
    if text:find(name, 1, true) then return text end
  end
end

-- ---- one option ----
local function shown(value)
  if type(value) == "table" and not class.of(value) and not accel.is_tensor(value) then
    local ok, text = pcall(accel.json.encode, value)
    return ok and text or "a table"
  end
  return type(value) == "string" and ("%q"):format(value) or tostring(value):gsub("\n%s*", " ")
end

local function judge(self, entry, recipe, option, value, base, with)
  local name = option.name
  local where = ("%s: %s = %s"):format(entry.name, name, shown(value))
  local given = merged(with, { [name] = value })
  local got = attempt(entry, recipe, given, {})
  local excepted = no_effect.reason(entry.name, name)
  self.n.values = self.n.values + 1
  if not got.ok then
    local pattern = recipe.raises and recipe.raises[name]
    if not pattern then return self:fail("%s: raises, which no recipe expects: %s", where, got.text) end
    if not got.text:find(pattern) then return self:fail("%s: the error does not have '%s': %s", where, pattern, got.text) end
    return "raises"
  end
  if not self.names_taken() then -- of a sample
  elseif entry.by_name then
    local again = attempt(entry, recipe, given, { named = true })
    if again.ok ~= got.ok or again.text ~= got.text then
      self:fail("%s: by name it gives another result than by position: %s", where, again.ok and "no error" or again.text)
    end
  elseif option.place and not recipe.passes_on then -- a table there is the option by name, or an error, but never a value that counts as true
    local before = {}
    for i, of in ipairs(entry.order) do
      if of == name then break end
      before[i] = of
    end
    local again = attempt(merged(entry, { order = before }), recipe, given, {})
    if again.ok and again.text ~= got.text then self:fail("%s: a table in the place of %s is taken for something else", where, name) end
  end
  if excepted then
    if got.text ~= base.text then return self:fail("%s: has an effect, but stands in accel.util.no_effect", where) end
    if not names_it(got.warnings, name) then return self:fail("%s: has no effect (%s) and does not warn", where, excepted) end
    return "excepted"
  end
  if got.text ~= base.text then return "effect" end
  if names_it(got.warnings, name) and not names_it(base.warnings, name) then return "warns" end
  return nil, where .. ": SILENT: no other result, no warning, no error"
end

local rank = { raises = 1, warns = 2, excepted = 3, effect = 4 }

--- Another test that shows what the option does.
local function elsewhere(self, entry, name, file)
  local f = io.open(reader.root .. "/" .. file, "rb")
  local text = f and f:read "a" or ""
  if f then f:close() end
  if not text:find("%f[%w_]" .. name .. "%f[^%w_]") then self:fail("%s: %s does not speak of %s", entry.name, file, name) end
  self.n.elsewhere = self.n.elsewhere + 1
end

---@param plain table what is seen of the call without options
local function sweep_option(self, entry, recipe, option, plain)
  self.n.options = self.n.options + 1
  local other = recipe.elsewhere and recipe.elsewhere[option.name]
  if other then return elsewhere(self, entry, option.name, other) end
  local with = recipe.with and recipe.with[option.name] or nil
  local base = with and attempt(entry, recipe, merged(with, nil), {}) or plain
  if not base.ok then return self:fail("%s: the plain call of '%s' raises: %s", entry.name, option.name, base.text) end
  local list = recipe.values and recipe.values[option.name]
  if type(list) == "function" then list = list() end
  list = list or values_of(entry, option)
  if not list or #list == 0 then
    return self:fail("%s: no value for option '%s' (%s): give one in `values`", entry.name, option.name, option.type or option.kind or "?")
  end
  local best, silent
  for _, value in ipairs(with and list or {}) do -- alone, without what gives it a meaning: counted, and listed on demand
    local alone = attempt(entry, recipe, { [option.name] = value }, {})
    if alone.ok and alone.text == plain.text and not names_it(alone.warnings, option.name) then
      self.n.depends = self.n.depends + 1
      if LIST_ALONE then print(("%s: %s = %s has no effect alone"):format(entry.name, option.name, shown(value))) end
      break
    end
  end
  for _, value in ipairs(list) do
    local verdict, why = judge(self, entry, recipe, option, value, base, with)
    if verdict and (not best or rank[verdict] > rank[best]) then best = verdict end
    silent = silent or why
    if why and not list.any then self:fail("%s", why) end
  end
  if best then self.n[best] = self.n[best] + 1
  elseif list.any and silent then self:fail("%s (nor has another value)", silent) end
end

--- An unknown key and one argument too many are refused. Returns the names of options that the error lists.
local function sweep_refusals(self, entry, recipe)
  local known = {}
  if recipe.passes_on then return known end
  if entry.takes_table or entry.open then
    local got = attempt(entry, recipe, { [UNKNOWN] = 1 }, {})
    if got.ok and names_it(got.warnings, UNKNOWN) then known = {} -- kept, with a warning
    elseif got.ok then self:fail("%s: takes the unknown option '%s' without a word", entry.name, UNKNOWN)
    elseif not got.text:find(UNKNOWN, 1, true) then
      self:fail("%s: does not name the unknown option '%s': %s", entry.name, UNKNOWN, got.text)
    elseif got.text:find("there are '", 1, true) then
      for name in got.text:match "there are (.*)$":gmatch "'([%w_]+)'" do known[name] = true end
    elseif got.text:find "%(no such option; there are [%w_, ]+%)" then -- of an op
      for name in got.text:match "; there are ([%w_, ]+)%)":gmatch "[%w_]+" do known[name] = true end
    elseif next(entry.options) == nil and not got.text:find("it takes none", 1, true) then
      self:fail("%s: neither its comment nor the error of an unknown option lists its options: %s", entry.name, got.text)
    end
    self.n.refused = self.n.refused + 1
  end
  if not entry.open then
    local got = attempt(entry, recipe, {}, { surplus = 2 })
    if got.ok then self:fail("%s: drops surplus arguments without a word", entry.name) end
    self.n.refused = self.n.refused + 1
    if entry.takes_table then
      got = attempt(entry, recipe, {}, { surplus = 1, after_table = true })
      if got.ok then self:fail("%s: drops an argument after the table of options without a word", entry.name) end
      self.n.refused = self.n.refused + 1
    end
  end
  return known
end

local function required(entry, recipe, name)
  local base = recipe.base and recipe.base()
  if not base or base[name] == nil or recipe.values and recipe.values[name] then return false end
  local without = { run = recipe.run, inputs = recipe.inputs, base = function()
    local all = recipe.base()
    all[name] = nil
    return all
  end }
  return not attempt(entry, without, {}, {}).ok
end

local function sweep_entry(self, entry)
  if entry.varied then return end
  local names = {}
  for name in pairs(entry.options) do names[#names + 1] = name end
  table.sort(names)
  if self.left[entry.name] then
    self.n.left = self.n.left + 1
    self.left[entry.name] = nil
    return
  end
  if #names == 0 and not entry.takes_table and not entry.open then return end
  local recipe = find(self, entry)
  if not recipe then
    return self:fail("%s: options without a recipe: %s", entry.name,
      #names > 0 and table.concat(names, ", ") or entry.takes_table and "a table" or "...")
  end
  self.n.entries = self.n.entries + 1
  local base = attempt(entry, recipe, {}, {})
  if not base.ok then return self:fail("%s: the plain call raises: %s", entry.name, base.text) end
  for _, name in ipairs(names) do
    if not required(entry, recipe, name) then sweep_option(self, entry, recipe, entry.options[name], base) end
  end
  for name in pairs(sweep_refusals(self, entry, recipe)) do -- options that no annotation lists
    if not entry.options[name] then sweep_option(self, entry, recipe, { name = name }, base) end
  end
end

--- What is left to other tests, for tests/options/elsewhere_test.lua: name, option, place among the arguments, file.
local function list_elsewhere(self)
  local function recipe_of(entry) return not entry.varied and not self.left[entry.name] and find(self, entry) or {} end
  local users = {}
  for _, entry in ipairs(self.entries) do
    local recipe = recipe_of(entry)
    users[recipe] = (users[recipe] or 0) + 1
  end
  for _, entry in ipairs(self.entries) do
    local recipe = recipe_of(entry)
    local name = entry.whole or entry.name
    local files = {} -- of options that annotations list; of others where the recipe is of this entry alone
    for option, file in next, users[recipe] == 1 and recipe.elsewhere or {} do files[option] = file end
    for option in pairs(recipe.elsewhere and entry.options or {}) do files[option] = recipe.elsewhere[option] end
    for option, file in pairs(files) do
      local place = 0
      for i, of in ipairs(entry.order) do place = of == option and i or place end
      if file then print(("ELSEWHERE %s %s %d %s"):format(name, option, place, file)) end
    end
  end
end

--- Runs the sweep and ends the test. arg[1]: only entries of this name (or Lua pattern).
function Sweep:finish()
  if os.getenv "ACCEL_TEST_ELSEWHERE" then return list_elsewhere(self) end
  for _, entry in ipairs(self.entries) do
    if not arg[1] or entry.name == arg[1] or entry.name:find(arg[1]) then sweep_entry(self, entry) end
  end
  if not arg[1] then
    for _, r in ipairs(self.recipes) do
      if not r.used then self:fail("the recipe of %s fits no entry with options", r.name) end
    end
    for name in pairs(self.left) do self:fail("%s is left out, but there is no such entry", name) end
  end
  for _, line in ipairs(self.failures) do print("FAIL " .. line) end
  local n = self.n
  print(("options of %s: %d entries, %d options in %d values: %d have an effect, %d warn, %d raise, %d excepted, "
    .. "%d by other tests, %d only beside "
    .. "another option; %d calls refused; %d entries left out, %d failures"):format(self.folder, n.entries, n.options, n.values,
    n.effect, n.warns, n.raises, n.excepted, n.elsewhere, n.depends, n.refused, n.left, #self.failures))
  if #self.failures > 0 then os.exit(1, true) end
end

return M
