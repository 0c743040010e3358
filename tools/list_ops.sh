#!/bin/sh
# Writes docs/ops.md to standard output: a row for each op of ops.def, read off its FVI_OP in autograd/ops/.
set -eu
cd "$(dirname "$0")/.."
cat <<'END'
# Ops

What `make ops-doc` reads off the sources; the calls, with their shapes and errors, are in
[autograd/ops.h](../autograd/ops.h). `x'` is the transpose of x. Each sample is one way to call the op, for which
`make test` checks first and second derivatives.

| op | formula | source | samples | file |
|---|---|---|---|---|
END
awk '
/^FVI_OP\(/ { text = ""; inside = 1 }
inside { text = text $0 }
inside && /\)$/ {
    inside = 0
    gsub(/" +"/, "", text)
    gsub(/\|/, "\\|", text)
    split(text, part, "\"") # FVI_OP(name, "formula", "paper", samples)
    gsub(/FVI_OP\(|, /, "", part[1])
    gsub(/[^0-9]/, "", part[5])
    name = FILENAME
    sub(/.*\//, "", name)
    row[part[1]] = "| " part[1] " | `" part[2] "` | " part[4] " | " part[5] " | [" name "](../" FILENAME ") |"
}
/^X\(/ {
    gsub(/^X\(|\)$/, "")
    print row[$0] != "" ? row[$0] : "| " $0 " | no FVI_OP | | | |"
}' autograd/ops/*.c autograd/ops.def
