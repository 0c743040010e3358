/* Zip archives and npy arrays: exact bytes, round trips, and what a damaged or hostile file is told. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>
#include <zlib.h>

#include "memory.h"
#include "train/files/npz.h"

#if defined(FV_F64) || defined(FV_COMPLEX)
#define REAL_TYPE "<f8"
enum { REAL_SIZE = 8 };
#else
#define REAL_TYPE "<f4"
enum { REAL_SIZE = 4 };
#endif

static void refused(const fv_error *error, fv_status status, const char *text)
{
    cr_assert_eq(error->status, status, "%s", error->text);
    cr_assert_str_eq(error->text, text);
}

/* ---- npy ----------------------------------------------------------------------------------------------- */

Test(npy, exact_bytes)
{
    fv_real numbers[6] = {0, 1, -2, (fv_real)0.5, 4, -8};
    fvi_bytes b = {0};
    char header[129];
    cr_assert(fvi_npy_write(&b, (fv_tensor){FV_SHAPE(2, 3), numbers}));
    snprintf(header, sizeof header,
             "\x93NUMPY\1%c\x76%c{'descr': '" REAL_TYPE
             "', 'fortran_order': False, 'shape': (2, 3), }%*s\n",
             0, 0, 58, "");
    cr_assert_eq(b.length, 128 + 6 * REAL_SIZE);
    cr_assert_arr_eq(b.at, header, 128);
    cr_assert_eq(fvi_get(b.at + 128 + 3 * REAL_SIZE, REAL_SIZE),
                 REAL_SIZE == 4 ? 0x3f000000 : 0x3fe0000000000000, "0.5");
    b.length = 0;
    cr_assert(fvi_npy_write_u64(&b, 0x0102030405060708));
    cr_assert_eq(b.length, 136);
    cr_assert_arr_eq(b.at + 128, "\x08\x07\x06\x05\x04\x03\x02\x01", 8);
    fvi_bytes_free(&b);
}

static void round_trip(fv_shape shape)
{
    static fv_real in[70000], out[70000];
    const size_t count = fv_shape_count(shape);
    fvi_bytes b = {0};
    fvi_npy npy;
    fv_error error = {0};
    for (size_t i = 0; i < count; i++) {
        in[i] = (fv_real)((double)i * 0.37 - 3);
        out[i] = 0;
    }
    cr_assert(fvi_npy_write(&b, (fv_tensor){shape, in}));
    cr_assert_eq((b.length - count * REAL_SIZE) % 64, 0, "numbers start at a multiple of 64");
    cr_assert(fvi_npy_parse(&npy, "file", "x", b.at, b.length, &error), "%s", error.text);
    cr_assert(fv_shape_equal(npy.shape, shape));
    cr_assert_eq(npy.count, count);
    fvi_npy_copy(&npy, out);
    cr_assert_arr_eq(in, out, count * sizeof *in);
    for (size_t cut = 0; cut < 200 && cut < b.length; cut++)
        cr_assert_not(fvi_npy_parse(&npy, "file", "x", b.at, b.length - cut - 1, NULL));
    fvi_bytes_free(&b);
}

Test(npy, every_rank_and_size)
{
    static const size_t sizes[] = {0, 1, 2, 5};
    round_trip(FV_SCALAR);
    round_trip(FV_SHAPE(70000));
    round_trip(FV_SHAPE(10, 7000));
    for (int rank = 1; rank <= FV_MAX_RANK; rank++)
        for (size_t code = 0; code < (size_t)1 << 2 * rank; code++) {
            fv_shape shape = {.rank = rank};
            for (int i = 0; i < rank; i++)
                shape.size[i] = sizes[code >> 2 * i & 3];
            round_trip(shape);
        }
}

/* Parses a header of that text, with so many bytes of numbers behind it. */
static bool parse(const char *text, size_t bytes, fvi_npy *npy, fv_error *error)
{
    static unsigned char file[1000];
    const size_t length = strlen(text);
    *error = (fv_error){0};
    memcpy(file, "\x93NUMPY\1\0", 8);
    file[8] = (unsigned char)length;
    file[9] = (unsigned char)(length >> 8);
    memcpy(file + 10, text, length);
    return fvi_npy_parse(npy, "file", "x", file, 10 + length + bytes, error);
}

