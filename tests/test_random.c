/* Random numbers: the published test vectors, independence of order, moments. */
#include <criterion/criterion.h>
#include <math.h>

#include "autograd/autograd.h"
#include "tensor/internal.h"
#include "tensor/philox.h"

/* The known-answer vectors of the Philox 4x32-10 authors. */
Test(random, known_answers)
{
    uint32_t out[4];
    fv_rng zero = {{0, 0}, {0, 0}}, ones = {{~0u, ~0u}, {~0u, ~0u}};
    fvi_philox(zero, 0, out);
    cr_expect(out[0] == 0x6627e8d5u && out[1] == 0xe169c58du && out[2] == 0xbc57ac4cu &&
              out[3] == 0x9b00dbd8u);
    fvi_philox(ones, ~(uint64_t)0, out);
    cr_expect(out[0] == 0x408f276du && out[1] == 0x41c83b0eu && out[2] == 0xa20bc7c6u &&
              out[3] == 0x6d5451fdu);
}

Test(random, keyed_by_seed_step_and_name)
{
    uint32_t base = fv_rng_bits(fv_rng_make(1, 2, "dropout"), 7);
    cr_expect_eq(base, fv_rng_bits(fv_rng_make(1, 2, "dropout"), 7));
    cr_expect_neq(base, fv_rng_bits(fv_rng_make(2, 2, "dropout"), 7));
    cr_expect_neq(base, fv_rng_bits(fv_rng_make(1, 3, "dropout"), 7));
    cr_expect_neq(base, fv_rng_bits(fv_rng_make(1, 2, "dropout2"), 7));
    cr_expect_neq(base, fv_rng_bits(fv_rng_make(1, 2, "dropout"), 8));
}

Test(random, moments)
{
    fv_rng rng = fv_rng_make(5, 0, "moments");
    double mean = 0, square = 0, normal = 0, variance = 0, fourth = 0;
    const int n = 200000;
    for (int i = 0; i < n; i++) {
        double u = fv_rng_uniform(rng, (uint64_t)i), z = fv_rng_normal(rng, (uint64_t)(n + i));
        cr_assert(u >= 0 && u < 1);
        mean += u / n;
        square += u * u / n;
        normal += z / n;
        variance += z * z / n;
        fourth += z * z * z * z / n;
    }
    cr_expect_float_eq(mean, 0.5, 0.003);
    cr_expect_float_eq(square, 1.0 / 3, 0.003);
    cr_expect_float_eq(normal, 0, 0.01);
    cr_expect_float_eq(variance, 1, 0.015);
    cr_expect_float_eq(fourth, 3, 0.12);
}

Test(random, shuffle_is_a_permutation_and_fair)
{
    size_t order[5], first[5] = {0};
    for (uint64_t seed = 0; seed < 5000; seed++) {
        int seen = 0;
        fv_rng_shuffle(fv_rng_make(seed, 0, "order"), 5, order);
        for (int i = 0; i < 5; i++)
            seen |= 1 << order[i];
        cr_assert_eq(seen, 31);
        first[order[0]]++;
    }
    for (int i = 0; i < 5; i++)
        cr_expect(first[i] > 880 && first[i] < 1120, "%zu of 5000", first[i]);
}

/* The vectors of every instruction set give the words of the plain path: dropout drops the same numbers. */
Test(random, blocks_are_the_words_one_by_one)
{
    enum { N = 1000 };
    static fv_real ones[N];
    for (int i = 0; i < N; i++)
        ones[i] = 1;
    for (int isa = 0; isa <= (int)fvi_isa_best(); isa++) {
        fv_tape *t = fv_tape_new(&(fv_tape_opts){.isa = fvi_isa_name((fvi_isa)isa)});
        fv_tape_begin(t, FV_TRAIN, 9, 1);
        fv_var *x = fv_input(t, FV_SHAPE(N), ones);
        const fv_rng rng = fv_tape_rng(t);
        const fv_var *y = fv_dropout(t, x, 0.25);
        for (size_t i = 0; i < N; i++)
            cr_assert_eq(fv_re(y->value.data[i]) > 0, fv_rng_bits(rng, i) >= 0x40000000u,
                         "%s, number %zu", fvi_isa_name((fvi_isa)isa), i);
        fv_tape_free(t);
    }
}

/* Counters go on across the carry into their upper half. */
Test(random, blocks_carry)
{
    const fv_rng rng = fv_rng_make(9, 1, "block");
    uint32_t block[FVI_PHILOX_BLOCK];
    fvi_philox_block(rng, 0xfffffff8u, block);
    for (uint64_t i = 0; i < FVI_PHILOX_BLOCK; i++)
        cr_assert_eq(block[i], fv_rng_bits(rng, 4 * (uint64_t)0xfffffff8u + i));
}
