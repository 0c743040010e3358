/* The .npy format (numpy, NEP 1): a magic number, a header that is a Python dictionary, the numbers.
 *
 *   \x93NUMPY 1 0, length of the header (2 bytes), {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 *   padded by spaces and a line feed to a multiple of 64 bytes, then the numbers, the last axis fastest. */
#include "train/files/npz.h"

#include <math.h>
#include <string.h>

enum {
    MAGIC = 8,  /* bytes of the magic number and version */
    PREFIX = 10 /* those and the header's length */
};
static const char magic[MAGIC + 1] = "\x93NUMPY\1"; /* its final NUL is the minor version */

/* ---- reading --------------------------------------------------------------------------------------- */

/* The rest of the header's text. */
typedef struct {
    const char *at, *end;
} cursor;

/* Skips spaces and then that text; false (and stays) when something else stands there. */
static bool take(cursor *c, const char *text)
{
    const size_t length = strlen(text);
    const char *at = c->at;
    while (at < c->end && *at == ' ')
        at++;
    if ((size_t)(c->end - at) < length || memcmp(at, text, length) != 0)
        return false;
    c->at = at + length;
    return true;
}

/* A size in decimal, without sign or leading zeros. */
static bool take_size(cursor *c, size_t *size)
{
    take(c, "");
    const char *from = c->at;
    *size = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
        if (!fvi_mul(*size, 10, size) || !fvi_add(*size, (size_t)(*c->at - '0'), size))
            return false;
    return c->at > from && (*from != '0' || c->at == from + 1);
}

