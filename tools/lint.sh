#!/bin/sh
# House rules that a compiler does not check; each breach is one line, file:line: reason. See docs/architecture.md.
set -u
cd "$(dirname "$0")/.." || exit 1

breaches=$(mktemp) || exit 1
trap 'rm -f "$breaches"' EXIT

library=$(find tensor autograd layers train -name '*.[ch]' | sort)
programs=$(find examples tests bench conformance fuzz tools -name '*.[ch]' -not -path '*/data/*' 2>/dev/null | sort)
headers='fovea.h tensor/tensor.h autograd/autograd.h autograd/ops.h autograd/op.h layers/layers.h train/train.h'
if git rev-parse --git-dir >/dev/null 2>&1; then
    texts=$(git ls-files --cached --others --exclude-standard)
else
    texts=$(find . -type f -not -path './build/*' -not -path './.git/*' | sed 's|^\./||')
fi
# Data is not ours to lay out.
texts=$(printf '%s\n' "$texts" | grep -vE '^examples/data/|\.(npy|npz|safetensors|png|svg|gz)$' | sort)
existing=''
for file in $texts; do
    [ -f "$file" ] && existing="$existing $file"
done

# Includes go one way: tensor <- autograd <- layers <- train <- examples.
awk '
function rank(path, room) {
    room = path
    sub(/\/.*/, "", room)
    return index(" tensor autograd layers train examples", " " room)
}
FNR == 1 { mine = rank(FILENAME) }
match($0, /^[ \t]*#[ \t]*include[ \t]*"[^"]+"/) {
    path = $0
    gsub(/^[^"]*"|".*$/, "", path)
    if (path ~ /\.\.\//)
        why = "name the folder from the root instead of \"..\""
    else if (path == "fovea.h" && FILENAME !~ /^examples/)
        why = "the library includes what it uses, not everything"
    else if (rank(path) > mine)
        why = "against the arrow tensor <- autograd <- layers <- train <- examples"
    else if (FILENAME ~ /^examples/ && path ~ /internal\.h$/)
        why = "a program that users copy does with the public headers"
    else
        next
    print FILENAME ":" FNR ": include of " path ": " why
}' $library $(printf '%s\n' "$programs" | grep '^examples/') >>"$breaches"

# A file holds one idea.
for file in $library $programs fovea.h; do
    lines=$(wc -l <"$file")
    [ "$lines" -le 600 ] || echo "$file:601: $lines lines, the ceiling is 600" >>"$breaches"
done

# Layout.
if command -v clang-format >/dev/null; then
    clang-format --dry-run -Werror $library $programs fovea.h 2>&1 |
        awk -F: '/ error: / && !seen[$1]++ { print $1 ":" $2 ": layout differs, run make format" }' >>"$breaches"
else
    echo 'tools/lint.sh:1: layout was not checked, clang-format is missing: apt install clang-format' >>"$breaches"
fi

# Public headers: a block of declarations (no blank line inside) opens with a comment, or each of its
# declarations up to the first commented one has its own.
awk '
FNR == 1 { comment = depth = covered = start = 0 }
{
    line = $0
    had = comment || line ~ /\/\*/       # this line shows some comment
    code = ""
    while (line != "") {                 # keep what stands outside comments
        if (comment) {
            at = index(line, "*/")
            line = at ? substr(line, at + 2) : ""
            if (at) comment = 0
        } else {
            at = index(line, "/*")
            code = code (at ? substr(line, 1, at - 1) : line)
            line = at ? substr(line, at + 2) : ""
            if (at) comment = 1
        }
    }
    gsub(/^[ \t]+|[ \t]+$/, "", code)
    if (code ~ /^extern "C" \{$/ || (code == "}" && depth == 0))
        next
    if (!start && $0 == "")
        covered = continued = 0
    if (had && $0 !~ /^\/\* ----/)
        covered = 1
    if (code == "" || (!start && !continued && code ~ /^#/ && code !~ /^#[ \t]*define/))
        next
    if (continued) {
        continued = code ~ /\\$/
        next
    }
    if (!start && code ~ /^#/) {
        continued = code ~ /\\$/
        if (!covered && code !~ /^#[ \t]*define [A-Z]+_H$/)
            print FILENAME ":" FNR ": public macro without a comment: " code
        next
    }
    if (!start) {
        start = FNR
        first = code
    }
    depth += gsub(/\{/, "{", code) - gsub(/\}/, "}", code)
    if (depth == 0 && code ~ /;$/) {
        if (!covered)
            print FILENAME ":" start ": public declaration without a comment: " first
        start = 0
    }
}' $headers >>"$breaches"

# The library never ends the program nor writes to the standard streams.
awk '
FNR == 1 { comment = 0 }
{
    line = $0
    gsub(/"(\\.|[^"\\])*"/, "\"\"", line)
    code = ""
    while (line != "") {
        at = index(line, comment ? "*/" : "/*")
        if (!comment) code = code (at ? substr(line, 1, at - 1) : line)
        if (!at) break
        line = substr(line, at + 2)
        comment = !comment
    }
    sub(/\/\/.*/, "", code)
    if (match(code, /(^|[^A-Za-z0-9_])(abort|exit|_exit|_Exit|quick_exit|printf|vprintf|puts|putchar|perror|assert)[ \t]*\(/)) {
        call = substr(code, RSTART, RLENGTH)
        gsub(/[^A-Za-z_]/, "", call)
        print FILENAME ":" FNR ": " call ": the library returns errors, it neither exits nor prints"
    }
}' $library >>"$breaches"

# What is read off the op table is as the table says.
tools/list_ops.sh | cmp -s - docs/ops.md || echo 'docs/ops.md:1: is stale, run make ops-doc' >>"$breaches"

# All texts.
grep -nHE '[ 	]+$' $existing | sed -E 's/^([^:]+:[0-9]+):.*/\1: white space at the end of the line/' >>"$breaches"
grep -nHE '(TO[D]O|FI[X]ME)' $existing |
    sed -E 's/^([^:]+:[0-9]+):.*/\1: unfinished business: do it, or open an issue/' >>"$breaches"
grep -nHE '(^|[^A-Za-z0-9_.$)}/~-])/(home|root|work|opt|srv|mnt|Users)/[A-Za-z0-9]' $existing |
    sed -E 's/^([^:]+:[0-9]+):.*/\1: path of one machine/' >>"$breaches"

if [ -s "$breaches" ]; then
    sort -t: -k1,1 -k2,2n "$breaches"
    echo "lint: $(wc -l <"$breaches") breaches" >&2
    exit 1
fi
echo "lint: $(echo $library $programs | wc -w) source files are clean"
