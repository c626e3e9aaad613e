-- accel-run data: ls, head, stats, convert, tokenize on the files of tests/reference/formats.
local accel = require "accel"
local src = os.getenv "ACCEL_TEST_SRC" or "."
local tmp = os.getenv "ACCEL_TEST_TMP" or "/tmp"
local folder = src .. "/tests/reference/formats"

local function run(fmt, ...)
  local p = assert(io.popen(("'%s' data %s 2>&1"):format(accel.process.program(), fmt:format(...))))
  local text = p:read "a"
  return text, p:close() == true
end
local function works(part, fmt, ...)
  local text, ok = run(fmt, ...)
  assert(ok and text:find(part, 1, true), ("'%s' is not in: %s"):format(part, text))
  return text
end
local function fails(part, fmt, ...)
  local text, ok = run(fmt, ...)
  assert(not ok and text:find(part, 1, true), ("'%s' is not in: %s"):format(part, text))
end
local function content(path)
  local f <close> = assert(io.open(path, "rb"))
  return f:read "a"
end

do
  works("id: int64, text: string, ids: list<item: int32>", "ls %s/part-0.arrow", folder)
  works("23", "ls --count --json %s/part-0.jsonl", folder)
  fails("no such file: cannot open", "ls 'no such file'")
  works('{"id":24,', "head --rows 2 %s/part-1.arrow", folder)
  assert(not run("head --columns text %s/part-1.arrow", folder):find '"id"')
  local report = accel.json.decode((run("stats --json %s/part-0.jsonl", folder)))
  assert(report.rows == 23)
  for _, c in ipairs(report.columns) do
    if c.name == "id" then assert(c.min == 0 and c.max == 22 and c.mean == 11 and c.missing == 0) end
    if c.name == "ids" then assert(c.of_lengths and c.min == 0 and c.max == 4) end
  end
  assert(accel.json.decode((run("stats --rows 3 --json %s/part-0.jsonl", folder))).rows == 3)
end

do -- there and back
  works("23 samples", "convert %s/part-0.arrow %s/a.jsonl", folder, tmp)
  local set, want = accel.data.JSONL(tmp .. "/a.jsonl"), accel.data.JSONL(folder .. "/part-0.jsonl")
  assert(#set == #want)
  for i = 1, #set do assert(accel.json.encode(set:get(i)) == accel.json.encode(want:get(i))) end
  works("23 samples", "convert %s/part-0.arrow %s/a.csv", folder, tmp)
  local csv = accel.data.CSV(tmp .. "/a.csv", { types = { id = "integer" } })
  assert(#csv == 23 and csv:get(5).id == 4 and csv:get(5).ids == "[0,1,2,3]")
  works("2 samples", "convert --rows 2 --columns id %s/part-0.arrow %s/b.csv", folder, tmp)
  assert(content(tmp .. "/b.csv") == "id\n0\n1\n")
  fails("must end with .jsonl or .csv", "convert %s/part-0.arrow %s/a.xls", folder, tmp)
end

do -- token files
  local tokenizer = src .. "/tests/reference/tokenizers/bpe_bytes.json"
  local call = ("tokenize %s/part-0.arrow %s/part-1.jsonl --tokenizer %s --output %s/tokens"):format(folder, folder, tokenizer, tmp)
  works("41 documents", call)
  local tok = accel.text.Tokenizer.from_file(tokenizer)
  local ids = {}
  for i = 0, 22 do
    local own = tok:encode(("sample %d \u{e9}"):format(i), { add_special_tokens = false }).ids
    table.move(own, 1, #own, #ids + 1, ids)
  end
  local file = accel.data.TokenFile(tmp .. "/tokens/part-0.arrow.bin", { block = #ids - 1 })
  local x = file:get(1)[1]:tolist()
  assert(file.n_tokens == #ids)
  for i = 1, #ids - 1 do assert(x[i] == ids[i]) end
  -- a second run keeps what is there, and makes what is missing again
  local f <close> = assert(io.open(tmp .. "/tokens/part-1.jsonl.bin", "ab"))
  f:write "kept"
  f:close()
  os.remove(tmp .. "/tokens/part-0.arrow.bin")
  works("41 documents", call)
  assert(content(tmp .. "/tokens/part-1.jsonl.bin"):sub(-4) == "kept" and content(tmp .. "/tokens/part-0.arrow.bin"))
  works("41 documents", call .. " --force")
  assert(content(tmp .. "/tokens/part-1.jsonl.bin"):sub(-4) ~= "kept")
  fails("--force", call .. " --column other")
  fails("has no text 'id'", "tokenize %s/part-0.jsonl --column id --tokenizer %s --output %s/t2", folder, tokenizer, tmp)
  fails("--tokenizer is missing", "tokenize %s/part-0.jsonl --output %s/t2", folder, tmp)
end
