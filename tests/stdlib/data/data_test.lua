--- Data sets and the loader: contents, order as a function of (seed, epoch), resumption.
local accel = require "accel"
local data = accel.data

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error with " .. pattern)
  assert(tostring(err):find(pattern), ("error %q has no %q"):format(tostring(err), pattern))
end

local function join(list) return table.concat(list, ",") end

local x = accel.arange(20, { dtype = "f32" }):view(10, 2)
local y = accel.arange(10)
local set = data.TensorDataset(x, y)

do -- TensorDataset
  assert(#set == 10 and set:len() == 10)
  local sample = set:get(4)
  assert(join(sample[1]:tolist()) == "6.0,7.0" and sample[2]:item() == 3)
  local batch = set:get_batch { 10, 1 }
  assert(join(batch[2]:tolist()) == "9,0" and join(batch[1]:tolist()[1]) == "18.0,19.0")
  fails("position 11 is outside of 1 .. 10", set.get, set, 11)
  fails("a data set cannot be indexed; use set:get%(4%) for sample 4", function() return set[4] end)
  fails("use set:get%(1%) for sample 1", ipairs(set), set, 0) -- a loop by ipairs, which would find nothing
  fails("tensor 2 has 3 samples, the first has 10", data.TensorDataset, x, accel.zeros(3))
  fails("argument 2 is a number", data.TensorDataset, x, 3)
end

local function pass(loader)
  local out, sizes = {}, {}
  for batch in loader() do
    local ids = batch[2]:tolist()
    sizes[#sizes + 1] = #ids
    for i, id in ipairs(ids) do
      out[#out + 1] = id
      assert(batch[1]:tolist()[i][1] == 2 * id, "rows stay together")
    end
  end
  return join(out), join(sizes)
end

do -- in order, last batch kept or dropped
  local loader = data.DataLoader { dataset = set, batch_size = 4 }
  local order, sizes = pass(loader)
  assert(order == "0,1,2,3,4,5,6,7,8,9" and sizes == "4,4,2" and #loader == 3)
  loader = data.DataLoader { dataset = set, batch_size = 4, drop_last = true }
  order, sizes = pass(loader)
  assert(order == "0,1,2,3,4,5,6,7" and sizes == "4,4" and #loader == 2)
end

do -- shuffled: every sample once, a pure function of (seed, epoch)
  local function loader(seed)
    return data.DataLoader { dataset = set, batch_size = 3, shuffle = true, seed = seed }
  end
  local a, b = loader(5), loader(5)
  local first, second = pass(a), pass(a)
  assert(first ~= second and first ~= "0,1,2,3,4,5,6,7,8,9")
  local sum = 0
  for id in first:gmatch "%d+" do sum = sum + (1 << tonumber(id)) end
  assert(sum == 1023)
  assert(pass(b) == first and pass(b) == second and pass(loader(6)) ~= first)
  b:set_epoch(1)
  assert(pass(b) == second)
end

do -- the data set may stand before the options
  local loader = data.DataLoader(set, { batch_size = 4, drop_last = true })
  assert(pass(loader) == "0,1,2,3,4,5,6,7" and #data.DataLoader(set) == 10)
  assert(tostring(loader)
    == "DataLoader(10 samples, batch_size=4, shuffle=false, drop_last=true, 2 batches)")
  fails("two data sets", data.DataLoader, set, { dataset = set })
  fails("must have the methods len and get .*, got 3", data.DataLoader, 3, { batch_size = 2 })
  fails("got a list; wrap it in data.ListDataset%(list%)", data.DataLoader, { 1, 2, 3 })
  fails("got a list; wrap it in data.ListDataset%(list%)", data.DataLoader, { 1, 2, 3 }, { batch_size = 2 })
  fails("got a list; wrap it in data.ListDataset%(list%)", data.DataLoader, { dataset = { 1, 2, 3 } })
  fails("got a tensor of shape %(3%) and dtype f32; wrap it in data.TensorDataset%(t%)", data.DataLoader, accel.ones(3))
  fails("a stream has no known length; count its samples in a loop", function() return #data.IterableDataset() end)
  fails("unknown option 'batchsize'; did you mean 'batch_size'", data.DataLoader, set, { batchsize = 2 })
end

do -- without brackets a loop would begin a pass in every round
  local loader = data.DataLoader(set)
  fails("^[^\n]*data_test.lua:%d+: DataLoader: write `for batch in loader%(%) do`", function()
    local rounds = 0
    for _ in loader do
      rounds = rounds + 1
      assert(rounds <= #loader, "endless")
    end
  end)
end

do -- break ends the pass; the next has the next order
  local a = data.DataLoader { dataset = set, batch_size = 3, shuffle = true, seed = 1 }
  local b = data.DataLoader { dataset = set, batch_size = 3, shuffle = true, seed = 1 }
  for _ in a() do break end -- luacheck: ignore 512
  pass(b)
  assert(a.epoch == 1 and pass(a) == pass(b))
end

do -- a resumed loader continues with the next batch
  local whole = data.DataLoader { dataset = set, batch_size = 2, shuffle = true, seed = 9 }
  local want = pass(whole) .. "|" .. pass(whole)
  local part = data.DataLoader { dataset = set, batch_size = 2, shuffle = true, seed = 9 }
  local got, state = {}, nil
  for batch in part() do
    got[#got + 1] = join(batch[2]:tolist())
    if #got == 2 then
      state = part:state_dict()
      break
    end
  end
  assert(state.epoch == 0 and state.position == 2)
  local resumed = data.DataLoader { dataset = set, batch_size = 2, shuffle = true }
  resumed:load_state_dict(state)
  for batch in resumed() do got[#got + 1] = join(batch[2]:tolist()) end
  assert(join(got) .. "|" .. pass(resumed) == want)
end

do -- own data sets, collation
  local Words = data.Dataset:extend "Words"
  function Words:init(list) self.list = list end
  function Words:len() return #self.list end
  function Words:get(i)
    return { text = self.list[i], length = #self.list[i], half = #self.list[i] / 2, long = #self.list[i] > 3 }
  end
  local loader = data.DataLoader { dataset = Words { "one", "three", "seven" }, batch_size = 2 }
  local batches = {}
  for batch in loader() do batches[#batches + 1] = batch end
  local b = batches[1]
  assert(join(b.text) == "one,three" and b.length.dtype == "i64" and join(b.length:tolist()) == "3,5")
  assert(b.half.dtype == "f32" and b.long.dtype == "bool" and b.long:tolist()[2] == true
    and #batches[2].text == 1)
  local pairs_of = data.default_collate { { accel.ones(2), 1 }, { accel.zeros(2), 2 } }
  assert(join(pairs_of[1].shape) == "2,2" and join(pairs_of[2]:tolist()) == "1,2")
  fails("sample 2 has no entry 'b'", data.default_collate, { { a = 1, b = 2 }, { a = 1 } })
  fails("cannot make a batch of function", data.default_collate, { print })
  local upper = data.DataLoader {
    dataset = Words { "a", "b" }, batch_size = 2,
    collate_fn = function(samples) return samples[1].text .. samples[2].text end,
  }
  for batch in upper() do assert(batch == "ab") end
  fails("must have the methods", data.DataLoader, { dataset = {} })
  fails("got a list; wrap it in data.ListDataset%(list%)", data.DataLoader, { 1, 2, 3 })
  fails("got a list; wrap it in data.ListDataset%(list%)", data.DataLoader, { 1, 2, 3 }, { batch_size = 2 })
  fails("got a list; wrap it in data.ListDataset%(list%)", data.DataLoader, { dataset = { 1, 2, 3 } })
  fails("got a tensor of shape %(3%) and dtype f32; wrap it in data.TensorDataset%(t%)", data.DataLoader, accel.ones(3))
  fails("unknown option 'batchsize'; did you mean 'batch_size'", data.DataLoader,
    { dataset = set, batchsize = 2 })
  fails("batch_size must be a positive integer", data.DataLoader, { dataset = set, batch_size = 0 })
end

do -- TokenFile over a tensor and over a mapped file give the same windows
  local path = os.getenv "ACCEL_TEST_TMP" .. "/tokens.bin"
  local ids = {}
  for i = 0, 100 do ids[i + 1] = (i * i) % 60000 end
  local file = assert(io.open(path, "wb"))
  for _, id in ipairs(ids) do file:write(string.pack("<I2", id)) end
  file:close()
  local mapped = data.TokenFile(path, { block = 8 })
  local held = data.TokenFile(accel.tensor(ids), { block = 8 })
  assert(mapped.n_tokens == 101 and #mapped == 12 and #held == 12)
  for i = 1, #mapped do
    local a, b = mapped:get(i), held:get(i)
    for k = 1, 2 do
      assert(a[k].dtype == "i64" and join(a[k]:tolist()) == join(b[k]:tolist()))
      for j, id in ipairs(a[k]:tolist()) do assert(id == ids[(i - 1) * 8 + j + k - 1]) end
    end
  end
  local a, b = mapped:get_batch { 12, 1 }, held:get_batch { 12, 1 }
  assert(join(a[1].shape) == "2,8" and join(a[2]:tolist()[1]) == join(b[2]:tolist()[1]))
  assert(#data.TokenFile(accel.arange(10), { block = 4, stride = 1 }) == 6)
  assert(#data.TokenFile(accel.arange(4), { block = 4 }) == 0)
  fails("leaves the 101 tokens", held.windows, held, { 93 })
  fails("leaves the 101 tokens", mapped.windows, mapped, { -1 })
  fails("TokenFile: .*missing.bin", data.TokenFile, os.getenv "ACCEL_TEST_TMP" .. "/missing.bin")
end
