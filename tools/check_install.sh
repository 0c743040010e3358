#!/bin/sh
# Installs into a folder of its own and builds a program against it as a user would: shared and static,
# float, double and complex, by pkg-config where there is one. Arguments: make, build folder.
set -eu
make=$1 build=$2 root=$PWD/$2/installed
rm -rf "$root"
$make BUILD="$build" PREFIX="$root" install
cat >"$root/program.c" <<'END'
#include <fovea/fovea.h>
#include <fovea/autograd/op.h>

int main(void)
{
    fv_params *params = fv_params_new(1);
    fv_linear layer = fv_linear_init(fv_root(params), 3, 2, NULL);
    fv_tape *tape = fv_tape_new(NULL);
    const fv_real numbers[] = {1, 2, 3};
    fv_tape_begin(tape, FV_TRAIN, 1, 1);
    fv_var *x = fv_constant(tape, FV_SHAPE(1, 3), numbers);
    bool ok = fv_backward(tape, fv_sum(tape, fv_linear_forward(tape, &layer, x), NULL));
    fv_tape_free(tape);
    fv_params_free(params);
    puts(ok ? FV_BUILD : "failed");
    return !ok;
}
END
for pair in fovea= fovea64=-DFV_F64 foveac=-DFV_COMPLEX; do
    lib=${pair%%=*} define=${pair#*=} depends='-lz -ljansson -lutf8proc -lm -fopenmp'
    if command -v pkg-config >/dev/null; then
        export PKG_CONFIG_PATH="$root/lib/pkgconfig"
        define=$(pkg-config --cflags "$lib")
        depends=$(pkg-config --static --libs-only-l --libs-only-other "$lib" | sed "s/-l$lib //")
    fi
    ${CC:-cc} -std=c11 -Wall -Wextra -Werror -I"$root/include" $define "$root/program.c" \
        -L"$root/lib" -l"$lib" -Wl,-rpath,"$root/lib" -o "$root/shared-$lib"
    ${CC:-cc} -std=c11 -Wall -Wextra -Werror -I"$root/include" $define "$root/program.c" \
        "$root/lib/lib$lib.a" $depends -o "$root/static-$lib"
    "$root/shared-$lib" && "$root/static-$lib"
    other=$(nm -D --defined-only "$root/lib/lib$lib.so" | awk '$3 !~ /^fv_/ {print $3}')
    [ -z "$other" ] || { echo "lib$lib.so shows more than fv_ names: $other" >&2; exit 1; }
done
# A program of one number type must not link with a library of another.
if ${CC:-cc} -I"$root/include" "$root/program.c" -L"$root/lib" -lfovea64 -o "$root/mixed" 2>/dev/null; then
    echo 'a float program linked with the double library' >&2
    exit 1
fi
left=$($make BUILD="$build" PREFIX="$root" uninstall && find "$root" -type f -path '*fovea*' | grep -E 'include|/lib/|/bin/' || true)
[ -z "$left" ] || { echo "uninstall left $left" >&2; exit 1; }
echo 'the installed library works, shared and static, in all three builds'
