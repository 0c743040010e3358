/* Attention by hand: a gradient check passes what is right, and finds three mistakes that people make. */
#include <stdio.h>
#include <string.h>
#include <tgmath.h> /* exp and sqrt of whatever fv_real is */

#include "autograd/op.h"
#include "fovea.h"

static const char usage[] =
    "examples:\n"
    "  gradcheck_attention      checks attention written by hand, then with planted mistakes\n"
    "\n"
    "Linked with libfoveac, where derivatives are exact. Exit codes: 0 the right layer passed and "
    "all\n"
    "mistakes were found, 1 otherwise, 2 usage.\n";

/* What may be wrong with the backward rules below. */
typedef enum { NOTHING, FORGOTTEN_SUM, FORGOTTEN_SCALE, ASSIGNED, MISTAKES } mistake;
static const char *const mistakes[MISTAKES] = {"attention by hand", "softmax without its sum",
                                               "scores without their scale", "= where += belongs"};

/* ---- scores: y = q k' / sqrt(d), [rows, d] twice -> [rows, rows] -------------------------------------- */

static bool scores_forward(fv_tape *t, fv_var *y)
{
    (void)t;
    const fv_real *q = y->in[0]->value.data, *k = y->in[1]->value.data;
    const size_t rows = y->value.shape.size[0], d = y->in[0]->value.shape.size[1];
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < rows; j++) {
            fv_real sum = 0;
            for (size_t c = 0; c < d; c++)
                sum += q[i * d + c] * k[j * d + c];
            y->value.data[i * rows + j] = sum / (fv_real)sqrt((double)d);
        }
    return true;
}

/* dq = dy k / sqrt(d), dk = dy' q / sqrt(d) */
static void scores_backward(fv_tape *t, fv_var *y)
{
    const mistake planted = *(const mistake *)y->options;
    const fv_real *q = y->in[0]->value.data, *k = y->in[1]->value.data, *dy = y->grad;
    const size_t rows = y->value.shape.size[0], d = y->in[0]->value.shape.size[1];
    fv_real *dq = fv_grad(t, y->in[0]), *dk = fv_grad(t, y->in[1]); /* NULL when not asked for */
    const fv_real scale = (fv_real)sqrt((double)d);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < rows; j++)
            for (size_t c = 0; c < d; c++) {
                if (dq != NULL)
                    dq[i * d + c] += dy[i * rows + j] * k[j * d + c] / scale;
                if (dk != NULL)
                    dk[j * d + c] +=
                        dy[i * rows + j] * q[i * d + c] / (planted == FORGOTTEN_SCALE ? 1 : scale);
            }
}

static const fv_op scores = {
    .name = "scores_by_hand", .forward = scores_forward, .backward = scores_backward};

/* ---- softmax of each row ----------------------------------------------------------------------------- */

static bool softmax_forward(fv_tape *t, fv_var *y)
{
    (void)t;
    const fv_real *x = y->in[0]->value.data;
    const size_t rows = y->value.shape.size[0], d = y->value.shape.size[1];
    for (size_t i = 0; i < rows; i++) {
        fv_real sum = 0;
        for (size_t j = 0; j < d; j++)
            sum += y->value.data[i * d + j] = exp(x[i * d + j]);
        for (size_t j = 0; j < d; j++)
            y->value.data[i * d + j] /= sum;
    }
    return true;
}

/* dx = y (dy - sum over the row of y dy): the sum is there because all share the denominator */
static void softmax_backward(fv_tape *t, fv_var *y)
{
    const mistake planted = *(const mistake *)y->options;
    const fv_real *p = y->value.data, *dy = y->grad;
    const size_t rows = y->value.shape.size[0], d = y->value.shape.size[1];
    fv_real *dx = fv_grad(t, y->in[0]);
    for (size_t i = 0; dx != NULL && i < rows; i++) {
        fv_real sum = 0;
        for (size_t j = 0; j < d && planted != FORGOTTEN_SUM; j++)
            sum += p[i * d + j] * dy[i * d + j];
        for (size_t j = 0; j < d; j++) {
            const fv_real slope = p[i * d + j] * (dy[i * d + j] - sum);
            dx[i * d + j] = planted == ASSIGNED ? slope : dx[i * d + j] + slope;
        }
    }
}

static const fv_op softmax = {
    .name = "softmax_by_hand", .forward = softmax_forward, .backward = softmax_backward};

/* ---- the layer and its check ---------------------------------------------------------------------------- */

/* x [rows, d] is projected to queries, keys and values; y = tanh(softmax(scores) values). The check samples
 * all inputs, weights included; the context is the mistake to make. */
static fv_var *attention(fv_sampler *s, void *context)
{
    enum { ROWS = 5, D = 4 };
    fv_tape *t = fv_sampler_tape(s);
    fv_var *x = fv_sample(s, FV_SHAPE(ROWS, D), -1, 1), *in[3];
    for (int i = 0; i < 3; i++) {
        in[i] = fv_affine(t, x, fv_sample(s, FV_SHAPE(D, D), -1, 1), NULL);
        if (in[i] == NULL)
            return NULL;
    }
    const fv_shape square = FV_SHAPE(ROWS, ROWS);
    fv_var *p = fv_record(t, &scores, square, context, sizeof(mistake), 2, in);
    p = p ? fv_record(t, &softmax, square, context, sizeof(mistake), 1, &p) : NULL;
    return fv_tanh(t, fv_matmul(t, p, in[2], NULL));
}

int main(int argc, char **argv)
{
    bool as_expected = true;
    if (argc > 1) {
        const bool help = strcmp(argv[1], "--help") == 0;
        fputs(usage, help ? stdout : stderr);
        return help ? 0 : 2;
    }
    for (mistake m = NOTHING; m < MISTAKES; m++) {
        fv_gradcheck_result r;
        const bool ok = fv_gradcheck(attention, &m, NULL, &r);
        if (ok)
            printf("%s: passed\n  gradient within %.1e, Hessian symmetric within %.1e\n",
                   mistakes[m], r.first_order, r.second_order);
        else
            printf("%s: found\n  %s\n", mistakes[m], r.error.text);
        as_expected = as_expected && ok == (m == NOTHING);
    }
    if (!as_expected)
        fputs("gradcheck_attention: the check did not tell right from wrong\n", stderr);
    return as_expected ? 0 : 1;
}
