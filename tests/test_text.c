/* Text: validity, lower case, words, and the hashed features of a word. */
#include <criterion/criterion.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "memory.h"
#include "train/internal.h"

/* ---- validity ------------------------------------------------------------------------------------------ */

static size_t first_bad(const char *text, size_t length)
{
    size_t at = SIZE_MAX;
    bool good = fv_utf8_valid(text, length, &at);
    cr_expect_eq(good, at == SIZE_MAX);
    cr_expect_eq(fv_utf8_valid(text, length, NULL), good);
    return at;
}

Test(text, utf8_valid)
{
    static const char *const good[] = {"", "plain\t\n\x7f", "\xc2\x80\xdf\xbf",
                                       "\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf",
                                       "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        cr_expect_eq(first_bad(good[i], strlen(good[i])), SIZE_MAX, "%s", good[i]);
    static const char *const bad[] = {"\x80",
                                      "\xbf",
                                      "\xc3",
                                      "\xc3(",
                                      "\xc0\xaf",
                                      "\xc1\xbf",
                                      "\xe2\x82",
                                      "\xe2(\xac",
                                      "\xe0\x9f\xbf",
                                      "\xed\xa0\x80",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf0\x9f\x91",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xfe",
                                      "\xff"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[20] = "ab\xc3\xa9";
        strcat(text, bad[i]);
        cr_expect_eq(first_bad(text, strlen(text)), 4);
        strcat(text, "z");
        cr_expect_eq(first_bad(text, strlen(text)), 4);
    }
    cr_expect_eq(first_bad("a\0b", 3), 1);
    cr_expect_eq(first_bad("\xe2\x82\xac", 2), 0, "nothing is read behind the end");
}

/* ---- lower case ---------------------------------------------------------------------------------------- */

static void expect_lower(const char *text, size_t size, const char *lower)
{
    char out[100];
    memset(out, '#', sizeof out);
    fv_lower(text, out, size);
    cr_expect_str_eq(out, lower);
    cr_expect_eq(out[size], '#', "it wrote behind the end");
}

Test(text, lower)
{
    expect_lower("Hello, WORLD 12", 50, "hello, world 12");
    expect_lower("\xc3\x89T\xc3\x89 \xce\xa3\xce\x91\xce\xa3", 50,
                 "\xc3\xa9t\xc3\xa9 \xcf\x83\xce\xb1\xcf\x83");
    expect_lower("H\xc3\x99NG \xed\x95\x9c\xea\xb8\x80 \xe6\xb1\x89", 50,
                 "h\xc3\xb9ng \xed\x95\x9c\xea\xb8\x80 \xe6\xb1\x89");
    expect_lower("\xc8\xba", 50, "\xe2\xb1\xa5"); /* two bytes become three */
    expect_lower("", 50, "");
    expect_lower("A\xff"
                 "B",
                 50,
                 "a\xef\xbf\xbd"
                 "b");
}

Test(text, lower_does_not_follow_the_locale)
{
    setlocale(LC_ALL, "tr_TR.UTF-8");
    expect_lower("I", 50, "i");
}

Test(text, lower_cuts_between_characters)
{
    expect_lower("AB\xc3\x89Z", 6, "ab\xc3\xa9z");
    expect_lower("AB\xc3\x89Z", 5, "ab\xc3\xa9");
    expect_lower("AB\xc3\x89Z", 4, "ab");
    expect_lower("AB\xc3\x89Z", 3, "ab");
    expect_lower("AB\xc3\x89Z", 1, "");
    char untouched = '#';
    fv_lower("A", &untouched, 0);
    cr_expect_eq(untouched, '#');
}

/* ---- words --------------------------------------------------------------------------------------------- */

typedef struct {
    char text[1000];
    int count, most; /* most: stop after so many; 0: do not */
} sink;

static bool collect(void *context, const char *word)
{
    sink *s = context;
    strcat(strcat(s->text, word), "|");
    return ++s->count != s->most;
}

static void expect_words(const char *text, const char *words)
{
    sink s = {.text = ""};
    cr_expect(fv_split_words(text, collect, &s));
    cr_expect_str_eq(s.text, words);
}

Test(text, split_words)
{
    expect_words("", "");
    expect_words(" \t\r\n\xc2\xa0\xe2\x80\x83\xe2\x80\xa8\xc2\x85\xe3\x80\x80", "");
    expect_words("A plain TEXT, of 3 kinds.", "a|plain|text|,|of|3|kinds|.|");
    expect_words("x2 4th 1,000.5", "x2|4th|1|,|000|.|5|");
    expect_words("don't it\xe2\x80\x99s", "don't|it\xe2\x80\x99s|");
    expect_words("'tis dogs' rock''n o'", "'|tis|dogs|'|rock|'|'|n|o|'|");
    expect_words("...!?", ".|.|.|!|?|");
    expect_words("\xc3\x89t\xc3\xa9 e\xcc\x81", "\xc3\xa9t\xc3\xa9|e\xcc\x81|");
    expect_words("\xed\x95\x9c\xea\xb8\x80 \xe0\xa4\xb9\xe0\xa4\xbf\xe3\x80\x82",
                 "\xed\x95\x9c\xea\xb8\x80|\xe0\xa4\xb9\xe0\xa4\xbf|\xe3\x80\x82|");
    expect_words("\xf0\x9f\x98\x80\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80|\xf0\x9f\x98\x80|");
    expect_words("\x01z", "\x01|z|");
    expect_words("a\xff\xfe"
                 "b",
                 "a|\xef\xbf\xbd|\xef\xbf\xbd|b|");
    expect_words("\xc8\xba\xc8\xba", "\xe2\xb1\xa5\xe2\xb1\xa5|");
}

Test(text, split_words_stops)
{
    sink s = {.text = "", .most = 2};
    cr_expect_not(fv_split_words("a b c", collect, &s));
    cr_expect_str_eq(s.text, "a|b|");
    const size_t blocks = test_blocks();
    s = (sink){.text = ""};
    test_fail_after(1);
    cr_expect_not(fv_split_words("a b c", collect, &s));
    test_fail_after(0);
    cr_expect_str_eq(s.text, "");
    cr_expect_eq(test_blocks(), blocks);
}

/* What the splitter's buffer relies on. */
Test(text, lower_case_at_most_doubles)
{
    for (int32_t c = 1; c < 0x110000; c++) {
        utf8proc_uint8_t upper[4], lower[4];
        if (c >= 0xd800 && c < 0xe000)
            continue;
        cr_assert_leq(utf8proc_encode_char(utf8proc_tolower(c), lower),
                      2 * utf8proc_encode_char(c, upper), "U+%04X", (unsigned)c);
    }
}

/* ---- features ------------------------------------------------------------------------------------------- */

enum { ROWS = 1 << 30 }; /* so many that different features share no row here */

static size_t features(const char *word, int32_t ids[FV_WORD_FEATURES])
{
    return fv_word_features(word, ROWS, ids, FV_WORD_FEATURES);
}

static size_t shared(const char *a, const char *b)
{
    int32_t x[FV_WORD_FEATURES], y[FV_WORD_FEATURES];
    size_t n = features(a, x), m = features(b, y), both = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < m; j++)
            if (x[i] == y[j]) {
                both++;
                break;
            }
    return both;
}

