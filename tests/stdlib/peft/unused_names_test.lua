-- Names in an adapter's configuration that fit no layer: one warning each, and an error if no layer is left.
--   accel-run tests/stdlib/peft/unused_names_test.lua
local accel = require "accel"
local no_effect = require "accel.util.no_effect"
local nn, peft = accel.nn, accel.peft

local told
rawset(_G, "warn", function(...) told = told .. table.concat { ... } .. "\n" end)

local function made(config)
  told = ""
  no_effect.reset()
  accel.manual_seed(1)
  local net = nn.Module:extend "Net"()
  net.query, net.key, net.out = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
  config.target_modules = config.target_modules or { "query", "key" }
  return peft.get_peft_model(net, peft.LoraConfig(config))
end

made { rank_pattern = { query = 2 }, alpha_pattern = { key = 3 }, exclude_modules = { "key" }, target_modules = { "query", "key", "out" } }
assert(told:find("'key' in alpha_pattern", 1, true) and select(2, told:gsub("\n", "")) == 1, told) -- key is left out
made { rank_pattern = { query = 2 }, exclude_modules = { "key" } }
assert(told == "", told)
for text, config in accel.pairs {
  ["'value' in target_modules has no effect on this model: no layer has that name; correct or remove it"] = { target_modules = { "query", "value" } },
  ["exclude_modules has no effect on this model: no layer of target_modules has such a name"] = { exclude_modules = { "out" } },
  ["'out' in rank_pattern has no effect on this model: no layer with an adapter has that name"] = { rank_pattern = { out = 2 } },
  ["'quer' in alpha_pattern has no effect"] = { alpha_pattern = { quer = 2, query = 4 } },
} do
  made(config)
  assert(told:find(text, 1, true) and select(2, told:gsub("\n", "")) == 1, told)
end
local alone, because = pcall(made, { layers_pattern = "blocks" })
assert(not alone and tostring(because):find("layers_pattern names the list of the blocks that layers_to_transform chooses", 1, true))
local ok, why = pcall(made, { target_modules = { "query" }, layers_to_transform = { 7 } })
assert(not ok and tostring(why):find("no layer called 'query', such as 'query', is in a block of layers_to_transform", 1, true), tostring(why))
