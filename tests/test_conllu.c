/* CoNLL-U: what is read, what is refused and in which words, and that writing gives every byte back. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory.h"
#include "train/internal.h"

/* A line of a word with nothing but its id and form. */
#define W(id, form) id "\t" form "\t_\t_\t_\t_\t_\t_\t_\t_\n"

static fv_conllu *parse(const char *text, fv_error *error)
{
    return fv_conllu_parse("t.conllu", text, strlen(text), error);
}

static fv_conllu *parse_good(const char *text)
{
    fv_error error = {0};
    fv_conllu *file = parse(text, &error);
    cr_assert_not_null(file, "%s in\n%s", error.text, text);
    return file;
}

/* Sentences, words, ranges, empty nodes. */
static void expect_counts(const fv_conllu *file, size_t sentences, size_t words, size_t ranges,
                          size_t empty_nodes)
{
    cr_expect_eq(file->sentences, sentences);
    cr_expect_eq(file->words, words);
    cr_expect_eq(file->ranges, ranges);
    cr_expect_eq(file->empty_nodes, empty_nodes);
    cr_expect_eq(file->offsets[0], 0);
    cr_expect_eq(file->offsets[file->sentences], words);
}

/* The whole file as it is written; to be freed. */
static char *written(const fv_conllu *file, size_t *length)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, length);
    for (size_t s = 0; s < file->sentences; s++)
        cr_assert(fv_conllu_write(out, file, s, NULL));
    fclose(out);
    return text;
}

static void expect_written(const char *from, const char *to)
{
    size_t length;
    fv_conllu *file = parse_good(from);
    char *text = written(file, &length);
    cr_expect_str_eq(text, to);
    free(text);
    fv_conllu_free(file);
}

static void expect_error(const char *text, size_t length, const char *message)
{
    fv_error error = {0};
    fv_conllu *file = fv_conllu_parse("t.conllu", text, length, &error);
    cr_expect_null(file, "taken: %s", text);
    cr_expect_eq(error.status, FV_DATA);
    cr_expect_str_eq(error.text, message);
    fv_conllu_free(file);
}

static const char sample[] = "# sent_id = 1\n"
                             "# text = Don't go\n"
                             "0.1\t_\t_\t_\t_\t_\t_\t_\t0:root\tCopyOf=2\n"
                             "1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No\n"
                             "1\tDo\tdo\tAUX\tVB\tMood=Imp\t3\taux\t_\t_\n"
                             "2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\tA=b c\n"
                             "2.1\t_\t_\t_\t_\t_\t_\t_\t_\t_\n"
                             "2.2\t_\t_\t_\t_\t_\t_\t_\t_\t_\n"
                             "3\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_\n"
                             "3.1\tthere\t_\t_\t_\t_\t_\t_\t_\t_\n"
                             "\n"
                             "#\n"
                             "1\t100 000\t100 000\t_\t_\t_\t_\t_\t_\t_\n"
                             "\n";

Test(conllu, reads_words_ranges_and_empty_nodes)
{
    fv_conllu *file = parse_good(sample);
    expect_counts(file, 2, 4, 1, 4);
    cr_expect_str_eq(file->path, "t.conllu");
    cr_expect_eq(file->offsets[1], 3);
    const size_t lines[] = {5, 6, 9, 13};
    for (size_t w = 0; w < 4; w++)
        cr_expect_eq(file->lines[w], lines[w]);
    const char *const first[FV_CONLLU_COLUMNS] = {"1",        "Do", "do",  "AUX", "VB",
                                                  "Mood=Imp", "3",  "aux", "_",   "_"};
    for (int c = 0; c < FV_CONLLU_COLUMNS; c++)
        cr_expect_str_eq(file->columns[0][c], first[c]);
    cr_expect_str_eq(file->columns[1][FV_CONLLU_MISC], "A=b c");
    cr_expect_str_eq(file->columns[3][FV_CONLLU_FORM], "100 000");
    fv_conllu_free(file);
    fv_conllu_free(NULL);
}

