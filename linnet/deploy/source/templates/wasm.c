/* What JavaScript calls: steps on memory that it can find. */
#include "model.h"

static model_state state;
static model_scratch scratch;
static @KIND@ inputs[@BLOCK@ * MODEL_INPUT_SIZE];
static float outputs[@BLOCK@ * MODEL_OUTPUT_SIZE];

float *address_of_state(void);
@KIND@ *address_of_inputs(void);
float *address_of_outputs(void);
void start(void);
void run(int32_t n);

float *address_of_state(void) { return (float *)&state; }

@KIND@ *address_of_inputs(void) { return inputs; }

float *address_of_outputs(void) { return outputs; }

void start(void) { model_init(&state); }

void run(int32_t n) { model_run(&state, &scratch, inputs, outputs, (size_t)n); }
