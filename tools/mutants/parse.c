/* Finds the places of a text, by reading C as far as this project writes it.
 *
 * Places are: what is added, calculated for a variable or a caller, or stored; the terms of a sum; the factors of
 * a product; calls that write numbers. None are conditions, loop headers and indices, what a condition both
 * compares and chooses (a maximum), a variable that only conditions read, and functions that answer yes or no. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/mutants/rewrite.h"

enum {
    VALUE = 1 << MUTANT_NEGATE | 1 << MUTANT_SCALE,
    TERM = VALUE | 1 << MUTANT_DROP,
    FACTOR = 1 << MUTANT_ONE,
    CALL = 1 << MUTANT_CALL
};

place *places;
int placed;

/* Where the parser stands; what it finds belongs to that function. */
static struct {
    int at, end;
    int function;       /* -1: of a macro's argument */
    int body, body_end; /* tokens */
    bool failed;
} now;

static void parse_assignment(void);
static void parse_initialiser(void);

static void fail(void)
{
    now.failed = true;
    now.at = now.end;
}

static bool take(const char *text)
{
    if (now.at >= now.end || !is(now.at, text))
        return false;
    now.at++;
    return true;
}

/* Whether braces stand outside parentheses, where commas would part a macro's arguments. */
static bool has_braces(int first, int last)
{
    for (int i = first; i >= 0 && i <= last; i = after(i))
        if (is(i, "{"))
            return true;
    return false;
}

static void add_place(int first, int last, int from, int to, int kinds)
{
    static int room;
    const bool literal = first == last && tokens[first].kind != WORD;
    if (now.failed || tokens[first].kind == TEXT || has_braces(first, last) || has_braces(from, to))
        return;
    if (has("++", first, last) || has("--", first, last)) /* a counter */
        return;
    if (kinds == VALUE && has("INFINITY", first, last)) /* a mark that there is nothing */
        return;
    if (literal && (kinds == VALUE || (kinds == FACTOR && is(first, "1"))))
        return;
    if (placed == room) {
        room = 2 * room + 1000;
        places = need(realloc(places, (size_t)room * sizeof *places));
    }
    places[placed++] = (place){first, last, from, to, kinds, now.function};
}

static bool is_type(int i)
{
    static const char *const words[] = {"const", "unsigned",  "char", "int",    "double",
                                        "float", "bool",      "void", "size_t", "struct",
                                        "long",  "ptrdiff_t", "quad", NULL};
    if (is_one_of(i, words))
        return true;
    return is_word(i) && (memcmp(tokens[i].at, "fv", 2) == 0 ||
                          memcmp(tokens[i].at + tokens[i].size - 2, "_t", 2) == 0);
}

/* Whether ( at i opens a cast. */
static bool is_cast(int i)
{
    const int close = tokens[i].pair;
    if (!is_type(i + 1))
        return false;
    for (int k = i + 1; k < close; k++)
        if (!is_word(k) && !is(k, "*"))
            return false;
    return is_word(close + 1) || is(close + 1, "(") || is(close + 1, "-") || is(close + 1, "*") ||
           is(close + 1, "&") || is(close + 1, "!") || tokens[close + 1].kind == NUMBER;
}

/* Whether a value is more than a number that stands somewhere, what a function gives, or one of two that are
 * wrapped by themselves. */
static bool is_calculated(int first, int last)
{
    bool calculated = false;
    for (int i = first; i <= last; i++) {
        const bool call = is(i, "(") && i > first && is_word(i - 1);
        if (is(i, "?") || is(i, "="))
            return false;
        if (is(i, "[") || call || (is(i, "(") && is_cast(i)))
            i = tokens[i].pair;
        else if (is(i, "+") || is(i, "-") || is(i, "/") ||
                 (is(i, "*") && i > first && !is(i - 1, "(")))
            calculated = true;
    }
    return calculated;
}

/* The value from first up to here, of which two things can be wrong; stored: it is written to an array. */
static void add_value(int first, bool stored)
{
    const int last = now.at - 1;
    const bool part = !has("?", first, last) && !has("=", first, last);
    if (last >= first && (is_calculated(first, last) || (stored && part)))
        add_place(first, last, first, last, VALUE);
}

/* Up to the partner, untouched. */
static void skip_bracket(void)
{
    if (tokens[now.at].pair < 0 || tokens[now.at].pair >= now.end)
        fail();
    else
        now.at = after(now.at);
}

