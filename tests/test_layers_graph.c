/* Graph layers against their papers' formulas in PyTorch, double: outputs, gradients, names; and what they refuse. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "tests/layers.h"

/* What a layer gave: y, the gradients of sources, targets (NULL: they are the sources) and edges. */
typedef struct {
    size_t count;
    const double *y, *dx[3];
    const layer_param *params;
} graph_case;
#include "tests/data/graph.h"

static const fv_graph one_kind = {NODES, one_kind_offsets, one_kind_sources},
                      two_kinds = {TARGETS, two_kinds_offsets, two_kinds_sources};

typedef enum { GAT, GATV2, TRANSFORMER } layer_kind;
/* A layer of one of the three kinds. */
typedef struct {
    layer_kind kind;
    fv_gat gat;
    fv_gatv2 gatv2;
    fv_transformer_conv transformer;
} layer;

/* How a case makes its layer; two: targets are other nodes. */
typedef struct {
    const graph_case *wanted;
    layer_kind kind;
    bool two;
    fv_graph_opts opts;
} graph_run;

static const graph_run runs[] = {
    {&gat_case, GAT, false, {.heads = HEADS}},
    {&gat_edges_case,
     GAT,
     false,
     {.heads = HEADS, .edge_width = EDGE_WIDTH, .no_bias = true, .negative_slope = FV_NONE}},
    {&gat_mean_case,
     GAT,
     false,
     {.heads = HEADS, .mean = true, .residual = true, .negative_slope = 0.3}},
    {&gat_alike_case, GAT, true, {.heads = HEADS, .edge_width = EDGE_WIDTH}},
    {&gat_two_case,
     GAT,
     true,
     {.heads = HEADS,
      .target_width = TARGET_WIDTH,
      .edge_width = EDGE_WIDTH,
      .mean = true,
      .residual = true}},
    {&gatv2_case, GATV2, false, {.heads = HEADS}},
    {&gatv2_edges_case,
     GATV2,
     false,
     {.heads = HEADS, .edge_width = EDGE_WIDTH, .no_bias = true, .negative_slope = FV_NONE}},
    {&gatv2_shared_case,
     GATV2,
     false,
     {.heads = HEADS, .shared = true, .mean = true, .residual = true, .negative_slope = 0.3}},
    {&gatv2_shared_two_case, GATV2, true, {.heads = HEADS, .shared = true}},
    {&gatv2_two_case,
     GATV2,
     true,
     {.heads = HEADS,
      .target_width = TARGET_WIDTH,
      .edge_width = EDGE_WIDTH,
      .mean = true,
      .residual = true}},
    {&transformer_case, TRANSFORMER, false, {.heads = HEADS}},
    {&transformer_edges_case,
     TRANSFORMER,
     false,
     {.heads = HEADS, .edge_width = EDGE_WIDTH, .mean = true, .no_bias = true}},
    {&transformer_beta_case, TRANSFORMER, false, {.heads = HEADS, .beta = true}},
    {&transformer_two_case,
     TRANSFORMER,
     true,
     {.heads = HEADS,
      .target_width = TARGET_WIDTH,
      .edge_width = EDGE_WIDTH,
      .beta = true,
      .mean = true}},
    {&transformer_no_root_case,
     TRANSFORMER,
     false,
     {.heads = HEADS, .edge_width = EDGE_WIDTH, .no_root = true}},
};
enum { RUNS = sizeof runs / sizeof *runs };

static layer make(fv_scope scope, layer_kind kind, size_t in, const fv_graph_opts *opts)
{
    layer l = {.kind = kind};
    if (kind == GAT)
        l.gat = fv_gat_init(scope, in, OUT_WIDTH, opts);
    else if (kind == GATV2)
        l.gatv2 = fv_gatv2_init(scope, in, OUT_WIDTH, opts);
    else
        l.transformer = fv_transformer_conv_init(scope, in, OUT_WIDTH, opts);
    return l;
}

static fv_var *forward(fv_tape *t, const layer *l, fv_var *sources, fv_var *targets, fv_var *edges,
                       const fv_mask *mask)
{
    return l->kind == GAT ? fv_gat_forward(t, &l->gat, sources, targets, edges, mask)
           : l->kind == GATV2
               ? fv_gatv2_forward(t, &l->gatv2, sources, targets, edges, mask)
               : fv_transformer_conv_forward(t, &l->transformer, sources, targets, edges, mask);
}

