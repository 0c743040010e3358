/* The example programs as a user meets them: what they print where, what they refuse, exit codes. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fovea.h"
#include "tests/programs.h"

#if !defined(FV_F64) && !defined(FV_COMPLEX) /* the programs are of the float build */

static void train_tagger(void)
{
    cr_assert_eq(programs_run(TRAIN "--out t.npz --epochs 2 >out"), 0);
}

static void train_classifier(void)
{
    cr_assert_eq(programs_run(LEARN "--out s.npz --epochs 2 >out"), 0);
}

TestSuite(programs, .init = programs_begin, .fini = programs_end);

/* ---- usage ---------------------------------------------------------------------------------------------- */

Test(programs, help_starts_with_examples)
{
    for (int i = 0; i < 2; i++) {
        const char *program = i ? "SENT" : "POS";
        cr_expect_eq(programs_run("$%s --help >out 2>err", program), 0);
        cr_expect_eq(strncmp(programs_get("out", NULL), "examples:\n", 10), 0);
        cr_expect_str_empty(programs_get("err", NULL));
        cr_expect_eq(programs_run("$%s --version >out 2>err", program), 0);
        cr_expect_not_null(strstr(programs_get("out", NULL), " " FV_VERSION " (fovea, float)\n"));
    }
}

Test(programs, wrong_usage)
{
#define HELP " (see pos_tagging --help)\n"
    static const failure failures[] = {
        {"$POS", 2, "pos_tagging: expected train, eval, tag or show" HELP},
        {"$POS learn", 2, "pos_tagging: learn: expected train, eval, tag or show" HELP},
        {"$POS train", 2, "pos_tagging: train: --train is missing" HELP},
        {"$POS train --train train.conllu", 2, "pos_tagging: train: --out is missing" HELP},
        {"$POS eval --data x", 2, "pos_tagging: eval: --model is missing" HELP},
        {"$POS show --model x", 2, "pos_tagging: show: --data is missing" HELP},
        {"$POS tag file", 2, "pos_tagging: file: expected an option" HELP},
        {"$POS tag --nope", 2, "pos_tagging: --nope: unknown option, or short for several" HELP},
        {"$POS tag -x", 2, "pos_tagging: -x: unknown option" HELP},
        {"$POS train --epochs", 2, "pos_tagging: --epochs: expected a value behind it" HELP},
        {"$POS train --resume=yes", 2, "pos_tagging: --resume: takes no value" HELP},
        {"$POS train --epochs 1x", 2,
         "pos_tagging: --epochs 1x: expected a whole number from 1 to 10000" HELP},
        {"$POS train --epochs 0", 2,
         "pos_tagging: --epochs 0: expected a whole number from 1 to 10000" HELP},
        {"$POS train --seed 99999999999999999999", 2,
         "pos_tagging: --seed 99999999999999999999: expected a whole number from 0 to 2147483647"},
        {"$POS train --lr nan", 2,
         "pos_tagging: --lr nan: expected a number from 1e-09 to 1e+30" HELP},
        {"$POS train --dropout 1", 2,
         "pos_tagging: --dropout 1: expected a number from 0 to 0.99" HELP},
        {"$POS train --positions round", 2,
         "pos_tagging: --positions round: expected relative, learned or sinusoidal" HELP},
        {"$SENT", 2, "sentiment: expected train, eval or predict (see sentiment --help)\n"},
        {"$SENT predict", 2, "sentiment: predict: --model is missing (see sentiment --help)\n"},
        {"$SENT eval --separator ,", 2,
         "sentiment: --separator ,: expected tab or space (see sentiment --help)\n"},
    };
    EXPECT_FAILURES(failures);
}

/* ---- data ------------------------------------------------------------------------------------------------ */