static bool untouched_arguments(int name)
{
    static const char *const names[] = {"sizeof", "fv_re", "fv_im", "isfinite", "isnan", NULL};
    if (is_one_of(name, names))
        return true;
    for (size_t i = 0; i < tokens[name].size; i++)
        if (islower((unsigned char)tokens[name].at[i]))
            return false;
    return true;
}

static void parse_arguments(int name)
{
    const int close = tokens[now.at].pair, end = now.end;
    if (close < 0 || untouched_arguments(name)) {
        skip_bracket();
        return;
    }
    now.at++;
    now.end = close;
    while (now.at < close) {
        const int first = now.at;
        parse_assignment();
        if (is(first, "-") && now.at > first)
            add_place(first, now.at - 1, first, now.at - 1, 1 << MUTANT_NEGATE);
        if (now.at < close && !take(","))
            fail();
    }
    now.end = end;
    now.at = now.failed ? end : close + 1;
}

static void parse_postfix(void)
{
    const int first = now.at;
    if (now.at >= now.end) {
        fail();
    } else if (is(now.at, "(") && is(tokens[now.at].pair + 1, "{")) {
        now.at = after(now.at);
        parse_initialiser();
    } else if (is(now.at, "(")) {
        const int close = tokens[now.at].pair, end = now.end;
        now.at++;
        now.end = close;
        parse_assignment();
        while (take(","))
            parse_assignment();
        if (now.at != close)
            fail();
        now.end = end;
        now.at = now.failed ? end : close + 1;
    } else if (tokens[now.at].kind == TEXT) {
        while (now.at < now.end && tokens[now.at].kind == TEXT)
            now.at++;
    } else if (tokens[now.at].kind != MARK) {
        now.at++;
        while (take("##"))
            now.at++;
    } else
        fail();
    while (now.at < now.end) {
        if (is(now.at, "["))
            skip_bracket();
        else if (is(now.at, "("))
            parse_arguments(first);
        else if (is(now.at, ".") || is(now.at, "->"))
            now.at += 2;
        else if (!take("++") && !take("--"))
            break;
    }
}

static void parse_unary(void)
{
    static const char *const aside[] = {"!", "~", "&", "*", "++", "--", "sizeof", NULL};
    const int mark = placed;
    if (now.at < now.end && is_one_of(now.at, aside)) {
        now.at++;
        parse_unary();
        placed = mark;
    } else if (take("-") || take("+")) {
        parse_unary();
    } else if (now.at < now.end && is(now.at, "(") && is_cast(now.at)) {
        now.at = after(now.at);
        parse_unary();
    } else
        parse_postfix();
}

enum { OPERANDS = 24 };

static void parse_product(void)
{
    int first[OPERANDS], last[OPERANDS], n = 0;
    const int mark = placed, begin = now.at;
    bool whole = false;
    do {
        first[n] = now.at;
        parse_unary();
        last[n] = now.at - 1;
        whole = whole || is(now.at, "%");
    } while (++n < OPERANDS && now.at < now.end && (take("*") || take("/") || take("%")));
    if (whole)
        placed = mark;
    for (int i = 0; i < n && n > 1 && !whole; i++)
        add_place(first[i], last[i], begin, now.at - 1, FACTOR);
}

static void parse_sum(void)
{
    int first[OPERANDS], last[OPERANDS], n = 0;
    const int begin = now.at;
    do {
        first[n] = now.at;
        parse_product();
        last[n] = now.at - 1;
    } while (++n < OPERANDS && now.at < now.end && (take("+") || take("-")));
    for (int i = 0; i < n && n > 1; i++)
        add_place(first[i], last[i], begin, now.at - 1, TERM);
}

/* Whether the tokens first .. last also stand somewhere in from .. to. */
static bool occurs(int first, int last, int from, int to)
{
    for (int i = from; i + last - first <= to; i++) {
        int same = 0;
        while (first + same <= last && tokens[i + same].size == tokens[first + same].size &&
               memcmp(tokens[i + same].at, tokens[first + same].at, tokens[i + same].size) == 0)
            same++;
        if (first + same > last)
            return true;
    }
    return false;
}

