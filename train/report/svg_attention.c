/* Attention weights as a picture: one panel a head, the row word looks at the column words. */
#include "train/train.h"

#include <math.h>

#include "tensor/internal.h"
#include "train/files/files.h"
#include "train/report/decimal.h"
#include "train/report/svg.h"

enum {
    MAX_HEADS = 64,
    MARGIN = 24,
    GAP = 36,           /* between panels */
    TICK = 6,           /* between a label and its row or column */
    TITLE_FONT = 18,    /* heights of letters, in pixels like all lengths here */
    SMALL_FONT = 12,    /* legend and numbers in cells */
    LEGEND_WIDTH = 180, /* of the colour bar */
    LEGEND_HEIGHT = 10,
    HEADER = 92,         /* title and legend, down to the first panel */
    MIN_WIDTH = 620,     /* room for the legend */
    LABEL_LIMIT = 16000, /* a longer word is cut, in thousandths of the font size */
    NUMBERED_CELL = 34,  /* a cell that large shows its number */
    MAX_CELL = 36,       /* for few words */
    MIN_CELL = 17,       /* for many: the smallest at which labels can be read */
    GRID = 460           /* what a panel takes in between */
};
static const char NOT_FINITE[] = "#e8b4b4";
static const double COS = 0.5736, SIN = 0.8192; /* column words rise at 55 degrees */

/* Where everything is. Lengths in pixels; a panel's own from its top left corner. */
typedef struct {
    int cell, font;
    int words, tags; /* widths of the two columns of row labels */
    int left, top;   /* corner of the grid: right of the row labels, below the column words */
    int panel_width, panel_height;
    int columns; /* of panels */
    int width, height;
} layout;

static const char *word_at(const char *const *words, size_t i)
{
    return words[i] != NULL ? words[i] : "";
}

