#!/bin/sh
# Misspelt words in pages, help, messages and comments, by codespell. Names that look like mistakes to it are in the list below.
#   sh tests/install/spelling.sh
set -eu
cd "$(dirname "$0")/../.."
command -v codespell > /dev/null || { echo "skipped: codespell is not installed (Debian and Ubuntu: codespell)"; exit 77; }
git rev-parse > /dev/null 2>&1 || { echo "skipped: not in a checkout of git"; exit 77; }
# dout: gradient of an output; nd: dimensions; te: Transformer Engine; fro: Frobenius; paeth: a filter of PNG; statics: in C; fo: printf.
# The rest are misspelt words of which help and errors show what was meant.
names="dout,nd,te,fro,paeth,statics,fo,upto,falsy,linaer,seperator,activ"
git ls-files '*.md' host bindings lua stdlib examples | grep -E '\.(md|lua|c|h|cu|cuh|cpp|cmake|txt|yaml)$' > "${TMPDIR:-/tmp}/spelling.$$"
trap 'rm -f "${TMPDIR:-/tmp}/spelling.$$"' EXIT
xargs codespell --quiet-level 3 --ignore-words-list "$names" < "${TMPDIR:-/tmp}/spelling.$$" || { echo "codespell found the words above"; exit 1; }
echo "$(wc -l < "${TMPDIR:-/tmp}/spelling.$$") files, no misspelt words"
