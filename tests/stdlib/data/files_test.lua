--- IDX and CSV files: what well-formed ones hold, and that malformed ones are refused with the place.
local accel = require "accel"
local lfs = require "lfs"
local IDX, CSV = accel.data.IDX, accel.data.CSV
local tmp = os.getenv "ACCEL_TEST_TMP" or os.tmpname():match "^(.*)/"

local function write(name, bytes)
  local path = tmp .. "/" .. name
  local file = assert(io.open(path, "wb"))
  file:write(bytes)
  file:close()
  return path
end
local function refused(pattern, ...)
  local value, message, code = ...
  assert(value == nil and code, "accepted: " .. tostring(value))
  assert(message:find(pattern), ("'%s' has no '%s'"):format(message, pattern))
end

do -- IDX: every type, big-endian
  local values = { 1, 2, 3, 4, 5, 6 }
  for code, spec in pairs {
    [8] = { "B", "u8" }, [9] = { "b", "i8" }, [0x0B] = { ">i2", "i16" }, [0x0C] = { ">i4", "i32" },
    [0x0D] = { ">f", "f32" }, [0x0E] = { ">d", "f64" },
  } do
    local bytes = string.pack(">I2BBI4I4", 0, code, 2, 2, 3)
    for _, v in ipairs(values) do bytes = bytes .. string.pack(spec[1], v) end
    local t = assert(IDX.read(write("a.idx", bytes)))
    assert(t.dtype == spec[2] and #t.shape == 2 and t.shape[2] == 3)
    for i, row in ipairs(t:tolist()) do
      for k, v in ipairs(row) do assert(v == values[(i - 1) * 3 + k]) end
    end
    refused("promises", IDX.read(write("cut.idx", bytes:sub(1, -2))))
    refused("promises", IDX.read(write("long.idx", bytes .. "x")))
  end
  refused("none", IDX.read(tmp .. "/none"))
  refused("shorter", IDX.read(write("b", "\0\0")))
  refused("damaged", IDX.read(write("b.gz", "\x1f\x8b\8\0abcdefgh")))
  refused("begins with", IDX.read(write("b", "label,text\n")))
  refused("dimensions", IDX.read(write("b", "\0\0\8\0")))
  refused("dimensions", IDX.read(write("b", "\0\0\8\255" .. ("\255"):rep(1020))))
  refused("header", IDX.read(write("b", "\0\0\8\3\0\0\0\1")))
  refused("promises", IDX.read(write("b", "\0\0\8\8" .. ("\255"):rep(32)))) -- product far beyond 2^64
  refused("promises", IDX.read(write("b", "\0\0\14\4\128\0\0\0\128\0\0\0\0\0\0\1\128\0\0\0")))
  assert(IDX.read(write("empty", "\0\0\8\2\0\0\0\0\255\255\255\255")).shape[1] == 0)

  local images = write("im", string.pack(">I2BBI4I4I4", 0, 8, 3, 2, 2, 2) .. string.char(0, 16, 8, 4, 1, 2, 3, 4))
  local labels = write("la", string.pack(">I2BBI4", 0, 8, 1, 2) .. "\7\9")
  local set = IDX(images, labels, { scale = 16 })
  assert(#set == 2)
  local batch = set:get_batch { 2, 1 }
  assert(batch[1].shape[2] == 1 and batch[1].dtype == "f32" and batch[2].dtype == "i64")
  assert(batch[1]:reshape(-1):tolist()[6] == 1.0 and batch[2]:tolist()[1] == 9)
  assert(#set:get(1)[1].shape == 3 and set:get(1)[2]:item() == 7)
  assert(not pcall(set.get, set, 3))
  refused("labels", IDX.open(labels, images))
  refused("holds shape", IDX.open(images, write("la3", string.pack(">I2BBI4", 0, 8, 1, 3) .. "abc")))
  assert(not pcall(IDX, images, tmp .. "/none"))
  -- nothing inside, but extents that no tensor can have
  for _, extents in ipairs { { 0, 2 ^ 32 - 1, 2 ^ 32 - 1, 2 ^ 32 - 1 }, { 2 ^ 32 - 1, 2 ^ 32 - 1, 2 ^ 32 - 1, 0 } } do
    local head = string.pack(">I2BB", 0, 8, 4)
    for _, extent in ipairs(extents) do head = head .. string.pack(">I4", math.tointeger(extent)) end
    refused("shape .* is too large", IDX.read(write("huge", head)))
  end
  local zero_dims = string.pack(">I2BBI4I4", 0, 0x0C, 2, 0, 3)
  assert(IDX.read(write("empty4", zero_dims)).shape[2] == 3)
  local pixels = accel.ones(3, 2, 2)
  local held = IDX(pixels, accel.tensor { 1, 0, 1 }, { scale = 2, channel = false })
  assert(#held:get(3)[1].shape == 2 and held:get(3)[1]:sum():item() == 2 and #held:take(2) == 2)
  assert(held:subset({ 3, 3 }):get_batch({ 1, 2 })[1].shape[1] == 2, "a view of an IDX set gathers batches too")
  local function raises(pattern, ...)
    local ok, message = pcall(IDX, ...)
    assert(not ok and message:find(pattern), message)
  end
  raises("shape %(3, 2, 2%), the second 2 labels", pixels, accel.tensor { 1, 0 })
  raises("one dimension, not shape %(1, 1%)", pixels, accel.ones(1, 1))
  raises("two paths or two tensors, got a tensor of shape .* and 3", pixels, 3)
  raises("scale must not be 0", pixels, accel.tensor { 1, 0, 1 }, { scale = 0 })
  local _, _, code = IDX.read(tmp .. "/none")
  assert(code == "not_found")
  local loader = accel.data.DataLoader { dataset = set, batch_size = 2 }
  for b in loader() do assert(b[1].shape[1] == 2) end
end

do -- CSV
  local path = write("a.csv", '\xEF\xBB\xBFlabel,text,n\r\nyes,"a, ""b""\r\nc",1\r\n\r\nno,,-2.5\nyes,plain "x",3')
  local rows = CSV(path, { types = { label = "class", n = "number" } })
  assert(#rows == 3 and table.concat(rows.columns, "|") == "label|text|n")
  local r = rows:get(1)
  assert(r.text == 'a, "b"\r\nc' and r.label == 1 and r.n == 1)
  r = rows:get(2)
  assert(r.text == "" and r.label == 0 and r.n == -2.5)
  r = rows:get(3)
  assert(r.text == 'plain "x"' and r.n == 3 and rows.classes.label[r.label + 1] == "yes")
  assert(table.concat(rows:column "n", " ") == "1.0 -2.5 3.0")
  assert(rows:get(2).n == -2.5 and not pcall(rows.get, rows, 4) and not pcall(rows.column, rows, "texts"))

  local plain = CSV(write("b.csv", "1;2\n3;4\n"), { header = false, delimiter = ";", types = { column2 = "integer" } })
  assert(#plain == 2 and plain:get(2).column1 == "3" and plain:get(2).column2 == 4)
  local named = CSV(write("b.csv", "1\t2\n"), { header = false, delimiter = "\t", columns = { "x", "y" } })
  assert(named:get(1).y == "2")
  assert(#CSV(write("c.csv", "a,b\n")) == 0)

  refused("none", CSV.open(tmp .. "/none"))
  refused("a%.csv:1: the file is empty", CSV.open(write("a.csv", "")))
  refused("a%.csv:3: 3 fields, expected 2 %(a, b%)", CSV.open(write("a.csv", "a,b\n1,2\n1,2,3\n")))
  refused("a%.csv:4: the quote that opens here is never closed", CSV.open(write("a.csv", 'a,b\n"x\ny",2\n1,"x\n\n\n')))
  refused("a%.csv:2: text after a closing quote", CSV.open(write("a.csv", 'a,b\n"x"y,2\n')))
  refused("a%.csv:2: b is 'x', not a number", CSV.open(write("a.csv", "a,b\n1,x\n"), { types = { b = "number" } }))
  refused("header names 2", CSV.open(write("a.csv", "a,b\n"), { columns = { "x" } }))
  refused("two columns are called 'a'", CSV.open(write("a.csv", "a,a\n1,2\n")))
  local ok, message = pcall(CSV, write("a.csv", "label,b\n1,2\n"), { types = { lable = "class" } })
  assert(not ok and tostring(message):find "did you mean 'label'", message)
  refused("a%.csv:1: more than 65536 columns", CSV.open(write("a.csv", (","):rep(1e6) .. "\n")))
  refused("is a folder", CSV.open(tmp))
  refused("regular", CSV.open "/dev/zero")
  do -- nothing but a hole: not one line of so many bytes in memory
    local hole <close> = assert(io.open(tmp .. "/hole.csv", "wb"))
    hole:seek("set", 65 << 20)
    hole:write "\n"
  end
  refused("67108864 bytes without a line end", CSV.open(tmp .. "/hole.csv"))
  assert(os.remove(tmp .. "/hole.csv"))
  ok, message = pcall(CSV, write("a.csv", "label,b\n"), { types = { label = "klass" } })
  assert(not ok and message:find "must be string, number, integer or class, got 'klass'", message)
  ok, message = pcall(CSV, write("a.csv", "label,b\n"), { columns = { "x", 2 } })
  assert(not ok and message:find "columns%[2%] must be a string, got 2", message)
  ok, message = pcall(CSV, write("a.csv", "a\n"), { delimiter = "::" })
  assert(not ok and message:find "one character", message)

  -- empty lines before the header; a quoted nothing is a row; an end without a line end, or with half of one
  local one = CSV(write("one.csv", '\n\r\nname\nx\n\n""\ny\r'))
  assert(#one == 3 and one:get(2).name == "" and one:get(3).name == "y")
  refused("one.csv:4: 2 fields, expected 1", CSV.open(write("one.csv", "\n\nname\na,b\n")))
  refused("one.csv:2: the quote", CSV.open(write("one.csv", '\n"name\na,b\n')))
  -- every number is a float, so that all batches have one dtype; ids of classes may be asked for without rows
  local typed = CSV(write("n.csv", "n,c\n1,x\n2,x\n"), { types = { n = "number", c = "class" } })
  assert(accel.data.default_collate({ typed:get(1), typed:get(2) }).n.dtype == "f32")
  assert(#CSV(write("n.csv", "n,c\n"), { types = { c = "class" } }).classes.c == 0)

  local stale = CSV(write("s.csv", "a,b\n1,2\n3,4\n"))
  write("s.csv", "a,b\n1\n")
  assert(not pcall(stale.get, stale, 2))
  stale = CSV(write("s.csv", "a,b\nx,2\ny,4\n"), { types = { a = "class", b = "integer" } })
  write("s.csv", "a,b\nx,2\nz,4\n")
  ok, message = pcall(stale.get, stale, 2)
  assert(not ok and message:find "row 2 has the a 'z'", message)
  local big = {}
  for i = 1, 20000 do big[i] = ('%d,"row ""%d"""'):format(i, i) end
  local many = CSV(write("big.csv", "i,t\n" .. table.concat(big, "\n") .. "\n"))
  assert(#many == 20000 and many:get(19999).t == 'row "19999"' and many:get(1).i == "1")
end

do -- load_dataset: files about a data set are none of its rows, and a .json file may hold one list
  local folder = tmp .. "/hub"
  lfs.mkdir(folder)
  write("hub/train.jsonl", '{"a": 1}\n')
  write("hub/test.jsonl", '{"a": 2}\n{"a": 3}\n')
  write("hub/dataset_infos.json", '{"default": {"features": {}}}\n')
  write("hub/extra.jsonl", '{"a": 9}\n')
  local sets = accel.data.load_dataset(folder)
  assert(#sets.train == 1 and sets.train:get(1).a == 1 and #sets.test == 2)
  lfs.mkdir(tmp .. "/list")
  write("list/train.json", '[{"a": 1}, {"a": 2}, {"a": 3}]')
  local train = accel.data.load_dataset(tmp .. "/list", { split = "train" })
  assert(#train == 3 and train:get(3).a == 3)
end
