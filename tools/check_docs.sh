#!/bin/sh
# Compiles every C block of the README and docs/ that includes something. usage: check_docs.sh CC FLAGS..
set -u
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
for page in README.md docs/*.md; do
    awk -v out="$folder/$(basename "$page" .md)" '
        /^```c$/ { n++; inside = 1; next }
        /^```/ { inside = 0 }
        inside { print > (out "-" n ".c") }' "$page"
done
failed=0
for block in "$folder"/*.c; do
    grep -q '^#include' "$block" || continue
    "$@" -fsyntax-only "$block" || { echo "the block $(basename "$block" .c) does not compile" >&2; failed=1; }
done
exit $failed
