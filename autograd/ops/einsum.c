/* Einstein's summation for one or two operands: the notation, read into letters for contract.h. */
#include "autograd/ops/contract.h"

#include <string.h>

#define einsum_forward  fvi_contract_forward
#define einsum_backward fvi_contract_backward /* da = einsum of dy and b to the letters of a */

static fv_var *einsum_sample(fv_sampler *s, int which)
{
    fv_tape *t = fv_sampler_tape(s);
    static const struct {
        const char *notation;
        fv_shape a, b; /* rank -1: none; -2: a again */
    } cases[] = {
        {"bij,bjk->bik", {3, {2, 3, 4}}, {3, {2, 4, 2}}},
        {"ij->ji", {2, {3, 4}}, {.rank = -1}},
        {"ii->i", {2, {4, 4}}, {.rank = -1}},
        {"ii", {2, {4, 4}}, {.rank = -1}},
        {"...ij,...jk->...ik", {4, {2, 1, 3, 2}}, {3, {3, 2, 2}}},
        {"i,j->ji", {1, {3}}, {1, {4}}},
        {"ij,ij->ij", {2, {3, 4}}, {.rank = -2}},
        {"ij,ij", {2, {3, 4}}, {2, {3, 4}}},
        {"aik,bk->ab", {3, {2, 3, 4}}, {2, {5, 4}}}, /* i stands in a alone */
        {"aij,bji->ab", {3, {2, 3, 4}}, {3, {5, 4, 3}}},
        {"iij,jk->kj", {3, {3, 3, 2}}, {2, {2, 4}}},
        {"bqhd,bkhd->bhqk", {4, {2, 3, 2, 2}}, {4, {2, 4, 2, 2}}},
        {"bi,bj->ijb", {2, {3, 2}}, {2, {3, 4}}},
        {"ik,kj", {2, {1, 1}}, {2, {1, 1}}},
        {"ab,...->a...", {2, {2, 3}}, {2, {2, 2}}}, /* b is summed over and repeated */
        {"ikb,kjb->jib", {3, {2, 3, 2}}, {3, {3, 4, 2}}},
        {"abij,abjk->ki", {4, {2, 2, 3, 2}}, {4, {2, 2, 2, 3}}},
    };
    fv_var *a = fv_sample(s, cases[which].a, -1, 1), *b = NULL;
    if (cases[which].b.rank == -2)
        b = a;
    else if (cases[which].b.rank >= 0)
        b = fv_sample(s, cases[which].b, -1, 1);
    return fv_einsum(t, cases[which].notation, a, b);
}
FVI_OP(einsum, "y[kept letters] = sum over the other letters of a * b", "", 17)

#if FVI_ONCE
enum { DOTS = 256 }; /* an axis of "...": DOTS + its number from the last */

/* One operand's or the result's part of the notation. */
typedef struct {
    int count, dots; /* letters; where "..." stands among them, or -1 */
    int letter[FV_MAX_RANK + 1];
    size_t at[FV_MAX_RANK + 1]; /* where in the notation */
} term;

typedef struct {
    fv_tape *t;
    const char *text, *next;
} reader;

