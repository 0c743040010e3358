/* What the parts of the rewriter share: the file at hand as tokens, the functions of all files, and the places
 * that are found. See rewrite.c. */
#ifndef REWRITE_H
#define REWRITE_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/mutants/mutants.h"

/* ---- the text at hand (tokens.c) ------------------------------------------------------------- */

typedef struct {
    const char *at;
    size_t size;
    int line;
    enum { WORD, NUMBER, TEXT, MARK } kind;
    int pair; /* of a bracket: its partner; else -1 */
} token;

extern const char *path; /* of the file */
extern token *tokens;
extern int count;

/* Reads the tokens of p .. end, which starts in that line. Directives are skipped, unless this is the body of
 * one. */
void read_tokens(const char *p, const char *end, int line, bool in_define);
bool is(int i, const char *text);
bool is_one_of(int i, const char *const *texts); /* ends with NULL */
bool is_word(int i);
/* What follows token i, or all that it opens. */
int after(int i);
/* Whether that text is among the tokens first .. last. */
bool has(const char *text, int first, int last);
/* The block, or the end of the program. */
void *need(void *block);

/* ---- functions (functions.c) ----------------------------------------------------------------- */

typedef struct {
    const char *name, *path;
    char *words;            /* of its body: " one two three " */
    bool backward, forward; /* rules of that direction may call it */
    bool writes;            /* numbers, through a pointer */
    bool answers;           /* yes or no, and writes no numbers */
} function;

extern function *functions;

/* The function of that name, best of the same file; -1: none. */
int find_function(const token *name);
/* Notes the function whose name and { are those tokens. */
void add_function(int name, int body);
/* Marks what rules of either direction call. */
void follow_calls(void);

/* ---- places (parse.c) ------------------------------------------------------------------------ */

/* The tokens first .. last, where a number can be made wrong in some ways. */
typedef struct {
    int first, last;
    int from, to; /* an expression of the number's type, the witness; a call has none */
    int kinds;    /* bits of mutant_kind */
    int function; /* that it stands in; -1: the argument of a macro */
} place;

extern place *places;
extern int placed;

/* Finds the places of all functions and macros in the text at hand; or (gather) only notes the functions. */
void parse_text(bool gather);

#endif