#define REST ", 'fortran_order': False, 'shape': "

Test(npy, headers_that_are_taken)
{
    fvi_npy npy;
    fv_error error;
    cr_assert(parse("{'descr': '<f4'" REST "(), }\n", 4, &npy, &error), "%s", error.text);
    cr_assert_eq(npy.shape.rank, 0);
    cr_assert_eq(npy.count, 1);
    cr_assert(parse("{'descr':'<f8','fortran_order':False,'shape':(3,)}\n", 24, &npy, &error));
    cr_assert(fv_shape_equal(npy.shape, FV_SHAPE(3)));
    cr_assert(parse("{ 'descr' : '<u8' , 'fortran_order' : False , 'shape' : ( 1 , 2 , ) , }   \n",
                    16, &npy, &error));
    cr_assert(fv_shape_equal(npy.shape, FV_SHAPE(1, 2)));
    cr_assert_eq(npy.kind, 'u');
    cr_assert(parse("{'descr': '|S12'" REST "(), }\n", 12, &npy, &error));
    cr_assert_eq(npy.kind, 'S');
    cr_assert_eq(npy.width, 12);
    cr_assert(parse("{'descr': '<f4'" REST "(9999999999, 9999999999, 0, 7), }\n", 0, &npy, &error));
    cr_assert_eq(npy.count, 0, "empty, however long the other axes");
}

Test(npy, numbers_of_every_type)
{
    static const struct {
        const char *type;
        size_t width;
        uint64_t bits;
        double number;
    } cases[] = {{"<f2", 2, 0x3c00, 1},
                 {"<f2", 2, 0xc100, -2.5},
                 {"<f2", 2, 0x7bff, 65504},
                 {"<f2", 2, 0x8001, -0x1p-24},
                 {"<f2", 2, 0xfc00, -INFINITY},
                 {"<f4", 4, 0x3fc00000, 1.5},
                 {"<f8", 8, 0x4008000000000000, 3},
                 {"|b1", 1, 1, 1},
                 {"|i1", 1, 0x80, -128},
                 {"<i2", 2, 0xffff, -1},
                 {"<i4", 4, 0x7fffffff, 2147483647},
                 {"<i8", 8, 0xfffffffffffffffe, -2},
                 {"<i8", 8, 0x8000000000000000, -0x1p63},
                 {"|u1", 1, 0xff, 255},
                 {"<u2", 2, 0xffff, 65535},
                 {"<u4", 4, 0xffffffff, 4294967295},
                 {"<u8", 8, 0x8000000000000000, 0x1p63}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char header[100];
        unsigned char bits[8];
        fv_real got = 0;
        fvi_npy npy;
        fv_error error;
        snprintf(header, sizeof header, "{'descr': '%s'" REST "(), }\n", cases[i].type);
        cr_assert(parse(header, cases[i].width, &npy, &error), "%s", error.text);
        cr_assert_eq(npy.kind, cases[i].type[1]);
        for (size_t k = 0; k < sizeof bits; k++)
            bits[k] = (unsigned char)(cases[i].bits >> 8 * k);
        npy.data = bits;
        fvi_npy_copy(&npy, &got);
        cr_expect_eq(fv_re(got), (double)(fv_real)cases[i].number, "%s", header);
    }
    const unsigned char nan[] = {1, 0xfc};
    fv_real got = 0;
    fvi_npy_copy(&(fvi_npy){.count = 1, .kind = 'f', .width = 2, .data = nan}, &got);
    cr_expect(isnan(fv_re(got)));
}