Test(conllu, nothing_is_no_sentence)
{
    const char *const texts[] = {"", "\n", "\n\n\n", "\xef\xbb\xbf", "# a\n", "# a\n\n# b", "  \n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        fv_conllu *file = parse_good(texts[i]);
        expect_counts(file, 0, 0, 0, 0);
        fv_conllu_free(file);
    }
    fv_conllu *file = fv_conllu_parse("t.conllu", NULL, 0, NULL);
    cr_expect_not_null(file);
    fv_conllu_free(file);
}

Test(conllu, writes_what_it_read)
{
    expect_written(sample, sample);
    expect_written("", "");
}

Test(conllu, writes_normal_form)
{
    const char *normal = "# a\n" W("1", "x") W("2", "y") "\n# b\n" W("1", "z") "\n";
    expect_written("# a\r\n1\tx\t_\t_\t_\t_\t_\t_\t_\t_\r\n2\ty\t_\t_\t_\t_\t_\t_\t_\t_\r\n\r\n"
                   "# b\r\n1\tz\t_\t_\t_\t_\t_\t_\t_\t_\r\n\r\n",
                   normal);
    expect_written("\xef\xbb\xbf# a\n" W("1", "x") W("2", "y") "\n# b\n" W("1", "z") "\n", normal);
    expect_written("# a\n" W("1", "x") W("2", "y") "\n# b\n" W("1", "z"), normal);
    expect_written("# a\n" W("1", "x") W("2", "y") "\n# b\n1\tz\t_\t_\t_\t_\t_\t_\t_\t_", normal);
    expect_written("# a\n" W("1", "x") W("2", "y") "\n# b\n1\tz\t_\t_\t_\t_\t_\t_\t_\t_\r", normal);
    expect_written("\n\n# a\n" W("1", "x") W("2", "y") "\n\n \n# b\n\n" W("1", "z") "\n\n", normal);
}

/* No line is dropped, whether or not it is part of a sentence. */
Test(conllu, keeps_comments_behind_the_last_sentence)
{
    expect_written(W("1", "x") "\n# the end\n# really\n\n",
                   W("1", "x") "\n# the end\n# really\n\n");
    expect_written(W("1", "x") "\n# one\n\n# two", W("1", "x") "\n# one\n# two\n\n");
}

Test(conllu, writes_other_tags)
{
    const char *const tags[] = {"X", NULL, "NOUN"};
    char *text = NULL;
    size_t length;
    fv_conllu *file = parse_good(sample);
    FILE *out = open_memstream(&text, &length);
    cr_expect(fv_conllu_write(out, file, 0, tags));
    fclose(out);
    cr_expect_not_null(strstr(text, "\n1\tDo\tdo\tX\tVB\tMood=Imp\t3\taux\t_\t_\n"));
    cr_expect_not_null(strstr(text, "\n2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\tA=b c\n"));
    cr_expect_not_null(strstr(text, "\n3\tgo\tgo\tNOUN\tVB\t_\t0\troot\t_\t_\n3.1\tthere\t"));
    free(text);
    fv_conllu_free(file);
}

Test(conllu, says_when_writing_fails)
{
    fv_conllu *file = parse_good(sample);
    FILE *full = fopen("/dev/full", "w");
    if (full == NULL)
        cr_skip_test("no /dev/full on this machine");
    setvbuf(full, NULL, _IONBF, 0);
    cr_expect_not(fv_conllu_write(full, file, 0, NULL));
    cr_expect_not(fv_conllu_write(full, file, 2, NULL), "there is no sentence 2");
    fclose(full);
    fv_conllu_free(file);
}

Test(conllu, forms_may_be_anything)
{
    const char *const forms[] = {
        "#",    "\"",   "_",      "-", "1-2", "1.1", "\xe2\x80\x8b", "\xef\xbb\xbf",
        "%s%n", "a  b", "\x1b[1m"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        char line[100];
        snprintf(line, sizeof line, "1\t%s\t_\t_\t_\t_\t_\t_\t_\t_\n\n", forms[i]);
        expect_written(line, line);
    }
}

