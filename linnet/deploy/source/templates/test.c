/* Compares @STEPS@ steps with those of the model in Python: cc -O3 @NAME@.c @NAME@_test.c && ./a.out */
#include <stdio.h>
@INCLUDES@#include "@NAME@.h"

@INPUTS@

static const float expected[@STEPS@][@PREFIX@_OUTPUT_SIZE] = {
    @EXPECTED@
};

@NAME@_state state;
@NAME@_scratch scratch;
float output[@PREFIX@_OUTPUT_SIZE];
@READER@
@TOLERANCE_NOTE@int main(void)
{
    double largest = 0.0;
    int step, i;
@LOAD@    @NAME@_init(&state);
    for (step = 0; step < @STEPS@; step++) {
        @NAME@_step(@WEIGHTS_GIVEN@&state, &scratch, inputs[step], output);
        for (i = 0; i < @PREFIX@_OUTPUT_SIZE; i++) {
            const double size = expected[step][i] < 0 ? -expected[step][i] : expected[step][i];
            const double apart = output[i] - expected[step][i];
            const double relative = (apart < 0 ? -apart : apart) / (1.0 + size);
            /* NaN is not below any number. */
            if (!(relative <= largest)) largest = relative;
        }
    }
    printf("largest difference from Python: %.2g\n", largest);
    return largest < @TOLERANCE@ ? 0 : 1;
}