Test(programs, wrong_training_data)
{
#define FILE_OF(name, text) "printf '" text "' >" name "; "
#define REST                "\\t_\\t_\\t_\\t_\\t_\\t_\\n"
    static const failure failures[] = {
        {TRAIN "--out x --train nope", 3,
         "pos_tagging: nope: cannot open: No such file or directory\n"},
        {TRAIN "--out x --train .", 3, "pos_tagging: .: is a directory, expected a file\n"},
        {TRAIN "--out x --train /dev/null", 3,
         "pos_tagging: /dev/null: holds no words, expected tagged sentences\n"},
        {TRAIN "--out x --dev /dev/null", 3,
         "pos_tagging: /dev/null: holds no words, expected tagged sentences\n"},
        {TRAIN "--out x --train - </dev/null", 3,
         "pos_tagging: standard input: holds no words, expected tagged sentences\n"},
        {FILE_OF("f", "1\\ta\\t_\\tX\\t_\\t_\\t_\\t_\\t_\\n") TRAIN "--out x --train f", 3,
         "pos_tagging: f:1: 9 columns, expected 10 separated by tabs\n"},
        {FILE_OF("f", "x\\ta\\t_\\tX" REST) TRAIN "--out x --train f", 3,
         "pos_tagging: f:1:1: id \"x\" is not a number, expected 1\n"},
        {FILE_OF("f", "1\\ta\\t_\\tnoun" REST) TRAIN "--out x --train f", 3,
         "pos_tagging: f:1:7: UPOS \"noun\", expected one of the 17 UPOS tags\n"},
        {FILE_OF("f", "1\\ta\\377\\t_\\tX" REST) TRAIN "--out x --train f", 3,
         "pos_tagging: f:1:4: byte 0xff is not UTF-8, expected UTF-8 text\n"},
        {FILE_OF("f", "\\001\\000\\002") TRAIN "--out x --train f", 3,
         "pos_tagging: f:1:2: a NUL byte, expected UTF-8 text\n"},
        {LEARN "--out x --train nope", 3,
         "sentiment: nope: cannot open: No such file or directory\n"},
        {LEARN "--out x --train /dev/null", 3,
         "sentiment: /dev/null: holds no texts, expected lines of label and text\n"},
        {FILE_OF("f", "good a film\\n") LEARN "--out x --train f", 3,
         "sentiment: f:1:1: no separator, expected label, a tab, text\n"},
        {FILE_OF("f", "good\\ta film\\n") LEARN "--out x --train f", 3,
         "sentiment: f: 1 labels, expected at least two\n"},
        {FILE_OF("f", "odd\\ta film\\n") LEARN "--out x --dev f", 3,
         "sentiment: f:1:1: label \"odd\", expected one that the training data has\n"},
    };
    EXPECT_FAILURES(failures);
    cr_expect_neq(programs_run("test -e x"), 0);
}

Test(programs, wrong_input)
{
    static const failure failures[] = {
        {"$POS tag --model t.npz <.", 3,
         "pos_tagging: standard input: cannot read: Is a directory\n"},
        {"printf 'a b\\nc \\377\\n' | $POS tag --model t.npz", 3,
         "pos_tagging: standard input:2:3: byte 0xff is not UTF-8, expected UTF-8 text\n"},
        {"printf 'a\\000b\\n' | $POS tag --model t.npz", 3,
         "pos_tagging: standard input:1:2: byte 0x00 is not UTF-8, expected UTF-8 text\n"},
        {"printf '1\\ta\\n' | $POS tag --model t.npz", 3,
         "pos_tagging: standard input:1: 2 columns, expected 10 separated by tabs\n"},
        {"$POS eval --model t.npz --data /dev/null", 3,
         "pos_tagging: /dev/null: holds no words, expected tagged sentences\n"},
        {"$SENT predict --model s.npz <.", 3,
         "sentiment: standard input: cannot read: Is a directory\n"},
        {"printf 'a b\\nc \\377\\n' | $SENT predict --model s.npz", 3,
         "sentiment: standard input:2:3: byte 0xff is not UTF-8, expected UTF-8 text\n"},
        {"$SENT eval --model s.npz --data /dev/null", 3,
         "sentiment: /dev/null: holds no texts, expected lines of label and text\n"},
    };
    train_tagger();
    train_classifier();
    EXPECT_FAILURES(failures);
}