static const size_t all_nodes[] = {0, NODES}, all_targets[] = {0, TARGETS};
static const fv_segments source_segment = {1, all_nodes}, target_segment = {1, all_targets};

static fv_mask mask_of(const graph_run *run)
{
    return (fv_mask){.queries = run->two ? &target_segment : &source_segment,
                     .keys = &source_segment,
                     .edges = run->two ? &two_kinds : &one_kind};
}

/* Sources, targets and edges of a case, on the tape. */
static void inputs_of(fv_tape *t, const graph_run *run, fv_var *in[3])
{
    const fv_graph *g = run->two ? &two_kinds : &one_kind;
    const size_t width = run->opts.target_width ? TARGET_WIDTH : IN_WIDTH;
    in[0] = input_numbers(t, FV_SHAPE(NODES, IN_WIDTH), 3);
    in[1] = run->two ? input_numbers(t, FV_SHAPE(TARGETS, width), 4) : in[0];
    in[2] = run->opts.edge_width ? input_numbers(t, FV_SHAPE(g->offsets[g->rows], EDGE_WIDTH), 5)
                                 : NULL;
}

/* What is the same for all keys changes no weight of a softmax: the gradient of their bias is 0 but for rounding,
 * which is small beside that of their matrix. */
static void expect_nothing(const fv_tape *t, const fv_params *params)
{
    const fv_param *weight = fv_params_find(params, "lin_key.weight");
    double largest = 0;
    for (size_t i = 0; i < fv_shape_count(weight->value.shape); i++)
        largest = fmax(largest, fabs((double)fv_re(fv_param_grad(t, weight)[i])));
    cr_expect_gt(largest, 0);
    for (size_t i = 0; i < HEADS * OUT_WIDTH; i++) {
        const fv_real g = fv_param_grad(t, fv_params_find(params, "lin_key.bias"))[i];
        cr_expect(fabs((double)fv_re(g)) <= TOLERANCE * largest, "lin_key.bias at %zu", i);
    }
}

ParameterizedTestParameters(layers_graph, as_the_papers_say)
{
    static int ids[RUNS];
    for (int i = 0; i < RUNS; i++)
        ids[i] = i;
    return cr_make_param_array(int, ids, RUNS);
}

ParameterizedTest(int *id, layers_graph, as_the_papers_say)
{
    const graph_run *run = &runs[*id];
    const graph_case *wanted = run->wanted;
    fv_params *params = fv_params_new(1);
    const layer l = make(fv_root(params), run->kind, IN_WIDTH, &run->opts);
    fv_tape *t = fv_tape_new(NULL);
    fv_tape_begin(t, FV_TRAIN, 1, 1);
    fill_times(params, 4);
    fv_var *in[3];
    inputs_of(t, run, in);
    const fv_mask mask = mask_of(run);
    fv_var *y = forward(t, &l, in[0], in[1], in[2], &mask);
    cr_assert_not_null(y, "%s", fv_tape_error(t)->text);
    cr_assert_eq(fvi_count(y), wanted->count);
    cr_assert_eq(fvi_rows(y), run->two ? TARGETS : NODES);
    expect_close("y", wanted->count, y->value.data, wanted->y);
    project(t, y, 7);
    for (int i = 0; i < 3; i++)
        if (wanted->dx[i] != NULL)
            expect_close("dx", fvi_count(in[i]), in[i]->grad, wanted->dx[i]);
    size_t named = 0;
    for (const layer_param *p = wanted->params; p->name != NULL; p++, named++) {
        const fv_param *mine = fv_params_find(params, p->name);
        cr_assert_not_null(mine, "no parameter %s", p->name);
        cr_expect(fv_shape_equal(mine->value.shape, p->shape), "%s has another shape", p->name);
        cr_expect_eq(mine->frozen, p->grad == NULL);
        if (strcmp(p->name, "lin_key.bias") == 0)
            expect_nothing(t, params);
        else if (p->grad != NULL)
            expect_close(p->name, fv_shape_count(p->shape), fv_param_grad(t, mine), p->grad);
        else
            cr_expect_null(fv_param_grad(t, mine));
    }
    cr_expect_eq(named, fv_params_count(params));
    fv_tape_free(t);
    fv_params_free(params);
}

