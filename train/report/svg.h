/* What pictures are drawn with: a growing text, escaped words, their widths, and a ramp of colours. */
#ifndef FVI_SVG_H
#define FVI_SVG_H

#include "tensor/tensor.h"

/* An SVG under way. Memory that runs out sets failed, and all further drawing does nothing. */
typedef struct {
    char *text;
    size_t length, capacity;
    bool failed;
} fvi_svg;

void fvi_svg_put(fvi_svg *svg, const char *format, ...) FV_PRINTF(2, 3);
/* Adds text as XML: markup escaped, malformed UTF-8 and control characters as U+FFFD. */
void fvi_svg_escape(fvi_svg *svg, const char *text);
/* The same, cut to a width in thousandths of the font size, with an ellipsis when something is cut. */
void fvi_svg_escape_within(fvi_svg *svg, const char *text, int width);
/* How wide text is, in thousandths of the font size: not less than in the widest common sans serif. */
int fvi_svg_width(const char *text);

/* "#rrggbb" for a share from 0 (white) to 1 (deep blue): even steps of lightness to the eye, one hue. */
const char *fvi_svg_ramp(double share, char color[8]);
/* Whether white letters read better on that colour than dark ones. */
bool fvi_svg_ramp_dark(double share);

#endif
