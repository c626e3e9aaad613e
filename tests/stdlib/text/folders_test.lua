-- Tokenizers of folders without a tokenizer.json, and chat templates, as Transformers, SentencePiece and tiktoken have them: each row of
-- shared/reference/folders. Damaged files give nil and a message.
--   accel-run tests/stdlib/text/folders_test.lua
local accel = require "accel"
local here = arg[0]:match "^.*/" or ""
package.path = here .. "../../reference/?.lua;" .. package.path
local dir = here .. "../../../../shared/reference/folders/"

local file = io.open(dir .. "manifest.json", "rb")
if not file then
  print "skipped: ../shared/reference/folders is not there"
  os.exit(77)
end
local manifest = accel.json.decode(file:read "a")
file:close()

local wrong, n = {}, 0
for _, row in ipairs(manifest.rows) do
  local kind = row.name:match "^[^/]+"
  if kind == "tokenizers" or kind == "templates" then
    n = n + 1
    require("folders_" .. kind).check(dir .. row.name, function(quantity, distance, bar)
      wrong[#wrong + 1] = ("%s: %s: %s (bar %s)"):format(row.name, quantity, tostring(distance), tostring(bar))
    end, row)
  end
end
assert(n > 0 and #wrong == 0, "\n" .. table.concat(wrong, "\n"))

-- A file that is cut, or with a byte changed, at every place of its first and last kilobyte: a tokenizer or a message, never an error.
local path = os.tmpname()
for _, row in ipairs(manifest.rows) do
  local names = row.name:find "^tokenizers/" and row.tool == "sentencepiece" and accel.listdir(dir .. row.name) or {}
  for _, name in ipairs(names) do
    local f <close> = assert(io.open(dir .. row.name .. "/" .. name, "rb"))
    local bytes = f:read "a"
    if #bytes < 16384 then
      for at = 1, #bytes, math.max(1, #bytes // 12) do
        for _, text in ipairs { bytes:sub(1, at), bytes:sub(1, at - 1) .. string.char(~bytes:byte(at) & 255) .. bytes:sub(at + 1) } do
          assert(accel.write_file(path, text))
          local tok, message, code = accel.text.Tokenizer.from_sentencepiece(path)
          assert(tok or (type(message) == "string" and type(code) == "string"))
        end
      end
    end
  end
end
os.remove(path)
