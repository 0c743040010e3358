/* What pictures are drawn with: a growing text, escaped words, their widths, and a ramp of colours. */
#include "train/report/svg.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <utf8proc.h>

#include "tensor/internal.h"

/* ---- text -------------------------------------------------------------------------------------- */

static bool make_room(fvi_svg *svg, size_t more)
{
    size_t needed;
    if (svg->failed || !fvi_add(svg->length, more, &needed) || !fvi_add(needed, 1, &needed))
        svg->failed = true;
    while (!svg->failed && svg->capacity < needed)
        svg->failed = !fvi_grow(&svg->text, svg->capacity, &svg->capacity, 1);
    return !svg->failed;
}

void fvi_svg_put(fvi_svg *svg, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0)
        svg->failed = true;
    if (make_room(svg, length > 0 ? (size_t)length : 0)) {
        vsnprintf(svg->text + svg->length, (size_t)length + 1, format, again);
        svg->length += (size_t)length;
    }
    va_end(again);
}

static void put_bytes(fvi_svg *svg, const char *bytes, size_t length)
{
    if (!make_room(svg, length))
        return;
    memcpy(svg->text + svg->length, bytes, length);
    svg->length += length;
}

/* The next character of a text and its bytes; what XML does not allow is U+FFFD. */
static utf8proc_int32_t next_character(const char *text, size_t *bytes)
{
    utf8proc_int32_t c;
    utf8proc_ssize_t length = utf8proc_iterate((const utf8proc_uint8_t *)text, -1, &c);
    *bytes = length > 0 ? (size_t)length : 1;
    if (length <= 0 || utf8proc_category(c) == UTF8PROC_CATEGORY_CC || c == 0xfffe || c == 0xffff)
        return 0xfffd;
    return c;
}

/* In thousandths of the font size: not less than in DejaVu Sans, wider than most. */
static int character_width(utf8proc_int32_t c)
{
    if (c < 0x80) {
        if (strchr("ijlI|!.,:;'`", (char)c))
            return 400;
        if (strchr("frt()[]{}/\\\"- ", (char)c))
            return 460;
        if (strchr("mwMW@%&", (char)c))
            return 1000;
        return c >= 'A' && c <= 'Z' ? 790 : 640;
    }
    int columns = utf8proc_charwidth(c);
    return columns == 0 ? 0 : columns == 1 ? 700 : 1000;
}

int fvi_svg_width(const char *text)
{
    enum { ENOUGH = 1000000 }; /* no label is that wide */
    int width = 0;
    for (size_t bytes; *text != 0 && width < ENOUGH; text += bytes)
        width += character_width(next_character(text, &bytes));
    return width;
}

static void escape(fvi_svg *svg, const char *text, int width)
{
    for (size_t bytes; *text != 0; text += bytes) {
        utf8proc_int32_t c = next_character(text, &bytes);
        width -= character_width(c);
        if (width < 0)
            return;
        switch (c) {
        case '&':
            put_bytes(svg, "&amp;", 5);
            break;
        case '<':
            put_bytes(svg, "&lt;", 4);
            break;
        case '>':
            put_bytes(svg, "&gt;", 4);
            break;
        case '"':
            put_bytes(svg, "&quot;", 6);
            break;
        case 0xfffd:
            put_bytes(svg, "\xef\xbf\xbd", 3);
            break;
        default:
            put_bytes(svg, text, bytes);
        }
    }
}

void fvi_svg_escape(fvi_svg *svg, const char *text)
{
    escape(svg, text, INT32_MAX);
}

void fvi_svg_escape_within(fvi_svg *svg, const char *text, int width)
{
    enum { ELLIPSIS = 1000 };
    if (fvi_svg_width(text) <= width) {
        fvi_svg_escape(svg, text);
    } else {
        escape(svg, text, width - ELLIPSIS);
        put_bytes(svg, "\xe2\x80\xa6", 3);
    }
}

/* ---- colours ------------------------------------------------------------------------------------- */

static int channel(double linear)
{
    double value = linear <= 0.0031308 ? 12.92 * linear : 1.055 * pow(linear, 1 / 2.4) - 0.055;
    return value <= 0 ? 0 : value >= 1 ? 255 : (int)(255 * value + 0.5);
}

/* In OKLab (Ottosson, "A perceptual color space for image processing", 2020), where equal steps of
 * lightness look equal: lightness falls on a line, the hue stays, the chroma rises fast and then stays. */
const char *fvi_svg_ramp(double share, char color[8])
{
    const double hue = 4.53, darkest = 0.32; /* radians; of 1 */
    double s = !(share > 0) ? 0 : share > 1 ? 1 : share;
    double lightness = 1 - (1 - darkest) * s, chroma = 0.36 * s - 0.25 * s * s;
    double a = chroma * cos(hue), b = chroma * sin(hue);
    double l = pow(lightness + 0.3963377774 * a + 0.2158037573 * b, 3);
    double m = pow(lightness - 0.1055613458 * a - 0.0638541728 * b, 3);
    double n = pow(lightness - 0.0894841775 * a - 1.2914855480 * b, 3);
    snprintf(color, 8, "#%02x%02x%02x",
             (unsigned)channel(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * n),
             (unsigned)channel(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * n),
             (unsigned)channel(-0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * n));
    return color;
}

bool fvi_svg_ramp_dark(double share)
{
    return share > 0.5;
}