static bool wrong(const reader *r, size_t at, const char *why)
{
    fv_refuse(r->t, "einsum", "\"%.100s\": %s at %zu", r->text, why, at);
    return false;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static void skip_spaces(reader *r)
{
    while (*r->next == ' ')
        r->next++;
}

/* Reads letters and dots up to a comma, an arrow or the end. */
static bool read_term(reader *r, term *out)
{
    *out = (term){.dots = -1};
    for (skip_spaces(r); *r->next != '\0' && *r->next != ',' && *r->next != '-'; skip_spaces(r)) {
        const size_t at = (size_t)(r->next - r->text);
        if (strncmp(r->next, "...", 3) == 0) {
            if (out->dots >= 0)
                return wrong(r, at, "second \"...\" of an operand");
            out->dots = out->count;
            r->next += 3;
        } else if (!is_letter(*r->next)) {
            return wrong(r, at,
                         *r->next == '.' ? "a dot that is not one of three"
                                         : "expected a letter, \"...\", \",\" or \"->\"");
        } else if (out->count == FV_MAX_RANK) {
            return wrong(r, at, "more than 6 letters");
        } else {
            out->at[out->count] = at;
            out->letter[out->count++] = (unsigned char)*r->next++;
        }
    }
    return true;
}

/* Puts the letters of count axes in the place of the dots. */
static bool expand_dots(const reader *r, int count, term *x)
{
    if (x->dots < 0)
        return true;
    if (x->count + count > FV_MAX_RANK)
        return wrong(r, strlen(r->text), "the result has more than 6 axes");
    for (int i = x->count - 1; i >= x->dots; i--) {
        x->letter[i + count] = x->letter[i];
        x->at[i + count] = x->at[i];
    }
    for (int i = 0; i < count; i++)
        x->letter[x->dots + i] = DOTS + count - 1 - i;
    x->count += count;
    return true;
}

static int find(const term *x, int letter)
{
    for (int i = 0; i < x->count; i++)
        if (x->letter[i] == letter)
            return i;
    return -1;
}

/* Gives the letters of an operand its axes. */
static bool fit_operand(const reader *r, const fv_var *v, term *x)
{
    const int rank = v->value.shape.rank, dots = rank - x->count;
    if (dots < 0 || (dots > 0 && x->dots < 0)) {
        fv_refuse(r->t, "einsum", "\"%.100s\": %d letter%s%s for %s", r->text, x->count,
                  x->count == 1 ? "" : "s", x->dots < 0 ? "" : " and \"...\"",
                  fv_describe(r->t, v));
        return false;
    }
    if (!expand_dots(r, dots, x))
        return false;
    for (int i = 0; i < rank; i++) {
        const int first = find(x, x->letter[i]);
        if (v->value.shape.size[first] != v->value.shape.size[i]) {
            fv_refuse(r->t, "einsum", "\"%.100s\": '%c' at %zu is %zu and was %zu in %s", r->text,
                      x->letter[i], x->at[i], v->value.shape.size[i], v->value.shape.size[first],
                      fv_describe(r->t, v));
            return false;
        }
    }
    return true;
}

/* Without "->": the dots, then the letters that occur once, in alphabetical order. */
static bool implied_result(const reader *r, const term x[2], int dots, term *z)
{
    *z = (term){.dots = 0};
    for (int letter = 'A'; letter <= 'z'; letter++) {
        int times = 0;
        for (int who = 0; who < 2; who++)
            for (int i = 0; i < x[who].count; i++)
                times += x[who].letter[i] == letter;
        if (times != 1)
            continue;
        if (z->count == FV_MAX_RANK)
            return wrong(r, strlen(r->text), "the result has more than 6 axes");
        z->letter[z->count++] = letter;
    }
    return expand_dots(r, dots, z);
}

/* The letters of the result: in an operand, and once each. */
static bool check_result(const reader *r, const term x[3])
{
    for (int i = 0; i < x[2].count; i++) {
        const int letter = x[2].letter[i];
        if (find(&x[0], letter) < 0 && find(&x[1], letter) < 0)
            return wrong(r, x[2].at[i], "a letter of the result that no operand has");
        if (find(&x[2], letter) != i)
            return wrong(r, x[2].at[i], "a letter that the result already has");
    }
    return true;
}

/* Reads the whole notation into the letters of both operands and the result. */
static bool read_notation(reader *r, fv_var *const v[2], term x[3])
{
    const int operands = v[1] == NULL ? 1 : 2;
    x[1] = (term){.dots = -1};
    for (int who = 0; who < operands; who++) {
        if (!read_term(r, &x[who]))
            return false;
        const bool more = *r->next == ',';
        if (more != (who + 1 < operands))
            return wrong(r, (size_t)(r->next - r->text),
                         more ? "more operands than were given" : "fewer operands than were given");
        r->next += more;
    }
    int dots = 0;
    for (int who = 0; who < operands; who++) {
        const int own = v[who]->value.shape.rank - x[who].count;
        if (!fit_operand(r, v[who], &x[who]))
            return false;
        dots = own > dots ? own : dots;
    }
    if (*r->next == '\0')
        return implied_result(r, x, dots, &x[2]);
    if (strncmp(r->next, "->", 2) != 0)
        return wrong(r, (size_t)(r->next - r->text), "expected \"->\"");
    r->next += 2;
    if (!read_term(r, &x[2]))
        return false;
    if (*r->next != '\0')
        return wrong(r, (size_t)(r->next - r->text), "the result is not the end");
    return expand_dots(r, dots, &x[2]) && check_result(r, x);
}

/* How far a letter moves its operand: over all the axes it names; 0 where it has size 1 instead of size. */
static ptrdiff_t step_of(const term *x, fv_shape shape, int letter, size_t size)
{
    ptrdiff_t sum = 0, step = 1;
    for (int i = shape.rank - 1; i >= 0; i--) {
        if (x->letter[i] == letter && shape.size[i] == size)
            sum += step;
        step *= shape.size[i] > 0 ? (ptrdiff_t)shape.size[i] : 1;
    }
    return sum;
}

/* The size of a letter: that of the operands which have it, where 1 repeats. */
static bool size_of_letter(const reader *r, fv_var *const v[2], const term x[2], int letter,
                           size_t *size)
{
    *size = 1;
    for (int who = 0; who < 2; who++) {
        const int at = find(&x[who], letter);
        const size_t own = at < 0 ? 1 : v[who]->value.shape.size[at];
        if (*size != 1 && own != 1 && own != *size) {
            if (letter < DOTS)
                fv_refuse(r->t, "einsum", "\"%.100s\": '%c' at %zu is %zu in %s and %zu in %s",
                          r->text, letter, x[1].at[at], *size, fv_describe(r->t, v[0]), own,
                          fv_describe(r->t, v[1]));
            else
                fv_refuse(r->t, "einsum", "\"%.100s\": \"...\" of %s and %s do not broadcast",
                          r->text, fv_describe(r->t, v[0]), fv_describe(r->t, v[1]));
            return false;
        }
        *size = own == 1 ? *size : own;
    }
    return true;
}

fv_var *fv_einsum(fv_tape *t, const char *notation, fv_var *a, fv_var *b)
{
    if (!given(t, "einsum", a))
        return NULL;
    if (notation == NULL)
        return fv_refuse(t, "einsum", "no notation");
    reader r = {t, notation, notation};
    fv_var *const v[2] = {a, b};
    term x[3];
    if (!read_notation(&r, v, x))
        return NULL;
    contraction c = {.lanes = b != NULL};
    fv_shape shape = {.rank = x[2].count};
    int letters[FVI_LETTERS];
    for (int who = 0; who < 2; who++)
        for (int i = 0; i < x[who].count; i++) {
            const int letter = x[who].letter[i], at = find(&x[2], letter);
            if (find(&x[who], letter) < i || (who == 1 && find(&x[0], letter) >= 0))
                continue; /* seen before */
            if (!size_of_letter(&r, v, x, letter, &c.size[c.letters]))
                return NULL;
            if (at >= 0)
                shape.size[at] = c.size[c.letters];
            c.lanes = c.lanes && (at < 0 || (find(&x[0], letter) >= 0 && find(&x[1], letter) >= 0));
            letters[c.letters++] = letter;
        }
    for (int l = 0; l < c.letters; l++) {
        for (int who = 0; who < 2 && v[who] != NULL; who++)
            c.step[who][l] = step_of(&x[who], v[who]->value.shape, letters[l], c.size[l]);
        c.step[2][l] = step_of(&x[2], shape, letters[l], c.size[l]);
    }
    return fvi_record(t, FVI_OP_einsum, shape, &c, sizeof c, 2, (fv_var *[]){a, b});
}
#endif
