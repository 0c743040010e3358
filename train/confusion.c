/* Counts of gold against predicted labels, and the measures read off them. */
#include "train/internal.h"

bool fv_confusion_init(fv_confusion *confusion, size_t classes, fv_error *error)
{
    size_t pairs;
    *confusion = (fv_confusion){0};
    if (classes == 0)
        return fv_fail(error, FV_USAGE, "confusion: there must be at least one class");
    if (fvi_mul(classes, classes, &pairs))
        confusion->count = fvi_calloc(pairs, sizeof *confusion->count);
    if (confusion->count == NULL)
        return fv_fail(error, FV_FAILED, "confusion: no memory for %zu classes", classes);
    confusion->classes = classes;
    return true;
}

void fv_confusion_free(fv_confusion *confusion)
{
    if (confusion == NULL)
        return;
    fvi_free(confusion->count);
    *confusion = (fv_confusion){0};
}

void fv_confusion_add(fv_confusion *confusion, int32_t gold, int32_t predicted)
{
    if (gold < 0 || predicted < 0)
        return;
    size_t row = (size_t)gold, column = (size_t)predicted;
    if (row < confusion->classes && column < confusion->classes)
        confusion->count[row * confusion->classes + column]++;
}

static double share(size_t part, size_t whole)
{
    return whole == 0 ? 0 : (double)part / (double)whole;
}

double fv_confusion_accuracy(const fv_confusion *confusion)
{
    size_t right = 0, all = 0;
    for (size_t gold = 0; gold < confusion->classes; gold++)
        for (size_t predicted = 0; predicted < confusion->classes; predicted++) {
            size_t pairs = confusion->count[gold * confusion->classes + predicted];
            all += pairs;
            if (gold == predicted)
                right += pairs;
        }
    return share(right, all);
}

typedef struct {
    size_t right, gold, predicted;
} class_counts;

static class_counts count_class(const fv_confusion *confusion, size_t label)
{
    class_counts c = {0};
    if (label >= confusion->classes)
        return c;
    for (size_t other = 0; other < confusion->classes; other++) {
        c.gold += confusion->count[label * confusion->classes + other];
        c.predicted += confusion->count[other * confusion->classes + label];
    }
    c.right = confusion->count[label * confusion->classes + label];
    return c;
}

void fv_confusion_class(const fv_confusion *confusion, size_t label, double *precision,
                        double *recall, double *f1)
{
    class_counts c = count_class(confusion, label);
    if (precision != NULL)
        *precision = share(c.right, c.predicted);
    if (recall != NULL)
        *recall = share(c.right, c.gold);
    if (f1 != NULL)
        *f1 = share(2 * c.right, c.gold + c.predicted);
}

double fv_confusion_macro_f1(const fv_confusion *confusion)
{
    double sum = 0;
    size_t seen = 0;
    for (size_t label = 0; label < confusion->classes; label++) {
        class_counts c = count_class(confusion, label);
        sum += share(2 * c.right, c.gold + c.predicted);
        seen += c.gold + c.predicted > 0;
    }
    return seen == 0 ? 0 : sum / (double)seen;
}