static int pixels(const char *text, int font)
{
    int width = fvi_svg_width(text);
    return ((width < LABEL_LIMIT ? width : LABEL_LIMIT) * font + 999) / 1000;
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

static layout plan(size_t count, const char *const *words, const char *const *tags, size_t heads)
{
    const int n = (int)count;
    layout l = {.cell = GRID / n};
    l.cell = l.cell > MAX_CELL ? MAX_CELL : larger(l.cell, MIN_CELL);
    l.font = l.cell * 3 / 4 > 14 ? 14 : l.cell * 3 / 4;
    l.words = pixels("head 00", l.font);
    int right = 0, up = 0;
    for (int j = 0; j < n; j++) {
        int width = pixels(word_at(words, (size_t)j), l.font);
        l.words = larger(l.words, width);
        if (tags != NULL)
            l.tags = larger(l.tags, pixels(word_at(tags, (size_t)j), l.font));
        right = larger(right, j * l.cell + l.cell / 2 + (int)(COS * width + SIN * l.font));
        up = larger(up, (int)(SIN * width + COS * l.font));
    }
    l.left = l.words + (tags != NULL ? TICK + l.tags : 0) + TICK;
    l.top = up + 2 * TICK;
    l.panel_width = l.left + larger(n * l.cell, right);
    l.panel_height = l.top + n * l.cell;
    l.columns = heads == 1 ? 1 : heads <= 4 ? 2 : (int)ceil(sqrt((double)heads));
    int rows = ((int)heads + l.columns - 1) / l.columns;
    l.width = 2 * MARGIN + l.columns * l.panel_width + (l.columns - 1) * GAP;
    l.width = larger(l.width, MIN_WIDTH);
    l.height = HEADER + rows * l.panel_height + (rows - 1) * GAP + MARGIN;
    return l;
}

/* ---- the parts ------------------------------------------------------------------------------------ */

static void draw_header(fvi_svg *svg, const layout *l, const char *title, double largest)
{
    char color[8], number[40];
    fvi_svg_put(svg,
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
                "viewBox=\"0 0 %d %d\" role=\"img\">\n<title>",
                l->width, l->height, l->width, l->height);
    fvi_svg_escape(svg, title);
    fvi_svg_put(svg,
                "</title>\n<style>\n"
                "text { font-family: \"Noto Sans\", \"DejaVu Sans\", \"Helvetica Neue\", Arial, "
                "\"Noto Sans CJK KR\", sans-serif; font-size: %dpx; fill: #1f2933; }\n"
                ".title { font-size: %dpx; font-weight: 600; }\n"
                ".small { font-size: %dpx; fill: #52606d; }\n"
                ".head { font-weight: 600; }\n"
                ".tag { fill: #7b8794; }\n"
                ".end { text-anchor: end; }\n"
                ".number { font-size: %dpx; text-anchor: middle; pointer-events: none; }\n"
                ".light { fill: #ffffff; }\n"
                ".cells rect:hover { stroke: #d64545; stroke-width: 2; }\n"
                "</style>\n<defs><linearGradient id=\"ramp\">",
                l->font, TITLE_FONT, SMALL_FONT, SMALL_FONT - 1);
    for (int i = 0; i <= 10; i++)
        fvi_svg_put(svg, "<stop offset=\"%d%%\" stop-color=\"%s\"/>", 10 * i,
                    fvi_svg_ramp(i / 10.0, color));
    fvi_svg_put(svg,
                "</linearGradient></defs>\n<rect width=\"100%%\" height=\"100%%\" "
                "fill=\"#ffffff\"/>\n<text class=\"title\" x=\"%d\" y=\"%d\">",
                MARGIN, MARGIN + TITLE_FONT - 4);
    fvi_svg_escape_within(svg, title, (l->width - 2 * MARGIN) * 1000 / TITLE_FONT * 7 / 8);
    const int y = MARGIN + TITLE_FONT + 26, bar = MARGIN + 16;
    fvi_svg_put(
        svg,
        "</text>\n<text class=\"small\" x=\"%d\" y=\"%d\">0</text>"
        "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"url(#ramp)\" "
        "stroke=\"#cbd2d9\"/><text class=\"small\" x=\"%d\" y=\"%d\">%s</text>\n"
        "<text class=\"small\" x=\"%d\" y=\"%d\">the word of a row looks at the words of the "
        "columns</text>\n",
        MARGIN, y, bar, y - LEGEND_HEIGHT, LEGEND_WIDTH, LEGEND_HEIGHT, bar + LEGEND_WIDTH + 8, y,
        fvi_decimal(number, largest, 2), bar + LEGEND_WIDTH + 52, y);
}

static void draw_text(fvi_svg *svg, const char *class, int x, int y, const char *text)
{
    fvi_svg_put(svg, "<text class=\"%s\" x=\"%d\" y=\"%d\">", class, x, y);
    fvi_svg_escape_within(svg, text, LABEL_LIMIT);
    fvi_svg_put(svg, "</text>\n");
}

static void draw_labels(fvi_svg *svg, const layout *l, size_t count, const char *const *words,
                        const char *const *tags, size_t head)
{
    char name[32];
    snprintf(name, sizeof name, "head %zu", head + 1);
    draw_text(svg, "head end", l->words, l->top - TICK, name);
    for (size_t i = 0; i < count; i++) {
        int middle = (int)i * l->cell + l->cell / 2;
        int base = l->top + middle + l->font * 36 / 100;
        draw_text(svg, "end", l->words, base, word_at(words, i));
        if (tags != NULL)
            draw_text(svg, "tag", l->words + TICK, base, word_at(tags, i));
        fvi_svg_put(svg, "<text transform=\"translate(%d %d) rotate(-55)\">",
                    l->left + middle + l->font * 3 / 10, l->top - TICK);
        fvi_svg_escape_within(svg, word_at(words, i), LABEL_LIMIT);
        fvi_svg_put(svg, "</text>\n");
    }
}

/* One cell at (x, y): its colour, its tooltip "from -> to weight" and, where there is room,
 * the number unless it rounds to zero. */
static void draw_cell(fvi_svg *svg, const layout *l, int x, int y, double weight, double largest,
                      const char *from, const char *to)
{
    char color[8], number[40];
    const double share = largest > 0 ? weight / largest : 0;
    fvi_svg_put(svg, "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"%s\"><title>", x, y,
                l->cell - 1, l->cell - 1,
                isfinite(weight) ? fvi_svg_ramp(share, color) : NOT_FINITE);
    fvi_svg_escape(svg, from);
    fvi_svg_put(svg, " \xe2\x86\x92 ");
    fvi_svg_escape(svg, to);
    fvi_svg_put(svg, " %s</title></rect>\n", fvi_decimal(number, weight, 3));
    if (l->cell >= NUMBERED_CELL && weight >= 0.005)
        fvi_svg_put(svg, "<text class=\"number%s\" x=\"%d\" y=\"%d\">%s</text>\n",
                    fvi_svg_ramp_dark(share) ? " light" : "", x + l->cell / 2,
                    y + l->cell / 2 + SMALL_FONT / 3, fvi_decimal(number, weight, 2));
}

static void draw_cells(fvi_svg *svg, const layout *l, size_t count, const char *const *words,
                       const float *weights, double largest)
{
    const int size = (int)count * l->cell;
    fvi_svg_put(svg,
                "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#d9e0e8\"/>\n"
                "<g class=\"cells\">\n",
                l->left - 1, l->top - 1, size + 1, size + 1);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < count; j++)
            draw_cell(svg, l, l->left + (int)j * l->cell, l->top + (int)i * l->cell,
                      (double)weights[i * count + j], largest, word_at(words, i),
                      word_at(words, j));
    fvi_svg_put(svg, "</g>\n");
}

/* ---- the picture ------------------------------------------------------------------------------------ */

static double largest_weight(size_t numbers, const float *weights)
{
    double largest = 0;
    for (size_t i = 0; i < numbers; i++)
        if (isfinite(weights[i]) && (double)weights[i] > largest)
            largest = (double)weights[i];
    return largest;
}

bool fv_svg_attention(const char *path, const char *title, size_t count, const char *const *words,
                      const char *const *tags, size_t heads, const float *weights, fv_error *error)
{
    if (path == NULL || words == NULL || weights == NULL)
        return fv_fail(error, FV_USAGE, "attention picture: no path, words or weights");
    if (count == 0 || count > FV_SVG_WORDS || heads == 0 || heads > MAX_HEADS)
        return fv_fail(
            error, FV_USAGE,
            "attention picture: %zu words and %zu heads; expected 1 to %d words and 1 to "
            "%d heads",
            count, heads, FV_SVG_WORDS, MAX_HEADS);
    const layout l = plan(count, words, tags, heads);
    const double largest = largest_weight(heads * count * count, weights);
    fvi_svg svg = {0};
    draw_header(&svg, &l, title != NULL ? title : "attention", largest);
    for (size_t h = 0; h < heads; h++) {
        int column = (int)h % l.columns, row = (int)h / l.columns;
        fvi_svg_put(&svg, "<g transform=\"translate(%d %d)\">\n",
                    MARGIN + column * (l.panel_width + GAP), HEADER + row * (l.panel_height + GAP));
        draw_labels(&svg, &l, count, words, tags, h);
        draw_cells(&svg, &l, count, words, weights + h * count * count, largest);
        fvi_svg_put(&svg, "</g>\n");
    }
    fvi_svg_put(&svg, "</svg>\n");
    bool ok = !svg.failed ? fvi_write_file(path, svg.text, svg.length, error)
                          : fv_fail(error, FV_FAILED, "%s: out of memory", path);
    fvi_free(svg.text);
    return ok;
}