/* '<f4' and its like, or '|S' and a length, with the quotes. */
static bool take_type(cursor *c, fvi_npy *npy)
{
    static const char *const types[] = {"'<f2'", "'<f4'", "'<f8'", "'|b1'", "'|i1'", "'<i2'",
                                        "'<i4'", "'<i8'", "'|u1'", "'<u2'", "'<u4'", "'<u8'"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (take(c, types[i])) {
            npy->kind = types[i][2];
            npy->width = (size_t)(types[i][3] - '0');
            return true;
        }
    npy->kind = 'S';
    return take(c, "'|S") && take_size(c, &npy->width) && take(c, "'");
}

/* (), (3,) or (3, 4). */
static bool take_shape(cursor *c, fv_shape *shape)
{
    bool comma = true;
    if (!take(c, "("))
        return false;
    while (!take(c, ")")) {
        if (!comma || shape->rank == FV_MAX_RANK || !take_size(c, &shape->size[shape->rank]))
            return false;
        shape->rank++;
        comma = take(c, ",");
    }
    return shape->rank != 1 || comma;
}

/* How many elements, and their bytes; false on overflow. An axis of size 0 makes it 0, however long others are. */
static bool count_elements(fvi_npy *npy, size_t *bytes)
{
    npy->count = 1;
    for (int i = 0; i < npy->shape.rank; i++)
        if (npy->shape.size[i] == 0)
            npy->count = 0;
    for (int i = 0; i < npy->shape.rank && npy->count > 0; i++)
        if (!fvi_mul(npy->count, npy->shape.size[i], &npy->count))
            return false;
    return fvi_mul(npy->count, npy->width, bytes);
}

bool fvi_npy_parse(fvi_npy *npy, const char *path, const char *name, const unsigned char *bytes,
                   size_t length, fv_error *error)
{
    const char *why;
    size_t header = 0, needed = 0;
    *npy = (fvi_npy){0};
    cursor c = {0};
    if (length >= PREFIX) {
        header = (size_t)fvi_get(bytes + MAGIC, 2);
        c.at = (const char *)bytes + PREFIX;
    }
    if (length < PREFIX || memcmp(bytes, magic, MAGIC) != 0)
        why = "not an .npy array of version 1.0";
    else if (header > length - PREFIX)
        why = "the header of the array is cut short";
    else if (c.end = c.at + header, !take(&c, "{") || !take(&c, "'descr'") || !take(&c, ":"))
        why = "the header of the array does not start with {'descr': ";
    else if (!take_type(&c, npy))
        why = "the type of the array is not a little-endian number such as '<f4', or '|S'";
    else if (!take(&c, ",") || !take(&c, "'fortran_order'") || !take(&c, ":"))
        why = "the header of the array has no 'fortran_order' behind its type";
    else if (!take(&c, "False"))
        why = "the array is not in C order (save it with numpy.ascontiguousarray)";
    else if (!take(&c, ",") || !take(&c, "'shape'") || !take(&c, ":") ||
             !take_shape(&c, &npy->shape))
        why = "the header of the array has no shape of at most six sizes";
    else if (take(&c, ","), !take(&c, "}") || !take(&c, "\n") || c.at != c.end)
        why = "the header of the array does not end with } and a line feed";
    else if (!count_elements(npy, &needed))
        why = "the shape of the array is longer than any memory";
    else if (needed != length - PREFIX - header) {
        char text[160];
        return fv_fail(error, FV_CHECKPOINT, "%s: %s: %zu bytes of numbers, shape %s needs %zu",
                       path, name, length - PREFIX - header, fv_shape_text(npy->shape, text),
                       needed);
    } else {
        npy->data = bytes + PREFIX + header;
        return true;
    }
    return fv_fail(error, FV_CHECKPOINT, "%s: %s: %s", path, name, why);
}

/* A half: a sign, 5 bits of exponent, 10 of fraction (IEEE 754). */
static double from_half(uint64_t bits)
{
    const int exponent = (int)(bits >> 10 & 31), fraction = (int)(bits & 1023);
    double x;
    if (exponent == 31)
        x = fraction == 0 ? (double)INFINITY : (double)NAN;
    else if (exponent == 0)
        x = ldexp(fraction, -24);
    else
        x = ldexp(fraction + 1024, exponent - 25);
    return bits >> 15 ? -x : x;
}

static double from_bits(char kind, size_t width, uint64_t bits)
{
    if (kind == 'f' && width == 2)
        return from_half(bits);
    if (kind == 'f' && width == 4) {
        const uint32_t half = (uint32_t)bits;
        float x;
        memcpy(&x, &half, sizeof x);
        return x;
    }
    if (kind == 'f') {
        double x;
        memcpy(&x, &bits, sizeof x);
        return x;
    }
    const uint64_t sign = kind == 'i' ? (uint64_t)1 << (8 * width - 1) : 0;
    return bits & sign ? -(double)((~bits & (sign - 1)) + 1) : (double)bits;
}

void fvi_npy_copy(const fvi_npy *npy, fv_real *out)
{
    for (size_t i = 0; i < npy->count; i++)
        out[i] = (fv_real)from_bits(npy->kind, npy->width,
                                    fvi_get(npy->data + i * npy->width, (int)npy->width));
}

/* ---- writing --------------------------------------------------------------------------------------- */

#if defined(FV_F64) || defined(FV_COMPLEX)
#define REAL_TYPE "<f8"
typedef double stored;
typedef uint64_t stored_bits;
#else
#define REAL_TYPE "<f4"
typedef float stored;
typedef uint32_t stored_bits;
#endif

/* The header, and room for data bytes behind it. */
static bool put_header(fvi_bytes *bytes, const char *type, fv_shape shape, size_t data)
{
    enum { ALIGN = 64 };
    char text[256];
    size_t room;
    int at =
        snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (", type);
    for (int i = 0; i < shape.rank; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%zu%s", i > 0 ? " " : "",
                       shape.size[i], i + 1 < shape.rank || shape.rank == 1 ? "," : "");
    at += snprintf(text + at, sizeof text - (size_t)at, "), }");
    const size_t used = PREFIX + (size_t)at + 1, whole = (used + ALIGN - 1) / ALIGN * ALIGN;
    if (!fvi_add(whole, data, &room) || !fvi_bytes_reserve(bytes, room))
        return false;
    memcpy(bytes->at + bytes->length, magic, MAGIC);
    bytes->length += MAGIC;
    fvi_put(bytes, whole - PREFIX, 2);
    memcpy(bytes->at + bytes->length, text, (size_t)at);
    memset(bytes->at + bytes->length + at, ' ', whole - used);
    bytes->length += whole - PREFIX;
    bytes->at[bytes->length - 1] = '\n';
    return true;
}

bool fvi_npy_write(fvi_bytes *bytes, fv_tensor x)
{
    const size_t count = fv_shape_count(x.shape);
    size_t size;
    if (!fvi_mul(count, sizeof(stored), &size) || !put_header(bytes, REAL_TYPE, x.shape, size))
        return false;
    for (size_t i = 0; i < count; i++) {
        const stored number = (stored)fv_re(x.data[i]);
        stored_bits bits;
        memcpy(&bits, &number, sizeof bits);
        fvi_put(bytes, bits, sizeof bits);
    }
    return true;
}

bool fvi_npy_write_u64(fvi_bytes *bytes, uint64_t value)
{
    if (!put_header(bytes, "<u8", FV_SCALAR, sizeof value))
        return false;
    fvi_put(bytes, value, sizeof value);
    return true;
}
