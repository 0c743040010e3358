/* Progress bar, metrics file and attention picture: their exact texts. */
#define _XOPEN_SOURCE 700 /* for pseudo-terminals */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <signal.h>
#include <termios.h>
#include <unistd.h>
#include <utf8proc.h>

#include "tensor/internal.h"
#include "tests/memory.h"
#include "train/report/decimal.h"
#include "train/report/svg.h"
#include "train/train.h"

/* ---- helpers ----------------------------------------------------------------------------------- */

static char folder[] = "/tmp/fovea-report-XXXXXX";
static char path[100];

static void make_folder(void)
{
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
}

static void drop_folder(void)
{
    unlink(path);
    rmdir(folder);
}

static char content[1 << 20];

static const char *slurp(void)
{
    FILE *file = fopen(path, "rb");
    content[0] = 0;
    if (file != NULL) {
        content[fread(content, 1, sizeof content - 1, file)] = 0;
        fclose(file);
    }
    return content;
}

static void fill(const char *text)
{
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
}

static size_t occurrences(const char *text, const char *part)
{
    size_t found = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++)
        found++;
    return found;
}

/* ---- numbers ------------------------------------------------------------------------------------- */

Test(report, decimals)
{
    const struct {
        double x;
        int digits;
        const char *text;
    } cases[] = {{0, 2, "0.00"},      {0.4567, 2, "0.46"}, {0.996, 2, "1.00"},
                 {12.05, 0, "12"},    {-1.5, 1, "-1.5"},   {1e300, 2, "inf"},
                 {-1e300, 2, "-inf"}, {NAN, 2, "nan"},     {0.000001, 6, "0.000001"},
                 {7, 3, "7.000"}};
    char text[40];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_expect_str_eq(fvi_decimal(text, cases[i].x, cases[i].digits), cases[i].text);
}

/* ---- progress ------------------------------------------------------------------------------------ */

/* A run that began so many seconds ago and was last drawn long ago. */
static void age(fv_progress *p, double seconds)
{
    p->started -= seconds;
    p->drawn -= 1000;
}

Test(progress, plain_lines, .init = make_folder, .fini = drop_folder)
{
    fv_progress p;
    FILE *out = fopen(path, "wb");
    fv_progress_begin(&p, out, 0, 1000);
    cr_expect_not(p.terminal);
    cr_expect_not(p.color);
    fv_progress_update(&p, 1, "too early");
    age(&p, 1000);
    fv_progress_update(&p, 250, "loss 0.5");
    fv_progress_update(&p, 251, "too early");
    fv_progress_end(&p, "loss 0.25");
    fv_progress_end(&p, "ended already");
    fclose(out);
    cr_expect_str_eq(slurp(), " 25 %  250/1000  4.0 s/step  50:00 left  loss 0.5\n"
                              " 25 %  251/1000  4.0 s/step  in 16:40  loss 0.25\n");
}

Test(progress, resumed_run_counts_its_own_steps, .init = make_folder, .fini = drop_folder)
{
    fv_progress p;
    FILE *out = fopen(path, "wb");
    fv_progress_begin(&p, out, 900, 1000);
    age(&p, 1);
    fv_progress_update(&p, 900, NULL);
    age(&p, 19999);
    fv_progress_update(&p, 950, "");
    fv_progress_end(&p, NULL);
    fclose(out);
    cr_expect_str_eq(slurp(), " 90 %  900/1000\n 95 %  950/1000  400 s/step  5:33:20 left\n");
}

Test(progress, nowhere)
{
    fv_progress p;
    fv_progress_begin(&p, NULL, 0, 10);
    fv_progress_update(&p, 1, "x");
    fv_progress_end(&p, "x");
}

/* The two ends of a pseudo-terminal of that many columns. */
static int open_terminal(int columns, FILE **out)
{
    int ours = posix_openpt(O_RDWR | O_NOCTTY);
    if (ours < 0 || grantpt(ours) != 0 || unlockpt(ours) != 0)
        cr_skip_test("no pseudo-terminal on this machine");
    int theirs = open(ptsname(ours), O_RDWR | O_NOCTTY);
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    struct termios mode;
    cr_assert(theirs >= 0 && ioctl(theirs, TIOCSWINSZ, &size) == 0 &&
              tcgetattr(theirs, &mode) == 0);
    mode.c_oflag &= ~(tcflag_t)OPOST;
    cr_assert_eq(tcsetattr(theirs, TCSANOW, &mode), 0);
    *out = fdopen(theirs, "w");
    return ours;
}

