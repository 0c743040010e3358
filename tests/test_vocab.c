/* Vocabularies: ids by frequency, JSON there and back, hostile JSON, failing memory. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "train/internal.h"

static void count(fv_vocab *vocab, const char *text, int times)
{
    fv_error error = {0};
    for (int i = 0; i < times; i++)
        cr_assert(fv_vocab_count(vocab, text, &error), "%s", error.text);
}

/* b four times, a and \xc3\xa9 three times, c twice, d once. */
static fv_vocab *sample(size_t min_count, size_t max_size)
{
    fv_vocab *vocab = fv_vocab_new(NULL);
    count(vocab, "d", 1);
    count(vocab, "\xc3\xa9", 3);
    count(vocab, "b", 4);
    count(vocab, "c", 2);
    count(vocab, "a", 3);
    cr_assert(fv_vocab_freeze(vocab, min_count, max_size, NULL));
    return vocab;
}

Test(vocab, ids_by_frequency_then_bytes)
{
    const char *const texts[] = {"b", "a", "\xc3\xa9", "c", "d"};
    const size_t counts[] = {4, 3, 3, 2, 1};
    fv_vocab *vocab = sample(1, 0);
    cr_expect_eq(fv_vocab_size(vocab), 6);
    for (int32_t id = 1; id <= 5; id++) {
        cr_expect_str_eq(fv_vocab_text(vocab, id), texts[id - 1]);
        cr_expect_eq(fv_vocab_id(vocab, texts[id - 1]), id);
        cr_expect_eq(fv_vocab_occurrences(vocab, id), counts[id - 1]);
    }
    cr_expect_eq(fv_vocab_id(vocab, "e"), 0);
    cr_expect_eq(fv_vocab_id(vocab, ""), 0);
    const int32_t none[] = {0, -1, 6, INT32_MAX, INT32_MIN};
    for (int i = 0; i < 5; i++) {
        cr_expect_null(fv_vocab_text(vocab, none[i]));
        cr_expect_eq(fv_vocab_occurrences(vocab, none[i]), 0);
    }
    fv_vocab_free(vocab);
    fv_vocab_free(NULL);
}

Test(vocab, rare_texts_are_unknown)
{
    fv_vocab *vocab = sample(2, 0);
    cr_expect_eq(fv_vocab_size(vocab), 5);
    cr_expect_eq(fv_vocab_id(vocab, "c"), 4);
    cr_expect_eq(fv_vocab_id(vocab, "d"), 0);
    cr_expect_eq(fv_vocab_occurrences(vocab, 0), 1);
    fv_vocab_free(vocab);
    vocab = sample(2, 2);
    cr_expect_eq(fv_vocab_size(vocab), 3);
    cr_expect_eq(fv_vocab_id(vocab, "a"), 2);
    cr_expect_eq(fv_vocab_id(vocab, "\xc3\xa9"), 0);
    cr_expect_eq(fv_vocab_occurrences(vocab, 0), 6);
    fv_vocab_free(vocab);
    vocab = sample(5, 0);
    cr_expect_eq(fv_vocab_size(vocab), 1);
    cr_expect_eq(fv_vocab_id(vocab, "b"), 0);
    fv_vocab_free(vocab);
}

Test(vocab, counts_before_it_answers)
{
    fv_error error = {0};
    fv_vocab *vocab = fv_vocab_new(NULL);
    count(vocab, "a", 1);
    cr_expect_eq(fv_vocab_size(vocab), 1);
    cr_expect_eq(fv_vocab_id(vocab, "a"), 0);
    cr_expect_null(fv_vocab_text(vocab, 1));
    cr_expect_null(fv_vocab_to_json(vocab, &error));
    cr_expect_eq(error.status, FV_USAGE);
    cr_expect_str_eq(error.text, "vocabulary: not frozen, it has no ids to write");
    cr_assert(fv_vocab_freeze(vocab, 1, 0, NULL));
    cr_expect_eq(fv_vocab_id(vocab, "a"), 1);
    error = (fv_error){0};
    cr_expect_not(fv_vocab_count(vocab, "a", &error));
    cr_expect_eq(error.status, FV_USAGE);
    cr_expect_str_eq(error.text, "vocabulary: frozen, it counts no more");
    error = (fv_error){0};
    cr_expect_not(fv_vocab_freeze(vocab, 1, 0, &error));
    cr_expect_str_eq(error.text, "vocabulary: already frozen");
    fv_vocab_free(vocab);
}