/* What a condition both compares and chooses, as of a maximum, is no calculation. */
static void parse_conditional(void)
{
    static const char *const others[] = {
        "<<", ">>", "<", ">", "<=", ">=", "==", "!=", "&", "^", "|", "&&", "||", NULL};
    const int mark = placed, begin = now.at;
    bool compared = false;
    parse_sum();
    while (now.at < now.end && is_one_of(now.at, others)) {
        compared = true;
        now.at++;
        parse_sum();
    }
    const bool chosen = now.at < now.end && is(now.at, "?");
    if (compared || chosen)
        placed = mark;
    if (!chosen)
        return;
    now.at++;
    const int yes = now.at;
    parse_assignment();
    const int yes_end = now.at - 1;
    if (!take(":"))
        fail();
    const int no = now.at;
    parse_conditional();
    const int ends[2][2] = {{yes, yes_end}, {no, now.at - 1}};
    for (int i = 0; i < 2; i++)
        if (!occurs(ends[i][0], ends[i][1], begin, yes) && !has("?", ends[i][0], ends[i][1]))
            add_place(ends[i][0], ends[i][1], begin, now.at - 1, VALUE);
}

/* Whether the variable at token i is read, in the body, by anything but conditions. */
static bool flows_on(int variable)
{
    static const char *const headers[] = {"if",    "while", "for",      "switch",
                                          "fv_re", "isnan", "isfinite", NULL};
    static const char *const comparisons[] = {"<", ">", "<=", ">=", "==", "!=", NULL};
    const token *v = &tokens[variable];
    for (int i = now.body; i < now.body_end; i++) {
        if (is_one_of(i, headers) && is(i + 1, "("))
            i = tokens[i + 1].pair;
        else if (i != variable && is_word(i) && tokens[i].size == v->size &&
                 memcmp(tokens[i].at, v->at, v->size) == 0 && !is(i - 1, ".") && !is(i - 1, "->") &&
                 !is_one_of(i - 1, comparisons) && !is_one_of(i + 1, comparisons) &&
                 !is(i + 1, "="))
            return true;
    }
    return false;
}

static void parse_assignment(void)
{
    static const char *const sums[] = {"+=", "-=", NULL}, *const products[] = {"*=", "/=", NULL};
    static const char *const others[] = {"%=", "<<=", ">>=", "&=", "|=", "^=", NULL};
    const int mark = placed, target = now.at;
    parse_conditional();
    const int sign = now.at, first = sign + 1;
    const bool equal = sign < now.end && is(sign, "=");
    if (sign >= now.end || (!equal && !is_one_of(sign, sums) && !is_one_of(sign, products) &&
                            !is_one_of(sign, others)))
        return;
    placed = mark;
    now.at++;
    parse_assignment();
    const bool simple = sign == target + 1;
    if (is_one_of(sign, others) || (simple && now.body < now.body_end && !flows_on(target))) {
        placed = mark;
        return;
    }
    if (equal)
        add_value(first, is(sign - 1, "]") || is(target, "*"));
    else if (first < now.at)
        add_place(first, now.at - 1, first, now.at - 1,
                  is_one_of(sign, sums) ? TERM : VALUE | FACTOR);
}

/* { element, .name = element, { .. } } */
static void parse_initialiser(void)
{
    const int close = tokens[now.at].pair, end = now.end;
    if (close < 0 || close >= end) {
        fail();
        return;
    }
    now.at++;
    now.end = close;
    while (now.at < close) {
        while (is(now.at, ".") || is(now.at, "["))
            now.at = is(now.at, ".") ? now.at + 2 : after(now.at);
        take("=");
        const int first = now.at;
        if (is(now.at, "{"))
            parse_initialiser();
        else {
            parse_assignment();
            add_value(first, false);
        }
        if (now.at < close && !take(","))
            fail();
    }
    now.end = end;
    now.at = now.failed ? end : close + 1;
}

/* ---- statements ------------------------------------------------------------------------------ */

/* The place of the ; that ends what stands at i. */
static int statement_end(int i, int end)
{
    while (i < end && !is(i, ";"))
        i = after(i);
    return i;
}

static bool is_declaration(int i)
{
    static const char *const no_types[] = {"return", "goto", "sizeof", NULL};
    if (!is_word(i) || is_one_of(i, no_types))
        return false;
    return is_word(i + 1) || (is(i + 1, "*") && (is_word(i + 2) || is(i + 2, "*")));
}

