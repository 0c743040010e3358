/* Hashed features of a word: what a tagger can tell of words it never met.
 *
 * Each feature is a few characters behind a letter that names its kind, hashed to a row of one table ("the
 * hashing trick": Weinberger et al., 2009, arXiv 0902.2206). Of a long word only the first letter n-grams are
 * taken, since affixes, shape and length come first; so the cost of a word is that of finding its end. */
#include "train/data/data.h"

#include <string.h>
#include <utf8proc.h>

enum {
    LONGEST_GRAM = 4,
    LONGEST_AFFIX = 4,
    LONGEST_SHAPE = 6,
    MOST_CHARACTERS = 24 /* more than FV_WORD_FEATURES n-grams start in them */
};

/* The features found so far. */
typedef struct {
    int32_t *ids;
    size_t count, max, rows;
} bag;

/* Adds the feature of that kind made of these characters. */
static void add(bag *b, char kind, const int32_t *characters, size_t count)
{
    char bytes[1 + 4 * LONGEST_SHAPE] = {kind};
    size_t used = 1;
    if (b->count == b->max)
        return;
    for (size_t i = 0; i < count; i++)
        used += fvi_put_character(characters[i], bytes + used);
    b->ids[b->count++] = (int32_t)(fvi_hash(bytes, used) % b->rows);
}

/* The first characters of a word; how many, at most max. */
static size_t first_characters(const char *word, int32_t *characters, size_t max)
{
    size_t n = 0;
    while (*word != 0 && n < max)
        characters[n++] = fvi_next_character(&word);
    return n;
}

/* The last characters of a word, found by stepping back over the bytes that do not begin one. */
static size_t last_characters(const char *word, int32_t *characters, size_t max)
{
    const char *start = word + strlen(word);
    for (size_t n = 0; n < max && start > word; n++)
        do
            start--;
        while (start > word && ((unsigned char)*start & 0xc0) == 0x80);
    return first_characters(start, characters, max);
}

/* X for capitals, x for small letters, o for letters without case, 9 for numbers; others for themselves. */
static int32_t shape_of(int32_t character)
{
    switch (utf8proc_category(character)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
        return 'X';
    case UTF8PROC_CATEGORY_LL:
        return 'x';
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return 'o';
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return '9';
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
        return 0; /* a mark is part of its letter */
    default:
        return character;
    }
}

static void add_shape(bag *b, const char *word)
{
    int32_t shape[LONGEST_SHAPE] = {0};
    size_t n = 0;
    while (*word != 0 && n < LONGEST_SHAPE) {
        int32_t kind = shape_of(fvi_next_character(&word));
        if (kind != 0 && (n == 0 || shape[n - 1] != kind))
            shape[n++] = kind;
    }
    add(b, 'h', shape, n);
}

static void add_length(bag *b, size_t length)
{
    int32_t bucket = (int32_t)(length <= 8 ? length : length <= 12 ? 9 : length <= 18 ? 10 : 11);
    add(b, 'l', (int32_t[]){'0' + bucket}, 1);
}

static void add_grams(bag *b, const int32_t *characters, size_t length)
{
    int32_t framed[MOST_CHARACTERS + 2] = {'<'};
    size_t n = 1;
    for (size_t i = 0; i < length; i++)
        framed[n++] = utf8proc_tolower(characters[i]);
    if (length < MOST_CHARACTERS)
        framed[n++] = '>';
    for (size_t start = 0; start < n; start++)
        for (size_t size = 2; size <= LONGEST_GRAM && start + size <= n; size++)
            add(b, 'g', framed + start, size);
}

size_t fv_word_features(const char *word, size_t rows, int32_t *ids, size_t max)
{
    int32_t head[MOST_CHARACTERS], tail[LONGEST_AFFIX];
    bag b = {ids, 0, max < FV_WORD_FEATURES ? max : FV_WORD_FEATURES, rows};
    if (rows == 0 || rows > INT32_MAX)
        return 0;
    const size_t length = first_characters(word, head, MOST_CHARACTERS);
    const size_t ends = last_characters(word, tail, LONGEST_AFFIX);
    for (size_t size = 1; size <= LONGEST_AFFIX && size <= length; size++) {
        add(&b, 'p', head, size);
        add(&b, 's', tail + ends - size, size);
    }
    add_shape(&b, word);
    add_length(&b, length);
    add_grams(&b, head, length);
    return b.count;
}
