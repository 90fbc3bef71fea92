/* Compares @STEPS@ steps with those in Python, number for number: cc -O3 @NAME@.c @NAME@_test.c && ./a.out */
#include <stdio.h>
#include "@NAME@.h"

@INPUTS@

static const int16_t expected[@STEPS@][@PREFIX@_OUTPUT_SIZE] = {
    @EXPECTED@
};

@NAME@_state state;
@NAME@_scratch scratch;
int16_t output[@PREFIX@_OUTPUT_SIZE];

int main(void)
{
    int step, i, different = 0;
    @NAME@_init(&state);
    for (step = 0; step < @STEPS@; step++) {
        @NAME@_step(&state, &scratch, inputs[step], output);
        for (i = 0; i < @PREFIX@_OUTPUT_SIZE; i++) different += output[i] != expected[step][i];
    }
    printf("numbers that differ from Python: %d\n", different);
    return different == 0 ? 0 : 1;
}
