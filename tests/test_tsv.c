/* Labelled texts: what is read, what is refused and in which words. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory.h"
#include "train/internal.h"

static fv_tsv *parse_good(const char *text, char separator)
{
    fv_error error = {0};
    fv_tsv *file = fv_tsv_parse("t.tsv", text, strlen(text), separator, &error);
    cr_assert_not_null(file, "%s", error.text);
    return file;
}

static void expect_sample(const fv_tsv *file, size_t sample, const char *label, const char *text,
                          size_t line)
{
    cr_expect_str_eq(file->label[sample], label);
    cr_expect_str_eq(file->text[sample], text);
    cr_expect_eq(file->lines[sample], line);
}

Test(tsv, reads_labels_and_texts)
{
    fv_tsv *file = parse_good("pos\ta fine \"film\"\nneg\t\n0\t a\tb \nx\tl\xc3\xb6ng", 0);
    cr_assert_eq(file->samples, 4);
    cr_expect_str_eq(file->path, "t.tsv");
    expect_sample(file, 0, "pos", "a fine \"film\"", 1);
    expect_sample(file, 1, "neg", "", 2);
    expect_sample(file, 2, "0", " a\tb ", 3);
    expect_sample(file, 3, "x", "l\xc3\xb6ng", 4);
    fv_tsv_free(file);
    fv_tsv_free(NULL);
}

Test(tsv, other_separators_line_ends_and_mark)
{
    fv_tsv *file = parse_good("\xef\xbb\xbf"
                              "1 a b\r\n0 c\r",
                              ' ');
    cr_assert_eq(file->samples, 2);
    expect_sample(file, 0, "1", "a b", 1);
    expect_sample(file, 1, "0", "c", 2);
    fv_tsv_free(file);
    file = parse_good("", ',');
    cr_expect_eq(file->samples, 0);
    fv_tsv_free(file);
    cr_expect_not_null(file = fv_tsv_parse("t.tsv", NULL, 0, 0, NULL));
    fv_tsv_free(file);
}

static void expect_error(const char *text, size_t length, char separator, fv_status status,
                         const char *message)
{
    fv_error error = {0};
    fv_tsv *file = fv_tsv_parse("t.tsv", text, length, separator, &error);
    cr_expect_null(file);
    cr_expect_eq(error.status, status);
    cr_expect_str_eq(error.text, message);
    fv_tsv_free(file);
}

Test(tsv, refuses_malformed_lines)
{
    static const char *const cases[][2] = {
        {"a\tb\n\nc\td\n", "t.tsv:2:1: an empty line, expected label, a tab, text"},
        {"a\tb\n\r\n", "t.tsv:2:1: an empty line, expected label, a tab, text"},
        {"a b\n", "t.tsv:1:1: no separator, expected label, a tab, text"},
        {"a\tb\n\tc\n", "t.tsv:2:1: an empty label, expected label, a tab, text"},
        {"a\tb\nc\tcaf\xe9 noir\n", "t.tsv:2:6: byte 0xe9 is not UTF-8, expected UTF-8 text"},
        {"a\t\x85\n", "t.tsv:1:3: byte 0x85 is not UTF-8, expected UTF-8 text"},
        {"a\tb\rc\td\r", "t.tsv:1:4: a carriage return inside the line, expected LF or CRLF ends"},
        {"<html>\n", "t.tsv:1:1: a web page (HTML), expected label, a tab, text"},
        {"version https://git-lfs.github.com/spec/v1\n",
         "t.tsv:1:1: a Git LFS pointer in place of the file (git lfs pull fetches it), expected "
         "label, a tab, text"},
        {"\x1f\x8b\x08", "t.tsv:1:2: a file compressed by gzip, expected UTF-8 text"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_error(cases[i][0], strlen(cases[i][0]), 0, FV_DATA, cases[i][1]);
    expect_error("a\tb\0c\n", 6, 0, FV_DATA, "t.tsv:1:4: a NUL byte, expected UTF-8 text");
    expect_error("ab\n", 3, ' ', FV_DATA, "t.tsv:1:1: no separator, expected label, a space, text");
    expect_error(";b\n", 3, ';', FV_DATA, "t.tsv:1:1: an empty label, expected label, \";\", text");
}

Test(tsv, refuses_impossible_separators)
{
    expect_error("", 0, '\n', FV_USAGE,
                 "separator 0x0a: expected one ASCII character, no line end");
    expect_error("", 0, '\r', FV_USAGE,
                 "separator 0x0d: expected one ASCII character, no line end");
    expect_error("", 0, '\xc3', FV_USAGE,
                 "separator 0xc3: expected one ASCII character, no line end");
    fv_error error = {0};
    cr_expect_null(fv_tsv_read("there is no such file", '\n', &error));
    cr_expect_eq(error.status, FV_USAGE);
}

Test(tsv, reads_files)
{
    char path[] = "tsv-XXXXXX";
    fv_error error = {0};
    int file = mkstemp(path);
    cr_assert_geq(file, 0);
    cr_assert_eq(write(file, "1\ta\n0\tb\n", 8), 8);
    close(file);
    fv_tsv *read = fv_tsv_read(path, 0, &error);
    remove(path);
    cr_assert_not_null(read, "%s", error.text);
    cr_expect_eq(read->samples, 2);
    expect_sample(read, 1, "0", "b", 2);
    fv_tsv_free(read);
    cr_expect_null(fv_tsv_read(path, 0, &error));
    cr_expect_eq(error.status, FV_DATA);
}

Test(tsv, out_of_memory)
{
    char text[1000] = "";
    for (int i = 0; i < 40; i++)
        strcat(text, "label\tand text\n");
    const size_t blocks = test_blocks();
    fv_tsv *file = NULL;
    size_t n = 0;
    while (file == NULL && n < 1000) {
        fv_error error = {0};
        test_fail_after(++n);
        file = fv_tsv_parse("t.tsv", text, strlen(text), 0, &error);
        test_fail_after(0);
        if (file == NULL) {
            cr_expect_eq(error.status, FV_FAILED);
            cr_expect(strncmp(error.text, "t.tsv: out of memory", 20) == 0, "%s", error.text);
            cr_expect_eq(test_blocks(), blocks, "a failing request %zu leaks", n);
        }
    }
    cr_expect_gt(n, 6);
    cr_assert_not_null(file);
    cr_expect_eq(file->samples, 40);
    fv_tsv_free(file);
    cr_expect_eq(test_blocks(), blocks);
}

/* Sentence sets of the shared data: those in UTF-8 are read whole, Latin-1 is refused. */
Test(tsv, sentence_sets)
{
    static const struct {
        const char *name;
        size_t samples; /* 0: not UTF-8 */
    } sets[] = {{"stsa.binary.train", 6920},
                {"stsa.fine.test", 2210},
                {"TREC.test.all", 500},
                {"rt-polarity.all", 0},
                {"subj.all", 0}};
    const char *root = getenv("FOVEA_SHARED");
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        char path[1000];
        fv_error error = {0};
        snprintf(path, sizeof path, "%s/data/sentence-classification/%s", root ? root : "../shared",
                 sets[i].name);
        if (access(path, R_OK) != 0)
            cr_skip_test("%s is not there", path);
        fv_tsv *file = fv_tsv_read(path, ' ', &error);
        if (sets[i].samples == 0) {
            cr_expect_null(file);
            cr_expect_not_null(strstr(error.text, " is not UTF-8"), "%s", error.text);
        } else {
            cr_assert_not_null(file, "%s", error.text);
            cr_expect_eq(file->samples, sets[i].samples);
        }
        fv_tsv_free(file);
    }
}
