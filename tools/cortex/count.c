/* Runs steps of an exported model, and counts the instructions of each by the timer SysTick. */
#include <stdint.h>
#include <stdio.h>
#include "model.h"

#define TIMER ((volatile uint32_t *)0xE000E010u)
enum { CONTROL, RELOAD, CURRENT };
#define LARGEST 0xffffffu

static model_state state;
static model_scratch scratch;
static NUMBER input[MODEL_INPUT_SIZE];
static NUMBER output[MODEL_OUTPUT_SIZE];

/* The timer counts down. */
static uint32_t elapsed(uint32_t start)
{
    return (start - TIMER[CURRENT]) & LARGEST;
}

int main(int count, char **paths)
{
    FILE *const in = fopen(paths[1], "rb"), *const out = fopen(paths[2], "wb");
    uint32_t ticks[2];
    int step;
    if (count != 3 || !in || !out) return 2;
    TIMER[RELOAD] = LARGEST;
    TIMER[CURRENT] = 0;
    TIMER[CONTROL] = 5;
    model_init(&state);
    for (step = 0; step < STEPS; step++) {
        uint32_t start;
        if (fread(input, sizeof input, 1, in) != 1) return 3;
        start = TIMER[CURRENT];
        model_step(&state, &scratch, input, output);
        ticks[0] = elapsed(start);
        start = TIMER[CURRENT];
        ticks[1] = elapsed(start);
        if (fwrite(ticks, sizeof ticks, 1, out) != 1 || fwrite(output, sizeof output, 1, out) != 1) return 4;
    }
    return fclose(in) || fclose(out);
}
