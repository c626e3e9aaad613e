--- default_collate and PadCollate.
local accel = require "accel"
local data = accel.data
local collate, PadCollate = data.default_collate, data.PadCollate

local function fails(pattern, fn, ...)
  local ok, err = pcall(fn, ...)
  assert(not ok, "expected an error with " .. pattern)
  assert(tostring(err):find(pattern), ("error %q has no %q"):format(tostring(err), pattern))
end
local function shown(x)
  if accel.is_tensor(x) then return x.dtype .. shown(x:tolist()) end
  if type(x) ~= "table" then return tostring(x) end
  local parts, keys = {}, {}
  for key in pairs(x) do keys[#keys + 1] = key end
  table.sort(keys, function(a, b) return tostring(a) < tostring(b) end)
  for i, key in ipairs(keys) do
    parts[i] = type(key) == "string" and key .. "=" .. shown(x[key]) or shown(x[key])
  end
  return "{" .. table.concat(parts, " ") .. "}"
end
local function same(got, want) assert(shown(got) == want, ("%s instead of %s"):format(shown(got), want)) end

do -- default_collate: nested as deep as it may be
  same(collate { 1, 2 }, "i64{1 2}")
  same(collate { 1, 2.5 }, "f32{1.0 2.5}")
  same(collate { true, false }, "bool{true false}")
  same(collate { "a", "b" }, "{a b}")
  same(collate { accel.ones(2), accel.zeros(2) }, "f32{{1.0 1.0} {0.0 0.0}}")
  same(collate { accel.tensor(3), accel.tensor(4) }, "i64{3 4}")
  same(collate { { { 1, { k = "a" } }, m = { n = true } }, { { 2, { k = "b" } }, m = { n = false } } },
    "{{i64{1 2} {k={a b}}} m={n=bool{true false}}}")
  same(collate { {}, {} }, "{}")
  local long = {}
  for i = 1, 12 do long[i] = i end
  same(collate { long, long }, "{" .. shown(collate { long, long }):sub(2, -2) .. "}")
  assert(#collate { long, long } == 12 and collate({ long, long })[12]:tolist()[2] == 12)

  fails("sample 2 has no entry 'b', sample 1 has; fill it in by map", collate, { { a = 1, b = 2 }, { a = 1 } })
  fails("sample 3 has an entry 'b', sample 1 has none$", collate, { { a = 1 }, { a = 1 }, { a = 1, b = 2 } })
  fails("sample 2 has an entry '3', sample 1 has none %(entry 'x%.ids'%)", collate,
    { { x = { ids = { 1, 2 } } }, { x = { ids = { 1, 2, 3 } } } })
  fails("sample 2 is a string, sample 1 a number %(entry 'a'%)", collate, { { a = 1 }, { a = "1" } })
  fails("sample 2 is a tensor, sample 1 a table", collate, { { 1 }, accel.ones(1) })
  fails("samples 1 and 2 have shapes %(2%) and %(3%) %(entry 'x'%); PadCollate pads", collate,
    { { x = accel.ones(2) }, { x = accel.ones(3) } })
  fails("cannot make a batch of function values %(entry 'f'%)", collate, { { f = print } })
  local loop, deep = { 1 }, 7
  loop.t = loop
  fails("sample 1 nests more than 200 tables deep, at 't%.t%.t", collate, { loop, loop })
  fails("nests more than 200 tables deep", data.PadCollate(), { loop, loop })
  for _ = 1, 200 do deep = { deep } end
  local batch = collate { deep, deep }
  for _ = 1, 200 do batch = batch[1] end
  same(batch, "i64{7 7}")
  fails("at least one sample", collate, {})
  fails("at least one sample", collate, 3)
end

do -- PadCollate: lists, tensors, nested, what is not a sequence
  local pad = PadCollate()
  same(pad { { 1, 2, 3 }, { 4 } }, "i64{{1 2 3} {4 0 0}}")
  same(pad { { 1 }, { 2.5, 3 } }, "f32{{1.0 0.0} {2.5 3.0}}")
  same(pad { { true, true }, { true } }, "bool{{true true} {true false}}")
  same(pad { accel.tensor { 1, 2 }, accel.tensor { 3 } }, "i64{{1 2} {3 0}}")
  same(pad { {}, { 7 } }, "i64{{0} {7}}")
  assert(table.concat(pad({ {}, {} }).shape, ",") == "2,0")
  same(pad { { { 1, 2 }, { 5 }, 0.5, "x" }, { { 3 }, { 6, 7 }, 1.5, "y" } },
    "{i64{{1 2} {3 0}} i64{{5 0} {6 7}} f32{0.5 1.5} {x y}}")
  same(pad { { a = { b = { input_ids = { 1 }, n = 1 } } }, { a = { b = { input_ids = { 2, 3 }, n = 2 } } } },
    "{a={b={attention_mask=i64{{1 0} {1 1}} input_ids=i64{{1 0} {2 3}} n=i64{1 2}}}}")
  -- images, being no sequences, are stacked
  same(pad { { x = accel.ones(1, 1), y = { 1 } }, { x = accel.zeros(1, 1), y = { 1, 2 } } },
    "{x=f32{{{1.0}} {{0.0}}} y=i64{{1 0} {1 2}}}")
  fails("sample 2 has no entry 'b'", pad, { { a = { 1 }, b = 1 }, { a = { 1 } } })
  fails("at least one sample", pad, {})
end

do -- values, lengths, sides
  local rows = { { input_ids = { 5, 6, 7 }, labels = { 1, 2, 3 } }, { input_ids = { 8 }, labels = { 4 } } }
  same(PadCollate { padding_value = { input_ids = 1, labels = -100 } }(rows),
    "{attention_mask=i64{{1 1 1} {1 0 0}} input_ids=i64{{5 6 7} {8 1 1}} labels=i64{{1 2 3} {4 -100 -100}}}")
  same(PadCollate { padding_value = 9, attention_mask = false }(rows),
    "{input_ids=i64{{5 6 7} {8 9 9}} labels=i64{{1 2 3} {4 9 9}}}")
  same(PadCollate { pad_to_multiple_of = 4, padding_side = "left", attention_mask = "labels" }(rows),
    "{attention_mask=i64{{0 1 1 1} {0 0 0 1}} input_ids=i64{{0 5 6 7} {0 0 0 8}} labels=i64{{0 1 2 3} {0 0 0 4}}}")
  same(PadCollate { max_length = 2 }(rows),
    "{attention_mask=i64{{1 1} {1 0}} input_ids=i64{{5 6} {8 0}} labels=i64{{1 2} {4 0}}}")
  local fixed = PadCollate { max_length = 2, pad_to_multiple_of = 2 }
  assert(fixed { { 1 }, { 2 } }.shape[2] == 2 and fixed { { 1, 2, 3 } }.shape[2] == 2)
  -- a mask that the samples have is kept, and padded by zeros whatever pads the rest
  same(PadCollate { padding_value = 9 } { { input_ids = { 1, 2 }, attention_mask = { 1, 0 } },
    { input_ids = { 3 }, attention_mask = { 1 } } }, "{attention_mask=i64{{1 0} {1 0}} input_ids=i64{{1 2} {3 9}}}")

  local tensors = { { x = accel.tensor { 1.5 } }, { x = accel.tensor { 2.0, 3.0 } } }
  same(PadCollate { padding_value = -1, padding_side = "left" }(tensors), "{x=f32{{-1.0 1.5} {2.0 3.0}}}")
  same(PadCollate { max_length = 1 }(tensors), "{x=f32{{1.5} {2.0}}}")
  same(PadCollate { pad_to_multiple_of = 3 } { accel.tensor { true } }, "bool{{true false false}}")
  local i32 = { dtype = "i32" }
  same(PadCollate() { { input_ids = accel.tensor({ 1, 2 }, i32) }, { input_ids = accel.tensor({ 1 }, i32) } },
    "{attention_mask=i64{{1 1} {1 0}} input_ids=i32{{1 2} {1 0}}}")

  -- keys: these alone are padded, tensors of more dimensions along their first
  local frames = PadCollate { keys = { "frames" }, padding_value = { frames = 7 } }
  same(frames { { frames = accel.ones(1, 2), pair = { 1, 2 } }, { frames = accel.zeros(2, 2), pair = { 3, 4 } } },
    "{frames=f32{{{1.0 1.0} {7.0 7.0}} {{0.0 0.0} {0.0 0.0}}} pair={i64{1 3} i64{2 4}}}")
  same(PadCollate { padding_value = { ["q.ids"] = 8, ids = 9 } } { { q = { ids = { 1 } }, ids = { 2, 3 } },
    { q = { ids = { 4, 5 } }, ids = { 6 } } }, "{ids=i64{{2 3} {6 9}} q={ids=i64{{1 8} {4 5}}}}")
  same(PadCollate { keys = { 1 } } { { { 1 }, { 3, 4 } }, { { 1, 2 }, { 5, 6 } } },
    "{i64{{1 0} {1 2}} {i64{3 5} i64{4 6}}}")

  fails("shapes %(1, 2%) and %(1, 3%); only the first dimension may differ", frames,
    { { frames = accel.ones(1, 2) }, { frames = accel.ones(1, 3) } })
  fails("entry 'frames' is not a sequence of numbers in every sample", frames, { { frames = { 1 } }, { frames = "x" } })
  fails("keys names 'frames', which the samples do not have; did you mean 'frame'", frames, { { frame = { 1 } } })
  fails("padding_value names 'label', which the samples do not have; did you mean 'labels'",
    PadCollate { padding_value = { label = -100 } }, rows)
  fails("attention_mask names 'ids'", PadCollate { attention_mask = "ids" }, rows)
  fails("0.5 cannot pad 'input_ids', of dtype i64", PadCollate { padding_value = { input_ids = 0.5 } }, rows)
  fails("0.5 cannot pad the samples, of dtype i64", PadCollate { padding_value = 0.5 }, { accel.tensor { 1 } })
  fails("sample 2 of 'x' is a list, others are tensors", PadCollate(), { { x = accel.tensor { 1 } }, { x = {} } })
  fails("sample 2 is a string, sample 1 a table %(entry 'a'%)", PadCollate(), { { a = { 1 } }, { a = "x" } })
  fails("padding_side must be one of right, left, got 'top'", PadCollate, { padding_side = "top" })
  fails("max_length must be a positive integer, got 0", PadCollate, { max_length = 0 })
  fails("pad_to_multiple_of must be a positive integer, got 0", PadCollate, { pad_to_multiple_of = 0 })
  fails("padding_value.x must be a number, got 'y'", PadCollate, { padding_value = { x = "y" } })
  fails("padding_value must be a number, got 'y'", PadCollate, { padding_value = "y" })
  fails("name of a sequence or false, got true", PadCollate, { attention_mask = true })
  fails("unknown option 'pad_value'", PadCollate, { pad_value = 1 })
end

do -- a loader of rows of unequal lengths, grouped by length: little padding, nothing lost
  local random, rows, total = accel.util.Random(1), {}, 0
  for i = 1, 200 do
    local ids = {}
    for k = 1, random:below(30) + 1 do ids[k] = i end
    rows[i], total = { input_ids = ids, label = i }, total + #ids
  end
  local set = data.ListDataset(rows)
  local function cells(sampler)
    local n, sum = 0, 0
    for batch in data.DataLoader(set, { batch_size = 8, sampler = sampler, collate_fn = PadCollate() })() do
      n, sum = n + batch.input_ids:numel(), sum + batch.attention_mask:sum():item()
      local lengths = batch.attention_mask:sum { dim = 2 }
      local held = (batch.input_ids:sum { dim = 2 } / batch.label):to "i64"
      assert(lengths:eq(held):all():item(), "every row is whole and beside its label")
    end
    assert(sum == total)
    return n
  end
  local plain, grouped = cells(data.RandomSampler(set)), cells(data.LengthGroupedSampler(8, set))
  assert(grouped < 1.2 * total and plain > 1.4 * total, ("%d %d %d"):format(plain, grouped, total))
end
