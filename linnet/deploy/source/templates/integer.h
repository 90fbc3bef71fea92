/* One step of a recurrent model with @COUNTS@, in whole numbers, written by Linnet.

   @NAME@_state state;              one for each stream
   @NAME@_scratch scratch;          one for each thread; its contents do not matter between steps
   int16_t output[@PREFIX@_OUTPUT_SIZE];
   @NAME@_init(&state);
   @NAME@_step(&state, &scratch, @INPUT@, output);
*/
#ifndef @PREFIX@_H
#define @PREFIX@_H

#include <stddef.h>
#include <stdint.h>

/* The number of tokens if the input is a token, 0 if it is a vector. */
#define @PREFIX@_TOKENS @TOKENS@
#define @PREFIX@_INPUT_SIZE @INPUT_SIZE@
#define @PREFIX@_OUTPUT_SIZE @OUTPUT_SIZE@
/* A number n of the input stands for n / 2^INPUT_FRACTION, one of the output for n / 2^OUTPUT_FRACTION. */
#define @PREFIX@_INPUT_FRACTION @INPUT_FRACTION@
#define @PREFIX@_OUTPUT_FRACTION @OUTPUT_FRACTION@
/* Equal for equal models. */
#define @PREFIX@_FINGERPRINT UINT64_C(0x@FINGERPRINT@)
/* Bytes of the structs below; the compiler checks them. */
#define @PREFIX@_STATE_BYTES @STATE_BYTES@
#define @PREFIX@_SCRATCH_BYTES @SCRATCH_BYTES@

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    @STATE@
} @NAME@_state;

typedef struct {
    @SCRATCH@
} @NAME@_scratch;

/* The state before the first step. */
void @NAME@_init(@NAME@_state *state);

/* Read one input, change `state`, and write the output. */
void @NAME@_step(@NAME@_state *state, @NAME@_scratch *scratch, @INPUT_ARGUMENT@, int16_t *output);

/* Read `n` inputs one after the other, and write their outputs. */
void @NAME@_run(@NAME@_state *state, @NAME@_scratch *scratch, @INPUTS_ARGUMENT@, int16_t *outputs, size_t n);

#ifdef __cplusplus
}
#endif

#endif