Test(npy, headers_that_are_refused)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "the header of the array does not start with {'descr': "},
        {"{'shape': (3,)}\n", "the header of the array does not start with {'descr': "},
        {"{'descr': '>f4'" REST "(), }\n",
         "the type of the array is not a little-endian number such as '<f4', or '|S'"},
        {"{'descr': '|O'" REST "(), }\n",
         "the type of the array is not a little-endian number such as '<f4', or '|S'"},
        {"{'descr': [('a', '<f4')]" REST "(), }\n",
         "the type of the array is not a little-endian number such as '<f4', or '|S'"},
        {"{'descr': '|S99999999999999999999'" REST "(), }\n",
         "the type of the array is not a little-endian number such as '<f4', or '|S'"},
        {"{'descr': '<f4', 'shape': (3,)}\n",
         "the header of the array has no 'fortran_order' behind its type"},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }\n",
         "the array is not in C order (save it with numpy.ascontiguousarray)"},
        {"{'descr': '<f4'" REST "(3), }\n",
         "the header of the array has no shape of at most six sizes"},
        {"{'descr': '<f4'" REST "(1, 1, 1, 1, 1, 1, 1), }\n",
         "the header of the array has no shape of at most six sizes"},
        {"{'descr': '<f4'" REST "(-1,), }\n",
         "the header of the array has no shape of at most six sizes"},
        {"{'descr': '<f4'" REST "(03,), }\n",
         "the header of the array has no shape of at most six sizes"},
        {"{'descr': '<f4'" REST "(,), }\n",
         "the header of the array has no shape of at most six sizes"},
        {"{'descr': '<f4'" REST "(99999999999999999999,), }\n",
         "the header of the array has no shape of at most six sizes"},
        {"{'descr': '<f4'" REST "(3", "the header of the array has no shape of at most six sizes"},
        {"{'descr': '<f4'" REST "(3,), 'more': 1}\n",
         "the header of the array does not end with } and a line feed"},
        {"{'descr': '<f4'" REST "(3,), }",
         "the header of the array does not end with } and a line feed"},
        {"{'descr': '<f4'" REST "(3,), }\n\n",
         "the header of the array does not end with } and a line feed"},
        {"{'descr': '<f4'" REST "(4294967296, 4294967296), }\n",
         "the shape of the array is longer than any memory"},
        {"{'descr': '<f8'" REST "(4294967296, 1073741824), }\n",
         "the shape of the array is longer than any memory"},
        {"{'descr': '<f4'" REST "(3,), }\n", "8 bytes of numbers, shape [3] needs 12"},
        {"{'descr': '<f4'" REST "(1,), }\n", "8 bytes of numbers, shape [1] needs 4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char expected[200];
        fvi_npy npy;
        fv_error error;
        snprintf(expected, sizeof expected, "file: x: %s", cases[i].why);
        cr_assert_not(parse(cases[i].text, 8, &npy, &error), "%s", cases[i].text);
        refused(&error, FV_CHECKPOINT, expected);
    }
    fvi_npy npy;
    fv_error error = {0};
    cr_assert_not(
        fvi_npy_parse(&npy, "file", "x", (const unsigned char *)"\x93NUMPY\2\0\0\0", 10, &error));
    refused(&error, FV_CHECKPOINT, "file: x: not an .npy array of version 1.0");
    error = (fv_error){0};
    cr_assert_not(
        fvi_npy_parse(&npy, "file", "x", (const unsigned char *)"\x93NUMPY\1\0\1\0", 10, &error));
    refused(&error, FV_CHECKPOINT, "file: x: the header of the array is cut short");
}

/* ---- zip ----------------------------------------------------------------------------------------------- */

/* Two members: text that deflate shortens, and a few bytes that it does not. */
static const char text[] = "attention attention attention attention attention";
static const char few[] = "few";

static fvi_zip_writer two_members(fv_error *error)
{
    fvi_zip_writer w = {.path = "file", .error = error};
    if (fvi_zip_add(&w, "b/text", text, strlen(text), FVI_TEXT) &&
        fvi_zip_add(&w, "a", few, strlen(few), FVI_NUMBERS) && fvi_zip_end(&w))
        return w;
    fvi_zip_writer_free(&w);
    return w;
}