/* A word of n characters has min(n, 4) prefixes, as many suffixes, a shape, a length, and in its frame of
 * two more characters n + 1 pairs, n triples and n - 1 quadruples. */
Test(text, features_are_counted)
{
    int32_t ids[FV_WORD_FEATURES];
    cr_expect_eq(features("", ids), 0 + 2 + 1, "<> alone");
    cr_expect_eq(features("a", ids), 2 + 2 + 3);
    cr_expect_eq(features("ab", ids), 4 + 2 + 6);
    cr_expect_eq(features("abcde", ids), 8 + 2 + 15);
    cr_expect_eq(features("\xed\x95\x9c\xea\xb8\x80", ids), 4 + 2 + 6, "characters, not bytes");
    cr_expect_eq(features("abcdefghijklmnop", ids), 8 + 2 + 48);
    cr_expect_eq(features("abcdefghijklmnopq", ids), FV_WORD_FEATURES);
    cr_expect_eq(features("abcdefghijklmnopqrstuvwxyzabcdefghi", ids), FV_WORD_FEATURES);
}

Test(text, features_stay_in_bounds)
{
    int32_t ids[FV_WORD_FEATURES + 1], all[FV_WORD_FEATURES];
    const size_t n = features("Bounds", all);
    for (size_t max = 0; max <= n; max++) {
        ids[max] = -7;
        cr_expect_eq(fv_word_features("Bounds", ROWS, ids, max), max);
        cr_expect_eq(ids[max], -7);
        cr_expect_arr_eq(ids, all, max * sizeof *ids);
    }
    cr_expect_eq(fv_word_features("Bounds", ROWS, ids, SIZE_MAX), n);
    cr_expect_eq(fv_word_features("Bounds", 7, ids, FV_WORD_FEATURES), n);
    for (size_t i = 0; i < n; i++)
        cr_expect(ids[i] >= 0 && ids[i] < 7);
    cr_expect_eq(fv_word_features("Bounds", 0, ids, FV_WORD_FEATURES), 0);
    cr_expect_eq(fv_word_features("Bounds", (size_t)INT32_MAX + 1, ids, FV_WORD_FEATURES), 0);
}