/* type a = value, *b, c[2] = {..} */
static void parse_declaration(void)
{
    int name = -1;
    while (now.at < now.end) {
        const int mark = placed;
        if (is(now.at, "[") || is(now.at, "(") || is(now.at, "{"))
            skip_bracket();
        else if (take("=")) {
            const int first = now.at;
            if (is(first, "{"))
                parse_initialiser();
            else {
                parse_assignment();
                add_value(first, false);
            }
            if (name >= 0 && !flows_on(name))
                placed = mark;
            if (now.at < now.end && !is(now.at, ","))
                fail();
        } else {
            name = is_word(now.at) ? now.at : name;
            now.at++;
        }
    }
}

static void parse_call_or_assignment(void)
{
    const int first = now.at;
    parse_assignment();
    while (take(","))
        parse_assignment();
    const bool call = is_word(first) && is(first + 1, "(") && tokens[first + 1].pair == now.end - 1;
    const int called = call ? find_function(&tokens[first]) : -1;
    if (called >= 0 && functions[called].writes && !now.failed)
        add_place(first, now.end - 1, -1, -1, CALL);
}

static void parse_statements(int from, int end)
{
    static const char *const headers[] = {"if", "for", "while", "switch", NULL};
    static const char *const aside[] = {"static",   "enum", "typedef", "break",
                                        "continue", "goto", NULL};
    for (int i = from; i < end;) {
        if (is(i, "{") || is(i, "}") || is(i, ";") || is(i, "else") || is(i, "do")) {
            i++;
            continue;
        }
        if (is_one_of(i, headers)) {
            i = is(i + 1, "(") ? tokens[i + 1].pair + 1 : i + 1;
            continue;
        }
        if (is_word(i) && is(i + 1, "(") && untouched_arguments(i) &&
            (is_word(after(i + 1)) || is(after(i + 1), "}"))) { /* a macro of statements */
            i = after(i + 1);
            continue;
        }
        if (is(i, "case") || is(i, "default")) {
            while (i < end && !is(i, ":"))
                i++;
            i++;
            continue;
        }
        const int mark = placed, last = statement_end(i, end);
        now.at = i;
        now.end = last;
        now.failed = false;
        if (is_one_of(i, aside)) {
            /* constants, or nothing to compute */
        } else if (is(i, "return")) {
            now.at++;
            if (now.at < last) {
                parse_assignment();
                add_value(i + 1, false);
                now.failed |= now.at != last;
            }
        } else if (is_declaration(i)) {
            parse_declaration();
        } else {
            parse_call_or_assignment();
            now.failed |= now.at != last;
        }
        if (now.failed) {
            placed = mark;
            fprintf(stderr, "%s:%d: left as it is\n", path, tokens[i].line);
        }
        i = last + 1;
    }
}

/* Arguments of FVI_UNARY and the like that mention dy: expressions of gradients. */
static void parse_macro(int open)
{
    const int close = tokens[open].pair;
    for (int i = open + 1, next; i < close; i = next + 1) {
        for (next = i; next < close && !is(next, ","); next = after(next))
            ;
        const bool gradient = has("dy", i, next - 1);
        const int mark = placed;
        now.at = i;
        now.end = gradient ? next : i;
        now.failed = false;
        now.function = -1;
        now.body = now.body_end = 0;
        if (gradient)
            parse_assignment();
        if (now.failed || now.at != now.end)
            placed = mark;
    }
}

void parse_text(bool gather)
{
    for (int i = 0; i < count; i++) {
        if (tokens[i].pair <= i)
            continue;
        const int close = tokens[i].pair;
        const bool body = is(i, "{") && i > 0 && is(i - 1, ")") && is_word(tokens[i - 1].pair - 1);
        const int name = body ? tokens[i - 1].pair - 1 : 0;
        if (body && gather)
            add_function(name, i);
        else if (body) {
            now.function = find_function(&tokens[name]);
            now.body = i;
            now.body_end = close;
            if (now.function >= 0 && functions[now.function].backward &&
                !functions[now.function].answers)
                parse_statements(i + 1, close);
        } else if (!gather && is(i, "(") && is_word(i - 1) && untouched_arguments(i - 1) &&
                   !is(close + 1, "{") && strncmp(tokens[i - 1].at, "FVI_PUBLIC", 10) != 0)
            parse_macro(i);
        if (!is(i, "(") || !is(close + 1, "{"))
            i = close;
    }
}