Test(zip, round_trip)
{
    fv_error error = {0};
    fvi_zip_writer w = two_members(&error), again = two_members(&error);
    unsigned char out[100];
    fvi_zip zip;
    cr_assert_eq(w.file.length, again.file.length);
    cr_assert_arr_eq(w.file.at, again.file.at, w.file.length);
    cr_assert(fvi_zip_parse(&zip, "file", w.file.at, w.file.length, &error), "%s", error.text);
    cr_assert_eq(zip.count, 2);
    cr_assert_str_eq(zip.members[0].name, "a");
    cr_assert_str_eq(zip.members[1].name, "b/text");
    cr_assert_not(zip.members[0].deflated);
    cr_assert(zip.members[1].deflated);
    cr_assert_eq(zip.members[0].length, strlen(few));
    cr_assert_eq(zip.members[1].length, strlen(text));
    cr_assert(fvi_zip_unpack(&zip, &zip.members[0], out, &error));
    cr_assert_arr_eq(out, few, strlen(few));
    cr_assert(fvi_zip_unpack(&zip, &zip.members[1], out, &error));
    cr_assert_arr_eq(out, text, strlen(text));
    cr_assert(fvi_zip_check_whole(&zip, &error));
    fvi_zip_free(&zip);
    fvi_zip_writer_free(&w);
    fvi_zip_writer_free(&again);
}

Test(zip, empty)
{
    fv_error error = {0};
    fvi_zip_writer w = {.path = "file", .error = &error};
    fvi_zip zip;
    cr_assert(fvi_zip_end(&w));
    cr_assert(fvi_zip_parse(&zip, "file", w.file.at, w.file.length, &error), "%s", error.text);
    cr_assert_eq(zip.count, 0);
    fvi_zip_free(&zip);
    fvi_zip_writer_free(&w);
    w = (fvi_zip_writer){.path = "file", .error = &error};
    cr_assert(fvi_zip_add(&w, "nothing", NULL, 0, FVI_TEXT) && fvi_zip_end(&w));
    cr_assert(fvi_zip_parse(&zip, "file", w.file.at, w.file.length, &error), "%s", error.text);
    cr_assert(fvi_zip_unpack(&zip, zip.members, NULL, &error), "%s", error.text);
    fvi_zip_free(&zip);
    fvi_zip_writer_free(&w);
}

Test(zip, writer_refuses)
{
    static const char *const names[] = {"",     "/a",  "a/",     "a//b", ".",    "..",
                                        "../a", "a/.", "a/../b", "a\\b", "a\nb", "a\x7f"};
    static const char *const fine[] = {"a", "a/b", "...", "..a", "a..", ".a", "a/..b", "\xc3\xa9"};
    fv_error error = {0};
    fvi_zip_writer w = {.path = "file", .error = &error};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        error = (fv_error){0};
        cr_assert_not(fvi_zip_add(&w, names[i], few, 3, FVI_TEXT), "%s", names[i]);
        cr_assert_eq(error.status, FV_USAGE);
    }
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
        cr_assert(fvi_zip_add(&w, fine[i], few, 3, FVI_TEXT), "%s", fine[i]);
    error = (fv_error){0};
    cr_assert_not(fvi_zip_add(&w, "big", few, (size_t)5 << 30, FVI_TEXT));
    refused(&error, FV_DISK,
            "file: big: 5368709120 bytes more make the file longer than 4294967295 bytes");
    fvi_zip_writer_free(&w);
}

Test(zip, without_memory)
{
    const size_t blocks = test_blocks();
    for (size_t n = 1;; n++) {
        fv_error error = {0};
        unsigned char out[100];
        fvi_zip zip = {0};
        test_fail_after(n);
        fvi_zip_writer w = two_members(&error);
        const bool ok = w.file.at != NULL &&
                        fvi_zip_parse(&zip, "file", w.file.at, w.file.length, &error) &&
                        fvi_zip_unpack(&zip, &zip.members[1], out, &error);
        test_fail_after(0);
        fvi_zip_free(&zip);
        fvi_zip_writer_free(&w);
        cr_assert_eq(test_blocks(), blocks);
        cr_assert_eq(error.status, ok ? FV_OK : FV_FAILED, "%s", error.text);
        if (ok) {
            cr_assert_gt(n, 8);
            return;
        }
        cr_assert_not_null(strstr(error.text, "out of memory"), "%s", error.text);
    }
}