/* ---- checkpoints ------------------------------------------------------------------------------------------ */

Test(programs, wrong_checkpoints)
{
    static const failure failures[] = {
        {"$POS tag --model nope </dev/null", 4,
         "pos_tagging: nope: cannot open: No such file or directory\n"},
        {"$POS tag --model . </dev/null", 4, "pos_tagging: .: is a directory, expected a file\n"},
        {"$POS tag --model train.conllu </dev/null", 4,
         "pos_tagging: train.conllu: not a zip file, expected an .npz\n"},
        {"$POS tag --model half </dev/null", 4, "pos_tagging: half: "},
        {"$POS tag --model flipped </dev/null", 4, "pos_tagging: flipped: "},
        {"$POS tag --model s.npz </dev/null", 4,
         "pos_tagging: s.npz: is a model for sentiment, expected one for pos_tagging\n"},
        {"$SENT predict --model t.npz </dev/null", 4,
         "sentiment: t.npz: is a model for pos_tagging, expected one for sentiment\n"},
        {TRAIN "--resume --out half", 4, "pos_tagging: half: "},
        {TRAIN "--resume --out flipped", 4, "pos_tagging: flipped: "},
    };
    size_t length;
    train_tagger();
    train_classifier();
    char *bytes = (char *)(uintptr_t)programs_get("t.npz", &length);
    programs_put("half", bytes, length / 2);
    bytes[length / 3] ^= 4;
    programs_put("flipped", bytes, length);
    EXPECT_FAILURES(failures);
}

Test(programs, resume_refuses_another_run)
{
#define RESUME "--resume --out t.npz --epochs 2 "
#define AGAIN  ": resume with the same options and data\n"
    static const failure failures[] = {
        {TRAIN RESUME "--epochs 3", 4,
         "pos_tagging: t.npz: was trained with epochs 2, now it is 3" AGAIN},
        {TRAIN RESUME "--lr 0.5", 4,
         "pos_tagging: t.npz: was trained with lr 0.0015, now it is 0.5" AGAIN},
        {TRAIN RESUME "--dropout 0.3", 4,
         "pos_tagging: t.npz: was trained with dropout 0.2, now it is 0.3" AGAIN},
        {TRAIN RESUME "--layers 2", 4,
         "pos_tagging: t.npz: was trained with layers 1, now it is 2" AGAIN},
        {"sed 's/dogs/cats/' train.conllu >f; " TRAIN RESUME "--train f", 4,
         "pos_tagging: t.npz: was trained with other forms" AGAIN},
        {"cat train.conllu train.conllu >f; " TRAIN RESUME "--train f", 4,
         "pos_tagging: t.npz: was trained with samples 5, now it is 10" AGAIN},
        {"sed 's/^9//' train.conllu >f; " TRAIN "--resume --out s.npz", 4,
         "pos_tagging: s.npz: was trained with task \"sentiment\", now it is "
         "\"pos_tagging\"" AGAIN},
        {LEARN RESUME, 4,
         "sentiment: t.npz: was trained with task \"pos_tagging\", now it is \"sentiment\"" AGAIN},
    };
    train_tagger();
    train_classifier();
    cr_expect_eq(programs_run("cp t.npz before.npz"), 0);
    EXPECT_FAILURES(failures);
    cr_expect_eq(programs_run("cmp t.npz before.npz"), 0);
    cr_expect_eq(programs_run(TRAIN RESUME "--threads 2 >out && cmp t.npz before.npz"), 0);
}

/* ---- output --------------------------------------------------------------------------------------------- */