static const char *drawn(int ours)
{
    ssize_t length = read(ours, content, sizeof content - 1);
    content[length > 0 ? length : 0] = 0;
    return content;
}

Test(progress, terminal)
{
    FILE *out;
    setenv("NO_COLOR", "1", 1);
    setenv("TERM", "xterm", 1);
    int ours = open_terminal(60, &out);
    fv_progress p;
    fv_progress_begin(&p, out, 0, 100);
    cr_assert(p.terminal);
    cr_expect_not(p.color);
    fv_progress_update(&p, 1, "too early");
    age(&p, 1000);
    fv_progress_update(&p, 50, "loss");
    cr_expect_str_eq(drawn(ours),
                     "\r 50 %  [=====>-----]  50/100  20.0 s/step  16:40 left  loss\033[K");
    age(&p, 0);
    fv_progress_update(&p, 50, "a text that is much too long for the line");
    cr_expect_str_eq(drawn(ours),
                     "\r 50 %  50/100  20.0 s/step  16:40 left  a text that is much\033[K");
    age(&p, 0);
    fv_progress_update(&p, 50, "bell\a \xec\xb1\x85\xff and a text that is long");
    cr_expect_str_eq(
        drawn(ours),
        "\r 50 %  50/100  20.0 s/step  16:40 left  bell? \xec\xb1\x85? and a tex\033[K");
    fv_progress_end(&p, NULL);
    cr_expect_str_eq(drawn(ours), "\r\033[K");
    fv_progress_begin(&p, out, 0, 100);
    age(&p, 1000);
    p.done = 100;
    fv_progress_end(&p, "done");
    cr_expect_str_eq(drawn(ours), "\r100 %  100/100  10.0 s/step  in 16:40  done\033[K\n");
}

Test(progress, colors_only_where_wanted)
{
    FILE *out;
    unsetenv("NO_COLOR");
    setenv("TERM", "xterm", 1);
    int ours = open_terminal(80, &out);
    fv_progress p;
    fv_progress_begin(&p, out, 0, 4);
    cr_expect(p.color);
    age(&p, 1000);
    fv_progress_update(&p, 1, NULL);
    cr_expect(strstr(drawn(ours), "\033[32m==========\033[0;2m>---") != NULL, "%s", content);
    setenv("TERM", "dumb", 1);
    fv_progress_begin(&p, out, 0, 4);
    cr_expect_not(p.terminal);
}

/* ---- metrics file -------------------------------------------------------------------------------- */

Test(metrics_file, append, .init = make_folder, .fini = drop_folder)
{
    fv_error error = {0};
    cr_expect(fv_metrics_append(path, "{\"epoch\": 1}", &error), "%s", error.text);
    cr_expect(fv_metrics_append(path, "{\"epoch\": 2}", NULL));
    cr_expect_str_eq(slurp(), "{\"epoch\": 1}\n{\"epoch\": 2}\n");
    const char *const bad[] = {"", "[]", "{\"epoch\":", "{}\n{}", "{\n}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        error = (fv_error){0};
        cr_expect_not(fv_metrics_append(path, bad[i], &error));
        cr_expect_eq(error.status, FV_USAGE);
    }
    cr_expect_str_eq(slurp(), "{\"epoch\": 1}\n{\"epoch\": 2}\n");
    error = (fv_error){0};
    cr_expect_not(fv_metrics_append(folder, "{}", &error));
    cr_expect_eq(error.status, FV_DISK);
    cr_expect(strstr(error.text, folder) != NULL, "%s", error.text);
    cr_expect_not(fv_metrics_append(NULL, "{}", NULL));
}

Test(metrics_file, a_full_disk_leaves_whole_lines, .init = make_folder, .fini = drop_folder)
{
    fv_error error = {0};
    cr_assert(fv_metrics_append(path, "{\"epoch\": 1}", &error));
    const struct rlimit limit = {20,
                                 20}; /* bytes a file may have: the write below is a short one */
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    bool ok = fv_metrics_append(path, "{\"epoch\": 2, \"loss\": 0.5}", &error);
    cr_expect_not(ok);
    cr_expect_eq(error.status, FV_DISK);
    cr_expect_str_eq(slurp(), "{\"epoch\": 1}\n");
}