/* PyTorch Geometric's edge_index, edges in any order: the mask made of it says where each edge's vector goes. */
Test(layers_graph, an_edge_index_in_any_order)
{
    enum { EDGES = 14 };
    int64_t list[2 * EDGES];
    size_t order[EDGES];
    int32_t ids[EDGES], places[EDGES]; /* of each edge in the list */
    const fv_graph_opts opts = {.heads = HEADS, .edge_width = EDGE_WIDTH, .mean = true};
    cr_assert_eq(one_kind_offsets[NODES], EDGES);
    for (size_t i = 0, e = 0; i < NODES; i++)
        for (; e < one_kind_offsets[i + 1]; e++) {
            places[e] = (int32_t)(e * 5 % EDGES);
            list[places[e]] = one_kind_sources[e];
            list[EDGES + places[e]] = (int64_t)i;
        }
    fv_mask *made = fv_mask_from_edge_index(NODES, NODES, EDGES, list, false, order, NULL);
    cr_assert_not_null(made);
    for (size_t e = 0; e < EDGES; e++)
        ids[e] = (int32_t)order[e];
    for (layer_kind kind = GAT; kind <= TRANSFORMER; kind++) {
        const fv_mask mask = {.edges = &one_kind};
        fv_params *params = fv_params_new(1);
        const layer l = make(fv_root(params), kind, IN_WIDTH, &opts);
        fv_tape *t = fv_tape_new(NULL);
        fv_tape_begin(t, FV_EVAL, 1, 1);
        fv_var *x = input_numbers(t, FV_SHAPE(NODES, IN_WIDTH), 3);
        fv_var *listed = input_numbers(t, FV_SHAPE(EDGES, EDGE_WIDTH), 5);
        fv_var *a = forward(t, &l, x, x, fv_index_select(t, listed, 0, ids, EDGES), made);
        fv_var *b = forward(t, &l, x, x, fv_index_select(t, listed, 0, places, EDGES), &mask);
        cr_assert(a != NULL && b != NULL, "%s", fv_tape_error(t)->text);
        cr_expect_arr_eq(a->value.data, b->value.data, fvi_count(a) * sizeof(fv_real));
        fv_tape_free(t);
        fv_params_free(params);
    }
    fv_mask_free(made);
}

/* A graph of all edges is dense attention, by the other kernel for a transformer's scores. */
Test(layers_graph, all_edges_are_no_mask)
{
    size_t offsets[NODES + 1];
    int32_t keys[NODES * NODES];
    for (size_t i = 0; i <= NODES; i++)
        offsets[i] = i * NODES;
    for (size_t i = 0; i < NODES * NODES; i++)
        keys[i] = (int32_t)(i % NODES);
    const fv_graph complete = {NODES, offsets, keys};
    const fv_mask edges = {.edges = &complete};
    const fv_graph_opts opts = {.heads = HEADS};
    for (layer_kind kind = GAT; kind <= TRANSFORMER; kind++) {
        fv_params *params = fv_params_new(1);
        const layer l = make(fv_root(params), kind, IN_WIDTH, &opts);
        fv_tape *t = fv_tape_new(NULL);
        fv_tape_begin(t, FV_EVAL, 1, 1);
        fv_var *x = input_numbers(t, FV_SHAPE(NODES, IN_WIDTH), 3);
        fv_var *a = forward(t, &l, x, x, NULL, &edges), *b = forward(t, &l, x, x, NULL, NULL);
        cr_assert(a != NULL && b != NULL, "%s", fv_tape_error(t)->text);
        for (size_t i = 0; i < fvi_count(a); i++)
            cr_expect_float_eq((double)fv_re(a->value.data[i]), (double)fv_re(b->value.data[i]),
                               TOLERANCE * 0.01);
        fv_tape_free(t);
        fv_params_free(params);
    }
}

/* Forward and backward hold nothing of the size of edges times channels where edges have no vectors, and GAT
 * none where they have. */