Test(programs, an_old_model_stays_until_the_new_one_is_whole)
{
    static const failure failures[] = {
        {TRAIN "--out t.npz --train nope", 3, "pos_tagging: nope"},
        {TRAIN "--out t.npz --width 9 --heads 2", 2,
         "pos_tagging: encoder.layers.0.self_attn: 2 heads do not divide the width 9"},
        {TRAIN "--out t.npz --metrics nope/m", 6,
         "pos_tagging: nope/m: cannot make a file in its folder: No such file or directory\n"},
        {TRAIN "--out nope/t.npz", 6,
         "pos_tagging: nope/t.npz: cannot make a file in its folder: No such file or directory\n"},
        {TRAIN "--out .", 6, "pos_tagging: .: is a directory, expected a regular file or none\n"},
        {TRAIN "--out train.tsv/t.npz", 6, "pos_tagging: train.tsv/t.npz: cannot write: Not a d"},
        {LEARN "--out nope/s.npz", 6, "sentiment: nope/s.npz: cannot make a file in its folder"},
        {TRAIN "--out t.npz --lr 1e9 --epochs 50", 5, "pos_tagging: gradient of "},
    };
    programs_put("t.npz", "old", 3);
    /* the last one diverges in its first epoch or, in any case, names where it did */
    programs_fail(failures, sizeof failures / sizeof *failures - 1);
    cr_expect_str_eq(programs_get("t.npz", NULL), "old");
    programs_fail(failures + sizeof failures / sizeof *failures - 1, 1);
    cr_expect_not_null(strstr(programs_get("err", NULL), " at step "));
}

Test(programs, nan_keeps_the_last_good_model)
{
    cr_expect_eq(programs_run(TRAIN "--out t.npz --lr 1e9 --epochs 50 --save-every 1 2>err"), 5);
    cr_expect_eq(programs_run("$POS eval --model t.npz --data train.conllu >out"), 0);
}

Test(programs, full_disk)
{
    cr_assert_eq(mkdir(programs_path("disk"), 0700), 0);
    if (mount("none", programs_path("disk"), "tmpfs", 0, "size=16k") != 0)
        cr_skip_test("mounting a small tmpfs needs root");
    programs_put("disk/t.npz", "old", 3);
    const int code = programs_run(TRAIN "--out disk/t.npz 2>err");
    const bool old = strcmp(programs_get("disk/t.npz", NULL), "old") == 0;
    umount(programs_path("disk"));
    cr_expect_eq(code, 6);
    cr_expect(old);
    cr_expect_str_eq(programs_get("err", NULL),
                     "pos_tagging: disk/t.npz: cannot write: No space left on device\n");
}

Test(programs, standard_output_that_cannot_be_written)
{
    static const char *const commands[] = {"$POS tag --model t.npz <train.conllu",
                                           "$POS show --model t.npz --data train.conllu",
                                           "$POS eval --model t.npz --data train.conllu",
                                           "$SENT predict --model s.npz <train.tsv",
                                           "$SENT eval --model s.npz --data train.tsv",
                                           "$POS --help"};
    int ends[2];
    train_tagger();
    train_classifier();
    cr_assert_eq(pipe(ends), 0);
    close(ends[0]);
    cr_assert_eq(dup2(ends[1], 9), 9);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        cr_expect_eq(programs_run("%s >/dev/full 2>err", commands[i]), 6, "%s", commands[i]);
        cr_expect_not_null(
            strstr(programs_get("err", NULL), ": standard output: cannot write: No space"));
        cr_expect_eq(programs_run("%s >&9 2>err", commands[i]), 6, "%s", commands[i]);
        cr_expect_not_null(
            strstr(programs_get("err", NULL), ": standard output: cannot write: Broken"));
    }
}

/* ---- what the commands print ------------------------------------------------------------------------------ */

