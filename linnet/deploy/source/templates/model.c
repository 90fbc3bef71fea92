/* One step of a recurrent model. Compile with -O3, and without -ffast-math: rounding relies on the order of
   operations. */
#include "@NAME@.h"

#ifdef __FAST_MATH__
#error "compile @NAME@.c without -ffast-math: it rounds by adding and subtracting a large number"
#endif

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

void @NAME@_step(@WEIGHTS_ARGUMENT@@NAME@_state *restrict state, @NAME@_scratch *restrict scratch,
    @RESTRICTED_INPUT@, float *restrict output)
{
    @STEP@
}

void @NAME@_run(@WEIGHTS_ARGUMENT@@NAME@_state *restrict state, @NAME@_scratch *restrict scratch,
    @INPUTS_ARGUMENT@, float *restrict outputs, size_t n)
{
    size_t at;
    for (at = 0; at < n; at++)
        @NAME@_step(@WEIGHTS_GIVEN@state, scratch, @INPUT_AT@, outputs + at * @PREFIX@_OUTPUT_SIZE);
}