Test(layers_graph, memory_is_not_edges_times_channels)
{
    enum { MANY = 300, EACH = 100, WIDE = 32, EDGES = MANY * EACH };
    static size_t offsets[MANY + 1];
    static int32_t keys[EDGES];
    static fv_real vector[EDGES];
    for (size_t i = 0; i < MANY; i++)
        offsets[i + 1] = (i + 1) * EACH;
    for (size_t e = 0; e < EDGES; e++)
        keys[e] = (int32_t)(e % EACH * 3);
    const fv_graph graph = {MANY, offsets, keys};
    const fv_mask mask = {.edges = &graph};
    for (int which = 0; which < 4; which++) {
        const fv_graph_opts opts = {.heads = HEADS, .edge_width = which == 3};
        const layer_kind kind = which == 3 ? GAT : (layer_kind)which;
        fv_params *params = fv_params_new(1);
        layer l = {.kind = kind};
        l.gat = fv_gat_init(fv_under(fv_root(params), "a"), IN_WIDTH, WIDE, &opts);
        l.gatv2 = fv_gatv2_init(fv_under(fv_root(params), "b"), IN_WIDTH, WIDE, &opts);
        l.transformer =
            fv_transformer_conv_init(fv_under(fv_root(params), "c"), IN_WIDTH, WIDE, &opts);
        fv_tape *t = fv_tape_new(NULL);
        fv_tape_begin(t, FV_TRAIN, 1, 1);
        fv_var *x = input_numbers(t, FV_SHAPE(MANY, IN_WIDTH), 3);
        fv_var *e = which == 3 ? fv_input(t, FV_SHAPE(EDGES, 1), vector) : NULL;
        project(t, forward(t, &l, x, x, e, &mask), 7);
        size_t peak;
        fv_tape_bytes(t, &peak);
        cr_expect_lt(peak, (size_t)EDGES * HEADS * WIDE * sizeof(fv_real) / 4, "%d: %zu bytes",
                     which, peak);
        fv_tape_free(t);
        fv_params_free(params);
    }
}

/* With one source each, a weight is 1, and dropout leaves 0 or 1 / (1 - p) of it, a head at a time; not outside
 * of training. */
Test(layers_graph, dropout_is_of_weights)
{
    enum { MANY = 400 };
    static size_t offsets[MANY + 1];
    static int32_t keys[MANY];
    for (size_t i = 0; i < MANY; i++)
        offsets[i + 1] = i + 1;
    const fv_graph loops = {MANY, offsets, keys}; /* all see node 0 */
    const fv_mask mask = {.edges = &loops};
    const fv_graph_opts gat = {.heads = HEADS, .dropout = 0.25, .no_bias = true},
                        transformer = {.heads = HEADS, .dropout = 0.25, .no_root = true};
    for (layer_kind kind = GAT; kind <= TRANSFORMER; kind++) {
        fv_params *params = fv_params_new(1);
        const layer l =
            make(fv_root(params), kind, IN_WIDTH, kind == TRANSFORMER ? &transformer : &gat);
        fv_tape *t = fv_tape_new(NULL), *trained = fv_tape_new(NULL);
        fv_tape_begin(t, FV_EVAL, 1, 1);
        fv_tape_begin(trained, FV_TRAIN, 1, 1);
        fv_var *x = input_numbers(t, FV_SHAPE(MANY, IN_WIDTH), 3);
        fv_var *again = input_numbers(trained, FV_SHAPE(MANY, IN_WIDTH), 3);
        fv_var *whole = forward(t, &l, x, x, NULL, &mask),
               *y = forward(trained, &l, again, again, NULL, &mask);
        cr_assert(y != NULL && whole != NULL, "%s", fv_tape_error(trained)->text);
        size_t dropped = 0;
        for (size_t i = 0; i < MANY * HEADS * OUT_WIDTH; i++) {
            const double all = (double)fv_re(whole->value.data[i]),
                         got = (double)fv_re(y->value.data[i]);
            cr_assert_neq(all, 0);
            cr_expect(got == 0 || fabs(got * 0.75 - all) <= 1e-6 * fabs(all));
            cr_expect_eq(got == 0, fv_re(y->value.data[i - i % OUT_WIDTH]) == 0);
            dropped += got == 0;
        }
        /* of 800 draws, 200 expected with a deviation of 12.2: within six of these */
        cr_expect(dropped > 127 * OUT_WIDTH && dropped < 273 * OUT_WIDTH, "%zu", dropped);
        fv_tape_free(t);
        fv_tape_free(trained);
        fv_params_free(params);
    }
}

