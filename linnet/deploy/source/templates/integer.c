/* One step of a recurrent model in whole numbers: weights of 8 bits, values of 16, sums of 32. A value n stands
   for n / 2^fraction; shifts between fractions round to the nearest number, and what does not fit saturates. */
#include "@NAME@.h"

@FUNCTIONS@

/* --------------------------------------------------------------------------------------------- weights */

@WEIGHTS@

/* ------------------------------------------------------------------------------------------------ step */

@CHECKS@

void @NAME@_init(@NAME@_state *state)
{
    int at;
    @INIT@
}

void @NAME@_step(@NAME@_state *restrict state, @NAME@_scratch *restrict scratch,
    @RESTRICTED_INPUT@, int16_t *restrict output)
{
    @STEP@
}

void @NAME@_run(@NAME@_state *restrict state, @NAME@_scratch *restrict scratch,
    @INPUTS_ARGUMENT@, int16_t *restrict outputs, size_t n)
{
    size_t at;
    for (at = 0; at < n; at++)
        @NAME@_step(state, scratch, @INPUT_AT@, outputs + at * @PREFIX@_OUTPUT_SIZE);
}
