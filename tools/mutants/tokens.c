/* C source cut into tokens, as far as the rewriter asks. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/mutants/rewrite.h"

const char *path;
token *tokens;
int count;

void *need(void *block)
{
    if (block == NULL) {
        fprintf(stderr, "rewrite: out of memory\n");
        exit(1);
    }
    return block;
}

bool is(int i, const char *text)
{
    return i >= 0 && i < count && tokens[i].size == strlen(text) &&
           memcmp(tokens[i].at, text, tokens[i].size) == 0;
}

bool is_one_of(int i, const char *const *texts)
{
    for (; *texts != NULL; texts++)
        if (is(i, *texts))
            return true;
    return false;
}

bool is_word(int i)
{
    return i >= 0 && i < count && tokens[i].kind == WORD;
}

int after(int i)
{
    return tokens[i].pair > i ? tokens[i].pair + 1 : i + 1;
}

bool has(const char *text, int first, int last)
{
    for (int i = first; i <= last; i++)
        if (is(i, text))
            return true;
    return false;
}

/* Behind white space, comments and directives. */
static const char *skip_blanks(const char *p, const char *end, int *line, bool in_define)
{
    while (p < end) {
        if (*p == '\n') {
            (*line)++;
            p++;
        } else if (isspace((unsigned char)*p) || (*p == '\\' && p[1] == '\n')) {
            p++;
        } else if (p[0] == '/' && p[1] == '*') {
            for (p += 2; p < end && !(p[0] == '*' && p[1] == '/'); p++)
                *line += *p == '\n';
            p += 2;
        } else if (*p == '#' && !in_define) {
            for (; p < end && *p != '\n'; p++)
                if (*p == '\\' && p[1] == '\n') {
                    (*line)++;
                    p++;
                }
        } else
            break;
    }
    return p < end ? p : end;
}

static size_t mark_size(const char *p)
{
    static const char *const marks[] = {"<<=", ">>=", "...", "->", "++", "--", "<<", ">>",
                                        "<=",  ">=",  "==",  "!=", "&&", "||", "+=", "-=",
                                        "*=",  "/=",  "%=",  "&=", "|=", "^=", "##"};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (strncmp(p, marks[i], strlen(marks[i])) == 0)
            return strlen(marks[i]);
    return 1;
}

/* Behind the word, number or text at p, which has at least one character before end. */
static const char *token_end(const char *p, const char *end, token *t)
{
    if (isalpha((unsigned char)*p) || *p == '_') {
        t->kind = WORD;
        while (p < end && (isalnum((unsigned char)*p) || *p == '_'))
            p++;
        return p;
    }
    if (isdigit((unsigned char)*p) || (*p == '.' && isdigit((unsigned char)p[1]))) {
        t->kind = NUMBER;
        while (p < end && (isalnum((unsigned char)*p) || *p == '.' ||
                           ((*p == '+' || *p == '-') && strchr("eEpP", p[-1]) != NULL)))
            p++;
        return p;
    }
    if (*p == '"' || *p == '\'') {
        const char quote = *p;
        t->kind = TEXT;
        for (p++; p < end && *p != quote; p++)
            p += *p == '\\';
        return p + 1;
    }
    return p + mark_size(p);
}

void read_tokens(const char *p, const char *end, int line, bool in_define)
{
    enum { DEEPEST = 256 };
    static int room;
    int open[DEEPEST], depth = 0;
    count = 0;
    while ((p = skip_blanks(p, end, &line, in_define)) < end) {
        if (count + 1 >= room) {
            room = 2 * room + 1000;
            tokens = need(realloc(tokens, (size_t)room * sizeof *tokens));
        }
        token *t = &tokens[count];
        *t = (token){.at = p, .line = line, .kind = MARK, .pair = -1};
        p = token_end(p, end, t);
        t->size = (size_t)(p - t->at);
        if (t->kind == MARK && strchr("([{", *t->at) != NULL && depth < DEEPEST)
            open[depth++] = count;
        else if (t->kind == MARK && strchr(")]}", *t->at) != NULL && depth > 0) {
            t->pair = open[--depth];
            tokens[t->pair].pair = count;
        }
        count++;
    }
}