Test(metrics_file, cut, .init = make_folder, .fini = drop_folder)
{
    const struct {
        const char *before, *after;
        uint64_t epoch;
    } cases[] = {
        {"", "", 0},
        {"{\"epoch\": 1}\n{\"epoch\": 2}\n", "{\"epoch\": 1}\n{\"epoch\": 2}\n", 2},
        {"{\"epoch\": 1}\n{\"epoch\": 2}\n{\"epoch\": 3}\n", "{\"epoch\": 1}\n", 1},
        {"{\"epoch\": 1}\n{\"epoch\": 2}\n", "", 0},
        {"{\"epoch\": 1}\n{\"epoch\": 2, \"lo", "{\"epoch\": 1}\n", 2}, /* cut short by a crash */
        {"{\"epoch\": 1}\n{\"epoch\": 2}", "{\"epoch\": 1}\n{\"epoch\": 2}\n", 2},
        {"{\"epoch\": 1}\n{\"epoch\": 2}", "{\"epoch\": 1}\n", 1},
        {"{\"seed\": 7}\n{\"epoch\": 2}\n{\"epoch\": 1}\n", "{\"seed\": 7}\n{\"epoch\": 1}\n", 1},
    };
    fv_error error = {0};
    cr_expect(fv_metrics_cut(path, 3, &error), "a missing file is fine: %s", error.text);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fill(cases[i].before);
        cr_expect(fv_metrics_cut(path, cases[i].epoch, &error), "%s", error.text);
        cr_expect_str_eq(slurp(), cases[i].after, "case %zu", i);
    }
}

