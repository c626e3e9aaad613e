-- accel-run preprocess: what is written is what the tokenizer says of every document, from lines and from keys of .jsonl, whatever the number
-- of documents at a time; what is wrong names its line.
-- tier: every change
local accel = require "accel"
local folder = accel.mkdtemp((os.getenv "ACCEL_TEST_TMP" or "/tmp") .. "/preprocess")
local tok = accel.text.train_bpe({ "the cat sat on the mat" }, { vocab_size = 280, special_tokens = { "<|endoftext|>" } })
assert(tok:save(folder .. "/tokenizer.json"))
local eod = tok:token_to_id "<|endoftext|>"

local function run(options)
  local errors = os.tmpname()
  local pipe = assert(io.popen(("'%s' preprocess --tokenizer-model '%s/tokenizer.json' %s 2>'%s' </dev/null"):format(accel.process.program(),
    folder, options, errors)))
  local out = pipe:read "a"
  local _, _, status = pipe:close()
  local f <close> = assert(io.open(errors))
  local why = f:read "a"
  os.remove(errors)
  return out, status, why
end

local texts, lines, jsons = {}, {}, {}
for i = 1, 25 do
  texts[i] = ("the cat sat %d times"):format(i)
  lines[#lines + 1], jsons[i] = texts[i], accel.json.encode { text = texts[i], title = "mat " .. i }
  if i % 5 == 0 then lines[#lines + 1] = "" end
end
assert(accel.write_file(folder .. "/a.txt", table.concat(lines, "\n")))
assert(accel.write_file(folder .. "/a.jsonl", table.concat(jsons, "\n") .. "\n"))

local function check(prefix, list, ends)
  local set = accel.data.IndexedDataset(prefix)
  assert(#set == #list and set.dtype == "u16" and set.document_indices.shape[1] == #list + 1)
  for i, text in ipairs(list) do
    local ids = table.move(tok:encode(text, { add_special_tokens = false }).ids, 1, 999, 1, {})
    if ends then ids[#ids + 1] = eod end
    assert(table.concat(set:get(i):tolist(), " ") == table.concat(ids, " "), text)
  end
end

local out, status, why = run(("--input %s/a.txt --output-prefix %s/t --append-eod --workers 2 --log-interval 4"):format(folder, folder))
assert(status == 0 and out:find "25 documents", why)
check(folder .. "/t_text_document", texts, true)
out, status, why = run(("--input %s/a.jsonl --output-prefix %s/j --json-keys text,title"):format(folder, folder))
assert(status == 0 and out:find "25 documents", why)
check(folder .. "/j_text_document", texts)
local titles = {}
for i = 1, 25 do titles[i] = "mat " .. i end
check(folder .. "/j_title_document", titles)

do -- a sequence for each sentence, documents of all of theirs
  local docs = { { "The cat sat.", "On the mat!" }, { "No end" }, { "One.", "Two?", "Three." } }
  local rows, all, ends = {}, {}, { 0 }
  for i, sentences in ipairs(docs) do
    rows[i] = accel.json.encode { text = table.concat(sentences, " ") }
    table.move(sentences, 1, #sentences, #all + 1, all)
    ends[i + 1] = #all
  end
  assert(accel.write_file(folder .. "/s.jsonl", table.concat(rows, "\n")))
  local said, code, wrong = run(("--input %s/s.jsonl --output-prefix %s/s --split-sentences --log-interval 2"):format(folder, folder))
  assert(code == 0 and said:find "3 documents, 6 sentences" and said:find "s_text_sentence.bin", wrong)
  local set = accel.data.IndexedDataset(folder .. "/s_text_sentence")
  assert(table.concat(set.document_indices:tolist(), " ") == table.concat(ends, " ") and #set == #all)
  for i, sentence in ipairs(all) do
    local ids = tok:encode(sentence, { add_special_tokens = false }).ids
    assert(table.concat(set:get(i):tolist(), " ") == table.concat(table.move(ids, 1, #ids, 1, {}), " "), sentence)
  end
  local _, refused, word = run(("--input %s/s.jsonl --output-prefix %s/s --keep-newlines"):format(folder, folder))
  assert(refused ~= 0 and word:find "is of %-%-split%-sentences")
end

assert(accel.write_file(folder .. "/b.jsonl", jsons[1] .. "\n{}\n"))
for options, said in accel.pairs { ["--input b.jsonl --output-prefix x"] = "b.jsonl", [("--input %s/b.jsonl --output-prefix %s/b"):format(folder,
  folder)] = "b.jsonl:2 has no text 'text'", ["--input b.jsonl"] = "--output-prefix is missing" } do
  local _, bad, message = run(options)
  assert(bad ~= 0 and message:find(said, 1, true), message)
end