Test(programs, tag_keeps_comments_ranges_and_empty_nodes)
{
    static const char input[] =
        "# sent_id = 1\n# text = Don't!\n1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No\n"
        "1\tDo\tdo\t_\tVBP\t_\t0\troot\t_\t_\n2\tn't\tnot\tX\tRB\tA=B\t1\tadvmod\t_\t_\n"
        "2.1\tthat\t_\t_\t_\t_\t_\t_\t1:obj\t_\n3\t!\t!\tPUNCT\t.\t_\t1\tpunct\t_\t_\n\n"
        "# sent_id = 2\n1\t\xeb\x82\x98\xeb\x8a\x94\t_\t_\t_\t_\t_\t_\t_\t_\n\n";
    train_tagger();
    programs_put("in", input, strlen(input));
    cr_expect_eq(programs_run("$POS tag --model t.npz <in >out 2>err"), 0);
    cr_expect_str_empty(programs_get("err", NULL));
    cr_expect_eq(programs_run("cut -f 1-3,5- in >in2; cut -f 1-3,5- out >out2; cmp in2 out2"), 0);
    /* no word without a tag; the range and the empty node have none */
    cr_expect_eq(programs_run("test $(cut -f 4 out | grep -c '^[A-Z]') = 4"), 0);
    cr_expect_eq(programs_run("$POS tag --model t.npz --data in >out3 && cmp out out3"), 0);
    cr_expect_eq(programs_run("$POS tag --model t.npz --data - <in >out3 && cmp out out3"), 0);
}

Test(programs, tag_takes_lines_of_words)
{
    train_tagger();
    static const char input[] = "\xef\xbb\xbfI  saw\r\n\n#her .";
    programs_put("in", input, strlen(input));
    cr_expect_eq(programs_run("$POS tag --model t.npz <in | cut -f 1-3,5- >out"), 0);
    cr_expect_str_eq(programs_get("out", NULL),
                     "1\tI\t_\t_\t_\t_\t_\t_\t_\n2\tsaw\t_\t_\t_\t_\t_\t_\t_\n\n"
                     "1\t#her\t_\t_\t_\t_\t_\t_\t_\n2\t.\t_\t_\t_\t_\t_\t_\t_\n\n");
}

Test(programs, nothing_in_nothing_out)
{
    train_tagger();
    train_classifier();
    cr_expect_eq(programs_run("$POS tag --model t.npz </dev/null >out 2>&1"), 0);
    cr_expect_str_empty(programs_get("out", NULL));
    cr_expect_eq(programs_run("$SENT predict --model s.npz </dev/null >out 2>&1"), 0);
    cr_expect_str_empty(programs_get("out", NULL));
}

Test(programs, predict_keeps_lines_in_order)
{
    train_classifier();
    static const char input[] = "\xef\xbb\xbf"
                                "a fine film\r\n\nwarm\tand cold";
    programs_put("in", input, strlen(input));
    cr_expect_eq(programs_run("$SENT predict --model s.npz <in >out 2>err"), 0);
    cr_expect_eq(programs_run("cut -f 3- out >texts"), 0);
    cr_expect_str_eq(programs_get("texts", NULL), "a fine film\n\nwarm\tand cold\n");
    cr_expect_eq(programs_run("test $(grep -cE '^(good|bad)\t[01][.][0-9]{4}\t' out) = 3"), 0);
}

Test(programs, standard_streams_are_files)
{
    train_tagger();
    train_classifier();
    cr_expect_eq(
        programs_run(TRAIN
                     "--train - --out u.npz --epochs 2 <train.conllu >out && cmp t.npz u.npz"),
        0);
    cr_expect_eq(
        programs_run(LEARN "--train - --out u.npz --epochs 2 <train.tsv >out && cmp s.npz u.npz"),
        0);
    cr_expect_eq(programs_run("$POS eval --model t.npz --data train.conllu >a && "
                              "$POS eval --model t.npz --data - <train.conllu >b && cmp a b"),
                 0);
}