/* What two words share: their n-grams whatever the case, affixes with case, shape, length. */
Test(text, features_of_alike_words)
{
    cr_expect_eq(shared("abc", "abc"), 6 + 2 + 9);
    /* All n-grams, the suffixes but the longest, and the length. */
    cr_expect_eq(shared("abc", "Abc"), 2 + 1 + 9);
    /* Four suffixes, shape, length, and of 18 n-grams all but the two of each size that hold the a. */
    cr_expect_eq(shared("abcdef", "xbcdef"), 4 + 2 + 12);
    /* Nothing but shape and length. */
    cr_expect_eq(shared("abc", "xyz"), 2);
    cr_expect_eq(shared("abc", "XYZ"), 1);
    cr_expect_eq(shared("abc", "wxyz"), 1);
    /* A prefix is no suffix: "ab" in front and behind share n-grams, never affixes. */
    cr_expect_eq(shared("ab--", "..ab"), 1 + 1);
}

Test(text, features_know_shapes)
{
    /* Words without a character in common, of one length: one shared row more when the shape is alike. */
    static const struct {
        const char *a, *b;
        size_t alike;
    } pairs[] = {
        {"Abcd", "Wxyz", 1},
        {"ABcd", "WXYz", 1},
        {"Abcd", "wxyz", 0},
        {"abcd", "wx12", 0},
        {"ab34", "wx12", 1},
        {"ab34", "12xy", 0},
        {"\xed\x95\x9c\xea\xb8\x80", "\xe6\xb1\x89\xe5\xad\x97", 1}, /* letters without case */
        {"\xed\x95\x9c\xea\xb8\x80", "ab", 0},
        {"\xc3\xa9t", "xy", 1},
        {"--", "..", 0},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        cr_expect_eq(shared(pairs[i].a, pairs[i].b), 1 + pairs[i].alike, "%s and %s", pairs[i].a,
                     pairs[i].b);
    /* At most six runs are told apart, and a mark belongs to its letter. */
    cr_expect_eq(shared("aB1aB1.", "xY9xY9x"), 2);
    cr_expect_eq(shared("e\xcc\x81", "xy"), 2);
}

/* Linear in the word, whatever its length: the whole of it is looked at for its end alone. */
Test(text, features_of_huge_words)
{
    enum { HUGE_WORD = 1 << 20 };
    int32_t ids[FV_WORD_FEATURES], short_ids[FV_WORD_FEATURES];
    char *word = malloc(HUGE_WORD + 1);
    memset(word, 'x', HUGE_WORD);
    word[HUGE_WORD] = 0;
    cr_expect_eq(features(word, ids), FV_WORD_FEATURES);
    word[100] = 0;
    cr_expect_eq(features(word, short_ids), FV_WORD_FEATURES);
    cr_expect_arr_eq(ids, short_ids, sizeof ids);
    memset(word, 0x80, HUGE_WORD);
    cr_expect_eq(features(word, ids), FV_WORD_FEATURES, "no UTF-8, no harm");
    free(word);
}

/* Numbers that a saved model relies on: they must never change. */
Test(text, features_are_the_same_everywhere)
{
    int32_t ids[FV_WORD_FEATURES];
    cr_assert_eq(fv_word_features("H\xc3\xb9", 16384, ids, FV_WORD_FEATURES), 12);
    const int32_t expected[] = {3066,  13010, 3370,  3423,  14500, 11531,
                                11430, 5685,  13434, 11233, 9504,  14488};
    cr_expect_arr_eq(ids, expected, sizeof expected);
}
