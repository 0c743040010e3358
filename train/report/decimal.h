/* Numbers as texts whose point is a point in every locale. */
#ifndef FVI_DECIMAL_H
#define FVI_DECIMAL_H

#include <math.h>
#include <stdio.h>

/* Writes x with that many digits (0 to 6) after the point: 0.4567, 2 -> "0.46". */
static inline const char *fvi_decimal(char text[40], double x, int digits)
{
    const char *sign = x < 0 ? "-" : "";
    unsigned long long unit = 1;
    for (int i = 0; i < digits; i++)
        unit *= 10;
    double scaled = fabs(x) * (double)unit;
    if (!(scaled < 1e18)) {
        snprintf(text, 40, "%s", isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
        return text;
    }
    unsigned long long whole = (unsigned long long)(scaled + 0.5);
    if (digits == 0)
        snprintf(text, 40, "%s%llu", sign, whole);
    else
        snprintf(text, 40, "%s%llu.%0*llu", sign, whole / unit, digits, whole % unit);
    return text;
}

#endif