/* Glorot's bound for the matrices of GAT and GATv2 and for all vectors; 1 / sqrt(in) in a transformer's layer. */
Test(layers_graph, starts_as_pytorch_geometric_starts)
{
    enum { IN = 300, OUT = 50 };
    fv_params *params = fv_params_new(1);
    const fv_graph_opts opts = {.heads = 8};
    const fv_gat gat = fv_gat_init(fv_under(fv_root(params), "a"), IN, OUT, &opts);
    const fv_gatv2 gatv2 = fv_gatv2_init(fv_under(fv_root(params), "b"), IN, OUT, &opts);
    const fv_transformer_conv conv =
        fv_transformer_conv_init(fv_under(fv_root(params), "c"), IN, OUT, &opts);
    const struct {
        const fv_param *p;
        double bound;
    } starts[] = {{gat.lin.weight, sqrt(6.0 / (IN + 8 * OUT))},
                  {gat.att_src, sqrt(6.0 / (8 + OUT))},
                  {gat.bias, 0},
                  {gatv2.lin_r.weight, sqrt(6.0 / (IN + 8 * OUT))},
                  {gatv2.lin_l.bias, 1 / sqrt(IN)},
                  {gatv2.att, sqrt(6.0 / (8 + OUT))},
                  {gatv2.bias, 0},
                  {conv.lin_key.weight, 1 / sqrt(IN)},
                  {conv.lin_skip.bias, 1 / sqrt(IN)}};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        double largest = 0;
        cr_assert_not_null(starts[i].p);
        for (size_t k = 0; k < fv_shape_count(starts[i].p->value.shape); k++)
            largest = fmax(largest, fabs((double)fv_re(starts[i].p->value.data[k])));
        cr_expect(largest <= starts[i].bound * (1 + 1e-6) && largest >= 0.95 * starts[i].bound,
                  "%s: up to %g, expected %g", starts[i].p->name, largest, starts[i].bound);
    }
    cr_expect(gat.bias->no_decay && gatv2.lin_l.bias->no_decay);
    fv_params_free(params);
}

/* ---- refusals ---------------------------------------------------------------------------------------- */

