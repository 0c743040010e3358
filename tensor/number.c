/* Numbers as texts that do not depend on the locale. */
#include "tensor/internal.h"

#include <string.h>

void fvi_use_point(char *text)
{
    char *to = text;
    for (const char *from = text; *from != 0; from++)
        if (strchr("+-0123456789einfa", *from) != NULL)
            *to++ = *from;
        else if (to == text || to[-1] != '.') /* a comma, or the first of several bytes */
            *to++ = '.';
    *to = 0;
}

const char *fvi_number(char text[FVI_NUMBER], double x, int digits)
{
    snprintf(text, FVI_NUMBER, "%.*g", digits, x);
    fvi_use_point(text);
    return text;
}