Test(vocab, empty)
{
    fv_vocab *vocab = fv_vocab_new(NULL);
    cr_expect_eq(fv_vocab_id(vocab, "a"), 0);
    cr_assert(fv_vocab_freeze(vocab, 1, 0, NULL));
    cr_expect_eq(fv_vocab_size(vocab), 1);
    char *json = fv_vocab_to_json(vocab, NULL);
    cr_expect_str_eq(json, "[]");
    fv_memory(json, 0);
    fv_vocab_free(vocab);
}

Test(vocab, many_texts)
{
    char text[20];
    fv_vocab *vocab = fv_vocab_new(NULL);
    for (int i = 0; i < 20000; i++) {
        snprintf(text, sizeof text, "t%d", i * 7919 % 20000);
        count(vocab, text, 1 + (i * 7919 % 20000 < 100));
    }
    cr_assert(fv_vocab_freeze(vocab, 2, 0, NULL));
    cr_expect_eq(fv_vocab_size(vocab), 101);
    cr_expect_eq(fv_vocab_id(vocab, "t100"), 0);
    cr_expect_str_eq(fv_vocab_text(vocab, 1), "t0");
    cr_expect_str_eq(fv_vocab_text(vocab, 2), "t1");
    cr_expect_str_eq(fv_vocab_text(vocab, 3), "t10");
    fv_vocab_free(vocab);
}

Test(vocab, json_there_and_back)
{
    fv_vocab *vocab = fv_vocab_new(NULL);
    count(vocab, "a\"b\\c\n\x01", 3);
    count(vocab, "", 2);
    count(vocab, "\xf0\x9f\x91\xa9 \xc3\xa9", 1);
    cr_assert(fv_vocab_freeze(vocab, 1, 0, NULL));
    char *json = fv_vocab_to_json(vocab, NULL);
    cr_expect_str_eq(json, "[\"a\\\"b\\\\c\\n\\u0001\",\"\",\"\xf0\x9f\x91\xa9 \xc3\xa9\"]");
    fv_vocab *again = fv_vocab_from_json(json, NULL);
    cr_assert_not_null(again);
    cr_expect_eq(fv_vocab_size(again), 4);
    for (int32_t id = 1; id < 4; id++) {
        cr_expect_str_eq(fv_vocab_text(again, id), fv_vocab_text(vocab, id));
        cr_expect_eq(fv_vocab_id(again, fv_vocab_text(vocab, id)), id);
        cr_expect_eq(fv_vocab_occurrences(again, id), 0);
    }
    cr_expect_not(fv_vocab_count(again, "x", NULL), "it is frozen");
    fv_memory(json, 0);
    fv_vocab_free(vocab);
    fv_vocab_free(again);
}

Test(vocab, json_is_utf8)
{
    fv_error error = {0};
    fv_vocab *vocab = fv_vocab_new(NULL);
    count(vocab, "good", 2);
    count(vocab, "caf\xe9", 1);
    cr_assert(fv_vocab_freeze(vocab, 1, 0, NULL));
    cr_expect_null(fv_vocab_to_json(vocab, &error));
    cr_expect_str_eq(error.text, "vocabulary: the text of id 2 is not UTF-8");
    fv_vocab_free(vocab);
}

