/* Characters: validity, decoding and lower case of UTF-8. */
#include "train/data/data.h"

#include <string.h>
#include <utf8proc.h>

bool fv_utf8_valid(const char *text, size_t length, size_t *at)
{
    const unsigned char *bytes = (const unsigned char *)text;
    size_t i = 0;
    while (i < length) {
        if (bytes[i] - 1u < 0x7f) { /* ASCII but NUL */
            i++;
            continue;
        }
        utf8proc_int32_t character;
        size_t left = length - i < 4 ? length - i : 4;
        utf8proc_ssize_t used =
            bytes[i] == 0 ? -1 : utf8proc_iterate(bytes + i, (utf8proc_ssize_t)left, &character);
        if (used <= 0) {
            if (at != NULL)
                *at = i;
            return false;
        }
        i += (size_t)used;
    }
    return true;
}

size_t fvi_characters(const char *text, size_t length)
{
    size_t count = 0;
    for (size_t i = 0; i < length; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

int32_t fvi_next_character(const char **text)
{
    utf8proc_int32_t character;
    /* Without a length it reads no further than the first byte that cannot go on, such as the final NUL. */
    utf8proc_ssize_t used = utf8proc_iterate((const utf8proc_uint8_t *)*text, -1, &character);
    if (used <= 0) {
        ++*text;
        return 0xfffd;
    }
    *text += used;
    return character;
}

size_t fvi_put_character(int32_t character, char *out)
{
    return (size_t)utf8proc_encode_char(character, (utf8proc_uint8_t *)out);
}

void fv_lower(const char *text, char *out, size_t size)
{
    size_t used = 0;
    if (size == 0)
        return;
    while (*text != 0) {
        char bytes[4];
        size_t n = fvi_put_character(utf8proc_tolower(fvi_next_character(&text)), bytes);
        if (n >= size - used)
            break;
        memcpy(out + used, bytes, n);
        used += n;
    }
    out[used] = 0;
}