/* ---- zips that are not ours ------------------------------------------------------------------------------
 * The two members again, without the checksum of the whole, so that each field must be caught by its own. */

static unsigned char file[1000];
static size_t length, directory;
enum { LOCAL, ENTRY, END };

static void without_seal(void)
{
    fvi_zip_writer w = two_members(NULL);
    length = w.file.length - FVI_ZIP_SEAL;
    memcpy(file, w.file.at, length);
    memset(file + length - 2, 0, 2);
    directory = (size_t)fvi_get(file + length - 6, 4);
    fvi_zip_writer_free(&w);
}

static void set(size_t where, uint64_t value, int width)
{
    for (int i = 0; i < width; i++)
        file[where + (size_t)i] = (unsigned char)(value >> 8 * i);
}

/* Reads everything; true when all is well. */
static bool read_all(fv_error *error)
{
    unsigned char *out = fvi_calloc(1 << 16, 1);
    fvi_zip zip;
    *error = (fv_error){0};
    bool ok = fvi_zip_parse(&zip, "file", file, length, error);
    for (size_t i = 0; i < zip.count && ok; i++)
        ok = fvi_zip_unpack(&zip, &zip.members[i], out, error);
    ok = ok && fvi_zip_check_whole(&zip, error);
    fvi_zip_free(&zip);
    fvi_free(out);
    return ok;
}

TestSuite(zip_strange, .init = without_seal);

Test(zip_strange, is_read)
{
    fv_error error;
    cr_assert(read_all(&error), "%s", error.text);
}