Test(vocab, refuses_other_json)
{
    static const char *const cases[][2] = {
        {"{}", "vocabulary: the JSON is an object, expected an array of texts"},
        {"\"a\"", "vocabulary: the JSON is a text, expected an array of texts"},
        {"null", "vocabulary: the JSON is null, expected an array of texts"},
        {"[\"a\",1]", "vocabulary: item 2 is a whole number, expected a text"},
        {"[1.5]", "vocabulary: item 1 is a real number, expected a text"},
        {"[[\"a\"]]", "vocabulary: item 1 is an array, expected a text"},
        {"[{}]", "vocabulary: item 1 is an object, expected a text"},
        {"[true]", "vocabulary: item 1 is true, expected a text"},
        {"[false]", "vocabulary: item 1 is false, expected a text"},
        {"[null]", "vocabulary: item 1 is null, expected a text"},
        {"[\"a\",\"b\",\"a\"]", "vocabulary: items 1 and 3 are both \"a\", expected no text twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fv_error error = {0};
        cr_expect_null(fv_vocab_from_json(cases[i][0], &error));
        cr_expect_eq(error.status, FV_DATA);
        cr_expect_str_eq(error.text, cases[i][1]);
    }
}

/* The words of these errors are the parser's; the frame is ours. */
Test(vocab, refuses_what_is_no_json)
{
    char deep[100001];
    memset(deep, '[', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    const char *const texts[] = {"",      "[",          "[\"a\"", "[\"a\",]", "[\"\\u0000\"]",
                                 "[] []", "[\"\xe9\"]", "nul",    deep,       NULL};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        fv_error error = {0};
        cr_expect_null(fv_vocab_from_json(texts[i], &error));
        cr_expect_eq(error.status, FV_DATA);
        cr_expect_eq(strncmp(error.text, "vocabulary:", 11), 0);
        cr_expect_not_null(strstr(error.text, ", expected a JSON array of texts"));
    }
}

/* Whichever request for memory fails, in counting, freezing or writing: nothing is lost or left behind. */
Test(vocab, out_of_memory)
{
    char text[20];
    bool done = false;
    const size_t blocks = test_blocks();
    for (size_t n = 1; !done; n++) {
        cr_assert_lt(n, 2000);
        test_fail_after(n);
        fv_error error = {0};
        fv_vocab *vocab = fv_vocab_new(&error);
        bool good = vocab != NULL;
        for (int i = 0; good && i < 400; i++) {
            snprintf(text, sizeof text, "t%d", i);
            good = fv_vocab_count(vocab, text, &error);
        }
        good = good && fv_vocab_freeze(vocab, 1, 300, &error);
        char *json = good ? fv_vocab_to_json(vocab, &error) : NULL;
        fv_vocab *again = json ? fv_vocab_from_json(json, &error) : NULL;
        test_fail_after(0);
        done = again != NULL;
        if (done)
            cr_expect_eq(fv_vocab_size(again), 301);
        else
            cr_expect_eq(error.status, FV_FAILED);
        fv_memory(json, 0);
        fv_vocab_free(vocab);
        fv_vocab_free(again);
        cr_assert_eq(test_blocks(), blocks, "a failing request %zu leaks", n);
    }
}

Test(vocab, goes_on_after_memory_was_out)
{
    char text[20];
    fv_vocab *vocab = fv_vocab_new(NULL);
    for (int i = 0; i < 400; i++) {
        snprintf(text, sizeof text, "t%d", i);
        test_fail_after((size_t)i % 4);
        while (!fv_vocab_count(vocab, text, NULL))
            continue;
        test_fail_after(0);
    }
    cr_assert(fv_vocab_freeze(vocab, 1, 0, NULL));
    cr_expect_eq(fv_vocab_size(vocab), 401);
    for (int i = 0; i < 400; i++) {
        snprintf(text, sizeof text, "t%d", i);
        int32_t id = fv_vocab_id(vocab, text);
        cr_expect_str_eq(fv_vocab_text(vocab, id), text);
        cr_expect_eq(fv_vocab_occurrences(vocab, id), 1);
    }
    fv_vocab_free(vocab);
}
