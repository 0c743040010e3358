#!/bin/sh
# Writes docs/ops.md to standard output: a row for each op of ops.def, read off its FVI_OP (or FVI_UNARY ..) in autograd/ops/.
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
# How many samples: a number, a constant, a product of them; or behind FVI_UNARY so many for each {range}.
function samples(kind, tail, i, n, factor, factors) {
    if (kind ~ /^FVI_UNARY/)
        return constant["UNARY_SAMPLES"] * gsub(/\{/, "{", tail)
    if (kind != "FVI_OP" && (kind "_SAMPLES") in counted)
        return constant[counted[kind "_SAMPLES"]]
    sub(/.*,/, "", tail)
    gsub(/[^A-Z0-9_*]/, "", tail)
    factors = split(tail, factor, "*")
    for (i = n = 1; i <= factors; i++)
        n *= factor[i] ~ /^[0-9]+$/ ? factor[i] : constant[factor[i]]
    return n
}
# The text of an op: KIND(name, "formula", "paper", .. and what ends in its samples.
function keep(text, part, kind) {
    gsub(/" +"/, "", text)
    gsub(/\|/, "\\|", text)
    split(text, part, "\"")
    kind = part[1]
    sub(/\(.*/, "", kind)
    gsub(/.*\(|,| /, "", part[1])
    part[6] = text # behind both strings
    sub(/^[^"]*"[^"]*"[^"]*"[^"]*"/, "", part[6])
    row[part[1]] = "| " part[1] " | `" part[2] "` | " part[4] " | " samples(kind, part[6]) \
                   " | [" name "](../" FILENAME ") |"
}
BEGIN {
    counted["FVI_BINARY_SAMPLES"] = "BINARY_SAMPLES"
    counted["FVI_GATED_SAMPLES"] = "GATED_SAMPLES"
}
FNR == 1 {
    inside = 0
    name = FILENAME
    sub(/.*\//, "", name)
}
match($0, /[A-Z_]+_SAMPLES = [0-9]+/) {
    split(substr($0, RSTART, RLENGTH), part, " = ")
    constant[part[1]] = part[2]
}
/^FVI_[A-Z_]+\(/ { text = ""; depth = 0; inside = 1 }
inside {
    text = text (text == "" ? "" : " ") $0
    code = $0
    gsub(/"[^"]*"/, "", code)
    depth += gsub(/\(/, "", code) - gsub(/\)/, "", code)
    if (depth == 0) {
        inside = 0
        if (text ~ /^FVI_[A-Z_]+\([a-z0-9_]+, +"/)
            keep(text)
    }
}
/^X\(/ {
    gsub(/^X\(|\)$/, "")
    print row[$0] != "" ? row[$0] : "| " $0 " | no FVI_OP | | | |"
}' autograd/ops/*.h autograd/ops/*.c autograd/ops.def