Test(conllu, refuses_malformed_lines)
{
    static const char *const cases[][2] = {
        {"1\ta\t_\t_\t_\t_\t_\t_\t_\n", "t.conllu:1: 9 columns, expected 10 separated by tabs"},
        {"# c\n" W("1", "a") "2\n", "t.conllu:3: 1 column, expected 10 separated by tabs"},
        {"1\ta\t_\t_\t_\t_\t_\t_\t_\t_\t\n",
         "t.conllu:1: 11 columns, expected 10 separated by tabs"},
        {"1 a _ _ _ _ _ _ _ _\n",
         "t.conllu:1: 1 column, expected 10 separated by tabs, not spaces"},
        {"1\t\xc3\xa9\xc3\xa9\t\t_\t_\t_\t_\t_\t_\t_\n",
         "t.conllu:1:6: empty LEMMA, expected text or \"_\""},
        {"\t\t\t\t\t\t\t\t\t\n", "t.conllu:1:1: empty ID, expected text or \"_\""},
        {"1\ta\t_\t_\t_\t_\t_\t_\t_\t\n", "t.conllu:1:19: empty MISC, expected text or \"_\""},
        {W(" 1", "a"), "t.conllu:1:1: a space at the start of ID, expected none"},
        {W("1", "a "), "t.conllu:1:3: a space at the end of FORM, expected none"},
        {"1\ta\t_\tNO UN\t_\t_\t_\t_\t_\t_\n", "t.conllu:1:7: a space inside UPOS, expected none"},
        {W("x", "a"), "t.conllu:1:1: id \"x\" is not a number, expected 1"},
        {W("1", "a") W("01", "b"), "t.conllu:2:1: id \"01\" is not a number, expected 2"},
        {W("-1", "a"), "t.conllu:1:1: id \"-1\" is not a number, expected 1"},
        {W("1x", "a"), "t.conllu:1:1: id \"1x\" is not a number, expected 1"},
        {W("1-x", "a"), "t.conllu:1:1: id \"1-x\" is not a number, expected 1"},
        {W("1-2-3", "a"), "t.conllu:1:1: id \"1-2-3\" is not a number, expected 1"},
        {W("1.", "a"), "t.conllu:1:1: id \"1.\" is not a number, expected 1"},
        {W("0", "a"), "t.conllu:1:1: id \"0\" is out of order, expected 1"},
        {W("2", "a"), "t.conllu:1:1: id \"2\" is out of order, expected 1"},
        {W("1", "a") W("1", "b"), "t.conllu:2:1: id \"1\" is out of order, expected 2"},
        {W("1", "a") "\n" W("2", "b"), "t.conllu:3:1: id \"2\" is out of order, expected 1"},
        {W("18446744073709551617", "a"),
         "t.conllu:1:1: id \"18446744073709551617\" is out of order, expected 1"},
        {W("2-1", "a"), "t.conllu:1:1: range \"2-1\" runs backwards, expected a-b with a <= b"},
        {W("1-3", "abc") W("1", "a") W("2-3", "bc"),
         "t.conllu:3:1: range \"2-3\" overlaps the one of line 1, expected none before word 4"},
        {W("1-1", "a") W("1-1", "a"),
         "t.conllu:2:1: range \"1-1\" overlaps the one of line 1, expected none before word 2"},
        {W("1", "a") W("1-2", "ab"),
         "t.conllu:2:1: range \"1-2\" stands before word 2, expected before word 1"},
        {W("2-3", "ab"),
         "t.conllu:1:1: range \"2-3\" stands before word 1, expected before word 2"},
        {"# c\n" W("1-3", "ab") W("1", "a") W("2", "b") "\n",
         "t.conllu:2:1: the range ends at word 3, expected at most 2, the last one"},
        {W("1-4294967297", "ab") W("1", "a"),
         "t.conllu:1:1: the range ends at word 4294967297, expected at most 1, the last one"},
        {W("1.1", "a"), "t.conllu:1:1: empty node \"1.1\" is out of order, expected 0.1"},
        {W("0.1", "a") W("0.1", "a"),
         "t.conllu:2:1: empty node \"0.1\" is out of order, expected 0.2"},
        {W("1", "a") W("1.2", "b"),
         "t.conllu:2:1: empty node \"1.2\" is out of order, expected 1.1"},
        {W("1", "a") W("1.0", "b"),
         "t.conllu:2:1: empty node \"1.0\" is out of order, expected 1.1"},
        {W("0.1", "a") "\n", "t.conllu:2: a sentence without words, expected word 1"},
        {W("0.1", "a"), "t.conllu:1: a sentence without words, expected word 1"},
        {W("1", "a") "# c\n" W("2", "b"),
         "t.conllu:2:1: a comment inside a sentence, expected word 2 or a blank line"},
        {"<!DOCTYPE html>\n<html>\n", "t.conllu:1:1: a web page (HTML), expected CoNLL-U text"},
        {"\n  <html lang='en'>\n", "t.conllu:2:1: a web page (HTML), expected CoNLL-U text"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
         "t.conllu:1:1: a Git LFS pointer in place of the file (git lfs pull fetches it), expected "
         "CoNLL-U text"},
        {"caf\xe9\n", "t.conllu:1:4: byte 0xe9 is not UTF-8, expected UTF-8 text"},
        {"# \xc3\xa9 \xc0\xaf\n", "t.conllu:1:6: byte 0xc0 is not UTF-8, expected UTF-8 text"},
        {W("1", "\xed\xa0\x80"), "t.conllu:1:3: byte 0xed is not UTF-8, expected UTF-8 text"},
        {"\n# \xf4\x90\x80\x80\n", "t.conllu:2:3: byte 0xf4 is not UTF-8, expected UTF-8 text"},
        {"# cut \xe2\x82", "t.conllu:1:7: byte 0xe2 is not UTF-8, expected UTF-8 text"},
        {"\x1f\x8b\x08\x01", "t.conllu:1:2: a file compressed by gzip, expected UTF-8 text"},
        {"\xff\xfe#", "t.conllu:1:1: UTF-16 text, expected UTF-8 text"},
        {"# \xc3\xa9\r# b\r",
         "t.conllu:1:4: a carriage return inside the line, expected LF or CRLF ends"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_error(cases[i][0], strlen(cases[i][0]), cases[i][1]);
    expect_error("# a\n# b\0c\n", 10, "t.conllu:2:4: a NUL byte, expected UTF-8 text");
    expect_error("PK\x03\x04\0", 5, "t.conllu:1:5: a zip archive, expected UTF-8 text");
}

/* A message holds the start of a long text, cut between two characters. */
Test(conllu, shortens_what_it_quotes)
{
    char text[400] = "", message[200] = "t.conllu:1:1: id \"";
    for (int i = 0; i < 30; i++)
        strcat(text, "\xe2\x82\xac");
    strncat(message, text, 42);
    strcat(message, "...\" is not a number, expected 1");
    strcat(text, "\ta\t_\t_\t_\t_\t_\t_\t_\t_\n");
    expect_error(text, strlen(text), message);
}

Test(conllu, upos)
{
    fv_error error = {0};
    int32_t tag = 7;
    fv_conllu *file = parse_good("# c\n"
                                 "1\t\xc3\xa9\xc3\xa9\tab\tX\t_\t_\t_\t_\t_\t_\n"
                                 "2\t\xc3\xa9\xc3\xa9\tab\tnoun\t_\t_\t_\t_\t_\t_\n");
    cr_expect(fv_conllu_upos(file, 0, &tag, &error));
    cr_expect_eq(tag, 16);
    cr_expect_not(fv_conllu_upos(file, 1, &tag, &error));
    cr_expect_eq(error.status, FV_DATA);
    cr_expect_str_eq(error.text, "t.conllu:3:9: UPOS \"noun\", expected one of the 17 UPOS tags");
    error = (fv_error){0};
    cr_expect_not(fv_conllu_upos(file, 2, &tag, &error));
    cr_expect_eq(error.status, FV_USAGE);
    cr_expect_str_eq(error.text, "t.conllu: word 2 of 2");
    fv_conllu_free(file);
}

Test(conllu, upos_names)
{
    for (int32_t tag = 0; tag < FV_UPOS_TAGS; tag++) {
        cr_expect_eq(fv_upos_tag(fv_upos_name(tag)), tag);
        if (tag > 0)
            cr_expect_lt(strcmp(fv_upos_name(tag - 1), fv_upos_name(tag)), 0);
    }
    cr_expect_null(fv_upos_name(-1));
    cr_expect_null(fv_upos_name(FV_UPOS_TAGS));
    const char *const none[] = {"", "_", "noun", "NOUNS", "NOU", NULL};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        cr_expect_eq(fv_upos_tag(none[i]), -1);
}

Test(conllu, reads_files)
{
    char path[] = "conllu-XXXXXX";
    fv_error error = {0};
    int file = mkstemp(path);
    cr_assert_geq(file, 0);
    FILE *out = fdopen(file, "w");
    fputs(sample, out);
    fclose(out);
    fv_conllu *read = fv_conllu_read(path, &error);
    remove(path);
    cr_assert_not_null(read, "%s", error.text);
    expect_counts(read, 2, 4, 1, 4);
    cr_expect_str_eq(read->path, path);
    fv_conllu_free(read);
    cr_expect_null(fv_conllu_read(path, &error));
    cr_expect_eq(error.status, FV_DATA);
    cr_expect(strncmp(error.text, path, strlen(path)) == 0, "%s", error.text);
}

Test(conllu, reads_standard_input)
{
    fv_error error = {0};
    FILE *in = tmpfile();
    fputs(W("1", "a") "x\n", in);
    rewind(in);
    cr_assert_geq(dup2(fileno(in), 0), 0);
    cr_expect_null(fv_conllu_read("-", &error));
    cr_expect_str_eq(error.text, "standard input:2: 1 column, expected 10 separated by tabs");
    fclose(in);
}

/* Whichever request for memory fails: one error, and nothing is left behind. */
Test(conllu, out_of_memory)
{
    char text[4096] = "";
    for (int i = 0; i < 20; i++)
        strcat(text, "# c\n1-2\tab\t_\t_\t_\t_\t_\t_\t_\t_\n" W("1", "a") W("2", "b") "\n");
    const size_t blocks = test_blocks();
    fv_conllu *file = NULL;
    size_t n = 0;
    while (file == NULL && n < 1000) {
        fv_error error = {0};
        test_fail_after(++n);
        file = parse(text, &error);
        test_fail_after(0);
        if (file == NULL) {
            cr_expect_eq(error.status, FV_FAILED);
            cr_expect(strncmp(error.text, "t.conllu: out of memory", 23) == 0, "%s", error.text);
            cr_expect_eq(test_blocks(), blocks, "a failing request %zu leaks", n);
        }
    }
    cr_expect_gt(n, 8);
    cr_assert_not_null(file);
    expect_counts(file, 20, 40, 20, 0);
    fv_conllu_free(file);
    cr_expect_eq(test_blocks(), blocks);
}

/* No prefix of a file and no changed byte does harm; what is taken comes back as the same sentences. */
Test(conllu, survives_damage)
{
    char text[sizeof sample];
    const char bytes[] = {'\n', '\t', '-', '.', '9', ' ', '\r', '\0', '\x80', '#'};
    for (size_t i = 0; i < sizeof sample; i++)
        for (size_t b = 0; b <= sizeof bytes; b++) {
            const bool cut = b == sizeof bytes;
            memcpy(text, sample, sizeof sample);
            if (!cut)
                text[i] = bytes[b];
            fv_conllu *file = fv_conllu_parse("t", text, cut ? i : sizeof sample - 1, NULL);
            if (file == NULL)
                continue;
            size_t length, again_length;
            char *once = written(file, &length);
            fv_conllu *again = parse_good(once);
            cr_expect_eq(again->words, file->words);
            char *twice = written(again, &again_length);
            cr_expect_str_eq(once, twice);
            free(once);
            free(twice);
            fv_conllu_free(file);
            fv_conllu_free(again);
        }
}

/* ---- the shared data ---------------------------------------------------------------------------------- */

static const char *shared(const char *name, char path[1000])
{
    const char *root = getenv("FOVEA_SHARED");
    snprintf(path, 1000, "%s/%s", root ? root : "../shared", name);
    return path;
}

static void expect_row(const char *name, const char *expect, const char *note)
{
    char path[1000], inner[300], counts[200] = "";
    fv_error error = {0};
    snprintf(inner, sizeof inner, "data/robustness/conllu/%s", name);
    fv_conllu *file = fv_conllu_read(shared(inner, path), &error);
    if (file != NULL)
        snprintf(counts, sizeof counts, "sentences=%zu words=%zu mwt=%zu empty_nodes=%zu",
                 file->sentences, file->words, file->ranges, file->empty_nodes);
    if (strcmp(expect, "ok") == 0) {
        cr_expect_not_null(file, "%s", error.text);
        /* These two are no-final-blank-line.conllu, which has one range, with a byte-order mark in front
         * and a blank line behind; the table says two for them. */
        if (strcmp(name, "bom.conllu") == 0 || strcmp(name, "bom-crlf.conllu") == 0)
            note = "sentences=12 words=261 mwt=1 empty_nodes=0";
        cr_expect(strncmp(counts, note, strlen(counts)) == 0, "%s: %s instead of %s", name, counts,
                  note);
    } else if (strcmp(expect, "error") == 0) {
        cr_expect_null(file, "%s was taken", name);
    }
    if (file == NULL) {
        cr_expect_eq(error.status, FV_DATA);
        cr_expect(strncmp(error.text, path, strlen(path)) == 0 && error.text[strlen(path)] == ':',
                  "%s", error.text);
    }
    fv_conllu_free(file);
}

Test(conllu, awkward_files)
{
    char path[1000], line[1000];
    FILE *table = fopen(shared("data/robustness/conllu/expect.tsv", path), "r");
    if (table == NULL)
        cr_skip_test("%s is not there", path);
    int rows = 0;
    cr_assert_not_null(fgets(line, sizeof line, table));
    while (fgets(line, sizeof line, table) != NULL) {
        char name[200] = "", expect[20] = "", note[500] = "";
        cr_assert_geq(sscanf(line, "%199[^\t]\t%19[^\t]\t%499[^\n]", name, expect, note), 2);
        expect_row(name, expect, note);
        rows++;
    }
    fclose(table);
    cr_expect_gt(rows, 80);
}

static char *whole_file(const char *path, size_t *length)
{
    FILE *in = fopen(path, "rb");
    if (in == NULL)
        return NULL;
    fseek(in, 0, SEEK_END);
    *length = (size_t)ftell(in);
    rewind(in);
    char *bytes = malloc(*length + 1);
    cr_assert_eq(fread(bytes, 1, *length, in), *length);
    fclose(in);
    return bytes;
}

Test(conllu, treebanks_come_back)
{
    const char *const names[] = {
        "ud-english-ewt/en_ewt-ud-dev.conllu",         "ud-english-ewt/en_ewt-ud-test.conllu",
        "ud-korean-gsd/ko_gsd-ud-dev.conllu",          "ud-vietnamese-vtb/vi_vtb-ud-dev.conllu",
        "ud-chinese-gsdsimp/zh_gsdsimp-ud-dev.conllu",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[1000], inner[300];
        size_t length, again;
        fv_error error = {0};
        snprintf(inner, sizeof inner, "data/%s", names[i]);
        char *bytes = whole_file(shared(inner, path), &length);
        if (bytes == NULL)
            cr_skip_test("%s is not there", path);
        fv_conllu *file = fv_conllu_read(path, &error);
        cr_assert_not_null(file, "%s", error.text);
        char *text = written(file, &again);
        cr_expect(again == length && memcmp(text, bytes, length) == 0, "%s differs", path);
        for (size_t w = 0; w < file->words; w++) {
            int32_t tag;
            cr_expect(fv_conllu_upos(file, w, &tag, &error), "%s", error.text);
        }
        free(text);
        free(bytes);
        fv_conllu_free(file);
    }
}