Test(metrics_file, cut_refuses_what_is_no_metrics_file, .init = make_folder, .fini = drop_folder)
{
    const struct {
        const char *before, *where;
    } cases[] = {
        {"{\"epoch\": 1}\nx\n{\"epoch\": 2}\n", ":2:1: "},
        {"[]\n", ":1:1: no object; expected one JSON object"},
        {"{\"epoch\": 1}\n\n{\"epoch\": 2}\n", ":2:1: "},
        {"{\"epoch\" 1}\n{\"epoch\": 2}\n", ":1:10: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fv_error error = {0};
        fill(cases[i].before);
        cr_expect_not(fv_metrics_cut(path, 1, &error));
        cr_expect_eq(error.status, FV_DATA);
        cr_expect(strstr(error.text, cases[i].where) != NULL, "%s", error.text);
        cr_expect_str_eq(slurp(), cases[i].before);
    }
    fv_error error = {0};
    cr_expect_not(fv_metrics_cut(folder, 1, &error));
    cr_expect_eq(error.status, FV_DATA);
}

/* ---- pictures ------------------------------------------------------------------------------------ */

static double lightness(const char color[8])
{
    unsigned long rgb = strtoul(color + 1, NULL, 16);
    double light = 0;
    const double share[] = {0.0722, 0.7152, 0.2126}; /* blue, green, red */
    for (int i = 0; i < 3; i++, rgb >>= 8)
        light += share[i] * pow((double)(rgb & 255) / 255, 2.2);
    return cbrt(light);
}

Test(svg, ramp_is_even)
{
    char color[8];
    cr_expect_str_eq(fvi_svg_ramp(0, color), "#ffffff");
    cr_expect_str_eq(fvi_svg_ramp(-1, color), "#ffffff");
    cr_expect_str_eq(fvi_svg_ramp(NAN, color), "#ffffff");
    double last = lightness(fvi_svg_ramp(0, color)),
           step = (last - lightness(fvi_svg_ramp(1, color))) / 10;
    for (int i = 1; i <= 10; i++) {
        double light = lightness(fvi_svg_ramp(i / 10.0, color));
        cr_expect(fabs(last - light - step) < 0.3 * step, "%d: %g against %g", i, last - light,
                  step);
        last = light;
    }
}

Test(svg, widths)
{
    cr_expect_eq(fvi_svg_width(""), 0);
    cr_expect_eq(fvi_svg_width("aM"), 1640);
    cr_expect_eq(fvi_svg_width("\xec\xb1\x85"), 1000, "a Hangul syllable is as wide as it is high");
    cr_expect_eq(fvi_svg_width("e\xcc\x81"), 640, "a combining accent takes no room");
    cr_expect_eq(fvi_svg_width("\xff"), 700, "a malformed byte is one character");
}

/* What a picture shows of a text, cut to a width when there is one. */
static const char *escaped(const char *text, int width)
{
    static char kept[200];
    fvi_svg svg = {0};
    if (width > 0)
        fvi_svg_escape_within(&svg, text, width);
    else
        fvi_svg_escape(&svg, text);
    cr_assert_not(svg.failed);
    snprintf(kept, sizeof kept, "%.*s", (int)svg.length, svg.text);
    fvi_free(svg.text);
    return kept;
}

Test(svg, escapes)
{
    cr_expect_str_eq(escaped("<a href=\"x\"> & b", 0), "&lt;a href=&quot;x&quot;&gt; &amp; b");
    cr_expect_str_eq(escaped("a\x01\xff\xed\xa0\x80", 0),
                     "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    cr_expect_str_eq(escaped("aaaa", 2560), "aaaa");
    cr_expect_str_eq(escaped("aaaaa", 2560), "aa\xe2\x80\xa6");
}

Test(svg, attention, .init = make_folder, .fini = drop_folder)
{
    const char *const words[] = {"Tom", "&", "<J>"}, *const tags[] = {"PROPN", "CCONJ", "X"};
    const float weights[2][3][3] = {{{0.5f, 0.25f, 0.25f}, {0, 1, 0}, {0, 0, 1}},
                                    {{0, 0, 0}, {0.25f, 0.75f, 0}, {NAN, 0, 0}}};
    fv_error error = {0};
    cr_assert(fv_svg_attention(path, "a < b", 3, words, tags, 2, &weights[0][0][0], &error), "%s",
              error.text);
    const char *svg = slurp();
    size_t at;
    cr_expect(fv_utf8_valid(svg, strlen(svg), &at));
    cr_expect_eq(occurrences(svg, "<title>a &lt; b</title>"), 1);
    cr_expect_eq(occurrences(svg, ">head 1</text>"), 1);
    cr_expect_eq(occurrences(svg, ">head 2</text>"), 1);
    cr_expect_eq(occurrences(svg, ">head 3</text>"), 0);
    cr_expect_eq(occurrences(svg, ">Tom</text>"), 4, "a row and a column in each of two panels");
    cr_expect_eq(occurrences(svg, ">PROPN</text>"), 2);
    cr_expect_eq(occurrences(svg, "</title></rect>"), 18, "a tooltip in each cell");
    cr_expect_eq(occurrences(svg, "<title>Tom \xe2\x86\x92 &amp; 0.250</title>"), 1);
    cr_expect_eq(occurrences(svg, "<title>&lt;J&gt; \xe2\x86\x92 Tom nan</title>"), 1);
    cr_expect_eq(occurrences(svg, ">1.00</text>"), 3, "two cells and the end of the legend");
    cr_expect_eq(occurrences(svg, "<g "), occurrences(svg, "</g>"));
    cr_expect_eq(occurrences(svg, "<text "), occurrences(svg, "</text>"));
}

Test(svg, attention_refuses, .init = make_folder, .fini = drop_folder)
{
    const char *const words[] = {"a"};
    const float weight = 1;
    fv_error error = {0};
    cr_expect_not(fv_svg_attention(path, "t", 0, words, NULL, 1, &weight, &error));
    cr_expect_str_eq(error.text,
                     "attention picture: 0 words and 1 heads; expected 1 to 1000 words and "
                     "1 to 64 heads");
    cr_expect_not(fv_svg_attention(path, "t", 1, words, NULL, 65, &weight, NULL));
    cr_expect_not(fv_svg_attention(NULL, "t", 1, words, NULL, 1, &weight, NULL));
    error = (fv_error){0};
    cr_expect_not(fv_svg_attention(folder, "t", 1, words, NULL, 1, &weight, &error));
    cr_expect_eq(error.status, FV_DISK);
    cr_expect(fv_svg_attention(path, NULL, 1, words, NULL, 1, &weight, &error));
}

Test(svg, every_request_for_memory_may_fail, .init = make_folder, .fini = drop_folder)
{
    const char *const words[] = {"a", "b", "c"};
    const float weights[9] = {1};
    size_t before = test_requests(), blocks = test_blocks();
    cr_assert(fv_svg_attention(path, "t", 3, words, words, 1, weights, NULL));
    cr_assert(fv_metrics_append(path, "{}", NULL));
    for (size_t n = 1, end = test_requests() - before; n <= end; n++) {
        fill("");
        test_fail_after(n);
        fv_error error = {0};
        cr_expect_not(fv_svg_attention(path, "t", 3, words, words, 1, weights, &error) &&
                      fv_metrics_append(path, "{}", &error));
        cr_expect_eq(error.status, FV_FAILED, "request %zu: %s", n, error.text);
        test_fail_after(0);
        cr_expect_eq(test_blocks(), blocks);
    }
}