Test(programs, words_go_to_stderr)
{
    cr_expect_eq(
        programs_run("$POS train --train train.conllu --dev train.conllu --out t.npz --epochs 2 "
                     "--width 8 --layers 1 --tables 8 --hash-rows 64 --threads 1 >out 2>err"),
        0);
    const char *text = programs_get("out", NULL);
    cr_expect_not_null(strstr(text, "dev accuracy "));
    cr_expect_not_null(strstr(text, "checkpoint t.npz\n"));
    cr_expect_null(strstr(text, "epoch"));
    text = programs_get("err", NULL);
    cr_expect_not_null(strstr(text, "training on 5 sentences, 25 words; "));
    cr_expect_not_null(strstr(text, "epoch 2/2  loss "));
    cr_expect_null(strchr(text, '\r')); /* no bar where there is no terminal */
    cr_expect_null(strchr(text, '\033'));
}

static double number_of(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    cr_expect(json_is_number(value), "%s", name);
    return json_number_value(value);
}

Test(programs, eval_prints_one_json_object)
{
    train_tagger();
    train_classifier();
    cr_expect_eq(programs_run("sed 's/dog/wolf/' train.conllu >f; "
                              "$POS eval --model t.npz --data f --json >out 2>err"),
                 0);
    json_t *scores =
        json_loads(programs_get("out", NULL), 0, NULL); /* refuses more than one object */
    cr_assert(json_is_object(scores));
    const double known = number_of(scores, "words_known"),
                 unknown = number_of(scores, "words_unknown");
    cr_expect_eq(unknown, 2); /* wolf, wolfs */
    cr_expect_eq(number_of(scores, "words"), 25);
    cr_expect_eq(known, 23);
    const double right = known * number_of(scores, "accuracy_known") +
                         unknown * number_of(scores, "accuracy_unknown");
    cr_expect_float_eq(right, 25 * number_of(scores, "accuracy"), 1e-4); /* six digits */
    cr_expect_eq(json_object_size(json_object_get(scores, "tags")), FV_UPOS_TAGS);
    cr_expect_eq(json_array_size(json_object_get(scores, "confusion")), FV_UPOS_TAGS);
    json_decref(scores);
    cr_expect_eq(programs_run("$SENT eval --model s.npz --data train.tsv --json >out 2>err"), 0);
    scores = json_loads(programs_get("out", NULL), 0, NULL);
    cr_expect_eq(number_of(scores, "texts"), 6);
    cr_expect_leq(number_of(scores, "accuracy"), 1);
    cr_expect_eq(json_object_size(json_object_get(scores, "labels")), 2);
    json_decref(scores);
}

Test(programs, attention_pictures)
{
    static const failure failures[] = {
        {"echo a | $POS tag --model t.npz --attention nope/a.svg", 6, "pos_tagging: nope/a.svg: "},
        {"echo a | $POS tag --model t.npz --attention a --sentence 2", 2,
         "pos_tagging: --sentence 2: standard input holds 1 sentences" HELP},
        {"echo a | $POS tag --model t.npz --attention a --layer 2", 2,
         "pos_tagging: --layer 2: the model has 1 layers" HELP},
        {"yes a | head -n 1001 | tr '\\n' ' ' | $POS tag --model t.npz --attention a", 2,
         "pos_tagging: --sentence 1: has 1001 words, a picture at most 1000" HELP},
    };
    train_tagger();
    cr_expect_eq(programs_run("echo '\"<b>\" & \xeb\x82\x98\xeb\x8a\x94' | "
                              "$POS tag --model t.npz --attention a.svg >out 2>err"),
                 0);
    cr_expect_str_eq(programs_get("err", NULL), "attention picture a.svg\n");
    cr_expect_eq(programs_run("test $(grep -c . out) = 3"), 0);
    const char *text = programs_get("a.svg", NULL);
    cr_expect_eq(strncmp(text, "<svg ", 5), 0);
    cr_expect_not_null(strstr(text, "&lt;b&gt;"));
    cr_expect_not_null(strstr(text, "\xeb\x82\x98\xeb\x8a\x94"));
    EXPECT_FAILURES(failures);
}

#endif
