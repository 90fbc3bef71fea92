/* @ABOUT@

   @NAME@_state state;              one for each stream
   @NAME@_scratch scratch;          one for each thread; its contents do not matter between steps
   float output[@PREFIX@_OUTPUT_SIZE];
@EXAMPLE@
*/
#ifndef @PREFIX@_H
#define @PREFIX@_H

#include <stddef.h>
#include <stdint.h>

/* The number of tokens if the input is a token, 0 if it is a vector. */
#define @PREFIX@_TOKENS @TOKENS@
#define @PREFIX@_INPUT_SIZE @INPUT_SIZE@
#define @PREFIX@_OUTPUT_SIZE @OUTPUT_SIZE@
/* Equal for equal models. */
#define @PREFIX@_FINGERPRINT UINT64_C(0x@FINGERPRINT@)
/* Bytes of the structs below; the compiler checks them. */
#define @PREFIX@_STATE_BYTES @STATE_BYTES@
#define @PREFIX@_SCRATCH_BYTES @SCRATCH_BYTES@
@WEIGHTS_DECLARATION@
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    @STATE@
} @NAME@_state;

typedef struct {
    @SCRATCH@
} @NAME@_scratch;

@OPEN@/* The state before the first step. */
void @NAME@_init(@NAME@_state *state);

/* Read one input, change `state`, and write the output. */
void @NAME@_step(@WEIGHTS_ARGUMENT@@NAME@_state *state, @NAME@_scratch *scratch,
    @INPUT_ARGUMENT@, float *output);

/* `n` steps in one call: n inputs, one after the other, and as many outputs. */
void @NAME@_run(@WEIGHTS_ARGUMENT@@NAME@_state *state, @NAME@_scratch *scratch,
    @INPUTS_ARGUMENT@, float *outputs, size_t n);

#ifdef __cplusplus
}
#endif

#endif
