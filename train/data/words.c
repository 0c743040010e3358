/* Splits running text into lower-cased words and signs, by Unicode's categories. */
#include "train/data/data.h"

#include <string.h>
#include <utf8proc.h>

typedef enum { SPACE, SIGN, LETTER } class;

/* Letters, marks and numbers make words; marks belong to the letter that they stand on. */
static class class_of(int32_t character)
{
    switch (utf8proc_category(character)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return LETTER;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return SPACE;
    default:
        return (character >= '\t' && character <= '\r') || character == 0x85 ? SPACE : SIGN;
    }
}

static bool is_apostrophe(int32_t character)
{
    return character == '\'' || character == 0x2019;
}

static bool letter_follows(const char *text)
{
    return *text != 0 && class_of(fvi_next_character(&text)) == LETTER;
}

/* The end of the word whose first character ends at text: "don't" is one, "'tis" begins with a sign. */
static const char *end_of_word(const char *text)
{
    while (*text != 0) {
        const char *next = text;
        int32_t character = fvi_next_character(&next);
        if (class_of(character) != LETTER && !(is_apostrophe(character) && letter_follows(next)))
            break;
        text = next;
    }
    return text;
}

bool fv_split_words(const char *text, bool (*word)(void *context, const char *text), void *context)
{
    /* A lower-cased character takes at most twice its bytes; U+FFFD takes three for one that is no UTF-8. */
    size_t room;
    if (!fvi_mul(strlen(text), 3, &room) || !fvi_add(room, 1, &room))
        return false;
    char *lower = fvi_calloc(room, 1);
    bool go_on = lower != NULL;
    while (go_on && *text != 0) {
        const char *end = text;
        class kind = class_of(fvi_next_character(&end));
        if (kind == LETTER)
            end = end_of_word(end);
        size_t used = 0;
        while (text < end)
            used += fvi_put_character(utf8proc_tolower(fvi_next_character(&text)), lower + used);
        lower[used] = 0;
        if (kind != SPACE)
            go_on = word(context, lower);
    }
    fvi_free(lower);
    return go_on;
}