Test(layers_graph, init_refuses)
{
    static const struct {
        layer_kind kind;
        size_t in;
        fv_graph_opts opts;
        const char *text;
    } wrong[] = {
        {GAT, 0, {.heads = 2}, "g: gat: from width 0 to 2 heads of width 2"},
        {GATV2,
         3,
         {.heads = SIZE_MAX},
         "g: gatv2: from width 3 to 18446744073709551615 heads of width 2"},
        {GAT, 3, {.dropout = 1}, "g: gat: dropout must be at least 0 and below 1"},
        {TRANSFORMER,
         3,
         {.dropout = -0.1},
         "g: transformer_conv: dropout must be at least 0 and below 1"},
        {GAT, 3, {.beta = true}, "g: gat: no_root and beta are a transformer's"},
        {GATV2, 3, {.no_root = true}, "g: gatv2: no_root and beta are a transformer's"},
        {TRANSFORMER,
         3,
         {.negative_slope = 0.1},
         "g: transformer_conv: negative_slope and residual are GAT's and GATv2's"},
        {TRANSFORMER,
         3,
         {.residual = true},
         "g: transformer_conv: negative_slope and residual are GAT's and GATv2's"},
        {GAT, 3, {.shared = true}, "g: gat: shared maps are GATv2's"},
        {TRANSFORMER, 3, {.shared = true}, "g: transformer_conv: shared maps are GATv2's"},
        {GATV2,
         3,
         {.shared = true, .target_width = 4},
         "g: gatv2: a shared map of sources 3 wide and targets 4"},
        {TRANSFORMER,
         3,
         {.no_root = true, .beta = true},
         "g: transformer_conv: a gate to the target's map, but no_root"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fv_params *params = fv_params_new(1);
        const layer l =
            make(fv_under(fv_root(params), "g"), wrong[i].kind, wrong[i].in, &wrong[i].opts);
        cr_expect(l.gat.width == 0 && l.gatv2.width == 0 && l.transformer.width == 0);
        cr_expect_str_eq(fv_params_error(params)->text, wrong[i].text);
        fv_tape *t = fv_tape_new(NULL);
        fv_tape_begin(t, FV_EVAL, 1, 1);
        fv_var *x = input_numbers(t, FV_SHAPE(NODES, IN_WIDTH), 3);
        cr_expect_null(forward(t, &l, x, x, NULL, NULL), "a failed layer ran");
        cr_expect_not(fv_tape_ok(t));
        fv_tape_free(t);
        fv_params_free(params);
    }
}

Test(layers_graph, a_name_that_is_taken)
{
    for (layer_kind kind = GAT; kind <= TRANSFORMER; kind++) {
        static const char *const last[] = {"bias", "bias", "lin_skip.bias"};
        fv_params *params = fv_params_new(1);
        fv_param_new(fv_root(params), last[kind], FV_SHAPE(1), (fv_init){FV_ZEROS, 0});
        const layer l = make(fv_root(params), kind, IN_WIDTH, NULL);
        cr_expect(l.gat.width == 0 && l.gatv2.width == 0 && l.transformer.width == 0);
        cr_expect_neq(fv_params_error(params)->status, FV_OK);
        fv_params_free(params);
    }
}

/* Rows of the wrong width, and edges where there are none. */
Test(layers_graph, forward_refuses)
{
    static const struct {
        bool vectors; /* of edges, in the layer */
        size_t source, target, edge;
        bool dense; /* a mask without edges */
        const char *text;
    } wrong[] = {
        {false, 4, 3, 0, false, "sources [6, 4], expected [any, 3]"},
        {false, 3, 2, 0, false, "targets [6, 2], expected [any, 3]"},
        {false, 3, 3, 2, false, "vectors of edges for a layer that has none"},
        {true, 3, 3, 0, false, "a layer of vectors of edges, but there are none"},
        {true, 3, 3, 3, false, "edges [14, 3], expected [any, 2]"},
        {true, 3, 3, 2, true, "vectors of edges, but the mask has no edges"},
    };
    static const char *const names[] = {"gat", "gatv2", "transformer_conv"};
    const fv_mask edges = {.edges = &one_kind};
    for (layer_kind kind = GAT; kind <= TRANSFORMER; kind++)
        for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
            char text[200];
            fv_params *params = fv_params_new(1);
            const fv_graph_opts opts = {.edge_width = wrong[i].vectors ? EDGE_WIDTH : 0};
            const layer l = make(fv_root(params), kind, IN_WIDTH, &opts);
            fv_tape *t = fv_tape_new(NULL);
            fv_tape_begin(t, FV_EVAL, 1, 1);
            fv_var *e = wrong[i].edge
                            ? input_numbers(t, FV_SHAPE(one_kind_offsets[NODES], wrong[i].edge), 5)
                            : NULL;
            fv_var *y = forward(t, &l, input_numbers(t, FV_SHAPE(NODES, wrong[i].source), 3),
                                input_numbers(t, FV_SHAPE(NODES, wrong[i].target), 4), e,
                                wrong[i].dense ? NULL : &edges);
            cr_expect_null(y);
            snprintf(text, sizeof text, "%s: %s", names[kind], wrong[i].text);
            cr_expect_str_eq(fv_tape_error(t)->text, text);
            fv_tape_begin(t, FV_EVAL, 1, 1);
            cr_expect_null(forward(t, &l, NULL, NULL, NULL, &edges));
            fv_tape_free(t);
            fv_params_free(params);
        }
}

/* ---- gradient checks --------------------------------------------------------------------------------- */

#if defined(FV_F64) || defined(FV_COMPLEX)
typedef struct {
    const graph_run *run;
    layer layer;
} model;

static fv_var *outputs(fv_tape *t, void *context)
{
    const model *m = context;
    fv_var *in[3];
    inputs_of(t, m->run, in);
    const fv_mask mask = mask_of(m->run);
    return forward(t, &m->layer, in[0], in[1], in[2], &mask);
}

ParameterizedTestParameters(layers_graph, gradients)
{
    static int ids[RUNS];
    for (int i = 0; i < RUNS; i++)
        ids[i] = i;
    return cr_make_param_array(int, ids, RUNS);
}

ParameterizedTest(int *id, layers_graph, gradients)
{
    fv_params *params = fv_params_new(1);
    model m = {&runs[*id], make(fv_root(params), runs[*id].kind, IN_WIDTH, &runs[*id].opts)};
    fv_gradcheck_result result;
    fill_times(params, 4);
    cr_expect(fv_gradcheck_params(outputs, params, &m, NULL, &result), "%s", result.error.text);
    fv_params_free(params);
}
#endif