/* A field of the first member, set alike in its header and in the directory when it stands in both. */
Test(zip_strange, fields)
{
    static const struct {
        int record, at, width;
        uint64_t value;
        const char *why;
    } cases[] = {
        {LOCAL, 0, 4, 0, "file: b/text: its header is damaged"},
        {LOCAL, 2 + 4, 2, 1, "file: b/text: is encrypted"},
        {LOCAL, 2 + 4, 2, 8, "file: b/text: was written as a stream, without sizes in front"},
        {LOCAL, 2 + 4, 2, 0x40, "file: b/text: has flags that are not understood"},
        {LOCAL, 4 + 4, 2, 12, "file: b/text: is packed by another method than deflate"},
        {LOCAL, 4 + 4, 2, 0, "file: b/text: is not packed, but its two sizes differ"},
        {LOCAL, 10 + 4, 4, 1, "file: b/text: checksum differs (damaged file)"},
        {LOCAL, 14 + 4, 4, 400, "file: b/text: announces more bytes than the file has"},
        {LOCAL, 14 + 4, 4, UINT32_MAX,
         "file: b/text: bad extra fields, or longer than what is read"},
        {LOCAL, 18 + 4, 4, 60000,
         "file: b/text: announces more bytes than deflate can make of what is there"},
        {LOCAL, 18 + 4, 4, 48,
         "file: b/text: does not unpack to the size it announces (damaged file)"},
        {LOCAL, 18 + 4, 4, 50,
         "file: b/text: does not unpack to the size it announces (damaged file)"},
        {LOCAL, 30, 1, '/', "file: //text: not a plain relative name"},
        {LOCAL, 30, 2, '/' << 8 | '.', "file: ./text: not a plain relative name"},
        {ENTRY, 0, 4, 0, "file: entry 1 of the zip directory is damaged (no entry starts at byte"},
        {ENTRY, 28, 2, 60000,
         "file: entry 1 of the zip directory is damaged (longer than the directory)"},
        {ENTRY, 32, 2, 60000,
         "file: entry 1 of the zip directory is damaged (longer than the directory)"},
        {ENTRY, 34, 2, 1, "file: b/text: stands on another disk of a split zip"},
        {ENTRY, 42, 4, 1, "file: b/text: does not start where the member before it ends"},
        {ENTRY, 12, 2, 1, "file: b/text: its header and the zip directory differ"},
        {END, 4, 2, 1, "file: the zip's end record does not fit the file"},
        {END, 8, 2, 3, "file: the zip's end record does not fit the file"},
        {END, 8, 4, 3 << 16 | 3, "file: the zip's end record does not fit the file"},
        {END, 8, 4, 1 << 16 | 1, "file: bytes that belong to no member"},
        {END, 8, 4, UINT32_MAX, "file: the zip's end record does not fit the file"},
        {END, 12, 4, 0, "file: the zip's end record does not fit the file"},
        {END, 16, 4, UINT32_MAX, "file: the zip's end record does not fit the file"},
        {END, 20, 2, 1, "file: the zip's end record is missing or damaged"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fv_error error;
        const size_t at = (size_t)cases[i].at;
        without_seal();
        if (cases[i].record == LOCAL) {
            set(at, cases[i].value, cases[i].width);
            if (at >= 4)
                set(directory + (at < 30 ? at + 2 : at + 16), cases[i].value, cases[i].width);
        } else
            set((cases[i].record == ENTRY ? directory : length - 22) + at, cases[i].value,
                cases[i].width);
        cr_assert_not(read_all(&error), "case %zu", i);
        cr_assert_eq(error.status, FV_CHECKPOINT);
        cr_assert_eq(strncmp(error.text, cases[i].why, strlen(cases[i].why)), 0, "case %zu: %s", i,
                     error.text);
    }
}

/* Every field that stands in both records, changed in the first one alone. */
Test(zip_strange, header_and_directory_differ)
{
    for (size_t at = 6; at < 30 + 6; at++) {
        fv_error error;
        if (at >= 27 && at < 30)
            continue; /* a name longer than the file; extra fields, which may differ */
        without_seal();
        file[at] ^= at < 30 ? 1 : 4;
        cr_assert_not(read_all(&error), "byte %zu", at);
        refused(&error, FV_CHECKPOINT, "file: b/text: its header and the zip directory differ");
    }
}

/* One byte more than the deflate stream takes. */
Test(zip_strange, packed_bytes_left_over)
{
    fv_error error;
    const size_t packed = (size_t)fvi_get(file + 18, 4), behind = 30 + 6 + packed;
    memmove(file + behind + 1, file + behind, length - behind);
    file[behind] = 0;
    length++;
    directory++;
    set(18, packed + 1, 4);
    set(directory + 20, packed + 1, 4);
    set(directory + 46 + 6 + 42, behind + 1, 4);
    set(length - 6, directory, 4);
    cr_assert_not(read_all(&error));
    refused(&error, FV_CHECKPOINT,
            "file: b/text: does not unpack to the size it announces (damaged file)");
}

Test(zip_strange, two_members_of_one_name)
{
    fv_error error;
    fvi_zip_writer w = {.path = "file", .error = &error};
    cr_assert(fvi_zip_add(&w, "a", few, 3, FVI_TEXT) && fvi_zip_add(&w, "a", few, 3, FVI_TEXT) &&
              fvi_zip_end(&w));
    length = w.file.length;
    memcpy(file, w.file.at, length);
    fvi_zip_writer_free(&w);
    cr_assert_not(read_all(&error));
    refused(&error, FV_CHECKPOINT, "file: a: two members have this name");
}

Test(zip_strange, no_zip_at_all)
{
    fv_error error;
    length = (size_t)snprintf((char *)file, sizeof file, "%s", "not an archive but a line of text");
    cr_assert_not(read_all(&error));
    refused(&error, FV_CHECKPOINT, "file: not a zip file, expected an .npz");
}

/* Nothing breaks, whatever byte is changed to whatever value. */
Test(zip_strange, every_byte_of_the_records)
{
    for (size_t i = 0; i < length; i++)
        for (int value = 0; value < 256; value += i < directory ? 5 : 1) {
            fv_error error;
            const unsigned char was = file[i];
            file[i] = (unsigned char)value;
            const bool ok = read_all(&error);
            file[i] = was;
            cr_assert(ok || error.status == FV_CHECKPOINT, "%s", error.text);
        }
}
