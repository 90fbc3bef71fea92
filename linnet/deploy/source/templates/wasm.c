/* What JavaScript calls: a step on memory that it can find. */
#include "model.h"

static model_state state;
static model_scratch scratch;
static float input[MODEL_INPUT_SIZE];
static float output[MODEL_OUTPUT_SIZE];

float *address_of_state(void);
float *address_of_input(void);
float *address_of_output(void);
void start(void);
void step(int32_t token);

float *address_of_state(void) { return (float *)&state; }

float *address_of_input(void) { return input; }

float *address_of_output(void) { return output; }

void start(void) { model_init(&state); }

void step(int32_t token)
{
    (void)token;
    model_step(&state, &scratch, @INPUT@, output);
}
