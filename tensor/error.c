/* Errors: the first one is kept. */
#include "tensor/internal.h"

#include <stdarg.h>

bool fv_fail(fv_error *error, fv_status status, const char *format, ...)
{
    if (error == NULL || error->status != FV_OK)
        return false;
    error->status = status;
    va_list args;
    va_start(args, format);
    vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    for (char *c = error->text; *c; c++)
        if ((unsigned char)*c < ' ')
            *c = ' ';
    return false;
}
